"""What is written into a Lease. Not here: who writes it, and when."""

from datetime import UTC, datetime

from daemonset_job.kube.leaderelection.lease_record import claimed, holder_of, released

NOW = datetime(2030, 1, 1, 12, 0, 0, 5, tzinfo=UTC)
FORMER = {
    "holderIdentity": "a",
    "leaseDurationSeconds": 15,
    "acquireTime": "2030-01-01T11:00:00.000000Z",
    "renewTime": "2030-01-01T11:59:00.000000Z",
    "leaseTransitions": 3,
}


def test_a_new_lease_has_no_transition():
    assert claimed({}, "a", 14.2, NOW) == {
        "holderIdentity": "a",
        "leaseDurationSeconds": 15,
        "acquireTime": "2030-01-01T12:00:00.000005Z",
        "renewTime": "2030-01-01T12:00:00.000005Z",
        "leaseTransitions": 0,
    }


def test_a_renewal_changes_the_time_alone():
    assert claimed(FORMER, "a", 15, NOW) == FORMER | {"renewTime": "2030-01-01T12:00:00.000005Z"}


def test_another_holder_is_a_transition():
    taken = claimed(FORMER, "b", 15, NOW)
    assert (taken["holderIdentity"], taken["leaseTransitions"]) == ("b", 4)
    assert taken["acquireTime"] == taken["renewTime"]


def test_a_released_lease_has_no_holder_and_counts_its_transitions():
    spec = released(FORMER, NOW)
    assert holder_of({"spec": spec}) == ""
    assert (spec["leaseDurationSeconds"], spec["leaseTransitions"]) == (1, 3)
    assert claimed(spec, "b", 15, NOW)["leaseTransitions"] == 4

"""Whose reports are whole in memory: those of living Jobs, in whatever order objects arrive."""

from daemonset_job.api.report import parse_report
from daemonset_job.informers.whole_reports import RUN_INDEX, WholeReports, parse_cached_report
from daemonset_job.kube.cache.store import Store
from daemonset_job.kube.client.answers import Found

UID = "job-uid"


def raw_report(name="sample-1234", version="5", uid=UID, phase="Succeeded"):
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid of {name}",
            "resourceVersion": version,
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {"job": {"name": "sample", "uid": uid}},
        "evidence": {"a": {"nodeUID": "n", "completedAt": "2026-01-01T00:00:01Z"}},
        "status": {
            "phase": phase,
            "completionTime": "2026-01-01T01:00:00Z",
            "timeline": ["it ran"],
            "nodeStates": {"a": {"uid": "n", "state": "Completed"}},
        },
    }


class Server:
    """Answers for reports by name, and says how often it was asked."""

    def __init__(self, *reports):
        self.reports = reports
        self.asked = 0

    async def find(self, _resource, name, _namespace):
        self.asked += 1
        items = [raw for raw in self.reports if raw["metadata"]["name"] == name]
        return Found(items[0] if items else None, "9")


class Kept:
    def __init__(self, *reports):
        self.needed = set()
        self.store = Store(RUN_INDEX)
        self.server = Server(*reports)
        self.keeper = WholeReports(self.server, self.store, is_needed=self.is_needed)

    def is_needed(self, uid):
        return uid in self.needed

    def receive(self, raw):
        self.store.put(parse_cached_report(raw, self.is_needed))


def test_the_report_of_a_living_job_is_whole():
    kept = Kept()
    kept.needed.add(UID)
    kept.receive(raw_report())
    assert kept.store.values() == [parse_report(raw_report())]
    kept.keeper.release(UID)
    assert kept.keeper.are_whole(UID)
    assert kept.store.values()[0].evidence


def test_of_a_run_whose_job_is_gone_a_summary_is_kept():
    kept = Kept()
    kept.needed.add(UID)
    kept.receive(raw_report())
    kept.receive(raw_report("other-1234", uid="other"))
    kept.needed.clear()
    kept.keeper.release(UID)
    for report in kept.store:
        assert (dict(report.evidence), dict(report.records)) == ({}, {})
        assert report.status.to_raw() == {
            "phase": "Succeeded",
            "completionTime": "2026-01-01T01:00:00Z",
        }
        assert report.created_at is not None
        assert report.resource_version == "5"


def test_a_report_that_is_not_closed_yet_keeps_its_timeline():
    kept = Kept()
    kept.receive(raw_report(phase="Running"))
    assert kept.store.values()[0].status.timeline == ("it ran",)
    assert not kept.store.values()[0].status.node_states


async def test_a_report_that_came_before_its_job_is_read_again():
    kept = Kept(raw_report())
    kept.receive(raw_report())
    assert not kept.keeper.are_whole(UID)
    kept.needed.add(UID)
    await kept.keeper.read_whole(UID)
    assert kept.keeper.are_whole(UID)
    assert kept.store.values() == [parse_report(raw_report())]
    await kept.keeper.read_whole(UID)
    assert kept.server.asked == 1


async def test_a_report_that_has_changed_is_left_to_the_watch():
    # The answer is ahead of the watch, which would put an older state in its place.
    kept = Kept(raw_report(version="6"))
    kept.receive(raw_report())
    kept.needed.add(UID)
    await kept.keeper.read_whole(UID)
    assert not kept.keeper.are_whole(UID)
    kept.receive(raw_report(version="6"))
    assert kept.keeper.are_whole(UID)


async def test_a_report_that_is_gone_is_not_brought_back():
    kept = Kept()
    kept.receive(raw_report())
    kept.needed.add(UID)
    await kept.keeper.read_whole(UID)
    assert not kept.keeper.are_whole(UID)


def test_all_slots_that_are_not_needed_are_released():
    kept = Kept()
    kept.needed.update({UID, "other"})
    kept.receive(raw_report())
    kept.receive(raw_report("other-1234", uid="other"))
    kept.needed.remove("other")
    kept.keeper.release_all()
    assert [report.is_whole for report in kept.store] == [True, False]

"""Keys rollout.exclusive that hold over all namespaces, and what the others learn of a Job."""

from collections import defaultdict
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.rollout import Rollout
from daemonset_job.api.states import NodeState
from job_controller.core.cluster_keys import (
    KEYS_LIMIT,
    NO_CLUSTER_KEYS,
    ClusterKeys,
    make_cluster_keys,
    read_cluster_keys,
)
from job_controller.core.decide import decide
from job_controller.core.state.exclusive import OtherRun, find_other_use
from tests.unit.builders import NOW, START, gated_pod, make_job, make_pod, started
from tests.unit.core.runs import spec
from tests.unit.core.test_preparation import gates, record_of, waiting
from tests.unit.test_caches import NotedCaches

KEYS = st.from_regex(r"[a-z0-9]([-a-z0-9_.]{0,8}[a-z0-9])?", fullmatch=True)
NAMESPACES = st.sampled_from(("team-a", "team-b"))
TURN = NodeRecord("a-uid", NodeState.WAITING, turn_at=NOW)


def a_job(name, namespace, minutes=0, key="kernel"):
    job = make_job(name=name, uid=f"{name}-uid", created_at=START + timedelta(minutes=minutes))
    rollout = Rollout(max_parallel=10, exclusive=key)
    return replace(started(job), namespace=namespace, spec=replace(job.spec, rollout=rollout))


# --- which keys --------------------------------------------------------------------------


def test_keys_and_prefixes_are_read():
    found = read_cluster_keys(" kernel, disk-*,,kernel ")
    assert found == ("disk-*", "kernel")
    assert make_cluster_keys(found) == ClusterKeys(frozenset({"kernel"}), ("disk-",))
    assert make_cluster_keys(read_cluster_keys("")) == NO_CLUSTER_KEYS


@pytest.mark.parametrize(
    "text", ["*", "a b", "-a", "a-", "a*b", "**", "a" * 64, "ä", "a/b", "a" * 64 + "*"]
)
def test_what_is_no_key_is_refused_with_the_fix(text):
    with pytest.raises(ValueError, match="write at most 63 letters, digits"):
        read_cluster_keys(f"kernel,{text}")


def test_as_many_keys_as_may_be_are_taken_and_no_more():
    keys = [f"key-{number}" for number in range(KEYS_LIMIT)]
    assert len(read_cluster_keys(",".join(keys))) == KEYS_LIMIT
    with pytest.raises(ValueError, match=f"at most {KEYS_LIMIT} keys"):
        read_cluster_keys(",".join([*keys, "another"]))
    assert read_cluster_keys("a" * 63) == ("a" * 63,)
    with pytest.raises(ValueError, match="one text with commas"):
        read_cluster_keys(["kernel"])


@given(named=st.lists(KEYS, max_size=3), prefix=KEYS, key=KEYS, one=NAMESPACES, two=NAMESPACES)
def test_two_jobs_share_a_key_in_one_namespace_or_if_it_is_named(named, prefix, key, one, two):
    found = make_cluster_keys(read_cluster_keys(",".join([*named, f"{prefix}*"])))
    is_shared = found.scope(one, key) == found.scope(two, key)
    assert is_shared == (one == two or key in named or key.startswith(prefix))
    assert (NO_CLUSTER_KEYS.scope(one, key) == NO_CLUSTER_KEYS.scope(two, key)) == (one == two)


@given(
    places=st.lists(
        st.tuples(NAMESPACES, st.sampled_from(("kernel", "own")), st.booleans()),
        min_size=1,
        max_size=5,
    )
)
def test_of_the_jobs_that_share_a_key_the_oldest_has_a_free_node_and_no_other_one(places):
    """Each waits for node a, or is at work there. Jobs that share no key do not wait."""
    jobs = [
        a_job(f"job-{number}", namespace, number, key=key)
        for number, (namespace, key, _) in enumerate(places)
    ]
    pods = {
        job.uid: make_pod("a") if is_at_work else gated_pod("a")
        for job, (_, _, is_at_work) in zip(jobs, places, strict=True)
    }
    caches = NotedCaches(*jobs, cluster_keys="kernel").caches

    def is_free(job):
        use = find_other_use(
            job,
            [
                OtherRun(other, (pods[other.uid],), records={"a": TURN})
                for other in caches.jobs_with_key(job.namespace, job.spec.exclusive)
                if other.uid != job.uid
            ],
        )
        return "a" not in use.in_use and "a" not in use.claimed

    groups = defaultdict(list)
    for job in jobs:
        place = "everywhere" if job.spec.exclusive == "kernel" else job.namespace
        groups[place].append(job)
    for sharing in groups.values():
        waiting_ones = [job for job in sharing if pods[job.uid].is_gated]
        expected = waiting_ones[:1] if waiting_ones == sharing else []
        assert [job for job in waiting_ones if is_free(job)] == expected


# --- what is said ------------------------------------------------------------------------


@pytest.mark.parametrize("is_claimed", [False, True])
@pytest.mark.parametrize("namespace", ["team-a", "team-b"])
def test_the_message_names_no_job_of_another_namespace(namespace, is_claimed):
    """Nor that namespace: a tenant may not be permitted to list either."""
    pod = gated_pod("a") if is_claimed else make_pod("a")
    run = OtherRun(a_job("secret", namespace), (pod,), records={"a": TURN})
    mine = a_job("mine", "team-a", 5)
    cluster = spec(waiting("a", "b", drain=None), rollout=mine.spec.rollout)
    use = find_other_use(mine, [run])
    plan = decide(cluster.snapshot(other_use=use), NOW)
    assert gates(plan) == ["b"]
    message = record_of(plan).message
    assert "has the same key rollout.exclusive" in message
    is_own = namespace == "team-a"
    assert ("secret" in message) == is_own
    assert message.startswith("Job secret, " if is_own else "Job of another namespace, ")
    assert "team-b" not in message


def test_the_job_that_was_created_first_is_first_over_namespaces_too():
    one, two = a_job("one", "team-a"), a_job("two", "team-b", 1)
    assert find_other_use(two, [OtherRun(one, (gated_pod("a"),), records={"a": TURN})]).claimed
    assert not find_other_use(one, [OtherRun(two, (gated_pod("a"),), records={"a": TURN})]).claimed

"""A rerun request that is not followed is reported, once."""

from dataclasses import replace

from daemonset_job.api import names
from daemonset_job.api.rerun import REQUEST_LIMIT, find_long_request
from job_controller.core.plan import Plan
from tests.unit.builders import SampleCluster, make_node
from tests.unit.core.runs import conditions, run
from tests.unit.core.standing_jobs import deleted, request, standing


def ignored(plan: Plan) -> list[str]:
    return [event.message for event in plan.events if event.reason == "RerunIgnored"]


def completed(*nodes: str) -> SampleCluster:
    cluster = standing(*nodes, completed=nodes)
    run(cluster)
    return cluster


def follow(cluster: SampleCluster) -> list[str]:
    """Reconcile until a request is on record, and once more; return what is said of it."""
    return [words for _ in range(4) for words in ignored(run(cluster))]


def test_a_request_that_is_too_long_runs_nothing_and_is_reported_once() -> None:
    cluster = completed("a", "b")
    text = "a," * REQUEST_LIMIT
    cluster.job = replace(cluster.job, long_rerun=find_long_request(text))
    plans = [run(cluster) for _ in range(4)]
    (message,) = [words for plan in plans for words in ignored(plan)]
    assert f"{names.ANNOTATION_RERUN} has {len(text)} characters" in message
    assert str(REQUEST_LIMIT) in message
    assert [deleted(plan) for plan in plans] == [[]] * 4
    assert conditions(cluster)["Complete"][0] == "True"
    assert cluster.job.status.observed_rerun


def test_another_request_that_is_too_long_is_reported_too() -> None:
    cluster = completed("a")
    for text in ("a," * REQUEST_LIMIT, "b," * REQUEST_LIMIT):
        cluster.job = replace(cluster.job, long_rerun=find_long_request(text))
        assert len(follow(cluster)) == 1


def test_a_request_of_the_greatest_length_is_not_too_long() -> None:
    assert find_long_request("a" * REQUEST_LIMIT) is None
    assert find_long_request("a" * (REQUEST_LIMIT + 1)) is not None


def test_names_that_the_job_does_not_have_are_reported_and_the_others_run() -> None:
    cluster = request(completed("a", "b"), "a,no-such\x1bnode@1")
    (message,) = ignored(run(cluster)) or ignored(run(cluster))
    assert "does not have: no-such node;" in message
    assert deleted(run(cluster)) == ["a"]
    assert follow(cluster) == []


def test_a_request_for_all_nodes_or_known_ones_is_not_reported() -> None:
    for text in ("*@1", "a,b@1", ""):
        assert follow(request(completed("a", "b"), text)) == []


def test_a_node_without_a_pod_yet_may_be_the_jobs() -> None:
    cluster = standing("a")
    cluster.pods, cluster.observed, cluster.has_daemon_set = [], False, False
    cluster.nodes["b"] = make_node("b")
    assert follow(request(cluster, "a,b@1")) == []


def test_the_report_of_many_names_is_short() -> None:
    words = ",".join(f"{number:x}-{number * 7919:x}" for number in range(1_000))
    (message,) = follow(request(completed("a"), words))
    assert len(message) < 600

"""Whatever the API server accepts: `decide` never raises, and what it writes fits the CRDs."""

from collections.abc import Iterator
from datetime import timedelta
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from daemonset_job.api import names
from tests.mutation.job_histories import JobHistory, stamp
from tests.mutation.known import finding

PASSES = 14
IMAGE = {"image": "example/task:v1"}


@settings(max_examples=70, suppress_health_check=[HealthCheck.too_slow])
@given(st.randoms(use_true_random=False))
def test_no_life_of_a_job_is_too_much_for_decide_or_for_the_crds(random):
    life = JobHistory(random)
    for _ in range(PASSES):
        found = list(life.step())
        assert [words for words in found if not finding(words)] == []
        if any("decide raised" in words for words in found):
            return  # a known defect; there is no plan to go on with


def passes(life: JobHistory, count: int = 6) -> Iterator[str]:
    """Yield what is wrong with each of some passes over a quiet cluster."""
    life.change = life._sync_daemon_set  # type: ignore[method-assign]
    for _ in range(count):
        life.now += timedelta(seconds=1)
        yield from life.step()


@pytest.mark.parametrize("field", ["activeDeadlineSeconds", "nodeDeadlineSeconds"])
@pytest.mark.parametrize("seconds", [10**12, 2**63 - 1])
def test_the_longest_deadline_is_no_deadline(field, seconds):
    life = JobHistory(Random(0), {**IMAGE, field: seconds}, nodes=1)
    found = list(passes(life, 3))
    running(life)
    assert [*found, *passes(life, 3)] == []


def test_no_time_in_a_status_is_too_late_for_decide():
    spec = {**IMAGE, "activeDeadlineSeconds": 60, "nodeDeadlineSeconds": 60}
    life = JobHistory(Random(0), spec, nodes=1)
    found = list(passes(life, 3))
    running(life)
    found += passes(life, 2)
    life.job["status"]["startTime"] = "9999-12-31T23:59:59Z"
    for record in life.reports[0]["status"]["nodeStates"].values():
        record["activeSince"] = "9999-12-31T23:59:59Z"
    assert [*found, *passes(life, 3)] == []


@pytest.mark.parametrize("length", [256, 257, 3000])
def test_a_retry_token_of_any_length_fits_the_status(length):
    life = JobHistory(Random(0), dict(IMAGE), nodes=1)
    life.job["metadata"]["annotations"][names.ANNOTATION_RETRY] = "x" * length
    assert list(passes(life)) == []


@pytest.mark.parametrize(
    "part",
    [
        {"containers": [{"name": {}}]},
        {"schedulingGates": [[]]},
        {"schedulingGates": ["x"]},
        {"containers": ["x"]},
        {"volumes": [None]},
    ],
)
def test_malformed_template_is_left_to_the_api_server(part):
    spec = {**IMAGE, "template": {"spec": part}, "suspend": False}
    assert list(passes(JobHistory(Random(0), spec, nodes=1))) == []


@pytest.mark.parametrize("affinity", ["x", 7, [1], {"nodeAffinity": "x"}, {"nodeAffinity": [1]}])
def test_malformed_affinity_is_left_to_the_api_server(affinity):
    spec = {
        **IMAGE,
        "template": {"spec": {"affinity": affinity}},
        "nodes": {"selector": {"matchLabels": {"a": "b"}}},
    }
    assert list(passes(JobHistory(Random(0), spec, nodes=1))) == []


def test_a_kept_failing_pod_never_outgrows_the_report():
    spec = {
        **IMAGE,
        "completion": {"failureToken": "no"},
        "failurePolicy": {"pods": "Keep"},
    }
    life = JobHistory(Random(0), spec, nodes=1)
    found, messages = list(passes(life, 3)), set()
    for restart in range(30):
        end(life, {"exitCode": 1, "reason": "Error"}, restart)
        evidence(life, f"{'x' * 110} {restart}", failedAt=stamp(life.now))
        found += passes(life, 1)
        (record,) = life.reports[0]["status"]["nodeStates"].values()
        messages.add((record["state"], record["message"]))
    assert found == []
    assert len(life.pods) == 1, "it is kept"
    assert messages == {("Failed", f"printed the failure token: '{'x' * 110} 0'")}


def test_a_runtimes_long_reason_is_cut():
    life = JobHistory(Random(0), dict(IMAGE), nodes=1)
    found = list(passes(life, 3))
    end(life, {"exitCode": 1, "reason": "R" * 3000}, 0)
    assert [*found, *passes(life, 3)] == []


@pytest.mark.parametrize("message", ["x" * 3000, "\N{LOBSTER}" * 3000, "<" * 3000])
def test_a_thousand_nodes_with_long_messages_fit_into_one_report(message):
    life = JobHistory(Random(0), dict(IMAGE), nodes=0)
    for index in range(1000):
        raw = life._node(1)
        raw["metadata"]["name"] = f"ip-10-0-{index}.eu-central-1.compute.internal"
        life.nodes.append(raw)
    found = list(passes(life, 3))
    waiting = {"waiting": {"reason": "ErrImagePull", "message": message}}
    for pod in life.pods:
        pod["status"] = {"containerStatuses": [{"name": names.CONTAINER_NAME, "state": waiting}]}
    assert [*found, *passes(life, 2)] == []


def running(life: JobHistory) -> None:
    """Have the task of every pod running."""
    state = {"running": {"startedAt": stamp(life.now)}}
    for pod in life.pods:
        task = {"name": names.CONTAINER_NAME, "state": state}
        pod["status"] = {"phase": "Running", "containerStatuses": [task]}


def end(life: JobHistory, terminated: dict, restarts: int) -> None:
    """Have the task of every pod ended, some time ago."""
    moment = stamp(life.now - timedelta(seconds=30))
    state = {"terminated": {**terminated, "startedAt": moment, "finishedAt": moment}}
    for pod in life.pods:
        task = {"name": names.CONTAINER_NAME, "state": state, "restartCount": restarts}
        pod["status"] = {"phase": "Running", "containerStatuses": [task]}


def evidence(life: JobHistory, line: str, **more: str) -> None:
    """Have a last line of every pod in the ledger, and more."""
    for pod in life.pods:
        node = next(
            n for n in life.nodes if n["metadata"]["name"] == pod["spec"]["nodeName"]
        )["metadata"]  # fmt: skip
        life.reports[0].setdefault("evidence", {})[node["name"]] = {
            "nodeUID": node["uid"],
            "podUID": pod["metadata"]["uid"],
            "lastLines": [line],
            **more,
        }

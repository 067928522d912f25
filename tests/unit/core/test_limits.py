"""What is too large is reported before anything is built from it, at no cost to others."""

import json
import time
import tracemalloc
from dataclasses import replace

import pytest

from daemonset_job.api.job import parse_job
from daemonset_job.api.job_status import parse_job_status
from daemonset_job.api.taints import Taint
from job_controller.core.decide import decide
from job_controller.core.desired.daemon_set import build_daemon_set
from job_controller.core.desired.limits import SPEC_LIMIT_BYTES, TERMS_LIMIT_BYTES, measure_terms
from job_controller.core.plan import ApplyDaemonSet, WriteStatus
from job_controller.core.settings import Settings
from job_controller.core.state.snapshot import Snapshot
from terminator.node_selection import find_unselected_node
from tests.unit.builders import NOW, make_cluster, started

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
EXISTS = {"matchExpressions": [{"key": "a", "operator": "Exists"}]}


def job_of(**spec):
    raw = {"metadata": {"name": "a", "uid": "b", "namespace": "c"}, "spec": {"image": "d", **spec}}
    return parse_job(raw)


def placed(terms, **nodes):
    affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}
    return job_of(nodes=nodes, template={"spec": {"affinity": affinity}})


def names(count, length=10):
    return [f"node-{index:05}".ljust(length, "x") for index in range(count)]


def selector(values):
    return {"matchExpressions": [{"key": "a", "operator": "In", "values": values}]}


def progressing(status):
    (found,) = (c for c in status["conditions"] if c["type"] == "Progressing")
    return found["status"], found["reason"]


def only_status(plan):
    (status,) = (
        action.status.to_raw() for action in plan.actions if isinstance(action, WriteStatus)
    )
    return status


def test_a_spec_that_is_too_large_is_reported_once_and_not_started():
    job = job_of(args=["x" * SPEC_LIMIT_BYTES])
    plan = decide(Snapshot(job), NOW)
    status = only_status(plan)
    assert len(plan.actions) == 1
    assert "startTime" not in status
    assert (status["phase"], progressing(status)) == ("Pending", ("False", "SpecTooLarge"))
    assert [event.reason for event in plan.events] == ["SpecTooLarge"]
    assert "65 KiB as JSON, the limit is 64 KiB" in plan.events[0].message
    again = decide(Snapshot(replace(job, status=parse_job_status(status))), NOW)
    assert again.actions == again.events == ()


def test_it_starts_once_it_is_short_enough():
    large = only_status(decide(Snapshot(job_of(args=["x" * SPEC_LIMIT_BYTES])), NOW))
    corrected = replace(job_of(args=["x"]), status=parse_job_status(large))
    status = only_status(decide(Snapshot(corrected, is_dry_run_done=True), NOW))
    assert "startTime" in status
    assert progressing(status) == ("True", "Starting")


def test_problem_of_a_suspended_job_is_reported_and_cleared():
    large = job_of(args=["x" * SPEC_LIMIT_BYTES], suspend=True)
    status = only_status(decide(Snapshot(large), NOW))
    assert (status["phase"], progressing(status)) == ("Paused", ("False", "SpecTooLarge"))
    short = replace(job_of(suspend=True), status=parse_job_status(status))
    assert progressing(only_status(decide(Snapshot(short), NOW))) == ("False", "Paused")


@pytest.mark.parametrize(
    "job",
    [
        job_of(args=["x" * (SPEC_LIMIT_BYTES - 1000)]),
        job_of(nodes={"include": names(1000, 253)}),
        job_of(nodes={"include": names(1000, 253), "exclude": names(1500, 253)[500:]}),
        job_of(nodes={"exclude": names(1000, 253)}),
        placed([EXISTS] * 10, include=names(100)),
    ],
)
def test_what_a_person_may_need_is_built(job):
    assert "startTime" in only_status(decide(Snapshot(job, is_dry_run_done=True), NOW))
    assert len(json.dumps(build_daemon_set(job, gated=True, settings=Settings()))) < 2**20


@pytest.mark.parametrize(
    "job",
    [
        job_of(),
        job_of(nodes={"include": names(3)}),
        job_of(nodes={"exclude": names(3)}),
        job_of(nodes={"selector": selector(["x", "y"])}),
        job_of(nodes={"selector": selector(["x"]), "include": names(3), "exclude": names(2)}),
        job_of(nodes={"include": names(2), "exclude": names(2)}),
        placed([EXISTS]),
        placed([EXISTS, EXISTS], include=names(3), selector=selector(["x"] * 20)),
        placed([EXISTS, EXISTS], selector=selector(["x"] * 20)),
    ],
)
def test_the_measure_is_that_of_what_is_built(job):
    pod_spec = build_daemon_set(job, gated=False, settings=Settings())["spec"]["template"]["spec"]
    affinity = pod_spec.get("affinity", {}).get("nodeAffinity", {}).get(REQUIRED, {})
    terms = affinity.get("nodeSelectorTerms", [])
    count, size = measure_terms(job)
    assert count == len(terms)
    built = len(json.dumps(terms, separators=(",", ":")))
    # No less than what is built, but for a bracket or a comma of each.
    assert built - 2 - 2 * len(terms) <= size <= 1.5 * built + 100


RUNNING = make_cluster("a", job=started(job_of())).snapshot()
HOSTILE = {
    "16 KiB of empty terms": placed([{}] * 2000, include=names(1000)),
    "125 KiB of empty terms": placed([{}] * 30_000, include=names(1000)),
    "terms": placed([EXISTS] * 1000, include=names(1000, 60)),
    "values": job_of(nodes={"selector": selector(["v" * 60] * 1000), "include": names(1000, 60)}),
}


@pytest.mark.parametrize("hostile", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("is_started", [False, True])
def test_a_product_is_never_built(hostile, is_started):
    # spec.nodes may change at any time, so a started Job can come to it as well.
    snapshot = replace(RUNNING, job=started(hostile)) if is_started else Snapshot(hostile)
    decide(snapshot, NOW)  # what is made once for the process
    seconds = min(timed(lambda: decide(snapshot, NOW)) for _ in range(3))
    assert seconds < 0.05
    tracemalloc.start()
    plan = decide(snapshot, NOW)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * 2**20
    assert not any(isinstance(action, ApplyDaemonSet) for action in plan.actions)
    (status,) = (a.status.to_raw() for a in plan.actions if isinstance(a, WriteStatus))
    assert progressing(status)[0] == "False"
    assert progressing(status)[1] in {"TooManyNodeSelectorTerms", "SpecTooLarge"}
    assert not any(c["type"] == "Complete" for c in status["conditions"])


def hostname(operator, *values):
    return {"matchExpressions": [{"key": "hostname", "operator": operator, "values": values}]}


# Each has the length that is accepted, and chooses every node, by what comes last.
LONG = {
    "tolerations": job_of(
        template={
            "spec": {"tolerations": [*({"key": f"k{n}"} for n in range(3500)), {"key": "pool"}]}
        }
    ),
    "terms": placed([hostname("Gt", str(number)) for number in range(750)] + [hostname("Exists")]),
    "requirements": placed(
        [{"matchExpressions": [{"key": f"k{n}", "operator": "DoesNotExist"} for n in range(1200)]}]
    ),
    "excluded names": job_of(nodes={"exclude": [f"other-{name}" for name in names(1000)]}),
}


@pytest.mark.parametrize("is_running", [False, True])
@pytest.mark.parametrize("job", LONG.values(), ids=LONG)
def test_a_long_selection_costs_no_multiple_of_a_short_one(job, is_running):
    def snapshot_of(job):
        cluster = make_cluster(*names(1000), job=started(job), running=is_running, gated=True)
        cluster.nodes = {
            name: replace(node, labels={"hostname": name}, taints=(Taint("pool", "NoSchedule"),))
            for name, node in cluster.nodes.items()
        }
        return cluster.snapshot()

    tolerant = {"spec": {"tolerations": [{"operator": "Exists"}]}}
    short, long = snapshot_of(job_of(template=tolerant)), snapshot_of(job)
    least = min(timed(lambda: decide(short, NOW)) for _ in range(3))
    assert min(timed(lambda: decide(long, NOW)) for _ in range(3)) < 0.3 + 3 * least
    found = long.daemon_set
    assert min(timed(lambda: unselected(long, found)) for _ in range(3)) < 0.1


def unselected(snapshot, daemon_set):
    assert not find_unselected_node(snapshot.job, daemon_set, snapshot.nodes.values())


def timed(act):
    began = time.process_time()
    act()
    return time.process_time() - began


def test_the_message_says_how_many():
    plan = decide(replace(RUNNING, job=started(HOSTILE["terms"])), NOW)
    (event,) = plan.events
    assert event.reason == "TooManyNodeSelectorTerms"
    assert "1000000 nodeSelectorTerms" in event.message
    assert f"the limit is {TERMS_LIMIT_BYTES // 1024} KiB" in event.message


def test_a_started_job_whose_spec_is_large_goes_on():
    # From before there was a limit.
    job = started(job_of(args=["x" * SPEC_LIMIT_BYTES]))
    plan = decide(Snapshot(job), NOW)
    assert any(isinstance(action, ApplyDaemonSet) for action in plan.actions)

"""Each edge value of each field of a Job that its schema accepts, through both programs.

`make mutate` sends these to a real API server. Here they cost milliseconds, so all are tried each
time: the controller decides on the Job, and the terminator judges what comes of that.
"""

from collections import defaultdict
from datetime import timedelta
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from daemonset_job.api.daemon_set import parse_daemon_set
from daemonset_job.api.job import parse_job
from daemonset_job.api.node import parse_node
from daemonset_job.api.pod import parse_pod
from daemonset_job.api.report import parse_report
from daemonset_job.api.shard_room import NODES_PER_SHARD
from daemonset_job.api.states import ConditionType
from terminator.deletion_decision import decide_deletion
from terminator.ledger.assignment import ShardRule
from terminator.logs.matchers import Matchers
from terminator.node_count import Snapshot, count_nodes, merge_ledger, merge_records
from tests.mutation.cases import Case, edge_cases
from tests.mutation.job_histories import JobHistory
from tests.mutation.known import finding
from tests.mutation.schema import OBJECT_BYTES, fields, part, problems, stored_bytes

TOKEN = "done"
PASSES = 4


def accepted_cases() -> dict[str, list[Case]]:
    """Return the edges that the API server accepts, by field.

    Of a number or percentage only CEL rules say more than the schema: of these the known ones.
    """
    either = {each.path for each in fields() if each.schema.get("x-kubernetes-int-or-string")}
    found: dict[str, list[Case]] = defaultdict(list)
    for case in edge_cases():
        if not case.field or not isinstance(case.spec, dict):
            continue
        is_known = case.field not in either or case.label.endswith(" accepted")
        if is_known and not any(problems(part("jobs", "spec"), case.spec, "spec")):
            found[case.field].append(case)
    return found


CASES = accepted_cases()


def judge(life: JobHistory, matchers: Matchers) -> None:
    """Have the terminator judge the Job as it is now: it deletes none that has not ended.

    It reads no log of a Job whose token it cannot use. So the controller has to report that.
    """
    job = parse_job(life.job)
    reports = [parse_report(raw) for raw in life.reports]
    snapshot = Snapshot(
        job=job,
        daemon_set=parse_daemon_set(life.daemon_set) if life.daemon_set else None,
        pods=[parse_pod(raw) for raw in life.pods],
        nodes={raw["metadata"]["name"]: parse_node(raw) for raw in life.nodes},
        ledger=merge_ledger(job, reports),
        records=merge_records(job, reports),
    )
    decision = decide_deletion(job, lambda: count_nodes(snapshot), life.now)
    has_ended = job.is_true(ConditionType.COMPLETE) or job.is_true(ConditionType.FAILED)
    assert has_ended or not decision.may_delete
    ShardRule.of(job.spec, NODES_PER_SHARD)
    if matchers.of(job) is None:
        said = job.condition(ConditionType.PROGRESSING)
        assert said is not None, "the terminator reads no log, and no condition says why"
        assert not said.status
        assert said.message


def live(life: JobHistory, passes: int) -> list[str]:
    """Return what is wrong with some passes of the controller, each judged by the terminator."""
    matchers, found = Matchers(lambda: TOKEN), []
    for _ in range(passes):
        life.now += timedelta(seconds=1)
        found += [words for words in life.step() if not finding(words)]
        if found:
            break
        judge(life, matchers)
    return found


@pytest.mark.parametrize("field", CASES)
def test_both_programs_bear_each_edge_of_a_field(field):
    for case in CASES[field]:
        if stored_bytes(case.spec) > OBJECT_BYTES - 128 * 1024:
            continue  # the API server refuses the Job
        life = JobHistory(Random(0), case.spec, nodes=1)
        life.change = life._sync_daemon_set  # type: ignore[method-assign]
        assert live(life, PASSES) == [], case.label


def test_every_field_has_an_edge_that_is_accepted():
    """One that holds others counts by them; in a pod's spec they are Kubernetes' to judge."""
    without = {each.path for each in fields()} - CASES.keys()
    leaves = {path for path in without if not any(c.startswith(f"{path}.") for c in CASES)}
    assert {path for path in leaves if not path.startswith("spec.template.spec.")} == set()


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(st.randoms(use_true_random=False))
def test_both_programs_bear_the_life_of_any_job(random):
    assert live(JobHistory(random), 8) == []

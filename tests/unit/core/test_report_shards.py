"""Which nodes the reports of a run record, and in which of its shards."""

from dataclasses import replace
from datetime import timedelta

from daemonset_job.api.job_spec import FailurePolicy
from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.report_status import ReportStatus
from daemonset_job.api.rollout import Rollout
from daemonset_job.api.states import NodeState
from job_controller.core.decide import decide
from job_controller.core.plan import WriteReportStatus, WriteStatus
from tests.unit.builders import NOW, done, gated_pod, make_cluster, make_node, make_pod
from tests.unit.core.runs import acts, failing, run, spec


def test_nodes_that_leave_are_kept_in_the_record_by_what_they_did():
    cluster = make_cluster("a", "b", "c", "d", gated=True, evidence={"a": done("a")})
    spec(cluster, failure_policy=FailurePolicy("Continue", 9))
    cluster.pods[1] = failing("b")
    cluster.pods[3] = make_pod("d", state="waiting")
    run(cluster)
    cluster.nodes = {"e": make_node("e")}
    cluster.pods = [make_pod("e")]
    run(cluster)
    states = {name: raw["state"] for name, raw in cluster.report_status["nodeStates"].items()}
    assert states == {"a": "Completed", "b": "Failed", "c": "Removed", "e": "Active"}


def test_waiting_node_is_recorded_only_after_the_run():
    cluster = make_cluster("a", "b", "c", gated=True)
    cluster.pods = [make_pod("a"), make_pod("b", state="waiting"), gated_pod("c")]
    run(cluster, seen=timedelta(0))
    states = {name: raw["state"] for name, raw in cluster.report_status["nodeStates"].items()}
    assert states == {"a": "Active", "c": "Waiting"}  # the latter with a reason
    assert cluster.report_status["nodes"]["waiting"] == 2

    cluster.pods[0] = failing("a")
    spec(cluster, backoff_limit=0)
    run(cluster)
    assert cluster.job.status.to_raw()["phase"] == "Failed"
    states = {name: raw["state"] for name, raw in cluster.report_status["nodeStates"].items()}
    assert states == {"a": "Failed", "b": "Waiting", "c": "Waiting"}


def test_records_go_to_the_shard_of_the_evidence_or_one_with_room():
    cluster = make_cluster("a", "b", gated=True, evidence={"a": done("a")})
    first = cluster.report()
    second = replace(first, name="second", shard=1, evidence={"b": done("b")})
    plan = decide(cluster.snapshot(reports=(second, replace(first))), NOW)
    by_name = {a.name: a.status.to_raw() for a in acts(plan, WriteReportStatus)}
    assert set(by_name["second"]["nodeStates"]) == {"b"}
    assert set(by_name[first.name]["nodeStates"]) == {"a"}
    assert "phase" not in by_name["second"]


def test_turns_are_in_several_reports_if_a_run_that_has_those_gets_a_rollout():
    """A record stays in its report. Without a rollout there are several from 251 nodes on."""
    cluster = make_cluster("a", "b", running=False, gated=True)
    cluster.pods = [gated_pod("a"), gated_pod("b")]
    spec(cluster, rollout=Rollout(max_parallel=2))
    reports = {name: replace(cluster.report(), name=name, shard=n) for n, name in enumerate("xy")}
    for name, node in zip(reports, "ab", strict=True):
        known = {node: NodeRecord(f"{node}-uid", NodeState.WAITING, attempts=1)}
        reports[name] = replace(reports[name], status=ReportStatus(node_states=known))
    for _ in range(3):
        snapshot = cluster.snapshot(reports=tuple(reports.values()))
        for action in decide(snapshot, NOW + timedelta(minutes=1)).actions:
            if isinstance(action, WriteReportStatus):
                reports[action.name] = replace(reports[action.name], status=action.status)
            elif isinstance(action, WriteStatus):
                cluster.job = replace(cluster.job, status=action.status)
    turns = {
        name: [node for node, record in report.records.items() if record.turn_at is not None]
        for name, report in reports.items()
    }
    assert turns == {"x": ["a"], "y": ["b"]}


def test_large_runs_get_further_shards():
    cluster = make_cluster(*[f"n{number}" for number in range(2500)], running=False, gated=True)
    plan = decide(cluster.snapshot(), NOW)
    created = [a.body["spec"]["shard"] for a in plan.actions if type(a).__name__ == "CreateReport"]
    assert created == list(range(1, 10))
    spec(cluster, rollout=Rollout())
    plan = decide(cluster.snapshot(), NOW)
    created = [a.body["spec"]["shard"] for a in plan.actions if type(a).__name__ == "CreateReport"]
    assert created == [1, 2]


def test_large_results_need_further_shards():
    """By what the first nodes have printed; and as few as before for small results."""
    for value, least in (("x" * 1024, 3), ("x", 1)):
        results = dict.fromkeys("abcd", value)
        evidence = {f"n{n}": replace(done(f"n{n}"), results=results) for n in range(100)}
        cluster = make_cluster(
            *[f"n{n}" for n in range(500)], running=False, gated=True, evidence=evidence
        )
        spec(cluster, results=tuple("abcd"))
        plan = decide(cluster.snapshot(), NOW)
        created = [
            a.body["spec"]["shard"] for a in plan.actions if type(a).__name__ == "CreateReport"
        ]
        assert created == list(range(1, least + 1))


def test_results_that_are_left_out_are_named():
    left_out = replace(done("a"), results={"k": "1"}, omitted_results=("ip", "list"))
    cluster = make_cluster("a", "b", gated=True, evidence={"a": left_out, "b": done("b")})
    spec(cluster, results=("ip", "k", "list"))
    run(cluster)
    record = cluster.report_status["nodeStates"]["a"]
    assert (record["state"], record["reason"]) == ("Completed", "ResultTooLong")
    assert record["message"] == (
        "results that are too long for the report: ip, list; one may have 1,024 bytes, those of "
        "a node 4,096, and less if the Job declared results only while it ran"
    )
    assert "reason" not in cluster.report_status["nodeStates"]["b"]
    before = dict(cluster.report_status)
    run(cluster)
    assert cluster.report_status == before


def test_a_result_that_the_job_does_not_list_is_named():
    unlisted = replace(done("a"), omitted_results=("adress",))
    cluster = make_cluster("a", gated=True, evidence={"a": unlisted})
    spec(cluster, results=("address",))
    run(cluster)
    record = cluster.report_status["nodeStates"]["a"]
    assert (record["state"], record["reason"]) == ("Completed", "ResultNotListed")
    assert record["message"] == "results that spec.results does not list are not kept: adress"


def test_a_result_that_arrives_once_the_job_lists_it_is_no_longer_named():
    unlisted = replace(done("a"), omitted_results=("address",))
    cluster = make_cluster("a", gated=True, evidence={"a": unlisted})
    spec(cluster, results=("ip",))
    run(cluster)
    assert cluster.report_status["nodeStates"]["a"]["reason"] == "ResultNotListed"
    spec(cluster, results=("ip", "address"))
    run(cluster)
    # Its log was not read again, and may not be.
    assert cluster.report_status["nodeStates"]["a"]["reason"] == "ResultNotListed"
    cluster.evidence["a"] = replace(done("a"), results={"address": "1"}, omitted_results=("list",))
    run(cluster)
    message = cluster.report_status["nodeStates"]["a"]["message"]
    assert message == "results that spec.results does not list are not kept: list"
    cluster.evidence["a"] = replace(done("a"), results={"address": "1", "list": "2"})
    run(cluster)
    record = cluster.report_status["nodeStates"]["a"]
    assert {"reason", "message"}.isdisjoint(record)


def test_evidence_of_nodes_that_left_needs_room_as_well():
    gone = {f"gone-{n:04}": done(f"gone-{n:04}") for n in range(250)}
    cluster = make_cluster("a", gated=True, evidence=gone)
    plan = decide(cluster.snapshot(), NOW)
    created = [a.body["spec"]["shard"] for a in plan.actions if type(a).__name__ == "CreateReport"]
    assert created == [1]


def test_evidence_of_an_earlier_revision_needs_room_as_well():
    """That of a node that has left stays in its shard, and no pod of the new revision does it."""
    old = {f"gone-{n:04}": replace(done(f"gone-{n:04}"), revision="1-before") for n in range(250)}
    cluster = make_cluster("a", gated=True, evidence=old)
    spec(cluster, completion=replace(cluster.job.spec.completion, policy="Continuous"))
    plan = decide(cluster.snapshot(), NOW)
    created = [a.body["spec"]["shard"] for a in plan.actions if type(a).__name__ == "CreateReport"]
    assert created == [1]


def test_no_shard_takes_more_records_than_its_share(monkeypatch):
    monkeypatch.setattr("daemonset_job.api.shard_room.NODES_PER_SHARD", 2)
    cluster = make_cluster("a", "b", "c", "d", gated=True)
    active = NodeRecord(uid="u", state="Active")
    first = replace(cluster.report(), status=ReportStatus(node_states={"a": active, "b": active}))
    # The evidence of c is recorded where there is no room for its record.
    first = replace(first, evidence={"c": done("c"), "d": done("d")})
    second = replace(cluster.report(), name="second", shard=1)
    plan = decide(cluster.snapshot(reports=(first, second)), NOW)
    by_name = {a.name: set(a.status.node_states) for a in acts(plan, WriteReportStatus)}
    assert by_name == {first.name: {"a", "b"}, "second": {"c", "d"}}


def test_records_stay_in_a_shard_that_has_more_of_them_than_new_ones_would(monkeypatch):
    """The run was begun by a version with larger shards, or its rollout was removed."""
    monkeypatch.setattr("daemonset_job.api.shard_room.NODES_PER_SHARD", 2)
    names = [*"abcdefg"]
    evidence = {name: done(name) for name in "abc"}
    cluster = make_cluster(*names, gated=True, evidence=evidence)
    records = {name: NodeRecord(f"uid-{name}", "Active", attempts=3) for name in names}
    alone = replace(cluster.report(), status=ReportStatus(node_states=records))
    plan = decide(cluster.snapshot(reports=(alone,)), NOW)
    written = [set(a.status.node_states) for a in acts(plan, WriteReportStatus)]
    assert written == [set(names)]
    # Two shards for the evidence of four nodes. All records have a place.
    created = [a.body["spec"]["shard"] for a in plan.actions if type(a).__name__ == "CreateReport"]
    assert created == [1, 2]

    states = [dict.fromkeys(each, records["a"]) for each in ("abcd", "efg", "")]
    reports = [
        replace(alone, name=f"r{shard}", shard=shard, status=ReportStatus(node_states=found))
        for shard, found in enumerate(states)
    ]
    plan = decide(cluster.snapshot(reports=tuple(reports)), NOW)
    by_name = {a.name: set(a.status.node_states) for a in acts(plan, WriteReportStatus)}
    assert by_name == {"r0": set("abcd"), "r1": set("efg")}

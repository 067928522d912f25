"""The list of nodes in the report of an ended run."""

from dataclasses import replace
from datetime import timedelta

from daemonset_job.api.listed_results import RESULTS_LIMIT_BYTES, lists_lack_results
from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.node_row import NodeRow
from daemonset_job.api.report_status import ReportStatus
from daemonset_job.api.states import NodeState
from job_controller.core.decide import decide
from job_controller.core.plan import WriteReportStatus, WriteStatus
from job_controller.core.render.node_list import build_node_list
from tests.unit.builders import NOW, done, make_cluster, make_node, make_pod

DONE = NodeRecord("a-uid", NodeState.COMPLETED, attempts=2, exit_code=0, finished_at=NOW)
FAILED = NodeRecord("b-uid", NodeState.FAILED, reason="DeadlineExceeded", attempts=1)


def with_results(node, results, uid=None):
    return replace(done(node, uid=uid), results=results)


def test_the_list_joins_record_and_results_in_order_of_names():
    records = {"b": FAILED, "a": DONE}
    ledger = {"a": with_results("a", {"kernel": "6.1", "arch": "arm64"})}
    assert build_node_list(records, ledger) == (
        NodeRow("a", NodeState.COMPLETED, "", 2, 0, NOW, {"arch": "arm64", "kernel": "6.1"}),
        NodeRow("b", NodeState.FAILED, "DeadlineExceeded", 1),
    )


def test_results_of_a_former_node_of_that_name_are_not_its_own():
    (row,) = build_node_list({"a": DONE}, {"a": with_results("a", {"k": "v"}, uid="former")})
    assert row.results == {}


def test_a_list_lacks_results_until_it_has_those_of_the_ledger():
    late = {"a": with_results("a", {"kernel": "6.1"})}
    records = {"a": DONE, "b": FAILED}

    def lacks(ledger, rows):
        status = ReportStatus(node_states=records, node_list=rows)
        return lists_lack_results([replace(make_cluster("a").report(), status=status)], ledger)

    early = build_node_list(records, {"a": done("a")})
    assert not lacks({"a": done("a")}, early)
    assert lacks(late, early)
    assert not lacks(late, build_node_list(records, late))
    assert not lacks(late, ())  # no list is written
    former = {"a": with_results("a", {"kernel": "6.1"}, uid="former")}
    assert not lacks(former, early)
    large = {"a": with_results("a", {"kernel": "v" * (RESULTS_LIMIT_BYTES + 1)})}
    assert not lacks(large, early)


def test_there_is_no_list_while_a_node_is_unfinished():
    assert build_node_list({"a": DONE, "b": NodeRecord("b-uid", NodeState.ACTIVE)}, {}) is None


def test_results_above_the_limit_are_left_out_of_the_whole_list():
    records = {f"n{n:04}": replace(DONE, uid=f"n{n:04}-uid") for n in range(1000)}
    size = RESULTS_LIMIT_BYTES // 1000 - 1
    fits = {name: with_results(name, {"k": "v" * size}) for name in records}
    assert all(row.results for row in build_node_list(records, fits))
    fits["n0000"] = with_results("n0000", {"k": "v" * 2 * size, "more": "v" * 400})
    assert not any(row.results for row in build_node_list(records, fits))


def test_the_report_of_an_ended_run_has_the_list_and_keeps_it_while_a_late_node_is_at_work():
    cluster = make_cluster("a", gated=True, evidence={"a": with_results("a", {"kernel": "6.1"})})

    def reconcile():
        plan = decide(cluster.snapshot(), NOW)
        for action in plan.actions:
            if isinstance(action, WriteStatus):
                cluster.job = replace(cluster.job, status=action.status)
            if isinstance(action, WriteReportStatus):
                cluster.report_status = action.status.to_raw()
        return cluster.report_status

    (row,) = reconcile()["nodeList"]
    assert (row["name"], row["state"], row["results"]) == ("a", "Completed", {"kernel": "6.1"})
    (complete,) = cluster.report_status["conditions"]
    assert (complete["type"], complete["status"]) == ("Complete", "True")
    cluster.nodes["b"] = make_node("b")
    cluster.pods.append(make_pod("b"))
    assert reconcile()["nodeList"] == [row]
    cluster.evidence["b"] = done("b")
    assert [each["name"] for each in reconcile()["nodeList"]] == ["a", "b"]


def test_the_conditions_of_a_report_keep_their_times_while_the_jobs_status_is_refused():
    cluster = make_cluster("a", gated=True, evidence={"a": done("a")})
    (first,) = [
        a for a in decide(cluster.snapshot(), NOW).actions if isinstance(a, WriteReportStatus)
    ]
    cluster.report_status = first.status.to_raw()
    later = decide(cluster.snapshot(), NOW + timedelta(hours=1))
    assert not any(isinstance(action, WriteReportStatus) for action in later.actions)

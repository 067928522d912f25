"""The gauges of the last run of each name of a Job: which runs, how many, and their values."""

from datetime import UTC, datetime, timedelta

from prometheus_client import CollectorRegistry

from daemonset_job.api.node_totals import NodeTotals
from daemonset_job.api.report import JobReport
from daemonset_job.api.report_status import ReportStatus
from daemonset_job.api.report_summary import summarize
from daemonset_job.api.states import Phase
from job_controller.last_run_metrics import (
    LAST_RUNS_LIMIT,
    LastRunCollector,
    choose_runs,
    find_last_runs,
)

T0 = datetime(2026, 11, 24, 3, 0, tzinfo=UTC)


def run(name, seconds, *, namespace="a", phase=Phase.SUCCEEDED, failed=0, shard=0, scheduled_by=""):
    end = T0 + timedelta(seconds=seconds)
    nodes = NodeTotals(desired=9, failed=failed, failed_names="x" * 1000)
    status = ReportStatus(
        phase=phase, start_time=T0, completion_time=end if phase else None, nodes=nodes
    )
    return JobReport(
        namespace,
        f"{name}-{seconds}",
        f"{name}{seconds}",
        "1",
        name,
        "job",
        shard,
        status=status,
        scheduled_by=scheduled_by,
    )


def value(reports, name, **labels):
    registry = CollectorRegistry()
    registry.register(LastRunCollector(lambda: reports))
    return registry.get_sample_value(name, labels)


def test_the_newest_ended_run_of_a_name_counts_also_as_a_summary():
    reports = [
        summarize(run("patch", 60)),
        summarize(run("patch", 90, phase=Phase.FAILED, failed=2)),
        run("patch", 99, phase=Phase.RUNNING),
        run("patch", 95, shard=1),
    ]
    labels = {"namespace": "a", "job": "patch"}
    assert value(reports, "dsj_last_run_success", **labels) == 0
    assert value(reports, "dsj_last_run_duration_seconds", **labels) == 90
    assert value(reports, "dsj_last_run_nodes_failed", **labels) == 2
    end = value(reports, "dsj_last_run_end_timestamp_seconds", **labels)
    assert end == T0.timestamp() + 90
    assert value(reports[:1], "dsj_last_run_success", **labels) == 1
    assert value(reports, "dsj_last_runs_omitted") == 0


def test_the_number_of_names_is_bounded_and_namespaces_share_it():
    noisy = [run(f"n{number}", 10_000 + number) for number in range(2 * LAST_RUNS_LIMIT)]
    quiet = [run(f"q{number}", number, namespace="b") for number in range(20)]
    kept = choose_runs(find_last_runs([*noisy, *quiet]), LAST_RUNS_LIMIT)
    assert len(kept) == LAST_RUNS_LIMIT
    assert sum(each.namespace == "b" for each in kept) == 20
    assert {each.job_name for each in kept if each.namespace == "a"} >= {"n999", "n998"}
    assert value([*noisy, *quiet], "dsj_last_runs_omitted") == 520


def test_without_any_report_there_is_nothing_but_the_number_left_out():
    assert value([], "dsj_last_runs_omitted") == 0
    assert value([], "dsj_last_run_success", namespace="a", job="patch") is None


def test_the_runs_of_a_scheduled_job_are_one_name():
    """Each has the minute of its start in its name: they would be a series each."""
    runs = [
        summarize(run(f"sweep-{minute}", minute, scheduled_by="sweep", failed=minute))
        for minute in range(1, 2 * LAST_RUNS_LIMIT)
    ]
    assert value(runs, "dsj_last_runs_omitted") == 0
    labels = {"namespace": "a", "job": "sweep"}
    assert value(runs, "dsj_last_run_nodes_failed", **labels) == 2 * LAST_RUNS_LIMIT - 1
    assert value(runs, "dsj_last_run_success", namespace="a", job="sweep-1") is None

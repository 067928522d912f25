"""Gauges of the last run of each name of a Job, which outlive the Job: they are read from reports.

They are read from the cache at each scrape, so they are right after a restart too. Their number is
bounded, and each namespace has its share of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Final

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from daemonset_job.api.report import JobReport
from daemonset_job.api.report_summary import FINAL_REPORT_PHASES
from daemonset_job.api.states import Phase

# Each has four series.
LAST_RUNS_LIMIT: Final = 500


class LastRunCollector(Collector):
    """Exports how the newest ended run of each name of a Job went."""

    def __init__(self, reports: Callable[[], Iterable[JobReport]]) -> None:
        self._reports = reports

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Return nothing: registering must not read."""
        return ()

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Return the gauges of the runs that are kept, and how many are left out."""
        runs = find_last_runs(self._reports())
        kept = choose_runs(runs, LAST_RUNS_LIMIT)
        ended = _family(
            "dsj_last_run_end_timestamp_seconds", "When the last run ended, since 1970."
        )
        success = _family("dsj_last_run_success", "1 if the last run succeeded, else 0.")
        duration = _family(
            "dsj_last_run_duration_seconds", "Seconds from start to end of the last run."
        )
        failed = _family(
            "dsj_last_run_nodes_failed", "Nodes that had failed at the end of the last run."
        )
        for run in kept:
            labels = [run.namespace, _name(run)]
            status = run.status
            ended.add_metric(labels, _end(run).timestamp())
            success.add_metric(labels, float(status.phase == Phase.SUCCEEDED))
            if status.duration_seconds is not None:
                duration.add_metric(labels, status.duration_seconds)
            if status.nodes is not None:
                failed.add_metric(labels, status.nodes.failed)
        omitted = GaugeMetricFamily(
            "dsj_last_runs_omitted",
            f"Names of Jobs beyond the {LAST_RUNS_LIMIT} whose last run is exported.",
            value=len(runs) - len(kept),
        )
        return (ended, success, duration, failed, omitted)


def find_last_runs(reports: Iterable[JobReport]) -> list[JobReport]:
    """Return the report of the newest ended run of each name of a Job, or of a ScheduledJob."""
    newest: dict[tuple[str, str], JobReport] = {}
    for report in reports:
        status = report.status
        if report.shard or status.phase not in FINAL_REPORT_PHASES or not status.completion_time:
            continue
        key = report.namespace, _name(report)
        known = newest.get(key)
        if known is None or _end(known) < _end(report):
            newest[key] = report
    return list(newest.values())


def choose_runs(runs: Iterable[JobReport], limit: int) -> list[JobReport]:
    """Return at most `limit` runs: the newest of each namespace, then the second newest, and so on.

    So the Jobs of one namespace, however many, never leave out the newest ones of another.
    """
    places: dict[str, int] = {}
    keyed = []
    for run in sorted(runs, key=lambda run: (_end(run), run.job_name), reverse=True):
        place = places.get(run.namespace, 0)
        places[run.namespace] = place + 1
        keyed.append((place, run))
    # A stable sort: in each round the newest are first.
    return [run for _, run in sorted(keyed, key=lambda each: each[0])][:limit]


def _name(run: JobReport) -> str:
    """Return the name that the runs of a Job, or of a ScheduledJob, have in common."""
    return run.scheduled_by or run.job_name


def _end(run: JobReport) -> datetime:
    assert run.status.completion_time is not None
    return run.status.completion_time


def _family(name: str, text: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, labels=["namespace", "job"])

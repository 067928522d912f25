"""Reports the findings in a log, after a search for the results that they lack."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from daemonset_job.api.container import Container
from daemonset_job.api.job import JobKey
from terminator.logs.findings import Findings
from terminator.logs.read_policy import ShortRead
from terminator.logs.result_search import ResultSearch
from terminator.logs.tail_read import TailRead
from terminator.logs.targets import ScannedPod, Target
from terminator.metrics import Metrics

OnFindings = Callable[[JobKey, Target, Findings], None]
_Reportable = Callable[[Findings], Findings]


def _all(findings: Findings) -> Findings:
    return findings


class FindingsReport:
    """Calls `on_findings(job, target, findings)`, at once or after a search for results.

    `scanned_pods` are the pods that are read, by UID. Searches run from `start` to `stop`.
    """

    def __init__(
        self,
        scanned_pods: Mapping[str, ScannedPod],
        result_search: ResultSearch,
        metrics: Metrics,
        on_findings: OnFindings,
    ) -> None:
        self._scanned_pods = scanned_pods
        self._result_search = result_search
        self._metrics = metrics
        self._on_findings = on_findings
        self._group: asyncio.TaskGroup | None = None

    def start(self, group: asyncio.TaskGroup) -> None:
        """Search in tasks of `group`."""
        self._group = group

    def stop(self) -> None:
        """Start no further search; those under way end with the tasks of the group."""
        self._group = None

    def report_ended(
        self, scanned: ScannedPod, step: ShortRead, ended: Container, read: TailRead
    ) -> None:
        """Report the findings of an attempt that has ended without a token.

        If it is unknown which attempt the log is of, its last lines are not reported: they may be
        of the next one. Then the log of the ended one is read again, as the one before.
        """
        findings = scanned.read_state.log_of(step).findings
        if not findings.attempt:
            findings.last_lines = ()
        reportable = partial(_reportable_findings, scanned, step, ended)
        if findings.attempt and _lacks_results(scanned, step, ended) and not read.is_whole:
            # The task may be started again, and end, before the search is over.
            until = read.span.last_at
            self._report_after_search(scanned, findings, until, step.previous, reportable)
        else:
            self._on_findings(scanned.job, scanned.target, reportable(findings))

    def report_lines(self, scanned: ScannedPod, findings: Findings) -> None:
        """Report the last lines of a task that has failed while it runs, and nothing else."""
        lines = Findings(last_lines=findings.last_lines)
        self._on_findings(scanned.job, scanned.target, lines)

    def report_final(
        self, scanned: ScannedPod, *, is_whole: bool = False, previous: bool = False
    ) -> None:
        """Report final findings, after a search for missing results; also if the pod is gone."""
        findings = scanned.read_state.findings
        self._metrics.tokens.labels("completed" if findings.completed_at else "failed").inc()
        matcher = scanned.target.matcher
        if findings.completed_at and not is_whole and matcher.results - findings.results.keys():
            self._report_after_search(scanned, findings, findings.completed_at, previous)
        else:
            self._report(scanned, findings)

    def _report_after_search(
        self,
        scanned: ScannedPod,
        findings: Findings,
        until: str,
        previous: bool,
        reportable: _Reportable = _all,
    ) -> None:
        """Report findings after a search for results; without a search if the pod is gone.

        `reportable` returns what of them is to be reported then.
        """
        if self._group is None or not self._is_current(scanned):
            self._report_if_gone(scanned, reportable(findings))
            return
        scanned.search = self._group.create_task(
            self._result_search.run(scanned, findings, until, previous)
        )
        # A task that is cancelled before it began runs none of its own code.
        scanned.search.add_done_callback(partial(self._search_ended, scanned, findings, reportable))

    def _search_ended(
        self,
        scanned: ScannedPod,
        findings: Findings,
        reportable: _Reportable,
        search: asyncio.Task[None],
    ) -> None:
        if scanned.search is search:  # else it is that of the next start
            scanned.search = None
        if search.cancelled():
            self._report_if_gone(scanned, reportable(findings))
        else:
            self._report(scanned, reportable(findings))

    def _report_if_gone(self, scanned: ScannedPod, findings: Findings) -> None:
        """Report findings in a log that cannot be read any more.

        The log of a pod that still exists is read and searched by the next leader.
        """
        if scanned.target.pod.uid not in self._scanned_pods:
            self._on_findings(scanned.job, scanned.target, findings)

    def _is_current(self, scanned: ScannedPod) -> bool:
        return self._scanned_pods.get(scanned.target.pod.uid) is scanned

    def _report(self, scanned: ScannedPod, findings: Findings) -> None:
        if self._is_current(scanned):
            self._on_findings(scanned.job, scanned.target, findings)
        else:
            self._report_if_gone(scanned, findings)


def _reportable_findings(
    scanned: ScannedPod, step: ShortRead, ended: Container, findings: Findings
) -> Findings:
    """Return the findings of an attempt without a token; with results only if it is the last one.

    In mode Exit the results are those of the attempt that completed the node, which is the last.
    """
    newest = scanned.container
    is_newest = newest is not None and newest.restart_count == ended.restart_count
    if step.previous or not is_newest or not findings.attempt:
        # Without an attempt number it is unknown which attempt the log is of.
        return replace(findings, results={}, unlisted_result="")
    return findings


def _lacks_results(scanned: ScannedPod, step: ShortRead, ended: Container) -> bool:
    """Return whether a task of mode Exit has completed, and its log lacks results so far."""
    matcher, findings = scanned.target.matcher, scanned.read_state.log_of(step).findings
    if step.previous or matcher.has_token or not matcher.results - findings.results.keys():
        return False
    return (ended.state, ended.exit_code) == ("terminated", 0)

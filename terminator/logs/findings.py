"""The findings in the log of one instance of a container: tokens, results, last lines.

Pure.
"""

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import accumulate

from daemonset_job.api.line_limits import LAST_LINES_BYTES
from daemonset_job.api.result_limits import RESULTS_BYTES, bounded_results
from terminator.logs.log_parser import Line
from terminator.logs.matcher import (
    Classifier,
    Completed,
    Failed,
    Finding,
    Progress,
    Result,
    UnlistedResult,
)
from terminator.logs.report_limits import LAST_LINES_LIMIT, LINE_HEAD_BYTES

# Bytes kept of a log's last lines: what a report has room for, and as much again of blanks, colours
# and the like. The last line is kept in any case.
_KEPT_BYTES = 2 * LAST_LINES_BYTES
# Bytes that the results of a log may take, at two for a character. That is twice what a report has
# room for, since a value may become shorter. Some text takes four for each character: all of a text
# with an emoji.
_RESULTS_COST = 4 * RESULTS_BYTES
_COST, _WIDE_COST = 2, 4
# Bytes of any value beside its characters, at most.
_VALUE_BYTES = 80


@dataclass(slots=True)
class Findings:
    """The findings in a pod's log so far. Times are RFC 3339; the first of each kind is kept."""

    completed_at: str = ""
    failed_at: str = ""
    # None for a value that is too long.
    results: dict[str, str | None] = field(default_factory=dict)
    unlisted_result: str = ""  # the first name that the Job does not list
    progress: Progress | None = None  # the newest
    last_lines: tuple[bytes, ...] = ()
    # The newest attempt, from 1, whose log ended without a token; 0 if none is known for certain.
    attempt: int = 0
    _progress_at: str = field(default="", repr=False, compare=False)
    # The time of the line with each result, or that of an earlier line if the clock was set back in
    # between. A short read may end after a stream has delivered newer lines; its older values must
    # not replace theirs.
    _result_times: dict[str, str] = field(default_factory=dict, repr=False, compare=False)

    @property
    def is_final(self) -> bool:
        """Return whether no further line of the log matters."""
        return bool(self.completed_at or self.failed_at)

    @property
    def all_results(self) -> dict[str, str | None]:
        """Return the results by name; the value is None if it cannot be kept."""
        unlisted = {self.unlisted_result: None} if self.unlisted_result else {}
        return {**unlisted, **self.results}

    def add(self, matcher: Classifier, lines: Iterable[Line], newest_at: str = "") -> None:
        """Add whole lines in order, up to the first token; idempotent.

        A line without a time is a fragment or an error message of the kubelet, and is ignored.
        `newest_at` is the latest time of the lines of this answer before them. A later line may
        have an earlier time, if the clock of its node was set back.
        """
        for line in lines:
            if self.is_final:
                return
            if not line.timestamp:
                continue
            newest_at = max(newest_at, line.timestamp)
            found = matcher.classify(line.data, truncated=line.truncated)
            if found is not None:
                self._add_finding(found, line.timestamp, newest_at)

    def _add_finding(self, found: Finding, timestamp: str, newest_at: str) -> None:
        match found:
            case Completed():
                self.completed_at = timestamp
                # An answer evaluated before this one may have had newer lines.
                self._drop_results(lambda at: at > newest_at)
            case Failed():
                self.failed_at = timestamp
            case Result(name, value):
                if newest_at >= self._result_times.get(name, ""):
                    self.results[name] = value
                    self._result_times[name] = newest_at
                    self._bound_results()
            case UnlistedResult(name):
                self.unlisted_result = self.unlisted_result or name
            case Progress() as progress:
                if newest_at >= self._progress_at:
                    self.progress, self._progress_at = progress, newest_at

    def _bound_results(self) -> None:
        """Drop the values that a report has no room for, once all are far too long."""
        if sum(map(_cost, self.results.values())) > _RESULTS_COST:
            _, omitted = bounded_results(self.results)
            self.results.update(dict.fromkeys(omitted))

    def drop_results_before(self, timestamp: str) -> None:
        """Drop the results printed before a gap: they may have been printed again in it."""
        self._drop_results(lambda at: at < timestamp)

    def drop_results_up_to(self, timestamp: str) -> None:
        """Drop the results printed before a gap or at the very time of the gap."""
        self._drop_results(lambda at: at <= timestamp)

    def _drop_results(self, is_void: Callable[[str], bool]) -> None:
        for name in [name for name, at in self._result_times.items() if is_void(at)]:
            del self._result_times[name], self.results[name]

    def remember(self, lines: list[Line]) -> None:
        """Keep the heads of the last lines, in case the task fails."""
        if lines:
            heads = (line.data[:LINE_HEAD_BYTES] for line in lines[-LAST_LINES_LIMIT:])
            kept = (*self.last_lines, *heads)[-LAST_LINES_LIMIT:]
            sizes = accumulate(len(line) for line in reversed(kept))
            count = sum(size <= _KEPT_BYTES for size in sizes)
            self.last_lines = kept[-count:]


def _cost(value: str | None) -> int:
    size = len(value or "")
    is_wide = sys.getsizeof(value) > _COST * size + _VALUE_BYTES
    return size * (_WIDE_COST if is_wide else _COST)

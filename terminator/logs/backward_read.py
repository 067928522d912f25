"""Searches a log backwards for results that its last lines lack, within a limit of bytes.

Pure. A short read sees the last hundred lines. A task may print its results, then many other
lines, and then the token: no read has seen the results. So if a completed task lacks a result that
its Job asks for, its log is read backwards in steps. Each step requests more of the newest records.

- An answer begins with its oldest line, and ``limitBytes`` cuts its end. The first answer is read
  up to the line that completed the task, every other one up to the oldest line of the answer
  before, the seam. An answer that does not reach that line is ignored, because the result may have
  been printed again in the gap. This also excludes logs of which all lines are later: the kubelet
  may have rotated the file or restarted the task.
- The first line of an answer may be the rest of a longer one (see ``tail_read``). It counts only
  when it is known to be the first one of the log.
- How many records fit into the remaining bytes is estimated from the records read so far.
"""

from collections.abc import Iterator

from terminator.logs.findings import Findings
from terminator.logs.log_parser import Line, LogParser, portions
from terminator.logs.matcher import Completed, Finding, Matcher, Result, UnlistedResult
from terminator.logs.tail_read import (
    LARGE_TAIL_BYTES,
    LARGE_TAIL_LINES,
    PARTIAL_BYTES,
    TailRequest,
)

# Limit for one pod's log, all steps together: about 10,000 lines. A thousand tasks cost as
# much as the streams of noisy tasks may cost anyway (see ``read_budget``).
BACKWARD_BYTES = 1024 * 1024
_REQUESTS_LIMIT = 8
# A step of fewer records than this is not worth a request.
_MIN_STEP_LINES = 50
_GROWTH = 3
# The share of the bytes left that a step is planned for: older lines may be longer.
_FILL = 0.8


class BackwardRead:
    """The search for the results that `matcher` knows and `findings` lacks.

    `until` is the time of the last line that matters: that of the token, or the last one of a task
    that has ended. While `request` is not None: send it, call `begin`, pass the answer to `feed`
    until `feed` returns False, then call `end`. Results are added to `findings`, and so is the
    first name that the Job does not list. `is_elsewhere` says that this log has no line from before
    `until`.
    """

    def __init__(self, matcher: Matcher, findings: Findings, until: str) -> None:
        self._matcher = matcher
        self._findings = findings
        self._until = until
        self._missing = matcher.results - findings.results.keys()
        self._left = BACKWARD_BYTES
        self._requests = 0
        self._covered = 0  # records, from the end
        self._seam = until  # the time of the oldest line that is covered
        self._reach = ""  # the time of the oldest line of the answer before
        self.is_elsewhere = False
        self.request: TailRequest | None = (
            TailRequest(LARGE_TAIL_LINES, LARGE_TAIL_BYTES) if self._missing and until else None
        )
        self.begin()

    def begin(self) -> None:
        """Expect an answer to `request`."""
        self._parser = LogParser()
        self._first: Line | None = None
        self._oldest = ""
        self._values: dict[str, str | None] = {}
        self._unlisted = ""
        self._bytes = self._lines = self._older = 0
        self._is_met = self._is_over = False

    def feed_in_portions(self, chunk: bytes) -> Iterator[None]:
        """Parse more of an answer as `feed` does; yield between portions.

        Afterwards, `is_enough` says whether the rest of the answer matters.
        """
        for number, portion in enumerate(portions(chunk, self._matcher.portion_bytes)):
            if number:
                yield
            if not self.feed(portion):
                return

    @property
    def is_enough(self) -> bool:
        """Whether the rest of the answer does not matter."""
        return self._is_over

    def feed(self, chunk: bytes) -> bool:
        """Parse more of an answer; return whether the rest of it matters."""
        self._bytes += len(chunk)
        self._left -= len(chunk)
        self._look(self._parser.feed(chunk))
        return not self._is_over

    def end(self) -> None:
        """Evaluate the answer; set `request` to the next one, or to None if the search is over."""
        request = self.request
        assert request is not None
        self._requests += 1
        self.request = None
        is_cut = not self._is_met and self._bytes >= request.max_bytes
        if not is_cut and not self._is_over:
            self._look(self._parser.finish())
        if is_cut:
            self._plan(request.lines - self._covered - 1)
            return
        if not self._is_met:
            # An empty log is that of another attempt, which has printed nothing yet.
            self.is_elsewhere = self._requests == 1 and not self._bytes
            return
        self._accept(self._values)
        # The lines that were read before are later ones.
        self._findings.unlisted_result = self._unlisted or self._findings.unlisted_result
        if self._is_whole(request):
            self._end_whole()
            return
        self._covered, self._seam = request.lines, self._oldest or self._seam
        self._reach = self._oldest or (self._first.timestamp if self._first else "")
        if self._missing:
            self._plan(_GROWTH * self._covered)

    def _look(self, lines: list[Line]) -> None:
        self._lines += len(lines)
        for line in lines:
            if self._is_over:
                return
            self._is_met = self._is_met or line.timestamp >= self._seam
            if self._first is None:
                self._first = line
                self._is_over = line.timestamp > self._seam
            elif line.timestamp:
                self._is_over = not self._take(line)

    def _take(self, line: Line) -> bool:
        """Classify a line; return False at the first line already covered, or after the token."""
        if line.timestamp > self._seam:
            return False
        self._oldest = self._oldest or line.timestamp
        self._older += line.timestamp < self._reach
        found = self._matcher.classify(line.data, truncated=line.truncated)
        self._values |= self._value(found)
        if isinstance(found, UnlistedResult):
            self._unlisted = self._unlisted or found.name
        decided_at = self._findings.completed_at
        return not (isinstance(found, Completed) and line.timestamp == decided_at)

    def _end_whole(self) -> None:
        """Classify the first line of the answer, now known to be the first one of the log."""
        first = self._first
        if first is not None and "" < first.timestamp <= self._seam:
            found = self._matcher.classify(first.data, truncated=first.truncated)
            self._accept(self._value(found))
            if isinstance(found, UnlistedResult):
                self._findings.unlisted_result = found.name
        self.is_elsewhere = first is None or first.timestamp > self._until

    def _value(self, found: Finding | None) -> dict[str, str | None]:
        if isinstance(found, Result) and found.name in self._missing:
            return {found.name: found.value}
        return {}

    def _accept(self, values: dict[str, str | None]) -> None:
        for name in values.keys() & self._missing:
            self._findings.results[name] = values[name]
        self._missing -= values.keys()

    def _is_whole(self, request: TailRequest) -> bool:
        """Return whether the answer began with the first line of the log."""
        if not self._reach:
            records = self._lines + self._bytes // PARTIAL_BYTES
            return not self._is_over and records < request.lines
        if self._oldest:
            return not self._older
        return self._first is None or self._first.timestamp >= self._reach

    def _plan(self, most: int) -> None:
        """Request as many records beyond the covered ones as fit, at most `most`."""
        max_bytes = max(self._left, 0)
        fit = int(_FILL * max_bytes * max(self._lines, 1) / max(self._bytes, 1))
        lines = min(most, fit)
        if self._requests < _REQUESTS_LIMIT and lines >= _MIN_STEP_LINES:
            self.request = TailRequest(self._covered + lines, max_bytes)

"""Looking for results further back in a log than its end: bounded, whatever the log's size.

Pure. A short read sees the last hundred lines. A task may print its results, then much else, and
the token right after: nobody saw them go by. So once a task has completed, and a result that its
Job asks for is missing, the log is read backwards in steps, each a request for more of the newest
records. Three things make it more than that:

- An answer begins with its oldest line, and ``limitBytes`` cuts its end. It is read up to the first
  line that an earlier answer had, the seam; the first answer up to the line that ended the task's
  work. What does not reach that line counts for nothing: in the gap, the result may have been
  printed again. So nothing is taken from another log, of which all lines are later: the kubelet may
  have begun another file, or the task again.
- The first line of an answer may be the rest of a longer one (see ``tail_read``). It counts only
  when it is known to be the first one of the log.
- How many records fit into the bytes that are left is estimated from those that were read.
"""

from collections.abc import Iterator

from terminator.logs.log_parser import Line, LogParser, portions
from terminator.logs.matcher import Completed, Matcher, Result
from terminator.logs.tail_read import (
    LARGE_TAIL_BYTES,
    LARGE_TAIL_LINES,
    PARTIAL_BYTES,
    Findings,
    TailRequest,
)

# What is read of one pod's log for this, all steps together. It holds some ten thousand lines; and
# what a thousand tasks cost that way, the streams of noisy ones cost besides (see ``read_budget``).
BACKWARD_BYTES = 1024 * 1024
_REQUESTS_LIMIT = 8
# A step of fewer records than this is not worth a request.
_MIN_STEP_LINES = 50
_GROWTH = 3
# The share of the bytes left that a step is planned for: older lines may be longer.
_FILL = 0.8


class BackwardRead:
    """The search for what `findings` lacks of the results that `matcher` knows.

    `until` is the time of the last line that matters: the token's, or the last one of a task that
    has ended. While `request` is not None: send it, call `begin`, give the answer to `feed` until that
    says that it is enough, then call `end`. What is found goes into `findings`. `is_elsewhere` is
    whether this log has no line from before `until`.
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
        self._values: dict[str, str] = {}
        self._bytes = self._lines = self._older = 0
        self._is_met = self._is_over = False

    def feed_in_portions(self, chunk: bytes) -> Iterator[None]:
        """Take in more of an answer as `feed` does; yield between portions.

        Whether the rest of the answer matters is then told by `is_enough`.
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
        """Take in more of an answer; return whether the rest of it matters."""
        self._bytes += len(chunk)
        self._left -= len(chunk)
        self._look(self._parser.feed(chunk))
        return not self._is_over

    def end(self) -> None:
        """Judge the answer; sets `request` to the next request, or to None when the search is over."""
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
            return
        self._accept(self._values)
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
        """Look at a line; return False at the first one of what is covered, or after the token."""
        if line.timestamp > self._seam:
            return False
        self._oldest = self._oldest or line.timestamp
        self._older += line.timestamp < self._reach
        self._values |= self._value(line)
        decided_at = self._findings.completed_at
        found = self._matcher.classify(line.data, truncated=line.truncated)
        return not (isinstance(found, Completed) and line.timestamp == decided_at)

    def _end_whole(self) -> None:
        """Look at the first line of the log, as which it is known now."""
        first = self._first
        if first is not None and first.timestamp <= self._seam:
            self._accept(self._value(first))
        self.is_elsewhere = first is None or first.timestamp > self._until

    def _value(self, line: Line) -> dict[str, str]:
        found = self._matcher.classify(line.data, truncated=line.truncated)
        if line.timestamp and isinstance(found, Result) and found.name in self._missing:
            return {found.name: found.value}
        return {}

    def _accept(self, values: dict[str, str]) -> None:
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
        """Ask for so many records beyond the covered ones as fit, `most` at most."""
        max_bytes = max(self._left, 0)
        fit = int(_FILL * max_bytes * max(self._lines, 1) / max(self._bytes, 1))
        lines = min(most, fit)
        if self._requests < _REQUESTS_LIMIT and lines >= _MIN_STEP_LINES:
            self.request = TailRequest(self._covered + lines, max_bytes)

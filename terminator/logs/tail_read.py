"""A short read of a log's end: its requests, and the evaluation of the answers.

Pure. One short read costs the same whether the log has two lines or a gigabyte. It may take more
than one request because of three properties of the kubelet (pkg/kubelet/kuberuntime/logs, v1.34):

- ``limitBytes`` cuts the *end* of what ``tailLines`` selected. An answer that reaches the limit
  lacks the newest lines, so the next request is for fewer lines.
- ``tailLines`` counts records, and containerd splits long lines into records of 16 KiB. A full
  answer may therefore begin inside a line, and the rest of ``xxx…xxdone`` looks like a line
  ``done``. If the first line of a full answer is a token, it is requested again with one record
  more.
- A last line without newline may be complete, or the task may still be writing it. It counts when a
  later read shows the same line. In mode Exit it may be a result: no token follows it.

If an answer does not reach back to the lines read before, lines are missing between the two. The
`span` of a read is the part of the log that it read without such a gap.
"""

from collections.abc import Iterator
from typing import NamedTuple

from terminator.logs.findings import Findings
from terminator.logs.log_parser import Cursor, Line, LogParser, Span, portions
from terminator.logs.matcher import Classifier, Matcher, RememberingMatcher
from terminator.logs.report_limits import LAST_LINES_LIMIT

# Records that one read requests: enough for a task that prints a little after its token.
TAIL_LINES = 100
# Records of the second request if the first answer lacks the line where the last read stopped.
LARGE_TAIL_LINES = 2000
# Records that always fit into TAIL_BYTES, with containerd's 16 KiB each; requested after a cut.
SMALL_TAIL_LINES = 7
TAIL_BYTES = 128 * 1024
LARGE_TAIL_BYTES = 256 * 1024
# No runtime makes records of partial lines shorter than this (CRI-O 8 KiB, containerd 16 KiB);
# used to bound how many records an answer can have consisted of.
PARTIAL_BYTES = 4 * 1024
# Requests per read: full, few lines, one line, and one more for an ambiguous first line.
_REQUESTS_LIMIT = 4


class TailRequest(NamedTuple):
    """The next request: the newest `lines` records, of which the first `max_bytes` are sent."""

    lines: int
    max_bytes: int


class TailRead:
    """One short read of one request or a few: send `request`, pass the answer to `feed`, repeat.

    The read adds to `findings`. With a `cursor`, it evaluates newer lines only, and advances
    `cursor`.

    Attributes:
        unfinished: A last line without newline that counts if it stays as it is. Pass it on to the
            next read.
        is_whole: Whether the last answer was the whole log.
        span: The newest part of the log that the answers show without a gap.
        has_decided: Whether this read made the findings final.
        earliest_at: The earliest time of a line of `span`; if that is empty, of a last line without
            newline. It is not that of the first line if the clock of the node was set back.
    """

    def __init__(
        self,
        matcher: Matcher,
        findings: Findings,
        cursor: Cursor | None = None,
        unfinished: Line | None = None,
    ) -> None:
        self.findings = findings
        self.request: TailRequest | None = TailRequest(TAIL_LINES, TAIL_BYTES)
        self.cursor = cursor or Cursor()
        self.unfinished: Line | None = None
        self.is_whole = False
        self.span = Span()
        self.has_decided = False
        self.earliest_at = ""
        self._matcher = matcher
        self._from = cursor
        self._confirmed = unfinished
        self._requests = 0

    def feed(self, answer: bytes) -> None:
        """Evaluate an answer; set `request` to the next one, or to None if the read is over."""
        for _ in self.feed_in_portions(answer):
            pass

    def feed_in_portions(self, answer: bytes) -> Iterator[None]:
        """Evaluate an answer as `feed` does; yield after each part of the work but the last one.

        The slow part, classifying the lines, comes first. The findings are changed in one step at
        the end, because a stream may change them meanwhile.
        """
        parser = LogParser(self._from)
        matcher = RememberingMatcher(self._matcher)
        lines: list[Line] = []
        count = 0
        for number, portion in enumerate(portions(answer, self._matcher.portion_bytes)):
            if number:
                yield
            if self.findings.is_final:
                break
            fresh = parser.feed(portion)
            count += len(fresh)
            last = len(fresh) - LAST_LINES_LIMIT
            for at, line in enumerate(fresh):
                if line.timestamp:
                    matcher.classify(line.data, truncated=line.truncated)
                elif 0 < at < last:
                    continue  # lines without a time are ignored, however many there are
                lines.append(line)
        self._judge(answer, parser, lines, matcher, is_complete=count == answer.count(b"\n"))

    def _judge(
        self,
        answer: bytes,
        parser: LogParser,
        lines: list[Line],
        matcher: Classifier,
        *,
        is_complete: bool,
    ) -> None:
        """Evaluate the lines of an answer; `is_complete`: the cursor has dropped none of them."""
        request = self.request
        assert request is not None
        self._requests += 1
        self.request = None
        if self.findings.is_final:
            return  # a stream was quicker
        is_cut, is_full = _extent_of(answer, request)
        self.is_whole = self._from is None and not is_cut and not is_full
        ambiguous = lines[:1] if is_full and is_complete else []
        certain = lines[len(ambiguous) :]
        newest_at = self._from.timestamp if self._from is not None else ""
        self.findings.add(matcher, certain, newest_at)
        if self._from is None:
            self.findings.last_lines = ()
        self.findings.remember(lines)
        # Without a time it is the kubelet's message that it cannot go on reading.
        unfinished = [line for line in parser.finish() if line.timestamp] if not is_cut else []
        newest_at = max(newest_at, *(line.timestamp for line in certain), "")
        certain += self._take_unfinished(unfinished, matcher, newest_at)
        is_contiguous = parser.has_seen_cursor and (not is_full or parser.has_all_of_cursor_time)
        part = self._span_of(certain, is_full, is_contiguous)
        self.span = self.span.combined_with(part)
        times = [part.first_at, *(line.timestamp for line in certain or unfinished)]
        if self.span != part:
            times.append(self.earliest_at)
        self.earliest_at = min(filter(None, times), default=self.earliest_at)
        if request.lines != LARGE_TAIL_LINES or not is_cut:
            self.cursor = parser.cursor
        self.has_decided = self.findings.is_final
        if not self.has_decided and self._requests < _REQUESTS_LIMIT:
            self.request = _next_request(
                request,
                is_cut=is_cut,
                is_ambiguous=_decides(ambiguous, matcher),
                has_gap=is_full and self._from is not None and not is_contiguous,
            )

    def _span_of(self, certain: list[Line], is_full: bool, is_contiguous: bool) -> Span:
        """Return the span of the log that an answer covers.

        It begins at the last line read before, if the answer contains that line.
        """
        times = [line.timestamp for line in certain if line.timestamp]
        if self._from is not None and is_contiguous:
            times.insert(0, self._from.timestamp)
        return Span(times[0], max(times), is_contiguous or not is_full) if times else Span()

    def _take_unfinished(
        self, lines: list[Line], matcher: Classifier, newest_at: str
    ) -> list[Line]:
        """Evaluate a last line without newline; return it if it counts.

        `newest_at` is the latest time of the lines before it.
        """
        self.findings.remember(lines)
        is_result = not self._matcher.has_token and _has_results(lines, matcher)
        if not is_result and not _decides(lines, matcher):
            return []
        if lines == [self._confirmed]:
            self.findings.add(matcher, lines, newest_at)
            return lines
        self.unfinished = lines[0]
        return []


class _Extent(NamedTuple):
    """How much of a log an answer contains.

    `is_cut`: it lacks the newest lines. `is_full`: it may have as many records as were requested,
    so that there may be older ones.
    """

    is_cut: bool
    is_full: bool


def _extent_of(answer: bytes, request: TailRequest) -> _Extent:
    records = answer.count(b"\n") + (answer[-1:] not in {b"", b"\n"})  # may be unfinished
    return _Extent(
        is_cut=len(answer) >= request.max_bytes,
        is_full=records + len(answer) // PARTIAL_BYTES >= request.lines,
    )


def _next_request(
    request: TailRequest, *, is_cut: bool, is_ambiguous: bool, has_gap: bool
) -> TailRequest | None:
    """Return the request to send after the answer to `request`, None if the read is over.

    `is_ambiguous`: the first line is a token, if it is not the rest of a longer one. `has_gap`:
    lines are missing between the answer and the read before.
    """
    if is_cut and request.lines not in (1, LARGE_TAIL_LINES):
        lines = SMALL_TAIL_LINES if request.lines > SMALL_TAIL_LINES + 1 else 1
        return TailRequest(lines, TAIL_BYTES)
    if is_ambiguous:
        return TailRequest(request.lines + 1, request.max_bytes)
    if has_gap and request.lines == TAIL_LINES:
        return TailRequest(LARGE_TAIL_LINES, LARGE_TAIL_BYTES)
    return None


def _decides(lines: list[Line], matcher: Classifier) -> bool:
    """Return whether one of the lines is a token."""
    return _find_in(lines, matcher).is_final


def _has_results(lines: list[Line], matcher: Classifier) -> bool:
    """Return whether one of the lines is a result, also one that cannot be kept."""
    return bool(_find_in(lines, matcher).all_results)


def _find_in(lines: list[Line], matcher: Classifier) -> Findings:
    found = Findings()
    found.add(matcher, lines)
    return found

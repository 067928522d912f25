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
  later read shows the same line.

If an answer does not reach back to the lines read before, lines are missing between the two. The
`span` of a read is the part of the log that it read without such a gap.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from daemonset_job.api.json_text import json_bytes
from terminator.logs.log_parser import Cursor, Line, LogParser, Span, portions
from terminator.logs.matcher import (
    Classifier,
    Completed,
    Failed,
    Matcher,
    Progress,
    RememberingMatcher,
    Result,
    printable,
)

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
# Last lines kept for a report; the CRD allows no more.
LINES_KEPT = 20
# Requests per read: full, few lines, one line, and one more for an ambiguous first line.
_REQUESTS_LIMIT = 4
# Limits for one node in a report, in bytes of JSON as etcd stores it (see json_bytes). With 1,000
# nodes to a report, both together and the controller's part stay below etcd's 1.5 MiB per object.
RESULTS_BYTES = 400
RESULTS_LIMIT = 16  # the CRD's
LAST_LINES_BYTES = 400
LAST_LINE_CHARACTERS = 160
# Bytes kept of a line until then: enough for LAST_LINE_CHARACTERS of any kind, without escapes.
LINE_HEAD_BYTES = 4 * LAST_LINE_CHARACTERS


@dataclass(slots=True)
class Findings:
    """The findings in a pod's log so far. Times are RFC 3339; the first of each kind is kept."""

    completed_at: str = ""
    failed_at: str = ""
    results: dict[str, str] = field(default_factory=dict)
    progress: Progress | None = None
    last_lines: tuple[bytes, ...] = ()
    # The newest attempt, from 1, whose log ended without a token; 0 if none is known for certain.
    attempt: int = 0
    # The time of the line with each result. A short read may end after a stream has delivered newer
    # lines; its older values must not replace theirs.
    _result_times: dict[str, str] = field(default_factory=dict, repr=False, compare=False)

    @property
    def is_final(self) -> bool:
        """Return whether no further line of the log matters."""
        return bool(self.completed_at or self.failed_at)

    def add(self, matcher: Classifier, lines: Iterable[Line]) -> None:
        """Add whole lines in order, up to the first token; idempotent.

        A line without a time is a fragment or an error message of the kubelet, and is ignored.
        """
        for line in lines:
            if self.is_final:
                return
            if not line.timestamp:
                continue
            match matcher.classify(line.data, truncated=line.truncated):
                case Completed():
                    self.completed_at = line.timestamp
                    # An answer evaluated before this one may have had newer lines.
                    self._drop_results(lambda at: at > self.completed_at)
                case Failed():
                    self.failed_at = line.timestamp
                case Result(name, value):
                    if line.timestamp >= self._result_times.get(name, ""):
                        self.results[name] = value
                        self._result_times[name] = line.timestamp
                case Progress() as progress:
                    self.progress = progress
                case _:
                    pass

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
            heads = (line.data[:LINE_HEAD_BYTES] for line in lines[-LINES_KEPT:])
            self.last_lines = (*self.last_lines, *heads)[-LINES_KEPT:]


def readable_lines(lines: Iterable[bytes], count: int) -> tuple[str, ...]:
    """Return the last `count` lines that are not blank, cleaned and bounded."""
    kept: list[str] = []
    room = LAST_LINES_BYTES
    for line in reversed(list(lines)):
        text = printable(line)
        if len(kept) >= count:
            break
        if not text:
            continue
        if len(text) > LAST_LINE_CHARACTERS:
            text = text[: LAST_LINE_CHARACTERS - 1] + "…"
        room -= json_bytes(text)
        if room < 0:
            break
        kept.append(text)
    return tuple(reversed(kept))


def bounded_results(results: Mapping[str, str]) -> dict[str, str]:
    """Return the results that fit into RESULTS_BYTES, in order of their names."""
    kept: dict[str, str] = {}
    room = RESULTS_BYTES
    for name in sorted(results):
        size = json_bytes(name) + json_bytes(results[name])
        if size <= room and len(kept) < RESULTS_LIMIT:
            kept[name] = results[name]
            room -= size
    return kept


class TailRequest(NamedTuple):
    """The next request: the newest `lines` records, of which the first `max_bytes` are sent."""

    lines: int
    max_bytes: int


class TailRead:
    """One short read of one request or a few: send `request`, pass the answer to `feed`, repeat.

    The read adds to `findings`. With a `cursor`, it evaluates newer lines only, and advances
    `cursor`.

    Attributes:
        unfinished: A last line without newline that is a token if it stays as it is. Pass it on to
            the next read.
        is_whole: Whether the last answer was the whole log.
        span: The newest part of the log that the answers show without a gap.
        has_decided: Whether this read made the findings final.
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
            last = len(fresh) - LINES_KEPT
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
        is_cut = len(answer) >= request.max_bytes
        newlines = answer.count(b"\n")
        records = newlines + (answer[-1:] not in {b"", b"\n"})  # the last one may be unfinished
        is_full = records + len(answer) // PARTIAL_BYTES >= request.lines
        self.is_whole = self._from is None and not is_cut and not is_full
        ambiguous = lines[:1] if is_full and is_complete else []
        certain = lines[len(ambiguous) :]
        self.findings.add(matcher, certain)
        if self._from is None:
            self.findings.last_lines = ()
        self.findings.remember(lines)
        if not is_cut:
            certain += self._take_unfinished(parser.finish(), matcher)
        is_contiguous = parser.has_seen_cursor and (not is_full or parser.has_all_of_cursor_time)
        self.span = self.span.combined_with(self._span_of(certain, is_full, is_contiguous))
        if request.lines != LARGE_TAIL_LINES or not is_cut:
            self.cursor = parser.cursor
        self.has_decided = self.findings.is_final
        if self.findings.is_final or self._requests >= _REQUESTS_LIMIT:
            return
        if is_cut and request.lines not in (1, LARGE_TAIL_LINES):
            self.request = TailRequest(
                SMALL_TAIL_LINES if request.lines > SMALL_TAIL_LINES + 1 else 1, TAIL_BYTES
            )
        elif _decides(ambiguous, matcher):
            self.request = TailRequest(request.lines + 1, request.max_bytes)
        elif (
            is_full and self._from is not None and not is_contiguous and request.lines == TAIL_LINES
        ):
            self.request = TailRequest(LARGE_TAIL_LINES, LARGE_TAIL_BYTES)

    def _span_of(self, certain: list[Line], is_full: bool, is_contiguous: bool) -> Span:
        """Return the span of the log that an answer covers.

        It begins at the last line read before, if the answer contains that line.
        """
        times = [line.timestamp for line in certain if line.timestamp]
        if self._from is not None and is_contiguous:
            times.insert(0, self._from.timestamp)
        return Span(times[0], max(times), is_contiguous or not is_full) if times else Span()

    def _take_unfinished(self, lines: list[Line], matcher: Classifier) -> list[Line]:
        """Evaluate a last line without newline; return it if it counts."""
        self.findings.remember(lines)
        if not _decides(lines, matcher):
            return []
        if lines == [self._confirmed]:
            self.findings.add(matcher, lines)
            return lines
        self.unfinished = lines[0]
        return []


def _decides(lines: list[Line], matcher: Classifier) -> bool:
    trial = Findings()
    trial.add(matcher, lines)
    return trial.is_final

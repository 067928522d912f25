"""A short read of a log's end: what to ask for, and what the answer proves.

Pure. One short read costs the same whether the log has two lines or a gigabyte. Three things make
it more than a request, all of them the kubelet's (pkg/kubelet/kuberuntime/logs, v1.34):

- ``limitBytes`` cuts the *end* of what ``tailLines`` selected. An answer that reaches the limit
  lacks the newest lines, so fewer are asked for.
- ``tailLines`` counts records, and containerd splits long lines into records of 16 KiB. A full
  answer may therefore begin inside a line, and the rest of ``xxx…xxdone`` looks like a line
  ``done``. A token in the first line of a full answer is looked at again with one record more.
- A last line without newline may be one that the task has ended so, or one that is still being
  written. It counts when a later read shows the same.

Where an answer does not begin with what was read before, lines between the two are missing: the
`span` of a read is what it brought without such a gap.
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

# Records that one read asks for: enough for a task that says a little after its token.
TAIL_LINES = 100
# When these lack the line where the last read stopped, once more with more of them.
LARGE_TAIL_LINES = 2000
# What is sure to fit into TAIL_BYTES with containerd's records of 16 KiB: the last resort but one.
SMALL_TAIL_LINES = 7
TAIL_BYTES = 128 * 1024
LARGE_TAIL_BYTES = 256 * 1024
# No runtime makes records of partial lines shorter than this (CRI-O 8 KiB, containerd 16 KiB);
# used to bound how many records an answer can have consisted of.
PARTIAL_BYTES = 4 * 1024
# Lines of the end that are kept for a report; the CRD allows no more.
LINES_KEPT = 20
# One read asks at most so often: full, few, one, and one more for a doubt.
_REQUESTS_LIMIT = 4
# What one node may put into a report, in bytes of JSON as etcd keeps it (see json_bytes): with
# 1,000 nodes to a report both together, and what the controller adds, stay below the 1.5 MiB of an
# object in etcd.
RESULTS_BYTES = 400
RESULTS_LIMIT = 16  # the CRD's
LAST_LINES_BYTES = 400
LAST_LINE_CHARACTERS = 160
# What is kept of a line until then: as many characters of any kind, escapes aside.
LINE_HEAD_BYTES = 4 * LAST_LINE_CHARACTERS


@dataclass(slots=True)
class Findings:
    """What a pod's log has said so far. Times are RFC 3339; the first one of each kind stays."""

    completed_at: str = ""
    failed_at: str = ""
    results: dict[str, str] = field(default_factory=dict)
    progress: Progress | None = None
    last_lines: tuple[bytes, ...] = ()
    # The newest start of the task, from 1, whose end was read without a token; 0: none for sure.
    attempt: int = 0
    # When each result was said: a short read that was under way while a stream brought newer lines
    # must not take back what they said.
    _result_times: dict[str, str] = field(default_factory=dict, repr=False, compare=False)

    @property
    def is_final(self) -> bool:
        """Whether nothing that the log says from here on matters."""
        return bool(self.completed_at or self.failed_at)

    def add(self, matcher: Classifier, lines: Iterable[Line]) -> None:
        """Take in whole lines in order, up to the one that decides; idempotent.

        A line without a time is a fragment or the kubelet's own words: it says nothing.
        """
        for line in lines:
            if self.is_final:
                return
            if not line.timestamp:
                continue
            match matcher.classify(line.data, truncated=line.truncated):
                case Completed():
                    self.completed_at = line.timestamp
                    # An answer that was read before this one may have been of newer lines.
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
        """Drop the results that were said before a gap: in it, they may have been said again."""
        self._drop_results(lambda at: at < timestamp)

    def drop_results_up_to(self, timestamp: str) -> None:
        """Drop the results that were said before a gap or at the very moment in which it is."""
        self._drop_results(lambda at: at <= timestamp)

    def _drop_results(self, is_void: Callable[[str], bool]) -> None:
        for name in [name for name, at in self._result_times.items() if is_void(at)]:
            del self._result_times[name], self.results[name]

    def remember(self, lines: list[Line]) -> None:
        """Keep the heads of the last lines, in case it fails."""
        if lines:
            heads = (line.data[:LINE_HEAD_BYTES] for line in lines[-LINES_KEPT:])
            self.last_lines = (*self.last_lines, *heads)[-LINES_KEPT:]


def readable_lines(lines: Iterable[bytes], count: int) -> tuple[str, ...]:
    """Return the last `count` lines that say something, cleaned, each and all of them bounded."""
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
    """Return the results that fit into RESULTS_BYTES, by name; one that does not is left out."""
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
    """One short read, of one request or a few: send `request`, give the answer to `feed`, repeat.

    `findings` is added to. With a `cursor`, only newer lines are looked at, and `cursor` moves on.
    `unfinished` is a last line without newline that would decide, if it stays as it is: pass it
    on to the next read. `is_whole` is whether the last answer was the whole log, `span` the
    newest part of the log that the answers show without a gap, and `has_decided` whether they made
    the findings final.
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
        """Judge an answer; sets `request` to the next request, or to None when the read is over."""
        for _ in self.feed_in_portions(answer):
            pass

    def feed_in_portions(self, answer: bytes) -> Iterator[None]:
        """Judge an answer as `feed` does; yield after each part of the work but the last one.

        What takes long, looking at the lines, comes first. The findings are added to at one go at
        the end: others may add to them meanwhile.
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
                    continue  # what a kubelet should not send says nothing, however much it is
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
        """Draw the conclusions from the lines of an answer; `is_complete`: none was known."""
        request = self.request
        assert request is not None
        self._requests += 1
        self.request = None
        if self.findings.is_final:
            return  # somebody else was quicker
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
        """Return the part of the log that an answer is.

        It begins with the line up to which the log was known before, if that is in it.
        """
        times = [line.timestamp for line in certain if line.timestamp]
        if self._from is not None and is_contiguous:
            times.insert(0, self._from.timestamp)
        return Span(times[0], max(times), is_contiguous or not is_full) if times else Span()

    def _take_unfinished(self, lines: list[Line], matcher: Classifier) -> list[Line]:
        """Look at a last line without newline; return it if it counts."""
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

"""Any answers of a kubelet to short reads: the reads end, and say no more than was answered."""

from datetime import timedelta

from daemonset_job.api.json_text import json_bytes
from daemonset_job.api.line_limits import LAST_LINES_BYTES
from daemonset_job.api.result_limits import bounded_results, most_stored_bytes, stored_bytes
from daemonset_job.api.times import parse_time
from terminator.logs.findings import Findings
from terminator.logs.log_parser import Cursor, Line, LogParser, Span
from terminator.logs.matcher import Matcher
from terminator.logs.report_limits import (
    LAST_LINES_LIMIT,
    LINE_HEAD_BYTES,
    readable_lines,
)
from terminator.logs.tail_read import (
    LARGE_TAIL_BYTES,
    LARGE_TAIL_LINES,
    TAIL_BYTES,
    TailRead,
)
from tests.fuzz.log_bytes import draw_log
from tests.fuzz.source import Source

_MATCHERS = (
    Matcher("done", "Line", "broken", ("ip", "n")),
    Matcher("done", "Contains"),
    Matcher("do+ne", "Regex", "^broken$", ("ip",)),
    Matcher(None, "Line", None, ("ip",)),
)
_REQUESTS_LIMIT = 4


def check(data: bytes) -> None:
    source = Source(data)
    matcher = source.pick(_MATCHERS)
    found, cursor, unfinished = Findings(), None, None
    said = b""
    for _ in range(1 + source.below(3)):
        before = (found.completed_at, found.failed_at)
        read = TailRead(matcher, found, cursor, unfinished)
        said += _answer_all(source, read)
        _check_findings(found, before, said)
        _check_read(read)
        cursor, unfinished = read.cursor if read.cursor.timestamp else None, read.unfinished


def _answer_all(source: Source, read: TailRead) -> bytes:
    """Answer what is asked for, the same log each time or another one; return all that was said."""
    log, said, asks = draw_log(source), b"", 0
    while read.request is not None:
        asks += 1
        assert asks <= _REQUESTS_LIMIT
        assert 0 < read.request.lines <= LARGE_TAIL_LINES
        assert 0 < read.request.max_bytes <= LARGE_TAIL_BYTES
        answer = log
        if source.below(4):
            # As a kubelet does: the last lines, and of these the first bytes.
            answer = b"".join(log.splitlines(keepends=True)[-read.request.lines :])
        answer = answer[: read.request.max_bytes]
        said += answer + b"\n"
        read.feed(answer)
        if source.below(8) == 0:
            log = draw_log(source)
    return said


def _check_findings(found: Findings, before: tuple[str, str], said: bytes) -> None:
    assert not (found.completed_at and found.failed_at)
    if any(before):
        assert (found.completed_at, found.failed_at) == before
    for moment in (found.completed_at, found.failed_at):
        _check_time(moment)
    # Only a line with a time can have decided.
    times = {line.timestamp for line in _lines(said)}
    assert {found.completed_at, found.failed_at} <= times | {""}
    assert len(found.last_lines) <= LAST_LINES_LIMIT
    assert all(len(line) <= LINE_HEAD_BYTES for line in found.last_lines)
    shown = readable_lines(found.last_lines, LAST_LINES_LIMIT)
    assert sum(map(json_bytes, shown)) <= LAST_LINES_BYTES
    results, omitted = bounded_results(found.results)
    assert results.keys() | set(omitted) == found.results.keys()
    assert stored_bytes(results) <= most_stored_bytes(len(results))


def _check_read(read: TailRead) -> None:
    span = read.span
    assert span.first_at <= span.last_at
    assert bool(span.first_at) == bool(span.last_at)
    assert span.combined_with(Span()) == span
    assert read.unfinished is None or not read.findings.is_final
    _check_time(read.cursor.timestamp)
    assert not read.cursor.timestamp or read.cursor.since is not None
    assert TAIL_BYTES <= LARGE_TAIL_BYTES


def _check_time(timestamp: str) -> None:
    """A time that is kept can be parsed, and what is computed with it too."""
    if not timestamp:
        return
    moment = parse_time(timestamp)
    assert moment is not None
    assert moment - moment == timedelta(0)
    assert Cursor(timestamp, 1).after(timestamp).seen == 2


def _lines(said: bytes) -> list[Line]:
    parser = LogParser()
    return [*parser.feed(said), *parser.finish()]

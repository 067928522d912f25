"""Any bytes, in any chunks: bounded lines, and the same ones however the bytes are cut."""

from terminator.logs.log_parser import LINE_LIMIT, Cursor, Line, LogParser, portions
from tests.fuzz.log_bytes import draw_log, draw_timestamp
from tests.fuzz.source import Source

# What a parser keeps of a line that has not ended: its head, and the time before it.
_BUFFER_BYTES = LINE_LIMIT + 64


def check(data: bytes) -> None:
    source = Source(data)
    cursor = _draw_cursor(source)
    pieces = source.byte()
    log = draw_log(source)
    cuts = Source(bytes([pieces]) + log[:64]).cuts(log, 12)
    whole, lines, last = _read(cursor, [log])
    few = list(portions(log, max(1 + pieces, len(log) // 100)))
    for chunks in (cuts, few, [log[:1], b"", log[1:]]):
        other, others, other_last = _read(cursor, chunks)
        assert (others, other_last) == (lines, last)
        assert (other.cursor, other.has_seen_cursor, other.has_all_of_cursor_time) == (
            whole.cursor,
            whole.has_seen_cursor,
            whole.has_all_of_cursor_time,
        )
    assert len(last) <= 1
    assert len(lines) + len(last) <= log.count(b"\n") + 1
    for line in (*lines, *last):
        assert len(line.data) <= LINE_LIMIT
        assert b"\n" not in line.data
        assert line.data in log
        assert not line.timestamp or Cursor(line.timestamp).since is not None
    if not cursor.timestamp:
        _check_nothing_is_lost(log, [*lines, *last])
        _check_resuming(log, lines)


def _read(cursor: Cursor, chunks: list[bytes]) -> tuple[LogParser, list[Line], list[Line]]:
    parser, lines = LogParser(cursor), []
    for chunk in chunks:
        lines += parser.feed(chunk)
        assert len(parser._head) <= _BUFFER_BYTES
    return parser, lines, parser.finish()


def _check_nothing_is_lost(log: bytes, lines: list[Line]) -> None:
    raw = log.split(b"\n")
    if not raw[-1]:
        raw.pop()
    assert len(lines) == len(raw)
    for line, text in zip(lines, raw, strict=True):
        if line.truncated:
            assert len(line.data) == LINE_LIMIT
            assert line.data in text
        else:
            assert text.endswith(line.data)
        assert line.timestamp or text.startswith(line.data)


def _check_resuming(log: bytes, lines: list[Line]) -> None:
    """Where times only grow, the same bytes again bring nothing new, and more bytes all of it."""
    times = [line.timestamp for line in lines]
    if not times or "" in times or times != sorted(times):
        return
    cursor = Cursor()
    for timestamp in times:
        cursor = cursor.after(timestamp)
    ended = log[: log.rindex(b"\n") + 1]
    parser, again, _ = _read(cursor, [ended])
    assert again == []
    assert parser.has_seen_cursor
    assert parser.cursor == cursor
    parser, more, _ = _read(cursor, [ended + b"9999-12-31T23:59:59.999999999Z new\n"])
    assert [line.data for line in more] == [b"new"]


def _draw_cursor(source: Source) -> Cursor:
    if source.below(3):
        return Cursor()
    (line, *_) = LogParser().feed(draw_timestamp(source) + b" x\n")
    return Cursor(line.timestamp, 1 + source.below(3)) if line.timestamp else Cursor()

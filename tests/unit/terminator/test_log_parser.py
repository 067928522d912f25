"""Lines out of bytes: any chunks, bounded memory, resumed without doubles."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from terminator.logs.log_parser import LINE_LIMIT, Cursor, Line, LogParser, kubelet_error

T1 = "2026-01-02T03:04:05.000000001Z"
T2 = "2026-01-02T03:04:05.000000002Z"
T3 = "2026-01-02T03:04:06.000000000Z"


def raw(*entries):
    return b"".join(f"{at} ".encode() + text + b"\n" for at, text in entries)


def parse(data, cursor=None, *, finish=True):
    parser = LogParser(cursor)
    lines = parser.feed(data)
    return lines + (parser.finish() if finish else []), parser


def texts(lines):
    return [line.data for line in lines]


def test_lines_and_times():
    lines, parser = parse(raw((T1, b"a"), (T2, b""), (T3, b"b c\r")))
    assert lines == [Line(T1, b"a"), Line(T2, b""), Line(T3, b"b c\r")]
    assert parser.cursor == Cursor(T3, 1)
    assert parser.cursor.since == datetime(2026, 1, 2, 3, 4, 6, tzinfo=UTC)


@pytest.mark.parametrize(
    ("stamp", "expected"),
    [
        ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05.000000000Z"),
        ("2026-01-02T03:04:05.5Z", "2026-01-02T03:04:05.500000000Z"),
        ("2026-01-02T03:04:05.123456789+02:00", "2026-01-02T01:04:05.123456789Z"),
        ("2026-01-01T23:04:05.000000001-05:30", "2026-01-02T04:34:05.000000001Z"),
    ],
)
def test_times_are_made_comparable(stamp, expected):
    lines, _ = parse(f"{stamp} x\n".encode())
    assert lines == [Line(expected, b"x")]


@pytest.mark.parametrize(
    "text",
    [
        b"failed to watch file: no such file",
        b"2026-13-02T03:04:05Zx",
        b"2026-13-02T03:04:05+02:00 done",
        b"0001-01-01T00:00:00+02:00 done",
        b"",
    ],
)
def test_text_without_a_time_has_none(text):
    assert parse(text + b"\n")[0] == [Line("", text)]


def test_a_time_alone_is_an_empty_line():
    assert parse(T1.encode() + b"\n")[0] == [Line(T1, b"")]


def test_the_last_line_without_newline_is_unfinished():
    lines, parser = parse(raw((T1, b"a")) + T2.encode() + b" done")
    assert lines == [Line(T1, b"a"), Line(T2, b"done", unfinished=True)]
    assert parser.cursor == Cursor(T1, 1)  # a later read brings it again
    assert parser.finish() == []


def test_an_endless_line_costs_one_buffer():
    parser = LogParser()
    parser.feed(T1.encode() + b" ")
    for _ in range(100):
        assert parser.feed(b"x" * 65536) == []
        assert len(parser._head) <= LINE_LIMIT + 64
    (line,) = parser.feed(b"\n")
    assert line == Line(T1, b"x" * LINE_LIMIT, truncated=True)
    assert texts(parser.feed(raw((T2, b"done")))) == [b"done"]


def test_a_line_just_at_the_limit_is_whole():
    for length, truncated in ((LINE_LIMIT, False), (LINE_LIMIT + 1, True)):
        (line,) = parse(raw((T1, b"x" * length)))[0]
        assert (len(line.data), line.truncated) == (LINE_LIMIT, truncated)


def test_an_endless_unfinished_line():
    (line,) = parse(T1.encode() + b" " + b"x" * 100_000)[0]
    assert line.truncated
    assert line.unfinished


def test_resuming_drops_what_is_known():
    lines, parser = parse(raw((T1, b"a"), (T2, b"b"), (T3, b"c")), Cursor(T2, 1))
    assert texts(lines) == [b"c"]
    assert parser.has_seen_cursor
    assert parser.cursor == Cursor(T3, 1)


def test_several_lines_of_one_time_are_counted():
    data = raw((T1, b"a"), (T1, b"b"), (T1, b"c"))
    assert texts(parse(data, Cursor(T1, 2))[0]) == [b"c"]
    assert parse(data, Cursor(T1, 2))[1].cursor == Cursor(T1, 3)
    assert texts(parse(data, Cursor(T1, 3))[0]) == []


def test_a_gap_is_noticed():
    lines, parser = parse(raw((T3, b"c")), Cursor(T1, 1))
    assert texts(lines) == [b"c"]
    assert not parser.has_seen_cursor


def test_lines_after_the_cursor_are_new_even_if_the_clock_went_back():
    lines, parser = parse(raw((T1, b"old"), (T3, b"x"), (T1, b"set back")), Cursor(T1, 1))
    assert texts(lines) == [b"x", b"set back"]
    assert parser.cursor == Cursor(T1, 1)


def test_fragments_before_the_seam_are_dropped_and_behind_it_kept():
    data = b"rest of a line\n" + raw((T2, b"new")) + b"oops\n"
    assert parse(data, Cursor(T1, 1))[0] == [Line(T2, b"new"), Line("", b"oops")]


def test_no_cursor_has_no_since():
    assert Cursor().since is None
    assert Cursor().after("") == Cursor()


bodies = st.binary(max_size=40).map(lambda b: b.replace(b"\n", b""))
logs = st.lists(st.tuples(st.integers(0, 5), bodies), max_size=12).map(
    lambda entries: [
        (f"2026-01-02T03:04:0{second}.000000000Z", text)
        for second, text in sorted(entries, key=lambda e: e[0])
    ]
)


@given(logs, st.binary(max_size=30), st.data())
def test_any_chunks_give_the_same_lines(entries, tail, data):
    blob = raw(*entries) + tail
    expected, whole = parse(blob)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(blob)), max_size=8)))
    parser, lines = LogParser(), []
    for start, end in zip([0, *cuts], [*cuts, len(blob)], strict=True):
        lines += parser.feed(blob[start:end])
    assert lines + parser.finish() == expected
    assert parser.cursor == whole.cursor


@given(logs, st.data())
def test_interrupted_anywhere_and_resumed_nothing_is_lost_or_doubled(entries, data):
    blob = raw(*entries)
    seen, cursor = [], Cursor()
    for _ in range(3):
        parser = LogParser(cursor)
        since = cursor.timestamp[:19]
        again = raw(*[entry for entry in entries if entry[0][:19] >= since])
        cut = data.draw(st.integers(0, len(again)))
        seen += parser.feed(again[:cut])
        cursor = parser.cursor
    parser = LogParser(cursor)
    seen += parser.feed(
        raw(*[entry for entry in entries if entry[0][:19] >= cursor.timestamp[:19]])
    )
    assert texts(seen) == texts(parse(blob)[0])


@pytest.mark.parametrize(
    "text", [b"9999-99-99T99:99:99Z boo", b"2026-02-31T00:00:00Z x", b"0000-01-01T00:00:00Z x"]
)
def test_what_only_looks_like_a_time_is_none(text):
    parser = LogParser()
    (line,) = parser.feed(text + b"\n")
    assert (line.timestamp, line.data) == ("", text)
    assert parser.cursor.since is None


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"", ""),
        (raw((T1, b"done")), ""),
        (raw((T1, b"done")).rstrip(), ""),
        (b"unable to retrieve container logs for containerd://x", None),
        (b"failed to open log file\n", None),
        (b"x" * 4097, ""),
        (b"rest of a line\n" + raw((T1, b"done")), ""),
    ],
)
def test_an_answer_that_is_one_short_line_without_a_time_is_an_error(answer, message):
    expected = answer.decode().rstrip() if message is None else message
    assert kubelet_error(answer) == expected

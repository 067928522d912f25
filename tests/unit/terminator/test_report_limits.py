"""How much of the lines of one node fits into a report."""

import json

from hypothesis import given
from hypothesis import strategies as st

from daemonset_job.api.json_text import json_bytes
from daemonset_job.api.line_limits import LAST_LINE_BYTES, LAST_LINES_BYTES, SHORT_LINE_BYTES
from terminator.logs.report_limits import is_cut_from, last_line_alone, readable_lines


def go_bytes(text):
    """Return the length of a text as encoding/json of Go writes it, without the quotes."""
    written = json.dumps(text, ensure_ascii=False)[1:-1]
    for character in "<>&\u2028\u2029":
        written = written.replace(character, f"\\u{ord(character):04x}")
    return len(written.encode())


def test_last_lines_are_readable():
    lines = [b"first", b"", b"\x1b[31mdisk\tfull\x1b[0m\r", b"\x00", b"exit"]
    assert readable_lines(lines, 5) == ("first", "disk full", "exit")
    assert readable_lines(lines, 2) == ("disk full", "exit")
    assert readable_lines(lines, 0) == ()
    (line,) = readable_lines([b"x" * 500], 5)
    assert line == "x" * 159 + "…"
    assert len(readable_lines([b"y" * 150] * 50, 50)) == LAST_LINES_BYTES // 150


def test_the_last_line_alone_is_cut_to_its_bytes():
    assert last_line_alone(()) == ()
    assert last_line_alone(("first", "disk full")) == ("disk full",)
    (line,) = last_line_alone(("<" * 160,))
    assert line == "<" * 49 + "…"
    assert go_bytes(line) <= LAST_LINE_BYTES
    assert last_line_alone((line,)) == (line,)


def test_what_a_report_keeps_of_lines_is_cut_from_them():
    lines = ("first", "<" * 160)
    for limit in (LAST_LINE_BYTES, SHORT_LINE_BYTES):
        assert is_cut_from(last_line_alone(lines, limit), lines)
    assert is_cut_from((), ())
    assert is_cut_from(("disk full",), ("first", "disk full"))
    for kept in ((), lines, ("<" * 20,), ("first",)):
        assert not is_cut_from(kept, lines)
    assert not is_cut_from(("disk full",), ())


@given(st.lists(st.binary(max_size=600), max_size=50), st.integers(0, 50))
def test_last_lines_fit(lines, count):
    kept = readable_lines(lines, count)
    assert len(kept) <= count
    assert sum(go_bytes(line) for line in kept) <= LAST_LINES_BYTES
    assert all(line.isprintable() and line for line in kept)


@given(
    st.text(
        st.one_of(
            st.sampled_from('<>&\u2028\u2029"\\\x7f\u00e9\U0001f600'),
            st.characters(exclude_categories=["Cs"]),
        )
    )
)
def test_bytes_are_those_of_the_json_that_the_server_keeps(text):
    assert json_bytes(text) >= go_bytes(text)
    if all(character >= " " for character in text):
        assert json_bytes(text) == go_bytes(text)


def test_lines_full_of_escapes_take_no_more_room_than_others():
    assert len(readable_lines([b"<" * 60] * 50, 50)) == LAST_LINES_BYTES // 360

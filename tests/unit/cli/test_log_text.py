"""Logs as text: what a task prints controls no terminal, and equal outputs are printed once."""

import time

import pytest

from kubectl_dsjob import log_text
from kubectl_dsjob.errors import CliError
from kubectl_dsjob.log_sources import LogWish, choose_nodes, choose_sources
from kubectl_dsjob.log_text import (
    LINE_LIMIT_BYTES,
    Groups,
    LogLine,
    LogParser,
    NewLines,
    clean_line,
    format_lines,
    time_key,
)
from tests.unit.cli.views import HOSTILE, run


def parse(*chunks, has_times=False):
    parser = LogParser(has_times=has_times)
    lines = [line for chunk in chunks for line in parser.feed(chunk)]
    return [*lines, *parser.end()]


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("plain", "plain"),
        ("  two  blanks", "  two  blanks"),
        ("a\tb", "a       b"),
        ("windows\r", "windows"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x9b31mred", "red"),
        ("\x1b]0;no end", "0;no end"),
        ("\x1bc", ""),
        ("50%\r100%", "50%\N{REPLACEMENT CHARACTER}100%"),
        ("\u202eevil", "\N{REPLACEMENT CHARACTER}evil"),
        ("a\u00a0b", "a b"),
        ("日本語", "日本語"),
    ],
)
def test_a_line_controls_no_terminal(raw, shown):
    found = clean_line(raw)
    assert found == shown
    assert found.isprintable()


@pytest.mark.parametrize("text", [HOSTILE, *(chr(c) for c in range(0xA0)), "\x1b\x1b[", "\u2028"])
def test_any_character_becomes_printable(text):
    assert all(line.text.isprintable() for line in parse(text.encode()))


@pytest.mark.parametrize("start", ["\x1b]", "\x1b[", "\x1bP", "\x9b", "\x90"])
def test_sequences_without_end_take_linear_time(start):
    began = time.process_time()
    clean_line(start * (LINE_LIMIT_BYTES // len(start)))
    assert time.process_time() - began < 1


def test_lines_are_cut_where_chunks_are_not():
    assert [line.text for line in parse(b"on", b"e\ntw", b"o\n\nend")] == ["one", "two", "", "end"]


def test_bytes_that_are_no_text_are_shown_as_such():
    assert [line.text for line in parse(b"\xff\xfe\n")] == ["\N{REPLACEMENT CHARACTER}" * 2]


@pytest.mark.parametrize("size", [LINE_LIMIT_BYTES, LINE_LIMIT_BYTES + 1, 5 * LINE_LIMIT_BYTES])
def test_an_endless_line_is_printed_in_pieces_and_nothing_is_lost(size):
    chunks = [b"x" * 1000] * (size // 1000) + [b"x" * (size % 1000)]
    lines = parse(*chunks, b"\nnext\n")
    assert sum(len(line.text) for line in lines) == size + len("next")
    assert all(len(line.text) <= LINE_LIMIT_BYTES for line in lines)


def test_a_piece_of_a_line_has_the_time_of_its_beginning():
    lines = parse(b"2026-01-01T00:00:00Z " + b"x" * LINE_LIMIT_BYTES, b"y z\n", has_times=True)
    assert {line.time for line in lines} == {"2026-01-01T00:00:00Z"}
    assert lines[-1].text.endswith("y z")


def test_times_are_compared_to_the_nanosecond():
    times = ["2026-01-01T00:00:00Z", "2026-01-01T00:00:00.1Z", "2026-01-01T00:00:00.100000001Z"]
    assert max(times, key=time_key) == times[2]
    assert min(times, key=time_key) == times[0]
    assert time_key("nonsense") == ""


def test_lines_that_come_again_are_left_out():
    seen = NewLines()
    one, two = LogLine("a", "2026-01-01T00:00:00.5Z"), LogLine("b", "2026-01-01T00:00:00.5Z")
    assert [seen.is_new(line) for line in (one, two)] == [True, True]
    seen.opened_again()
    later, third = LogLine("d", "2026-01-01T00:00:01Z"), LogLine("c", "2026-01-01T00:00:00.5Z")
    assert [seen.is_new(line) for line in (one, two, third, later)] == [False, False, True, True]
    seen.opened_again()
    assert [seen.is_new(line) for line in (one, two, third, later)] == [False] * 4


def test_equal_outputs_are_printed_once_and_the_odd_one_last():
    groups = Groups()
    for node in ("node-3", "node-1", "node-2", "node-4"):
        assert groups.add(node, ["6.1"] if node != "node-1" else ["5.9", "old"])
    rule = "-" * 16
    lines = [rule, "node-[2-4] (3 nodes)", rule, "6.1", rule, "node-1", rule, "5.9", "old"]
    assert groups.text().splitlines() == lines


def test_different_outputs_have_a_bound(monkeypatch):
    monkeypatch.setattr(log_text, "GROUP_LIMIT_CHARACTERS", 10)
    groups = Groups()
    assert groups.add("a", ["x" * 10])
    assert groups.add("b", ["x" * 10])
    assert not groups.add("c", ["y"])


def test_a_line_begins_with_its_node():
    lines = [LogLine("text", "12:00")]
    assert format_lines("n", lines, has_prefix=True, has_times=False) == "n: text\n"
    assert format_lines("n", lines, has_prefix=False, has_times=True) == "12:00 text\n"


def test_nodes_are_chosen_by_name_or_pattern():
    nodes = ["rack1-a", "rack1-b", "rack2-a"]
    assert choose_nodes(nodes, (), "") == nodes
    assert choose_nodes(nodes, ("rack1-*", "rack1-a"), "") == ["rack1-a", "rack1-b"]


def test_an_unknown_node_is_answered_with_near_names():
    with pytest.raises(CliError) as caught:
        choose_nodes(["rack1-a", "rack1-b"], ("rack1-c",), "sweep -n cli")
    assert "rack1-a" in caught.value.way_out
    assert caught.value.code == 2


def test_of_deleted_pods_the_report_answers():
    sources = choose_sources(run(exists=False), {}, LogWish(only_failed=True))
    assert [(source.node, source.kept) for source in sources] == [
        ("node-0002", ("trying", "disk full"))
    ]
    lost = [source.node for source in choose_sources(run(), {}, LogWish()) if source.is_lost]
    assert lost == ["node-0000", "node-0001", "node-0003", "node-0004"]

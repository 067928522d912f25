"""A short read: what to ask, and what the answer proves. The kubelet is played by `answer`."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemonset_job.api.line_limits import LAST_LINES_BYTES
from daemonset_job.api.result_limits import (
    RESULT_BYTES,
    RESULTS_BYTES,
    RESULTS_LIMIT,
    bounded_results,
)
from terminator.logs.findings import Findings
from terminator.logs.log_parser import LINE_LIMIT, Cursor, Line
from terminator.logs.matcher import Matcher, Progress
from terminator.logs.report_limits import LAST_LINES_LIMIT
from terminator.logs.tail_read import (
    LARGE_TAIL_BYTES,
    LARGE_TAIL_LINES,
    SMALL_TAIL_LINES,
    TAIL_BYTES,
    TAIL_LINES,
    TailRead,
    TailRequest,
)

MATCHER = Matcher("done", "Line", "broken", ("ip", "n"))


def at(number):
    return f"2026-01-02T03:04:{number // 1000 % 60:02}.{number % 1000:03}000000Z"


def whole(*texts):
    """Records of whole lines, one millisecond apart."""
    return [(at(n), text, True) for n, text in enumerate(texts)]


def long_line(number, length):
    """Records of one line as containerd writes it: full ones of 16 KiB, and the rest."""
    count, rest = divmod(length, LINE_LIMIT)
    records = [(at(number), b"x" * LINE_LIMIT, False)] * count
    return [*records, (at(number), b"x" * rest, True)]


def answer(records, ask, since=None):
    """Return what the kubelet sends: the last records, joined to lines, the end cut off."""
    out, is_new = b"", True
    for moment, text, ends in records[-ask.lines :]:
        if since is None or moment >= since:
            if is_new:
                out += moment.encode() + b" "
            out += text + (b"\n" if ends else b"")
        is_new = ends
    return out[: ask.max_bytes]


def read(records, cursor=None, unfinished=None, found=None, matcher=MATCHER):
    """Do a whole short read; return it and how often it asked."""
    tail = TailRead(matcher, found or Findings(), cursor, unfinished)
    asks = []
    while tail.request is not None:
        asks.append(tail.request)
        since = f"{cursor.timestamp[:19]}" if cursor else None
        tail.feed(answer(records, tail.request, since))
    return tail, asks


FULL = TailRequest(TAIL_LINES, TAIL_BYTES)


NAMES = tuple(f"r{number:02}" for number in range(RESULTS_LIMIT))


@pytest.mark.parametrize("value", ["x" * RESULT_BYTES, "\U0001f600" + "x" * (RESULT_BYTES - 4)])
def test_the_results_of_a_log_take_little_more_memory_than_a_report_has_room_for(value):
    found = Findings()
    records = whole(*(f"dsjob:result {name}={value}".encode() for name in NAMES))
    read(records, found=found, matcher=Matcher("done", results=NAMES))
    assert set(found.results) == set(NAMES)
    kept = [value for value in found.results.values() if value is not None]
    assert sum(map(sys.getsizeof, kept)) < 5 * RESULTS_BYTES
    # Those that the report keeps are the same.
    unbounded = bounded_results(dict.fromkeys(NAMES, value))
    assert bounded_results(found.results) == unbounded


def test_results_that_fit_into_a_report_are_all_kept_also_if_they_were_longer_before():
    found, names = Findings(), NAMES[:8]
    long = [f"dsjob:result {name}={'x' * RESULT_BYTES}".encode() for name in names]
    wide = "\U0001f600" * 100
    short = [f"dsjob:result {name}={wide}".encode() for name in names]
    read(whole(*long, *short), found=found, matcher=Matcher("done", results=names))
    assert found.results == dict.fromkeys(names, wide)


@pytest.mark.parametrize("character", ["\u00e9", "\u20ac"])
def test_results_with_a_character_beyond_ascii_have_as_much_room(character):
    """All values had little more than the limit, and one is shorter in the end."""
    found, names = Findings(), NAMES[:5]
    value = character + "x" * 990
    lines = [f"dsjob:result {name}={value}".encode() for name in names]
    shorter = f"dsjob:result {names[0]}=x".encode()
    read(whole(*lines, shorter), found=found, matcher=Matcher("done", results=names))
    assert found.results == dict.fromkeys(names, value) | {names[0]: "x"}


def test_an_older_answer_does_not_take_back_newer_results():
    """A short read was on its way while the stream brought more of the log."""
    found, records = Findings(), whole(b"dsjob:result ip=early", b"dsjob:result ip=late", b"done")
    read(records[:1], found=found)
    read(records[:2], found=found)
    read(records[:1], found=found)
    assert found.results == {"ip": "late"}
    read(records, found=found)
    assert (found.results, found.completed_at) == ({"ip": "late"}, at(2))


@pytest.mark.parametrize("seconds", [(1, 5, 3), (5, 3, 3), (5, 3, 4), (5, 3, 6)])
@pytest.mark.parametrize("token", [b"done", b"broken"])
def test_the_last_result_counts_although_the_clock_was_set_back(seconds, token):
    texts = (b"dsjob:result ip=1", b"dsjob:result ip=2", token)
    moments = [at(1000 * second) for second in seconds]
    records = [(*record, True) for record in zip(moments, texts, strict=True)]
    found = read(records)[0].findings
    assert found.results == {"ip": "2"}
    assert moments[2] in {found.completed_at, found.failed_at}
    # So it is if an earlier read has seen the beginning.
    again = Findings()
    read(records[:1], found=again)
    assert read(records, found=again)[0].findings == found


def test_a_last_line_without_newline_counts_although_the_clock_was_set_back():
    matcher = Matcher(None, results=("ip",))
    records = [(at(5000), b"dsjob:result ip=1", True), (at(3000), b"dsjob:result ip=2", False)]
    tail, _ = read(records, matcher=matcher)
    tail, _ = read(records, unfinished=tail.unfinished, matcher=matcher)
    assert tail.findings.results == {"ip": "2"}


def test_a_short_log_takes_one_request():
    tail, asks = read(whole(b"hello", b"dsjob:progress 1/2", b"dsjob:result ip=1", b"done", b"z"))
    assert tail.findings.completed_at == at(3)
    assert tail.findings.results == {"ip": "1"}
    assert tail.findings.progress == Progress(1, 2)
    assert asks == [FULL]


def test_the_first_decision_stays():
    tail, _ = read(whole(b"broken", b"done"))
    assert (tail.findings.failed_at, tail.findings.completed_at) == (at(0), "")
    read(whole(b"x", b"done"), found=tail.findings)
    assert not tail.findings.completed_at


def test_a_log_of_any_size_takes_one_request():
    tail, asks = read(whole(*[b"line"] * 100_000, b"done"))
    assert tail.findings.completed_at
    assert asks == [FULL]


def test_long_lines_before_the_token_take_a_few():
    records = [record for n in range(40) for record in long_line(n, 10_000)]
    tail, asks = read([*records, (at(50), b"done", True)])
    assert tail.findings.completed_at == at(50)
    assert asks == [FULL, TailRequest(SMALL_TAIL_LINES, TAIL_BYTES)]


def test_a_line_of_nine_megabytes_breaks_nothing():
    tail, asks = read([*long_line(1, 9_000_000), (at(2), b"done", True)])
    assert tail.findings.completed_at == at(2)
    assert len(asks) == 2


def test_records_too_long_for_anything_end_the_read():
    huge = [(at(n), b"x" * 200_000, True) for n in range(3)]
    tail, asks = read(huge)
    assert not tail.findings.is_final
    assert [ask.lines for ask in asks] == [TAIL_LINES, SMALL_TAIL_LINES, 1]
    assert tail.cursor.timestamp == ""


def test_the_rest_of_a_long_line_is_not_the_token():
    # The newest hundred records begin in the middle of the line ``xxx…xdone``.
    records = [(at(1), b"x" * LINE_LIMIT, False), (at(1), b"done", True)]
    records += whole(*[b"y"] * (TAIL_LINES - 1))
    tail, asks = read(records)
    assert not tail.findings.is_final
    assert asks == [FULL, TailRequest(TAIL_LINES + 1, TAIL_BYTES)]


def test_token_in_the_first_line_of_a_full_answer_is_confirmed():
    records = [(at(0), b"before", True), (at(1), b"done", True)]
    records += whole(*[b"y"] * (TAIL_LINES - 1))
    tail, asks = read(records)
    assert tail.findings.completed_at == at(1)
    assert len(asks) == 2


def test_the_rest_of_a_long_line_among_few_records_is_not_the_token():
    records = [record for n in range(30) for record in long_line(n, 16_000)]
    records += [(at(40), b"x" * LINE_LIMIT, False), (at(40), b"done", True)]
    records += [record for n in range(41, 47) for record in long_line(n, 16_000)]
    tail, _ = read(records)
    assert not tail.findings.is_final


def test_a_cursor_leaves_only_what_is_new():
    records = whole(b"a", b"b", b"done")
    tail, _ = read(records, Cursor(at(2), 1))
    assert not tail.findings.is_final
    tail, _ = read(records, Cursor(at(1), 1))
    assert tail.findings.completed_at == at(2)
    assert tail.cursor == Cursor(at(2), 1)


def test_a_gap_is_filled_once_with_more_lines():
    records = whole(b"known", b"done", *[b"y"] * 1500)
    tail, asks = read(records, Cursor(at(0), 1))
    assert tail.findings.completed_at == at(1)
    assert asks == [FULL, TailRequest(LARGE_TAIL_LINES, LARGE_TAIL_BYTES)]


def test_a_gap_too_wide_is_left():
    records = whole(b"known", b"done", *[b"y" * 100] * 9000)
    tail, asks = read(records, Cursor(at(0), 1))
    assert not tail.findings.is_final
    assert len(asks) == 2
    assert tail.cursor == Cursor(records[-1][0], 1)  # the wide answer was cut: it ends earlier


def test_a_log_shorter_than_the_read_has_no_gap_to_fill():
    _, asks = read(whole(b"rotated", b"away"), Cursor("2026-01-02T03:03:00.000000000Z", 1))
    assert asks == [FULL]


def test_an_unfinished_line_counts_when_it_stays():
    records = [*whole(b"a"), (at(1), b"done", False)]
    tail, _ = read(records)
    assert not tail.findings.is_final
    assert tail.unfinished == Line(at(1), b"done", unfinished=True)
    again, _ = read(records, unfinished=tail.unfinished)
    assert again.findings.completed_at == at(1)


def test_an_unfinished_line_that_goes_on_does_not_count():
    first, _ = read([*whole(b"a"), (at(1), b"done", False)])
    second, _ = read([*whole(b"a"), (at(1), b"done!", False)], unfinished=first.unfinished)
    assert not second.findings.is_final
    assert second.unfinished is None


def test_a_result_without_newline_counts_when_it_stays_and_no_token_can_follow_it():
    for line, names in ((b"dsjob:result ip=1", {"ip"}), (b"dsjob:result port=1", {"port"})):
        records = [*whole(b"a"), (at(1), line, False)]
        exit_matcher = Matcher(None, results=("ip", "n"))
        first, _ = read(records, matcher=exit_matcher)
        assert first.findings.all_results == {}
        again, _ = read(records, unfinished=first.unfinished, matcher=exit_matcher)
        assert again.findings.all_results.keys() == names
        assert again.unfinished is None
        # In mode Log it does: the token is a line of its own.
        assert read(records)[0].unfinished is None


def test_the_cut_end_of_an_answer_is_no_line():
    # The answer ends, by its limit, in the middle of ``done!``.
    line = b"x" * (TAIL_BYTES - 2 * len(at(0)) - len(b" \n done"))
    tail = TailRead(MATCHER, Findings())
    tail.feed(answer(whole(line, b"done!"), TailRequest(TAIL_LINES, TAIL_BYTES)))
    assert tail.unfinished is None
    assert not tail.findings.is_final


def test_words_of_the_kubelet_are_not_the_tasks():
    tail = TailRead(MATCHER, Findings())
    tail.feed(b"done\n")
    assert not tail.findings.is_final


def span(records, cursor=None):
    """Return the times of the lines between which a read shows the log without a gap."""
    tail, _ = read(records, cursor)
    return tail.span[:2]


def test_a_read_shows_its_lines_without_a_gap():
    assert span([]) == ("", "")
    assert span(whole(b"a", b"b", b"c")) == (at(0), at(2))
    # The first line of a full answer may be the rest of a longer one.
    assert span(whole(*[b"x"] * 300)) == (at(201), at(299))
    # Answers of long lines are cut: between the first and the last one, lines are missing.
    assert span([(at(n), b"x" * 15_000, True) for n in range(40)]) == (at(34), at(39))


def test_a_read_from_a_cursor_goes_on_from_there():
    records = whole(*[b"x"] * 4000)
    assert span(records[:90], Cursor(at(5), 1)) == (at(5), at(89))
    assert span(records[:90], Cursor(at(89), 1)) == (at(89), at(89))
    assert span(records[:1500], Cursor(at(5), 1)) == (at(5), at(1499))
    assert span(records, Cursor(at(1999), 1)) == (at(2001), at(3999))


def test_read_from_a_cursor_outside_the_log_returns_all_lines():
    """The kubelet began another file: the answer is short, and lines are missing all the same."""
    assert span(whole(*[b"x"] * 9)[4:], Cursor(at(0), 1)) == (at(4), at(8))


def test_last_line_without_newline_counts_as_a_requested_line():
    """Of more lines than asked for: what was before them is not known."""
    records = [*whole(*[b"x"] * 150), (at(150), b"done", False)]
    first, _ = read(records)
    assert not first.is_whole
    assert first.span[:2] == (at(52), at(149))
    again, _ = read(records, unfinished=first.unfinished)
    assert again.has_decided
    assert again.span[:2] == (at(52), at(150))


def test_result_after_the_token_is_dropped():
    records = whole(b"known", b"dsjob:result ip=1", b"done", *[b"y"] * 300, b"dsjob:result ip=2")
    tail, asks = read(records, Cursor(at(0), 1))
    assert (len(asks), tail.findings.completed_at) == (2, at(2))
    assert tail.findings.results == {}


def test_findings_of_an_earlier_read_stay():
    found = Findings(completed_at=at(0), results={"ip": "1"})
    tail, asks = read(whole(b"done", b"dsjob:result ip=2", b"broken"), found=found)
    assert (len(asks), tail.has_decided) == (1, False)
    assert found == Findings(completed_at=at(0), results={"ip": "1"})


def test_last_lines_are_kept_bounded():
    found = Findings()
    read(whole(*[b"%d" % n for n in range(60)], b"z" * 10_000), found=found)
    assert len(found.last_lines) == LAST_LINES_LIMIT
    assert found.last_lines[0] == b"11"
    assert len(found.last_lines[-1]) < 1000
    read(whole(*[b"w" * 600] * 60), found=found)
    assert LAST_LINES_BYTES < sum(map(len, found.last_lines)) <= 2 * LAST_LINES_BYTES
    read([], found=found)
    assert found.last_lines == ()
    read([*whole(b"a"), (at(1), b"disk full", False)], found=found)
    assert found.last_lines == (b"a", b"disk full")


texts = st.sampled_from([b"x", b"done!", b"not done", b"", b"y" * 300, b"dsjob:progress 1/2"])


@given(st.lists(texts, max_size=300), st.integers(0, 90), st.booleans())
def test_a_token_near_the_end_is_found_and_nothing_else_is(before, after, has_token):
    token = [b"done"] if has_token else []
    tail, asks = read(whole(*before, *token, *[b"z"] * after))
    assert bool(tail.findings.completed_at) == has_token
    assert len(asks) <= 4

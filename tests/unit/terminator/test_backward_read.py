"""Results from further back in a log. The kubelet is played by `read`, in chunks."""

from hypothesis import example, given
from hypothesis import strategies as st

from terminator.logs.backward_read import BACKWARD_BYTES, BackwardRead
from terminator.logs.findings import Findings
from terminator.logs.matcher import Matcher

MATCHER = Matcher("done", "Line", None, ("ip", "n"))
CHUNK = 16 * 1024


def stamp(number):
    seconds, milliseconds = divmod(number, 1000)
    hour, minute, second = seconds // 3600, seconds // 60 % 60, seconds % 60
    return f"2026-01-02T{hour:02}:{minute:02}:{second:02}.{milliseconds:03}000000Z"


def search(lines, found=None, matcher=MATCHER, chunk=CHUNK):
    """Search a log of whole lines; return the findings, the bytes read, and the requests."""
    raw = [f"{stamp(n)} ".encode() + line + b"\n" for n, line in enumerate(lines)]
    found = found or Findings()
    until = found.completed_at or stamp(len(lines) - 1)
    back, read, asks = BackwardRead(matcher, found, until), 0, 0
    while back.request is not None:
        asks += 1
        answer = b"".join(raw[-back.request.lines :])[: back.request.max_bytes]
        back.begin()
        for start in range(0, len(answer), chunk):
            piece = answer[start : start + chunk]
            read += len(piece)
            if not back.feed(piece):
                break
        back.end()
    return found, read, asks


def completed(lines):
    """Return the findings of a log of which only the token was seen."""
    return Findings(completed_at=stamp(lines.index(b"done")))


def test_nothing_is_asked_for_where_nothing_is_missing():
    assert search([b"x"], Findings(results={"ip": "1", "n": "2"}))[1:] == (0, 0)
    assert search([b"x"], matcher=Matcher("done", "Line"))[1:] == (0, 0)


def test_a_result_at_the_beginning_of_a_long_log_is_found():
    for count in (150, 1_999, 2_000, 2_001, 5_000, 20_000):
        lines = [b"dsjob:result ip=10.0.0.1", *[b"copied a file"] * count, b"done", b"idle"]
        found, read, asks = search(lines, completed(lines))
        assert found.results == {"ip": "10.0.0.1"}, count
        assert read <= BACKWARD_BYTES
        assert asks <= 6


def test_the_first_name_that_the_job_does_not_list_is_found():
    for before in ([], [b"started"]):
        lines = [*before, b"dsjob:result adress=1", *[b"x"] * 3000, b"dsjob:result port=2"]
        lines += [*[b"x"] * 3000, b"done", b"dsjob:result other=3"]
        known = completed(lines)
        known.unlisted_result = "port"
        found, _, _ = search(lines, known)
        assert found.unlisted_result == "adress"
        assert found.results == {}


def test_the_last_value_before_the_token_counts():
    lines = [b"dsjob:result ip=1", *[b"x"] * 3000, b"dsjob:result ip=2", *[b"x"] * 3000]
    lines += [b"done", b"dsjob:result ip=3", *[b"x"] * 10]
    assert search(lines, completed(lines))[0].results == {"ip": "2"}


def test_what_is_known_already_stays():
    lines = [b"dsjob:result ip=1", b"dsjob:result n=1", *[b"x"] * 300, b"done"]
    found = completed(lines)
    found.results["ip"] = "2"
    assert search(lines, found)[0].results == {"ip": "2", "n": "1"}


def test_without_a_token_the_whole_log_counts():
    lines = [b"dsjob:result ip=1", *[b"x"] * 4000]
    exit_ = Matcher(None, "Line", None, ("ip",))
    assert search(lines, matcher=exit_)[0].results == {"ip": "1"}


def test_the_cost_does_not_depend_on_the_size_of_the_log():
    costs = []
    for count in (50_000, 100_000):
        lines = [b"dsjob:result ip=1", *[b"x" * 60] * count, b"done"]
        found, read, asks = search(lines, completed(lines))
        assert found.results == {}
        assert asks <= 8
        costs.append(read)
    assert costs[0] == costs[1] <= BACKWARD_BYTES


def test_possible_rest_of_a_longer_line_is_no_result():
    lines = [*[b"x"] * 3, b"dsjob:result ip=rest", *[b"y"] * 1999]
    exit_ = Matcher(None, "Line", None, ("ip",))
    raw = [f"{stamp(n)} ".encode() + line + b"\n" for n, line in enumerate(lines)]
    back = BackwardRead(exit_, found := Findings(), stamp(len(lines) - 1))
    back.feed(b"".join(raw[-2000:]))
    back.end()
    assert found.results == {}
    assert back.request is not None


def answer(back, numbers, lines):
    """Give an answer of lines to a search, with the numbers that are their times."""
    back.begin()
    text = zip(numbers, lines, strict=True)
    back.feed(b"".join(f"{stamp(n)} ".encode() + line + b"\n" for n, line in text))
    back.end()


def test_results_of_a_file_rotated_after_the_token_are_ignored():
    late = [b"dsjob:result ip=late", b"x", b"dsjob:result ip=later"]
    back = BackwardRead(MATCHER, found := Findings(completed_at=stamp(5)), stamp(5))
    answer(back, [6, 7, 8], late)
    while back.request is not None:
        answer(back, [6, 7, 8], late)
    assert found.results == {}
    assert back.is_elsewhere


def test_results_of_a_file_rotated_during_the_search_are_ignored():
    lines = [b"x"] * 2000
    back = BackwardRead(MATCHER, found := Findings(completed_at=stamp(4999)), stamp(4999))
    answer(back, range(3000, 5000), [*lines[:-1], b"done"])
    assert back.request is not None
    answer(back, [5000, 5001], [b"dsjob:result ip=late", b"x"])
    assert (found.results, back.request) == ({}, None)


def test_an_empty_log_is_of_another_start():
    back = BackwardRead(MATCHER, found := Findings(completed_at=stamp(5)), stamp(5))
    answer(back, [], [])
    assert (found.results, back.request, back.is_elsewhere) == ({}, None, True)


def test_results_of_another_start_without_a_token_are_ignored():
    exit_ = Matcher(None, "Line", None, ("ip",))
    back = BackwardRead(exit_, found := Findings(), stamp(5))
    answer(back, [6, 7], [b"dsjob:result ip=again", b"x"])
    while back.request is not None:
        answer(back, [6, 7], [b"dsjob:result ip=again", b"x"])
    assert found.results == {}
    before = BackwardRead(exit_, found, stamp(5))
    answer(before, [1, 2], [b"dsjob:result ip=before", b"x"])
    assert (found.results, before.request, before.is_elsewhere) == ({}, None, False)


def test_first_line_of_a_full_answer_is_ambiguous_despite_an_unfinished_last():
    """Nothing before it is known: it may be the rest of a longer line."""
    exit_ = Matcher(None, "Line", None, ("ip",))
    back = BackwardRead(exit_, found := Findings(), stamp(1998))
    lines = [b"dsjob:result ip=rest", *[b"y"] * 1998]
    raw = [f"{stamp(n)} ".encode() + line + b"\n" for n, line in enumerate(lines)]
    back.feed(b"".join(raw) + f"{stamp(1999)} ".encode() + b"unfinished")
    back.end()
    assert found.results == {}


def test_a_token_without_newline_is_where_the_search_begins():
    back = BackwardRead(MATCHER, found := Findings(completed_at=stamp(2)), stamp(2))
    back.feed(f"{stamp(0)} x\n{stamp(1)} dsjob:result ip=1\n{stamp(2)} done".encode())
    back.end()
    assert found.results == {"ip": "1"}


def test_a_token_that_much_was_printed_after_is_found():
    lines = [b"x", b"dsjob:result ip=1", *[b"x"] * 500, b"done", *[b"idle"] * 5000]
    assert search(lines, completed(lines))[0].results == {"ip": "1"}


noise = st.sampled_from([b"x", b"y" * 200, b"z" * 3000])
printed = st.sampled_from([b"dsjob:result ip=1", b"dsjob:result ip=2", b"dsjob:result n=3"])
blocks = st.lists(st.tuples(noise, st.integers(0, 1500), printed), max_size=6)


@given(blocks, st.integers(0, 50), st.sampled_from([500, CHUNK]))
@example([(b"x", 0, b"dsjob:result ip=1"), (b"z" * 3000, 900, b"dsjob:result n=3")], 0, CHUNK)
def test_a_value_is_the_last_one_or_missing(parts, after, chunk):
    lines = [line for filler, count, result in parts for line in (*[filler] * count, result)]
    lines += [*[b"x"] * 150, b"done", *[b"idle"] * after]
    last = {}
    for line in lines:
        if line.startswith(b"dsjob:result "):
            name, _, value = line.removeprefix(b"dsjob:result ").decode().partition("=")
            last[name] = value
    found, read, asks = search(lines, completed(lines), chunk=chunk)
    assert found.results.items() <= last.items()
    assert read <= BACKWARD_BYTES + chunk
    assert asks <= 8
    if sum(map(len, lines)) + 35 * len(lines) < BACKWARD_BYTES / 3:
        assert found.results == last

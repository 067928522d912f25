"""What a line means. Not here: how lines are cut out of a log."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemonset_job.api.job_spec import Completion, JobSpec
from daemonset_job.api.result_limits import RESULT_BYTES
from daemonset_job.api.tokens import REGEX_LINE_BYTES, regex_line_bytes
from terminator.logs.matcher import (
    Completed,
    Failed,
    Matcher,
    Progress,
    Result,
    UnlistedResult,
    clean_line,
    printable,
)


@pytest.mark.parametrize(
    "line",
    [
        b"done",
        b"done\r",
        b"  done\t ",
        b"\x1b[32mdone\x1b[0m",
        b"\x1b[1;32mdo\x1b[0mne\r",
        b"\x1b]0;a title\x07done",
        b"\x1b]8;;http://x\x1b\\done\x1b]8;;\x1b\\",
        b"\x1b(Bdone",
        b"\x1b[Kdone\x1b7",
        b"\xc2\x9b32mdone",
        b"\xc2\x9d0;t\xc2\x9cdone",
        b"\x00\x00\x00done\x00",
        b"\xef\xbb\xbfdone",
        b"\xc2\xa0done\xe2\x80\xa8",
        b"done\x0b\x0c",
    ],
)
def test_the_whole_line_is_the_token(line):
    assert Matcher("done").classify(line) == Completed()


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"not done yet",
        b"done!",
        b"done.",
        b"DONE",
        b"done done",
        b"do\x00ne",
        b"do ne",
        b"done\xff",
        b"\xfe\xffd\x00o\x00n\x00e\x00",
        b"50%\rdone",
        b"[32mdone",
        b"\x1b]0;title done",
        b"\x1b[31",
        "d\u043ene".encode(),  # a Cyrillic o
        b"done\x1b[31mx",
    ],
)
def test_other_lines_are_not(line):
    assert Matcher("done").classify(line) is None


def test_the_head_of_a_longer_line_is_no_line():
    assert Matcher("done").classify(b"done", truncated=True) is None
    assert Matcher("^done", "Regex").classify(b"done", truncated=True) is None
    assert Matcher("done", "Contains").classify(b"done", truncated=True) == Completed()
    assert Matcher("x").classify(b"dsjob:progress 1/2", truncated=True) is None
    assert Matcher("x", "Contains").classify(b"dsjob:progress 1/2", truncated=True) is None


@pytest.mark.parametrize(
    ("match", "token", "line", "expected"),
    [
        ("Contains", "done", b"not done yet", Completed()),
        ("Contains", "done", b"\x1b[1mdo\x1b[0mne", Completed()),
        ("Contains", "done", b"DONE", None),
        ("Regex", r"^done in \d+ s$", b"done in 12 s\r", Completed()),
        ("Regex", r"^done in \d+ s$", b"done in x s", None),
        ("Line", "all\tdone", b" all\tdone ", Completed()),
        ("Line", "fertig ✓", "fertig ✓".encode(), Completed()),
        ("Line", " done ", b"done", Completed()),
    ],
)
def test_ways_to_match(match, token, line, expected):
    assert Matcher(token, match).classify(line) == expected


@pytest.mark.parametrize(
    ("token", "size"), [("done", 8), ("(?:a?){200}done", 408), ("\\bdone\\b", 9), ("d(?:o|0)ne", 8)]
)
def test_a_pattern_is_looked_for_in_the_first_bytes_of_a_line(token, size):
    limit = regex_line_bytes(size)
    assert limit == (REGEX_LINE_BYTES if size < 128 else 128 * 1024 // size)
    matcher = Matcher(token, "Regex")
    for truncated in (False, True):
        # Blanks at the edge are taken away before that.
        head, rest = b" " * 9 + b"x" * (limit - 5), b" and more" * 2000
        assert matcher.classify(head + b" done" + rest, truncated=truncated) == Completed()
        assert matcher.classify(head + b"x done" + rest, truncated=truncated) is None


@pytest.mark.parametrize(
    "token", ["done$", "done\\z", "^x+done$", "done\\b", "(?:a?){200}done$", "e$"]
)
def test_a_line_does_not_end_where_it_is_no_longer_looked_at(token):
    size = 408 if "200" in token else 10
    head = b"x" * (regex_line_bytes(size) - 4) + b"done"
    matcher = Matcher(token, "Regex")
    assert matcher.classify(head) == Completed()
    assert matcher.classify(head + b"r") is None
    assert matcher.classify(head + b"r" * 20_000, truncated=True) is None
    assert matcher.classify(head, truncated=True) is None


def test_the_cut_may_go_through_a_character():
    for text in ("é", "€", "😀"):
        line = b"x" + (text * REGEX_LINE_BYTES).encode()
        assert Matcher(f"{text}$", "Regex").classify(line) is None
        assert Matcher(f"^x{text}", "Regex").classify(line) == Completed()
        assert Matcher("\ufffd", "Regex").classify(line) is None


def test_failure_goes_first():
    matcher = Matcher("done", "Contains", "not done")
    assert matcher.classify(b"done") == Completed()
    assert matcher.classify(b"not done") == Failed()
    assert Matcher("done", "Line", "failed").classify(b"failed\r") == Failed()
    assert Matcher("^d", "Regex", "^f").classify(b"f") == Failed()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"dsjob:result ip=10.0.0.1", Result("ip", "10.0.0.1")),
        (b"  dsjob:result ip=10.0.0.1 \r", Result("ip", "10.0.0.1")),
        (b"dsjob:result a.b-c_d=", Result("a.b-c_d", "")),
        (b"dsjob:result ip=a=b", Result("ip", "a=b")),
        (b"dsjob:result ip=a\x07b\x00c", Result("ip", "abc")),
        (b"dsjob:result ip=480\t/var/log", Result("ip", "480 /var/log")),  # as du prints it
        (b"dsjob:result ip=a\xc2\xa0b\rc", Result("ip", "a b c")),
        # A right-to-left override and a zero-width space, in UTF-8.
        (
            b"dsjob:result ip=ok \xe2\x80\xaegnp.exe\xe2\x80\x8b\xe2\x81\xa6",
            Result("ip", "ok gnp.exe"),
        ),
        (b"dsjob:result ip=" + b"x" * RESULT_BYTES, Result("ip", "x" * RESULT_BYTES)),
        (b"dsjob:result ip=" + b"x" * (RESULT_BYTES + 1), Result("ip", None)),
        (b"dsjob:result ip=" + "\N{LOBSTER}".encode() * 257, Result("ip", None)),
        (b'dsjob:result ip={"a": [1, "<x>"]}', Result("ip", '{"a": [1, "<x>"]}')),
        (b"dsjob:result ip=" + b"<" * 342, Result("ip", None)),  # six bytes each in etcd
        (b"dsjob:result other=1", UnlistedResult("other")),
        (b"dsjob:result other=" + b"x" * 20_000, UnlistedResult("other")),
        (b"dsjob:result -x=1", None),
        (b"dsjob:result =1", None),
        (b"dsjob:result ip", None),
        (b"x dsjob:result ip=1", None),
        (b"dsjob:progress 3/10", Progress(3, 10)),
        (b"dsjob:progress 0/1", Progress(0, 1)),
        (b"dsjob:progress 3/0", None),
        (b"dsjob:progress 4/3", None),
        (b"dsjob:progress -1/3", None),
        (b"dsjob:progress 1/" + b"9" * 16, None),
        (b"dsjob:unknown", None),
    ],
)
def test_protocol(line, expected):
    matcher = Matcher("done", results=("ip", "a.b-c_d", "-x", ""))
    assert matcher.classify(line) == expected


def test_of_a_job():
    spec = JobSpec(image="x")
    assert Matcher.of(spec, "fini").classify(b"fini") == Completed()
    own = JobSpec(
        image="x",
        completion=Completion(token="ready.", match="Contains", failure_token="bad"),
        results=("n",),
    )
    matcher = Matcher.of(own, "fini")
    assert matcher.classify(b"I am ready.") == Completed()
    assert matcher.classify(b"too bad") == Failed()
    assert matcher.classify(b"dsjob:result n=1") == Result("n", "1")


def test_mode_exit_has_no_token():
    spec = JobSpec(image="x", completion=Completion(mode="Exit"), results=("n",))
    matcher = Matcher.of(spec, "done")
    assert matcher.classify(b"done") is None
    assert matcher.classify(b"dsjob:result n=1") == Result("n", "1")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((" ",), "spec.completion.token must not be blank"),
        (("done", "Line", "\t"), "spec.completion.failureToken must not be blank"),
        (("a\nb",), "token must not contain line breaks or control characters"),
        (("a\x1b[1mb", "Contains"), "must not contain line breaks or control"),
        (("(", "Regex"), "spec.completion.token: missing"),
        (("\\pL{900}", "Regex"), "spec.completion.token: pattern too large"),
        (("(a?){500}z", "Regex"), "token: pattern too large.*more than 500 instr"),
        (("done", "Regex", "\\pL"), "failureToken: pattern too large.*: write a smaller one"),
        (("done", "Glob"), "match 'Glob' does not exist; use Line, Contains or Regex"),
    ],
)
def test_a_token_that_cannot_work_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Matcher(*arguments)


@pytest.mark.parametrize(
    "token",
    [
        "done",
        r"^\{.*\"msg\":\"all done\".*\}$",
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z? +\[?INFO\]? .* done$",
        r"(?i)task\s+(completed|finished|done)\s+in\s+[0-9.]+(ms|s|m)$",
        "x" * 256,
        r"\p{Greek}+",
        r"^(?:[0-9]{1,3}\.){3}[0-9]{1,3} is ready$",
    ],
)
def test_ordinary_patterns_are_small_enough(token):
    Matcher(token, "Regex")


def test_escapes_cost_linear_time():
    matcher = Matcher("done", "Contains")
    started = time.process_time()
    for evil in (b"\x1b[" * 8192, b"\x1b]" * 8192, b"\x1b[0" * 5000, b"\x1b    " * 3000):
        matcher.classify(evil)
    assert time.process_time() - started < 0.5


@given(st.binary(max_size=64))
def test_any_bytes_are_some_text_or_none(line):
    matcher = Matcher("done", results=("n",))
    assert matcher.classify(line) in (None, Completed()) or line.find(b"dsjob:") >= 0
    assert clean_line(line) == clean_line(clean_line(line).encode("utf-8", "replace"))


@given(st.binary(max_size=64))
def test_what_a_report_shows_is_printable(line):
    assert printable(line).isprintable()


@given(
    before=st.sampled_from([b"", b" ", b"\x1b[0m", b"\x00", b"\t\r"]),
    after=st.sampled_from([b"", b"\r", b" \r", b"\x1b[0m\r", b"\x00"]),
    token=st.text(min_size=1, max_size=8).filter(lambda t: t == printable(t.encode()) != ""),
)
def test_any_token_is_recognised_whatever_surrounds_it(before, after, token):
    assert Matcher(token).classify(before + token.encode() + after) == Completed()


def test_printable_hides_what_deceives():
    assert printable("a\u202eb\x1b[31m\x07c\r".encode()) == "ab c"

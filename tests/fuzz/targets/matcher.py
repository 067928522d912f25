"""Any token that is accepted and any line: an answer, bounded, and the same for equal lines."""

from daemonset_job.api.result_limits import is_too_long
from daemonset_job.api.tokens import REGEX_LINE_BYTES
from terminator.logs.log_parser import LINE_LIMIT
from terminator.logs.matcher import (
    Completed,
    Failed,
    Finding,
    Matcher,
    Progress,
    RememberingMatcher,
    Result,
    UnlistedResult,
    clean_line,
    printable,
)
from tests.fuzz.log_bytes import draw_line
from tests.fuzz.source import Source

_TOKENS = ("done", "d", "a b", "\N{LOBSTER}", "dsjob:", "x" * 2000, "\u202edone", "a\tb", "<&>")
_PATTERNS = (
    "^done$",
    "done|broken",
    "(?i)done",
    "x{1,80}y",
    r"\bdone\b",
    ".",
    r"\pL",
    "[^a]$",
    r"(?s)x.*y",
    r"\C",
    r"\x00",
    "(a|b)*c",
    "$^",
    "x*",
)
_RESULTS = ("ip", "a.b_c-d", "ip2")


def check(data: bytes) -> None:
    source = Source(data)
    match = source.pick(("Line", "Contains", "Regex", "Regex", "Other"))
    known = _PATTERNS if match == "Regex" else _TOKENS
    drawn, failure = _draw_token(source, known), _draw_token(source, known)
    token = drawn if source.below(4) else None
    results = [name for name in _RESULTS if source.below(2)]
    line = _draw_line(source, token or failure or "")[:LINE_LIMIT]
    _check_texts(line)
    try:
        matcher = Matcher(token, match, failure, results)
    except ValueError as error:
        refused = str(error)
    else:
        refused = ""
    assert not refused or refused.startswith("spec.completion.")
    if refused:
        return
    assert match != "Other" or (token is None and not failure)
    assert matcher == Matcher(token, match, failure, reversed(results))
    found = matcher.classify(line)
    _check_finding(matcher, found)
    assert matcher.classify(line) == found
    remembering = RememberingMatcher(matcher)
    assert [remembering.classify(line) for _ in range(2)] == [found] * 2
    _check_head(matcher, match, line, found)
    _check_edges(matcher, match, line, found)


def _draw_token(source: Source, known: tuple[str, ...]) -> str:
    if source.below(2):
        return source.pick(known)
    return source.take(source.below(40)).decode("utf-8", "replace")


def _draw_line(source: Source, token: str) -> bytes:
    match source.below(4):
        case 0:
            return source.rest()
        case 1:
            return draw_line(source)
        case 2:
            before, after = source.take(source.below(20)), source.take(source.below(20))
            return before + token.encode() + after
        case _:
            return token.encode() + b"x" * source.below(3000) + token.encode()


def _check_texts(line: bytes) -> None:
    cleaned, shown = clean_line(line), printable(line)
    assert len(cleaned) <= len(line)
    assert clean_line(cleaned.encode()) == cleaned or "\x1b" in cleaned or "\x9b" in cleaned
    assert all(character.isprintable() for character in shown)
    assert shown == shown.strip()


def _check_finding(matcher: Matcher, found: Finding | None) -> None:
    match found:
        case Completed():
            assert matcher.has_token
        case Result(name, value):
            assert name in matcher.results
            assert value is None or not is_too_long(value)
            assert all(character.isprintable() for character in value or "")
        case UnlistedResult(name):
            assert name not in matcher.results
            assert 0 < len(name) <= 63
        case Progress(done, total):
            assert 0 <= done <= total
            assert total > 0
        case Failed() | None:
            pass


def _check_head(matcher: Matcher, match: str, line: bytes, found: Finding | None) -> None:
    """The head of a longer line is no whole line, and a result without a value at most."""
    head = matcher.classify(line, truncated=True)
    if isinstance(head, Result):
        assert head.value is None
        head = None
    if match == "Line":
        assert head is None
    assert not isinstance(head, Progress)
    if isinstance(head, Completed | Failed):
        assert head == found
    if match == "Regex":
        # What comes after the bytes that are looked at changes nothing.
        long = clean_line(line).encode()
        if len(long) > REGEX_LINE_BYTES + 4 and matcher.classify(long) is not None:
            assert isinstance(matcher.classify(long, truncated=True), Completed | Failed)


def _check_edges(matcher: Matcher, match: str, line: bytes, found: Finding | None) -> None:
    """Blanks, CR and NUL around a line change nothing, nor do colours around a text."""
    if b"\x1b" in line or b"\x9b" in line or b"\x9d" in line:
        return
    try:
        line.decode()
    except UnicodeDecodeError:
        return
    assert matcher.classify(b"\x00 \t" + line + b" \r") == found
    if line.strip():
        assert matcher.classify(b"\x1b[1;31m" + line + b"\x1b[0m") == found

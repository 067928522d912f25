"""The completion tokens of a Job: what they can be, and how a line is compared with one.

Pure. The terminator reads logs with these comparisons. The controller builds them before a run
starts, and sets a condition of the Job for a token that the terminator could not use.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import re2

from daemonset_job.api.choices import CompletionMode
from daemonset_job.api.job_spec import Completion

LINE, CONTAINS, REGEX = "Line", "Contains", "Regex"
# The instructions of the program that RE2 makes of a pattern. At worst it takes all of them for
# each byte of a line, some 7 ns each, so with the two bounds below a line costs 1 ms. Ordinary
# tokens have 8 to 280; a Unicode class such as \pL alone has 1,200.
REGEX_PROGRAM_LIMIT: Final = 500
# How many first bytes of a line a regular expression sees at most, in UTF-8. With a program of over
# 128 instructions it sees fewer: instructions times bytes are at most `_REGEX_STEPS`.
REGEX_LINE_BYTES: Final = 1024
_REGEX_STEPS = 128 * REGEX_LINE_BYTES
# What RE2 may use for one pattern; its own default is 8 MiB. It is enough for such programs.
# If a pattern's states do not fit, RE2 makes as many as do before it goes on without them. More
# memory makes that dearer: with 1 MiB, the worst pattern costs three times as much as with this.
_PATTERN_BYTES = 1 << 16
# Blanks and control characters at the edges: CR of CRLF, NULs that log rotation by truncation
# leaves behind, a byte order mark, Unicode's blanks.
EDGE_CHARACTERS = "".join(map(chr, range(0x21))) + "".join(
    map(chr, (*range(0x7F, 0xA1), 0x1680, *range(0x2000, 0x200C), 0x2028, 0x2029))
)
EDGE_CHARACTERS += "\u202f\u205f\u3000\ufeff"
CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
# What no line that is compared holds; it may hold a tab.
_FORBIDDEN_CHARACTERS = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]")


@dataclass(frozen=True, slots=True)
class Comparison:
    """A test of cleaned lines, and the steps that it takes for each byte of them at worst.

    `is_token(text, truncated)` returns whether the line is the token; `truncated` says that `text`
    is only the head of it.
    """

    is_token: Callable[[str, bool], bool]
    steps_per_byte: int = 1


def token_to_find(completion: Completion, default_token: str) -> str | None:
    """Return the token that completes a node, None in mode Exit.

    `default_token` serves a Job that names none.
    """
    return None if completion.mode == CompletionMode.EXIT else completion.token or default_token


def build_comparisons(
    token: str | None, match: str, failure_token: str | None
) -> tuple[Comparison | None, Comparison | None]:
    """Return how lines are compared with the token and with the failure token, None for no token.

    Raises ValueError, with the field and what is wrong, for a token that could never be seen or
    would always be, and for an unknown `match`.
    """
    return (
        _comparison("token", token, match) if token is not None else None,
        _comparison("failureToken", failure_token, match) if failure_token else None,
    )


@lru_cache(maxsize=256)
def check_tokens(completion: Completion, default_token: str) -> str:
    """Return why the tokens of a Job cannot be used, "" if they can."""
    token = token_to_find(completion, default_token)
    try:
        build_comparisons(token, completion.match, completion.failure_token)
    except ValueError as error:
        return str(error)
    return ""


def regex_line_bytes(instructions: int) -> int:
    """Return how many bytes of a line a pattern with a program of that size is compared with."""
    return min(REGEX_LINE_BYTES, _REGEX_STEPS // instructions)


def _regex_comparison(field: str, token: str) -> Comparison:
    """Return the test of a regular expression, in time linear in the line whatever the pattern.

    RE2 for that reason, and because it is what the API server checks the pattern with.
    """
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = _PATTERN_BYTES
    try:
        pattern = re2.compile(token, options)
    except re2.error as error:
        reason = error.args[0].decode(errors="replace") if error.args else "not RE2 syntax"
        if "too large" in reason:
            raise ValueError(_too_large_message(field)) from error
        fix = "correct the regular expression (RE2 syntax)"
        raise ValueError(f"spec.completion.{field}: {reason}: {fix}") from error
    if pattern.search(""):
        raise ValueError(
            f"spec.completion.{field}: the pattern matches the empty line, and so any line: write "
            "one that needs at least one character"
        )
    # RE2 matches some patterns backwards; -1 is a program that it could not make, and does not use.
    size = max(pattern.programsize, pattern.reverseprogramsize)
    if size > REGEX_PROGRAM_LIMIT:
        raise ValueError(_too_large_message(field))
    limit = regex_line_bytes(size)

    def is_token(text: str, truncated: bool) -> bool:
        data = text.encode()
        if truncated and len(data) <= limit:
            return False  # its end is not that of the line
        # RE2 gets the whole line and the place to stop at: so $ and \b do not match at the cut.
        return pattern.search(data, 0, min(len(data), limit)) is not None

    return Comparison(is_token, size)


def _too_large_message(field: str) -> str:
    return (
        f"spec.completion.{field}: pattern too large: its program in RE2 has more than "
        f"{REGEX_PROGRAM_LIMIT} instructions: write a smaller one: repetitions such as {{100}} are "
        "multiplied out, and Unicode classes such as \\pL are large"
    )


def _comparison(field: str, token: str, match: str) -> Comparison:
    stripped = token.strip(EDGE_CHARACTERS)
    if not stripped:
        raise ValueError(
            f"spec.completion.{field} must not be blank: lines are compared without blanks around "
            "them, so it could never be seen"
        )
    if match == REGEX:
        return _regex_comparison(field, token)
    if _FORBIDDEN_CHARACTERS.search(stripped):
        raise ValueError(
            f"spec.completion.{field} must not contain line breaks or control characters: it is "
            f"looked for in one line"
        )
    if match == CONTAINS:
        return Comparison(lambda text, _truncated: stripped in text)
    if match == LINE:
        return Comparison(lambda text, truncated: not truncated and text == stripped)
    raise ValueError(
        f"spec.completion.match {match!r} does not exist; use {LINE}, {CONTAINS} or {REGEX}"
    )

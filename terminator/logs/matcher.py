"""Classifies the lines of a task's log: token, failure token, result, progress or nothing.

Pure. Lines are untrusted bytes. Before a comparison they are decoded with replacement, bounded,
and stripped of terminal escapes, blanks and NULs.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Protocol

from daemonset_job.api.job_spec import JobSpec
from daemonset_job.api.result_limits import is_too_long
from daemonset_job.api.tokens import (
    CONTROLS,
    EDGE_CHARACTERS,
    LINE,
    REGEX,
    build_comparisons,
    token_to_find,
)

# RE2 steps per portion. A step takes at most some 7 ns. Splitting a byte into lines and removing
# escapes takes at most the time of some 40 steps.
_PORTION_STEPS = 1 << 20
_LEAST_STEPS = 64
_LEAST_PORTION_BYTES = 1024


@dataclass(frozen=True, slots=True)
class Completed:
    """The line is the token."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The line is the failure token."""


@dataclass(frozen=True, slots=True)
class Result:
    """The line is ``dsjob:result NAME=VALUE``; the value is None if it is too long."""

    name: str
    value: str | None


@dataclass(frozen=True, slots=True)
class UnlistedResult:
    """The line is a result of a name that the Job does not list."""

    name: str


@dataclass(frozen=True, slots=True)
class Progress:
    """The line is ``dsjob:progress DONE/TOTAL``; 0 <= done <= total, total > 0."""

    done: int
    total: int


Finding = Completed | Failed | Result | UnlistedResult | Progress

# ECMA-48: CSI sequences, OSC strings up to BEL or ST (ESC \), and the two- and three-byte rest.
# Each alternative runs forward to the next ESC at most, so a line costs its length.
_ESCAPES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|(?:\x1b\]|\x9d)[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"
    r"|\x1b[ -/]*[0-~]"
)
_PROTOCOL = b"dsjob:"
_RESULT = re.compile(
    r"dsjob:result ([A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)=(.*)", re.DOTALL
)
# The beginning of such a line whose end was cut off.
_RESULT_HEAD = b"dsjob:result "
_HEAD_BYTES = 256
_PROGRESS = re.compile(r"dsjob:progress ([0-9]{1,15})/([0-9]{1,15})")


def clean_line(line: bytes) -> str:
    """Return the text of a line without ANSI escapes, and without blanks and NULs at its edges."""
    text = line.decode("utf-8", "replace")
    if "\x1b" in text or "\x9b" in text or "\x9d" in text:
        text = _ESCAPES.sub("", text)
    return text.strip(EDGE_CHARACTERS)


def printable(line: bytes) -> str:
    """Return the text of a line as a terminal, a report or an event may show it."""
    return _visible(CONTROLS.sub(" ", clean_line(line))).strip()


def _visible(text: str) -> str:
    """Return a text without the invisible characters that change how the rest is shown.

    These are right-to-left overrides, marks and the like. Tabs and other blanks become a blank:
    without one, two words would be another word.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else " " for c in text if c.isprintable() or c.isspace())


class Classifier(Protocol):
    """Classifies lines; see Matcher.classify."""

    def classify(self, line: bytes, *, truncated: bool = False) -> Finding | None:
        """Return what a line means, None for an ordinary one."""


class Matcher:
    """Classifies the lines that the tasks of one Job print.

    `match` is how both tokens are recognised: Line (the cleaned line is the token), Contains
    (it contains it), Regex (the pattern, in RE2 syntax, matches somewhere in it). A line that is
    both tokens is a failure. Raises ValueError with the reason for an unknown `match`, and for a
    token that no line or every line would match.

    With `token` None, no line completes a node (mode Exit). Of results that are not named in
    `results`, only the name is kept.

    Matchers of the same parameters are equal: findings of one hold for the other.
    """

    def __init__(
        self,
        token: str | None,
        match: str = LINE,
        failure_token: str | None = None,
        results: Iterable[str] = (),
    ) -> None:
        self._token, self._failure = build_comparisons(token, match, failure_token)
        self.results = frozenset(results)
        self.has_token = token is not None
        self._is_line = match == LINE
        self._steps_per_byte = sum(c.steps_per_byte for c in (self._token, self._failure) if c)
        self._identity = (token, match, failure_token, self.results)
        # Bytes without which a line cannot mean anything. Escapes are among them, because one may
        # be inside the token.
        marks = [_PROTOCOL, b"\x1b", b"\xc2\x9b", b"\xc2\x9d"]
        marks += [t.strip(EDGE_CHARACTERS).encode() for t in (token, failure_token) if t]
        # A regular expression has to be compared with every line; the empty pattern is in each.
        self._marks = re.compile(b"" if match == REGEX else b"|".join(map(re.escape, marks)))

    @classmethod
    def of(cls, spec: JobSpec, default_token: str) -> "Matcher":
        """Return the matcher of a Job; `default_token` is the token of a Job that names none."""
        completion = spec.completion
        token = token_to_find(completion, default_token)
        return cls(token, completion.match, completion.failure_token, spec.results)

    def __eq__(self, other: object) -> bool:
        """Return whether both find the same in every line."""
        return isinstance(other, Matcher) and self._identity == other._identity

    def __hash__(self) -> int:
        """Return a hash that equal matchers share."""
        return hash(self._identity)

    @property
    def portion_bytes(self) -> int:
        """Return how many bytes of any log can be parsed in about 10 ms."""
        return max(_PORTION_STEPS // max(self._steps_per_byte, _LEAST_STEPS), _LEAST_PORTION_BYTES)

    def classify(self, line: bytes, *, truncated: bool = False) -> Finding | None:
        """Return what `line` (without its newline) means, None for an ordinary one.

        `truncated` says that `line` is the head of a longer one. Match Line then finds no token,
        and Regex looks at the head only. A result of that length is too long.
        """
        if self._marks.search(line) is None:
            return None
        if truncated and self._is_line:
            return self._cut_result(line)
        text = clean_line(line)
        if self._failure is not None and self._failure.is_token(text, truncated):
            return Failed()
        if self._token is not None and self._token.is_token(text, truncated):
            return Completed()
        if truncated:
            return self._cut_result(line)
        return self._of_protocol(text) if text.startswith("dsjob:") else None

    def _cut_result(self, line: bytes) -> Finding | None:
        """Return a result whose value is too long, if `line` is the head of one."""
        head = line[:_HEAD_BYTES]
        if _RESULT_HEAD not in head:
            return None
        found = self._of_protocol(clean_line(head))
        if isinstance(found, Result):
            return replace(found, value=None)
        return found if isinstance(found, UnlistedResult) else None

    def _of_protocol(self, text: str) -> Finding | None:
        found = _protocol(text)
        if isinstance(found, Result) and found.name not in self.results:
            return UnlistedResult(found.name)
        return found


class RememberingMatcher:
    """A matcher with a cache of its answers."""

    def __init__(self, matcher: Matcher) -> None:
        self._matcher = matcher
        self._known: dict[tuple[bytes, bool], Finding | None] = {}

    def classify(self, line: bytes, *, truncated: bool = False) -> Finding | None:
        """Return what a line means, None for an ordinary one."""
        key = (line, truncated)
        if key not in self._known:
            self._known[key] = self._matcher.classify(line, truncated=truncated)
        return self._known[key]


def _protocol(text: str) -> Finding | None:
    if found := _RESULT.fullmatch(text):
        # Too long is no result rather than a cut one: half an address is a wrong address.
        value = _visible(found[2])
        return Result(found[1], None if is_too_long(value) else value)
    if found := _PROGRESS.fullmatch(text):
        done, total = int(found[1]), int(found[2])
        return Progress(done, total) if total > 0 and done <= total else None
    return None

"""Whether a pattern matches a line, in time linear in the line whatever the pattern.

Pure. The pattern's tree becomes a nondeterministic automaton (Thompson's construction) whose set
of live states is followed through the line, one character at a time and never back; sets that
have occurred are remembered with their successors, which makes an ordinary line a walk through
dictionaries (https://swtch.com/~rsc/regexp/regexp1.html). One line costs at most its length times
STATES_LIMIT steps, and memory is bounded by CACHE_LIMIT.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from terminator.pattern import (
    Assertion,
    CharSet,
    Choice,
    PatternError,
    Repeat,
    Sequence,
    Tree,
    is_word,
    parse_pattern,
)

# A token of 256 characters (the CRD's limit) without counted repetitions stays far below it.
STATES_LIMIT = 512
# Remembered transitions; about 200 bytes each. A pattern and a log that need more (nobody's
# honest token does) start afresh, at the cost of time and not of memory.
CACHE_LIMIT = 4096

_MATCH = 0
_START, _WORD, _OTHER = range(3)  # what stands before a place: nothing, a word character, another


@dataclass(slots=True, eq=False)
class _Live:
    """The states to look at before the next character, and what is known to follow."""

    ids: frozenset[int]
    before: int
    after: dict[str, "_Live | None"] = field(default_factory=dict)


class Automaton:
    """A compiled pattern; PatternError for one that is wrong, too large, or matches nothing at all.

    "Nothing at all" is the empty line: a token that it matches would complete any node.
    """

    def __init__(self, pattern: str) -> None:
        self._sets: list[CharSet | None] = [None]
        self._tests: list[str] = [""]
        self._next: list[tuple[int, ...]] = [()]
        self._built = 0
        self._first = self._build(parse_pattern(pattern), _MATCH)
        self._known: dict[tuple[frozenset[int], int], _Live] = {}
        self._remembered = 0
        self._begin = self._live(frozenset((self._first,)), _START)
        if self.matches(""):
            raise PatternError("the pattern matches the empty line, and so any line")

    def matches(self, line: str) -> bool:
        """Return whether the pattern matches somewhere in `line`."""
        live = self._begin
        for char in line:
            try:
                following = live.after[char]
            except KeyError:
                following = self._step(live, char)
            if following is None:
                return True
            live = following
        return _MATCH in self._closure(live, "")

    # --- building ------------------------------------------------------------------------

    def _add(self, charset: CharSet | None, test: str, after: Iterable[int]) -> int:
        if len(self._next) >= STATES_LIMIT:
            raise _too_large()
        self._sets.append(charset)
        self._tests.append(test)
        self._next.append(tuple(after))
        return len(self._next) - 1

    def _build(self, tree: Tree, after: int) -> int:
        """Return the first state of a fragment that goes on to `after`."""
        # Repetitions of nothing add no states, but nested they would be written out for ever.
        self._built += 1
        if self._built > 8 * STATES_LIMIT:
            raise _too_large()
        match tree:
            case CharSet():
                return self._add(tree, "", (after,))
            case Assertion(kind):
                return self._add(None, kind, (after,))
            case Sequence(parts):
                for part in reversed(parts):
                    after = self._build(part, after)
                return after
            case Choice(options):
                return self._add(None, "", [self._build(option, after) for option in options])
        return self._repeat(tree, after)

    def _repeat(self, tree: Repeat, after: int) -> int:
        body, least, most = tree.body, tree.least, tree.most
        if most is None:
            loop = self._add(None, "", ())
            self._next[loop] = (self._build(body, loop), after)
            after = loop
        else:
            end = after
            for _ in range(most - least):
                after = self._add(None, "", (self._build(body, after), end))
        for _ in range(least):
            after = self._build(body, after)
        return after

    # --- running -------------------------------------------------------------------------

    def _live(self, ids: frozenset[int], before: int) -> _Live:
        known = self._known.get((ids, before))
        if known is None:
            known = self._known[ids, before] = _Live(ids, before)
        return known

    def _step(self, live: _Live, char: str) -> _Live | None:
        reached = self._closure(live, char)
        result: _Live | None = None
        if _MATCH not in reached:
            ids = {self._first}
            for state in reached:
                charset = self._sets[state]
                if charset is not None and charset.has(char):
                    ids.update(self._next[state])
            result = self._live(frozenset(ids), _WORD if is_word(char) else _OTHER)
        self._remembered += 1
        if self._remembered > CACHE_LIMIT:
            self._forget()
        else:
            live.after[char] = result
        return result

    def _forget(self) -> None:
        self._remembered = 0
        self._known.clear()
        self._begin.after.clear()
        self._known[self._begin.ids, self._begin.before] = self._begin

    def _closure(self, live: _Live, char: str) -> set[int]:
        """Return all states reached without a character, between what was before and `char`."""
        reached: set[int] = set()
        todo = list(live.ids)
        while todo:
            state = todo.pop()
            if state in reached or not _holds(self._tests[state], live.before, char):
                continue
            reached.add(state)
            if self._sets[state] is None:
                todo.extend(self._next[state])
        return reached


def _too_large() -> PatternError:
    return PatternError(
        f"the pattern is too large: more than {STATES_LIMIT} states once repetitions are written "
        f"out"
    )


def _holds(test: str, before: int, char: str) -> bool:
    if not test:
        return True
    if test == "start":
        return before == _START
    if test == "end":
        return char == ""
    boundary = (before == _WORD) != (char != "" and is_word(char))
    return boundary == (test == "word")

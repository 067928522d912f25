r"""Regular expressions in RE2 syntax, parsed: the first half of matching in linear time.

Pure. Why not `re`: a user's pattern meets lines that a task prints, and a backtracking engine
without a timeout can be kept busy for minutes by one line (``(a+)+$``), for every other Job too.
The API server checks `completion.token` with CEL's `matches`, which is RE2; this is the same
syntax, so that what it admits works here: literals, ``.``, classes (``[a-z]``, ``[[:alpha:]]``,
``\d \w \s``, ``\pL``), groups, alternation, ``* + ? {m,n}``, lazy ones too, ``^ $ \A \z \b \B``,
``\Q…\E``, flags i, m, s, U. As in RE2 there are no look-around assertions and no backreferences,
and ``\d \w \s \b`` are ASCII. Unicode script classes (``\p{Greek}``) are the one thing left out.
"""

import unicodedata
from dataclasses import dataclass

# RE2 and Go refuse more than a thousand repetitions; the automaton's own limit comes much sooner.
REPEAT_LIMIT = 1000
DEPTH_LIMIT = 50


class PatternError(ValueError):
    """The pattern is not one; the message says what is wrong and at which character."""


@dataclass(frozen=True, slots=True)
class CharSet:
    """A set of characters: ranges (inclusive code points), Unicode categories, other sets."""

    ranges: tuple[tuple[int, int], ...] = ()
    categories: tuple[str, ...] = ()
    sets: tuple["CharSet", ...] = ()
    negated: bool = False
    fold: bool = False

    def has(self, char: str) -> bool:
        """Return whether `char` is in the set; with `fold`, in either case."""
        found = self._has(char)
        if not found and self.fold:
            other = char.swapcase()
            found = len(other) == 1 and self._has(other)
        return found != self.negated

    def _has(self, char: str) -> bool:
        code = ord(char)
        if any(low <= code <= high for low, high in self.ranges):
            return True
        if self.categories and unicodedata.category(char).startswith(self.categories):
            return True
        return any(inner.has(char) for inner in self.sets)


@dataclass(frozen=True, slots=True)
class Assertion:
    """A place between characters: `kind` is start, end, word (boundary) or inside (no boundary)."""

    kind: str


@dataclass(frozen=True, slots=True)
class Sequence:
    """One thing after the other; empty matches the empty text."""

    parts: tuple["Tree", ...] = ()


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several."""

    options: tuple["Tree", ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """`least` to `most` times; `most` None means without limit."""

    body: "Tree"
    least: int
    most: int | None


Tree = CharSet | Assertion | Sequence | Choice | Repeat


def _ranges(text: str) -> tuple[tuple[int, int], ...]:
    return tuple((ord(text[i]), ord(text[i + 1])) for i in range(0, len(text), 2))


_DIGIT, _WORD, _SPACE = _ranges("09"), _ranges("09AZ__az"), _ranges("\t\n\f\r  ")
_PERL = {"d": _DIGIT, "w": _WORD, "s": _SPACE}
_POSIX = {
    "alnum": _ranges("09AZaz"),
    "alpha": _ranges("AZaz"),
    "ascii": _ranges("\x00\x7f"),
    "blank": _ranges("\t\t  "),
    "cntrl": _ranges("\x00\x1f\x7f\x7f"),
    "digit": _DIGIT,
    "graph": _ranges("!~"),
    "lower": _ranges("az"),
    "print": _ranges(" ~"),
    "punct": _ranges("!/:@[`{~"),
    "space": _ranges("\t\r  "),
    "upper": _ranges("AZ"),
    "word": _WORD,
    "xdigit": _ranges("09AFaf"),
}
_ASSERTIONS = {"A": "start", "z": "end", "b": "word", "B": "inside"}
_CONTROLS = {"a": 7, "f": 12, "t": 9, "n": 10, "r": 13, "v": 11}
_ANY = CharSet(negated=True)
_NOT_NEWLINE = CharSet(ranges=((10, 10),), negated=True)
_CATEGORIES = frozenset(
    major + minor
    for major, minors in {
        "C": "cfos",
        "L": "lmotu",
        "M": "cen",
        "N": "dlo",
        "P": "cdefios",
        "S": "ckmo",
        "Z": "lps",
    }.items()
    for minor in ("", *minors)
)


def is_word(char: str) -> bool:
    r"""Return whether ``\b`` sees `char` as part of a word: ASCII letters, digits, underscore."""
    return char.isascii() and (char.isalnum() or char == "_")


def parse_pattern(text: str) -> Tree:
    """Return the pattern's tree; PatternError says what is wrong or not supported."""
    reader = _Reader(text)
    tree = reader.choice(_Flags(), 0)
    if reader.at < len(text):
        raise reader.error("a closing parenthesis without its opening one")
    return tree


@dataclass(slots=True)
class _Flags:
    fold: bool = False
    dot_all: bool = False

    def copy(self) -> "_Flags":
        return _Flags(self.fold, self.dot_all)


@dataclass(slots=True)
class _Reader:
    text: str
    at: int = 0

    def error(self, what: str, at: int | None = None) -> PatternError:
        return PatternError(f"{what}, at character {(self.at if at is None else at) + 1}")

    def peek(self, what: str) -> bool:
        return self.text.startswith(what, self.at)

    def take(self, what: str) -> bool:
        found = self.peek(what)
        if found:
            self.at += len(what)
        return found

    def next(self) -> str:
        if self.at >= len(self.text):
            raise self.error("the pattern ends too early")
        self.at += 1
        return self.text[self.at - 1]

    def until(self, end: str, what: str) -> str:
        stop = self.text.find(end, self.at)
        if stop < 0:
            raise self.error(f"{what} is not closed by {end}")
        found = self.text[self.at : stop]
        self.at = stop + len(end)
        return found

    # --- structure -----------------------------------------------------------------------

    def choice(self, flags: _Flags, depth: int) -> Tree:
        if depth > DEPTH_LIMIT:
            raise self.error(f"groups are nested more than {DEPTH_LIMIT} deep")
        options = [self.sequence(flags, depth)]
        while self.take("|"):
            options.append(self.sequence(flags, depth))
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def sequence(self, flags: _Flags, depth: int) -> Tree:
        parts: list[Tree] = []
        while self.at < len(self.text) and not self.peek("|") and not self.peek(")"):
            if self.take("\\Q"):
                stop = self.text.find("\\E", self.at)
                quoted = self.text[self.at : None if stop < 0 else stop]
                self.at += len(quoted) + (2 if stop >= 0 else 0)
                parts.extend(_literal(char, flags) for char in quoted)
                if not quoted:
                    continue
            else:
                atom = self.atom(flags, depth)
                if atom is None:
                    continue
                parts.append(atom)
            parts[-1] = self.repeats(parts[-1])
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def repeats(self, body: Tree) -> Tree:
        start = self.at
        bounds = self.bounds()
        if bounds is None:
            return body
        self.take("?")  # a lazy one finds the same lines
        if self.bounds() is not None:
            raise self.error("a repetition of a repetition needs a group around the first", start)
        return Repeat(body, *bounds)

    def bounds(self) -> tuple[int, int | None] | None:
        for sign, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self.take(sign):
                return bounds
        if not self.peek("{"):
            return None
        stop = self.text.find("}", self.at)
        low, comma, high = self.text[self.at + 1 : max(stop, self.at)].partition(",")
        if not _is_number(low) or (high and not _is_number(high)):
            return None  # as in RE2, a brace that counts nothing is a brace
        least = int(low)
        most = int(high) if high else (None if comma else least)
        if max(least, most or 0) > REPEAT_LIMIT or (most is not None and most < least):
            raise self.error("a repetition count out of range")
        self.at = stop + 1
        return least, most

    def atom(self, flags: _Flags, depth: int) -> Tree | None:
        start = self.at
        char = self.next()
        if char == "(":
            return self.group(flags, depth)
        if char == "[":
            return self.char_class(flags)
        if char == "\\":
            return self.escape(flags)
        if char == ".":
            return _ANY if flags.dot_all else _NOT_NEWLINE
        if char in "^$":
            return Assertion("start" if char == "^" else "end")
        if char in "*+?":
            raise self.error("nothing to repeat", start)
        return _literal(char, flags)

    def group(self, flags: _Flags, depth: int) -> Tree | None:
        inner = flags.copy()
        if self.take("?"):
            if self.take("P<") or (self.peek("<") and not self.peek("<=") and not self.peek("<!")):
                self.take("<")
                self.until(">", "a group's name")
            elif self.peek("=") or self.peek("!") or self.peek("<"):
                raise self.error("look-around assertions are not supported (RE2 syntax)")
            elif not self.flags(inner):
                # `(?i)` speaks for the rest of the group around it.
                flags.fold, flags.dot_all = inner.fold, inner.dot_all
                return None
        body = self.choice(inner, depth + 1)
        if not self.take(")"):
            raise self.error("a parenthesis is not closed")
        return body

    def flags(self, flags: _Flags) -> bool:
        """Read ``i-s:`` or ``i)`` into `flags`; return whether a body follows."""
        on = True
        while (char := self.next()) not in ":)":
            if char == "-":
                on = False
            elif char == "i":
                flags.fold = on
            elif char == "s":
                flags.dot_all = on
            elif char not in "mU":  # one line at a time, and only whether it matches: no effect
                raise self.error(f"(?{char} is not supported (RE2 syntax)", self.at - 1)
        return char == ":"

    # --- characters ----------------------------------------------------------------------

    def escape(self, flags: _Flags) -> Tree:
        kind = self.text[self.at : self.at + 1]
        if kind in _ASSERTIONS and kind:
            self.at += 1
            return Assertion(_ASSERTIONS[kind])
        found = self.escaped()
        return _literal(found, flags) if isinstance(found, str) else found

    def escaped(self) -> "str | CharSet":
        """Return the character, or the class, after a backslash."""
        start = self.at - 1
        char = self.next()
        if char.lower() in _PERL:
            return CharSet(ranges=_PERL[char.lower()], negated=char.isupper())
        if char in "pP":
            return self.category(negated=char == "P")
        if char == "x":
            digits = (
                self.until("}", "a code point") if self.take("{") else self.next() + self.next()
            )
            if not _is_hex(digits) or int(digits, 16) > 0x10FFFF:
                raise self.error("not a code point", start)
            return chr(int(digits, 16))
        if char in _CONTROLS:
            return chr(_CONTROLS[char])
        if char.isascii() and char.isdigit():
            raise self.error("backreferences are not supported (RE2 syntax)", start)
        if char.isascii() and char.isalnum():
            raise self.error(f"\\{char} is not supported", start)
        return char

    def category(self, *, negated: bool) -> CharSet:
        start = self.at - 2
        name = self.until("}", "a category") if self.take("{") else self.next()
        if name.startswith("^"):
            name, negated = name[1:], not negated
        if name not in _CATEGORIES:
            raise self.error(f"the Unicode class {name!r} is not supported", start)
        return CharSet(categories=(name,), negated=negated)

    def char_class(self, flags: _Flags) -> CharSet:
        negated = self.take("^")
        ranges: list[tuple[int, int]] = []
        sets: list[CharSet] = []
        first = True
        while first or not self.peek("]"):
            first = False
            item = self.class_item()
            if isinstance(item, CharSet):
                sets.append(item)
                continue
            last = item
            if self.peek("-") and not self.peek("-]"):
                self.at += 1
                end = self.class_item()
                if isinstance(end, CharSet) or end < item:
                    raise self.error("a range that ends before it begins")
                last = end
            ranges.append((ord(item), ord(last)))
        self.at += 1
        return CharSet(tuple(ranges), (), tuple(sets), negated=negated, fold=flags.fold)

    def class_item(self) -> "str | CharSet":
        if self.peek("[:"):
            self.at += 2
            name = self.until(":]", "a class name")
            if name.removeprefix("^") not in _POSIX:
                raise self.error(f"the class [:{name}:] does not exist")
            return CharSet(_POSIX[name.removeprefix("^")], negated=name.startswith("^"))
        if self.at >= len(self.text):
            raise self.error("a bracket is not closed")
        return self.escaped() if self.take("\\") else self.next()


def _literal(char: str, flags: _Flags) -> CharSet:
    return CharSet(ranges=((ord(char), ord(char)),), fold=flags.fold)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 6


def _is_hex(text: str) -> bool:
    return bool(text) and all(char in "0123456789abcdefABCDEF" for char in text)

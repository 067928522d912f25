"""Regular expressions: RE2's syntax, Python's answers, linear time.

Where both engines speak the same language, `re` is the oracle.
"""

import re
import time
from unicodedata import category

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from terminator.automaton import CACHE_LIMIT, Automaton
from terminator.pattern import PatternError, parse_pattern

# Patterns whose meaning is the same in RE2 and in Python, and lines that tell them apart.
SHARED = [
    "done",
    "^done$",
    "don[ef]",
    "don[^e]",
    "[]x]",
    "[^]x]",
    "[a-c-]+$",
    "[-a]b",
    r"[\d_]+:",
    r"[^\d]x",
    r"a\.b",
    r"^\d+ of \d+$",
    r"\bdone\b",
    r"\Bone",
    r"^\w+\s\W$",
    r"\S\D",
    "a|b|cd",
    "(?:ab|cd)+$",
    "(?P<word>ab)c",
    "x(ab)?y",
    "xa*y",
    "xa+?y",
    "xa*?y",
    "xa??y",
    "a{2}$",
    "a{2,}b",
    "^a{1,2}b",
    "a{0}b",
    "a{,2}",
    "a{x}",
    "a{",
    "(?i)DoNe",
    "(?i:D)one",
    "(?is)d.ne",
    "(?i)[a-c]x",
    r"\x41",
    r"\tdone",
    r"\f|\v|\a|\r",
    "(|a)b",
    "(^a|b$)",
    "()done",
    r"\Aab",
    "(a*)*b",
    "(a|aa)+$",
    r"done\$",
    "é+x",
    ".",
    r"\(x\)",
]
LINES = [
    "",
    "done",
    "DONE",
    "not done yet",
    "done!",
    "dont",
    "donf",
    "a",
    "b",
    "ab",
    "abc",
    "abab",
    "cd",
    "abcd",
    "aab",
    "aaab",
    "aa",
    "aaa",
    "xay",
    "xaay",
    "xy",
    "xaby",
    "3 of 4",
    "3 of ",
    "x1",
    "12:",
    "_:",
    "]",
    "x",
    "ab-",
    "-b",
    "a{x}",
    "a{",
    "a{,2}",
    "A",
    "\tdone",
    "\x0b",
    "\x07",
    "word !",
    "one",
    "phone",
    "done$",
    "ééx",
    "(x)",
    "Bx",
    " \n ",
    "d\nne",
    "2x",
    "é",
]


@pytest.mark.parametrize("pattern", SHARED)
def test_answers_are_those_of_re(pattern):
    oracle = re.compile(pattern, re.ASCII if "é" not in pattern else 0)
    # A pattern that matches nothing at all is refused; with an anchor word in front it is not.
    if oracle.search(""):
        pattern, oracle = f"<{pattern}", re.compile(f"<(?:{pattern})", re.ASCII)
    automaton = Automaton(pattern)
    expected = [line for line in LINES if oracle.search(line)]
    assert [line for line in LINES if automaton.matches(line)] == expected


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        (r"\Qa.b*\E+$", ["a.b*", "a.b***"], ["axb", "a.b"]),
        (r"x\Q", ["x"], ["y"]),
        (r"\Q\Ex", ["x"], ["y"]),
        (r"\Qa+", ["a+"], ["aa"]),
        (r"^\pL+$", ["done", "läuft"], ["a1", "1"]),
        (r"^\p{Nd}{2}\P{Nd}$", ["12a"], ["123", "1ab"]),
        (r"^\p{^L}$", ["1"], ["a"]),
        (r"\x{1F600}", ["\U0001f600"], ["x"]),
        ("[[:alpha:]]{3}", ["abc"], ["ab1"]),
        ("^[[:^digit:]]$", ["a"], ["1"]),
        ("^[[:word:][:space:]]+$", ["a_1 b"], ["a-b"]),
        (r"^[\pL\d]+$", ["ä1"], ["-"]),
        (r"done\z", ["done", "not done"], ["done "]),
        ("(?<name>a)b", ["ab"], ["b"]),
        ("(?U)a+b", ["aab"], ["b"]),
        ("(?-i:a)B", ["aB"], ["ab"]),
        ("(a(?i)b)c", ["aBc"], ["aBC"]),
        ("(?m)^done$", ["done"], ["done x"]),
        ("(?i)straSSE", ["STRASSE", "strasse"], ["straße"]),
        ("(?i)[ß]", ["ß"], ["s"]),
        ("a{0,0}b", ["b"], ["a"]),
        ("[[]", ["["], ["a"]),
    ],
)
def test_what_only_re2_has(pattern, yes, no):
    automaton = Automaton(pattern)
    assert [line for line in yes + no if automaton.matches(line)] == yes


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("(?=a)b", "look-around assertions are not supported"),
        ("(?!a)b", "look-around assertions are not supported"),
        ("(?<=a)b", "look-around assertions are not supported"),
        ("(?<!a)b", "look-around assertions are not supported"),
        (r"(a)\1", "backreferences are not supported .RE2 syntax., at character 4"),
        ("(?x)a", r"\(\?x is not supported"),
        (r"\C", r"\\C is not supported"),
        (r"\p{Greek}", "the Unicode class 'Greek' is not supported"),
        (r"\x{FFFFFFFF}", "not a code point"),
        (r"\xg1", "not a code point"),
        (r"\x{}", "not a code point"),
        (r"\x{41", "a code point is not closed by }"),
        ("[[:vowel:]]", r"the class \[:vowel:\] does not exist"),
        ("[z-a]", "a range that ends before it begins"),
        (r"[a-\d]", "a range that ends before it begins"),
        ("[a", "a bracket is not closed"),
        ("[", "a bracket is not closed"),
        ("(a", "a parenthesis is not closed"),
        ("a)", "a closing parenthesis without its opening one, at character 2"),
        ("*a", "nothing to repeat, at character 1"),
        ("a**", "a repetition of a repetition needs a group"),
        ("a{2}{3}", "a repetition of a repetition needs a group"),
        ("a{2,1}", "a repetition count out of range"),
        ("a{9999}", "a repetition count out of range"),
        ("a{600}", "the pattern is too large: more than 512 states"),
        ("(a{100}){100}", "the pattern is too large"),
        ("((((){1000}){1000}){1000})x", "the pattern is too large"),
        ("a\\", "the pattern ends too early"),
        ("(?", "the pattern ends too early"),
        ("(" * 60 + "a" + ")" * 60, "groups are nested more than 50 deep"),
        ("a*", "matches the empty line, and so any line"),
        ("", "matches the empty line"),
        ("^", "matches the empty line"),
        (r"\B", "matches the empty line"),
    ],
)
def test_what_is_refused_and_why(pattern, message):
    with pytest.raises(PatternError, match=message):
        Automaton(pattern)


@pytest.mark.parametrize(
    "pattern",
    ["(a+)+$", "(a|aa)+$", "(a|a)*b", "a*a*a*a*a*b", "(.*)(.*)(.*)(.*)x$", "(a?){60}a{60}b"],
)
def test_evil_patterns_take_linear_time(pattern):
    automaton = Automaton(pattern)
    started = time.process_time()
    assert not automaton.matches("a" * 4096 + "!")
    assert time.process_time() - started < 1.0


def test_more_states_than_the_cache_holds_are_still_right():
    pattern = "(a|b)*a(a|b){13}$"
    automaton, oracle = Automaton(pattern), re.compile("a[ab]{13}$")
    lines = [format(7919**n, "b").translate({48: "a", 49: "b"}) for n in range(45)]
    assert [automaton.matches(line) for line in lines] == [
        oracle.search(line) is not None for line in lines
    ]
    assert automaton._remembered <= CACHE_LIMIT


atoms = st.sampled_from(["a", "b", "ab", ".", "[ab]", "[^a]", r"\w", r"\b", "^", "$", r"\d", "()"])
patterns = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda two: f"(?:{two[0]}|{two[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{2,}"])).map(
            lambda two: f"(?:{two[0]}){two[1]}"
        ),
    ),
    max_leaves=8,
)


@settings(max_examples=300, deadline=None)
@given(patterns, st.lists(st.text(alphabet="ab1 ", max_size=6), min_size=1, max_size=6))
def test_any_pattern_answers_as_re_does(pattern, lines):
    pattern = f"x{pattern}"
    # `$` of `re` also stands before a final newline, which no line here has.
    oracle = re.compile(pattern, re.ASCII)
    automaton = Automaton(pattern)
    for line in (f"x{line}" for line in lines):
        assert automaton.matches(line) == (oracle.search(line) is not None)


@given(st.text(max_size=20))
def test_any_text_is_a_pattern_or_a_clear_error(text):
    try:
        parse_pattern(text)
    except PatternError as error:
        message = str(error)
        event(message.partition(",")[0].partition("(")[0][:40])


@given(st.characters())
def test_categories_are_those_of_unicode(char):
    assert Automaton(r"\pL").matches(char) == category(char).startswith("L")

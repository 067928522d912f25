"""Each statement of the guarantees names what checks it, and that exists."""

import re

import pytest

from tests.simulation.oracle import INVARIANTS
from tests.unit.language import ROOT

TEXT = (ROOT / "docs" / "explanation" / "guarantees.md").read_text(encoding="utf-8")
RINGS = ("unit", "contract", "simulation", "integration", "e2e")
# A name of a test may have its folder before it, as in terminator/test_run.
_TEST = re.compile(r"(?:[\w/]+/)?test_\w+")
_CITED = re.compile(r"\*\(((?:sim:|unit|contract|simulation|integration|e2e)[^*]*)\)\*")
_EXCUSED = "excused as "
# Invariants of how the programs work, and of the form of a status.
_NO_PROMISES = {"idle write", "message", "observed", "process"}


def statements(text: str) -> list[str]:
    """Return the bullets, each with those below it, and the rows of tables but for their heads."""
    found: list[str] = []
    is_open = False
    for line in text.splitlines():
        if line.startswith(("- ", "| ")):
            found.append(line)
        elif is_open and line.startswith("  "):
            found[-1] += " " + line.strip()
        is_open = line.startswith(("- ", "  ")) and bool(found)
    return [each for each in found if not each.startswith("| What happens")]


def parts(text: str) -> list[tuple[str, list[str]]]:
    """Return what a text cites: a ring, or `sim`, and the names."""
    found = []
    for cited in _CITED.findall(" ".join(text.split())):
        for part in cited.split("; "):
            kind, _, names = part.partition(" ")
            if names.startswith("and "):  # unit and e2e test_x
                _, other, names = names.split(" ", 2)
                found.append((other, names.split(", ")))
            found.append((kind.removesuffix(":"), names.split(", ")))
    return found


def test_what_a_statement_cites_is_read():
    text = "- A is so. *(sim: a b, c, excused as d;\n  unit and e2e test_x; contract y/test_z)*\n"
    assert statements(f"{text}  - more\n\nNo statement.\n") == [
        "- A is so. *(sim: a b, c, excused as d; unit and e2e test_x; contract y/test_z)* - more"
    ]
    assert parts(text) == [
        ("sim", ["a b", "c", "excused as d"]),
        ("e2e", ["test_x"]),
        ("unit", ["test_x"]),
        ("contract", ["y/test_z"]),
    ]


def test_each_statement_names_what_checks_it():
    assert len(statements(TEXT)) > 180
    assert [each[:100] for each in statements(TEXT) if not parts(each)] == []


@pytest.mark.parametrize("ring", RINGS)
def test_each_test_that_is_cited_is_in_the_ring_that_is_named(ring):
    names = {name for kind, names in parts(TEXT) if kind == ring for name in names}
    assert [name for name in names if not _TEST.fullmatch(name)] == []
    files = {
        path.relative_to(ROOT / "tests" / ring).with_suffix("").as_posix()
        for path in (ROOT / "tests" / ring).rglob("test_*.py")
    }
    ends = files | {file.rpartition("/")[2] for file in files}
    assert names
    assert names - ends == set()


def test_each_test_that_the_page_names_is_in_a_citation():
    cited = {name for kind, names in parts(TEXT) if kind != "sim" for name in names}
    assert set(_TEST.findall(TEXT)) - cited == set()


def test_each_invariant_and_each_excuse_that_is_cited_is_one_of_the_simulation():
    wrong = []
    for names in (names for kind, names in parts(TEXT) if kind == "sim"):
        excuses: set[str] = set()
        is_excuse = False
        for name in names:
            is_excuse = is_excuse or name.startswith(_EXCUSED)
            if is_excuse:
                wrong += [name] if name.removeprefix(_EXCUSED) not in excuses else []
            elif name in INVARIANTS:
                excuses = set(INVARIANTS[name].excuses)
            else:
                wrong.append(name)
    assert wrong == []


def test_each_invariant_is_promised():
    cited = {name for kind, names in parts(TEXT) if kind == "sim" for name in names}
    assert INVARIANTS.keys() - cited == _NO_PROMISES


def test_each_section_that_tests_name_exists():
    named = {
        " ".join(section.split())
        for path in (ROOT / "tests").rglob("*.py")
        for section in re.findall(r"guarantees\.md, ([A-Z][a-z ]+)", path.read_text("utf-8"))
    }
    headings = set(re.findall(r"^## (.+)$", TEXT, re.MULTILINE))
    assert named
    assert named - headings == set()

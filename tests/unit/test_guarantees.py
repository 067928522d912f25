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
# What the page says of excuses that it does not cite by their names.
_FORCED = "A pod that a client deletes by force may continue for a moment."
_STILL_DRAINED = "it is not cordoned again in this turn, and the drain goes on."
_LATE = "it waits for a place of `maxParallel`, and for no step or approval."
_SAID = {
    ("chosen", "after the end"): _LATE,
    ("chosen", "unselected"): "unless the step has a selector that does not match the node.",
    ("cordon at work", "away"): "the cordon is lifted at the end of the run.",
    ("cordon at work", "killed late"): _FORCED,
    ("cordoned first", "uncordoned"): _STILL_DRAINED,
    ("cordoned first", "was away"): "the cordon is lifted at the end of the run.",
    ("cordons at a time", "away"): "Nodes that are unreachable, or were set aside, may be",
    ("drain failures", "not listed"): "While it cannot list the pods of the node,",
    ("drained", "bound late"): "A pod that the scheduler binds at the moment of the cordon",
    ("drained", "uncordoned"): _STILL_DRAINED,
    ("evicted", "uncordoned"): _STILL_DRAINED,
    ("evidence", "clocks"): "possible if both were created within one second, or if the clocks",
    ("evidence", "former node"): "a completion of the former node counts for the new one,",
    ("exclusive", "killed late"): _FORCED,
    ("node changes", "failed before"): "If a node's completion is recorded only at that moment,",
    ("not quiet", "nothing is on record"): "a restart of the controller, or a minute without the",
    ("report", "superseded"): "The report of the run may count it as waiting.",
    ("results", "given up"): "without the results of a log that cannot be read,",
    ("results", "gone"): "if the pod is deleted, or if the node does not answer within a few",
    ("results", "left"): "Results of a node that is no longer desired when the Job is deleted",
    ("rollback", "killed late"): _FORCED,
    ("turns", "away"): "A node that was not Ready when it ceased to be desired may continue",
    ("turns", "killed late"): _FORCED,
    ("turns", "rerun"): "A rerun request for a node of an earlier step holds up no step",
    ("turns", "set aside"): "A node that was set aside, and comes back, may continue its task",
    ("zones", "moved"): "may be at work beside more nodes of its new zone.",
}
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


def cited_excuses() -> set[tuple[str, str]]:
    """Return the excuses, each with its invariant, that the page cites by their names."""
    found = set()
    for names in (names for kind, names in parts(TEXT) if kind == "sim"):
        invariant, is_excuse = "", False
        for name in names:
            is_excuse = is_excuse or name.startswith(_EXCUSED)
            if is_excuse:
                found.add((invariant, name.removeprefix(_EXCUSED)))
            else:
                invariant = name
    return found


def test_each_excuse_of_the_simulation_is_something_that_the_page_says():
    page = " ".join(TEXT.split())
    assert [each for each, words in _SAID.items() if words not in page] == []
    excuses = {(each.name, reason) for each in INVARIANTS.values() for reason in each.excuses}
    assert excuses == cited_excuses() | _SAID.keys()
    assert not cited_excuses() & _SAID.keys()


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

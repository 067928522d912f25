"""Each invariant is stated once, is checked, and catches a mutant."""

import ast
from pathlib import Path

import pytest

from tests.simulation.defects import DEFECTS
from tests.simulation.generator import generate_schedule
from tests.simulation.mutants import DECIDE, MUTANTS
from tests.simulation.oracle import INVARIANTS, MODULES
from tests.simulation.run import simulate

HERE = Path(__file__).parent
# What the modules of the oracle share; each of the others holds an invariant.
SHARED = {
    *("__init__", "core", "demand", "demands", "departures", "ending_pods", "facts", "invariant"),
    *("node_versions", "schedule_edits", "started_nodes", "sufficiency", "turn_specs"),
}
ALL_MUTANTS = {**MUTANTS, **{defect.mutant.__name__: defect.mutant for defect in DEFECTS}}


def calls(method):
    """Return (file, arguments) of each call of a method of that name with a literal first one."""
    for path in HERE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(func=ast.Attribute(attr=name), args=[ast.Constant(), *_]) if (
                    name == method
                ):
                    yield path, [getattr(each, "value", None) for each in node.args]


@pytest.mark.parametrize("invariant", INVARIANTS.values(), ids=lambda each: each.name)
def test_an_invariant_catches_its_mutant(invariant):
    """The table of invariants and mutants: one without a mutant cannot be declared."""
    with ALL_MUTANTS[invariant.mutant]():
        schedule = generate_schedule(invariant.seed)
        found = simulate(schedule, decide=DECIDE.get("decide"), stops_at={invariant.name})
    assert invariant.name in found.kinds


def test_every_violation_is_of_a_declared_invariant_and_each_of_those_is_checked():
    assert {arguments[0] for _, arguments in calls("violate")} == set(INVARIANTS)


def test_every_excuse_is_declared_with_its_reason():
    gates = {"window", "recreated", "stale read"}  # `gates` returns these, `starts` excuses them
    counted = {tuple(arguments[:2]) for _, arguments in calls("excuse")}
    counted = {each for each in counted if each[1]} | {("started again", each) for each in gates}
    declared = {(each.name, reason) for each in INVARIANTS.values() for reason in each.excuses}
    assert counted == declared


def test_every_file_of_the_oracle_holds_an_invariant_or_is_shared():
    files = {path.stem for path in (HERE / "oracle").glob("*.py")}
    assert {module.__name__.rpartition(".")[2] for module in MODULES} == files - SHARED
    assert all(module.INVARIANTS for module in MODULES)
    assert len(INVARIANTS) == sum(len(module.INVARIANTS) for module in MODULES)


def test_an_invariant_is_stated_in_sentences():
    for invariant in INVARIANTS.values():
        for words in (invariant.holds, *invariant.excuses.values()):
            assert words.endswith("."), words

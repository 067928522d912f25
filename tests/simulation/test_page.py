"""What docs/explanation/simulation.md shows is what the simulation prints."""

import re
from pathlib import Path

from tests.simulation.generator import generate_schedule
from tests.simulation.mutants import MUTANTS
from tests.simulation.run import simulate

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "simulation.md"
SEED = 298
HOW = f"compare the page with: python -m tests.simulation --seed {SEED} --trace"


def blocks():
    section = PAGE.read_text(encoding="utf-8").split("\n## How to read a violation")[0]
    return re.findall(r"(?ms)^```text\n(.*?)^```$", section)


def test_the_schedule_of_the_page_is_that_of_its_seed():
    assert blocks()[0].splitlines() == generate_schedule(SEED).describe(), HOW


def test_the_lines_of_the_page_are_in_the_trace_in_their_order():
    """Without the times, which a change of the product moves."""
    trace = iter(simulate(generate_schedule(SEED), is_tracing=True).trace)
    shown = [line.split(maxsplit=2)[1:] for block in blocks()[1:] for line in block.splitlines()]
    assert len(shown) > 10
    for actor, words in shown:
        assert any(a == actor and w.startswith(words) for _, a, w in trace), f"{words}: {HOW}"


def test_the_violation_of_the_page_is_found():
    with MUTANTS["completes_early"]():
        assert "complete" in simulate(generate_schedule(100)).kinds

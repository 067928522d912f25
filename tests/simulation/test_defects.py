"""Each kind of disturbance is needed: it alone makes a defect visible."""

import pytest

from tests.simulation import fast_runs
from tests.simulation.defects import DEFECTS
from tests.simulation.generator import generate_schedule
from tests.simulation.run import simulate


@pytest.mark.parametrize("defect", DEFECTS, ids=str)
def test_a_defect_is_caught_with_its_event_and_not_without(defect):
    """One that shows it is enough: a change elsewhere in the model may change the others."""
    assert any(map(defect.shows, defect.schedules))


def test_what_is_remembered_changes_nothing(monkeypatch):
    traces = [simulate(generate_schedule(seed), is_tracing=True).digest() for seed in range(6)]
    monkeypatch.setattr(fast_runs, "_remembering", list)
    assert [
        simulate(generate_schedule(seed), is_tracing=True).digest() for seed in range(6)
    ] == traces

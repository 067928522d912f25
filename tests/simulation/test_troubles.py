"""Each kind of trouble that clusters make is needed: it alone makes a defect visible."""

import pytest

from tests.simulation import quick
from tests.simulation.draw import draw
from tests.simulation.run import simulate
from tests.simulation.troubles import TROUBLES


@pytest.mark.parametrize("trouble", TROUBLES, ids=str)
def test_a_defect_is_caught_with_its_trouble_and_not_without(trouble):
    """One that shows it is enough: a change elsewhere in the model may change the others."""
    assert any(map(trouble.shows, trouble.schedules))


def test_what_is_remembered_changes_nothing(monkeypatch):
    traces = [simulate(draw(seed), is_tracing=True).digest() for seed in range(6)]
    monkeypatch.setattr(quick, "_remembering", list)
    assert [simulate(draw(seed), is_tracing=True).digest() for seed in range(6)] == traces

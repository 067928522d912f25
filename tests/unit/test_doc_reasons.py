"""The reasons in docs/reference/status.md against those of the code."""

import json
import pickle
import re
from pathlib import Path

import pytest

from daemonset_job.api.reasons import (
    AlteredReason,
    CancelledReason,
    CompleteReason,
    EventReason,
    FailedReason,
    HistoryReason,
    NodeReason,
    ProgressingReason,
    Reason,
    ReconcilingReason,
    RolledBackReason,
    StalledReason,
    SuspendedReason,
)
from daemonset_job.api.states import NodeState

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "status.md"
SECTIONS = {
    "Progressing": ProgressingReason,
    "Complete": CompleteReason,
    "Failed": FailedReason,
    "RolledBack": RolledBackReason,
    "Cancelled": CancelledReason,
    "Suspended": SuspendedReason,
    "DaemonSetAltered": AlteredReason,
    "Reconciling": ReconcilingReason,
    "Stalled": StalledReason,
    "States and reasons of a node": NodeReason,
    "Events": EventReason,
    "History of a run": HistoryReason,
}
ONE_REASON = re.compile(r"`([A-Za-z]+)`")


def rows(heading):
    """Return the cells of the table below a heading, without its head."""
    (section,) = re.findall(
        rf"^#+ {heading}\n(.*?)(?=^#|\Z)", PAGE.read_text(), re.MULTILINE | re.DOTALL
    )
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def first_sentence(text):
    return re.match(r".*?\.(?= |$)", text)[0]


@pytest.mark.parametrize(("heading", "reasons"), SECTIONS.items())
def test_the_reference_has_the_reasons_and_meanings_of_the_code(heading, reasons):
    listed = [
        (found[1], first_sentence(meaning))
        for _, reason, meaning, *_ in rows(heading)
        if (found := ONE_REASON.fullmatch(reason))
    ]
    assert listed == [(reason.value, reason.meaning) for reason in reasons]


def test_every_row_about_nodes_names_known_states_and_reasons():
    for states, reasons, *_ in rows("States and reasons of a node"):
        assert set(ONE_REASON.findall(states)) <= set(NodeState)
        assert set(ONE_REASON.findall(reasons)) <= set(NodeReason)


@pytest.mark.parametrize("reason", [r for kind in SECTIONS.values() for r in kind], ids=repr)
def test_a_reason_is_its_text(reason: Reason):
    text = reason.value
    assert (reason, hash(reason), f"{reason}", str(reason)) == (text, hash(text), text, text)
    assert json.dumps({reason: reason}) == json.dumps({text: text})
    assert pickle.loads(pickle.dumps(reason)) is reason
    assert reason.meaning == first_sentence(reason.meaning)

"""What the oracle of mutated Jobs sees: a spec without effect, a run without a message."""

import pytest

from tests.mutation.cases import Case, edge_cases
from tests.mutation.oracle import ignored, reported_state
from tests.mutation.results import Result, never_accepted
from tests.mutation.schema import fields

SUCCEEDED = {"status": {"phase": "Succeeded"}}
NEVER = {"start": "0 0 30 2 *", "duration": "1h", "timeZone": "UTC"}
NOWHERE = {"start": "* * * * *", "duration": "1h", "timeZone": "Nowhere/City"}


@pytest.mark.parametrize(
    "spec",
    [
        {"suspend": True},
        {"after": ["no-such-job"]},
        {"rollout": {"steps": [{"nodes": 1, "approval": "Required"}]}},
        {"rollout": {"window": NEVER}},
        {"rollout": {"window": NOWHERE}},
    ],
)
def test_a_run_that_succeeded_against_its_spec_is_found(spec):
    assert list(ignored(spec, None, SUCCEEDED))
    assert not list(ignored(spec, None, {"status": {"phase": "Running"}}))
    assert not list(ignored({}, None, SUCCEEDED))


def test_a_run_that_says_nothing_has_no_reported_state():
    progressing = {"type": "Progressing", "status": "True", "reason": "NodesActive", "message": "x"}
    status = {"observedGeneration": 1, "conditions": [progressing]}
    assert reported_state({"metadata": {"generation": 1}, "spec": {}, "status": status}) is None


def test_a_rollback_has_to_end():
    failed = {"type": "Failed", "status": "True", "reason": "NodeFailed", "message": "x"}
    rolling = {"type": "RolledBack", "status": "False", "reason": "RollingBack", "message": "x"}
    job = {
        "metadata": {"generation": 1},
        "spec": {"failurePolicy": {"action": "Rollback"}, "rollback": {"args": ["undo"]}},
        "status": {"observedGeneration": 1, "conditions": [failed, rolling]},
    }
    assert reported_state(job) is None
    rolling |= {"status": "True", "reason": "RolledBack"}
    assert reported_state(job) is not None


def test_a_field_of_which_no_value_was_accepted_is_named():
    def result(field, outcome):
        return Result(Case("x", {}, frozenset(), field=field), "m00001", outcome)

    refused = [result(each, "refused") for each in ("spec.a", "spec.b", "spec.b.c[]", "spec.bc")]
    assert never_accepted([*refused, result("spec.b.c[]", "gone")]) == ["spec.a", "spec.bc"]


def test_every_field_has_edges():
    assert {each.path for each in fields()} == {case.field for case in edge_cases() if case.field}

import json

import pytest

from daemonset_job.api.choices import (
    CompletionMode,
    FailureAction,
    PodPolicy,
    RuleAction,
    parse_choice,
)
from daemonset_job.api.job_spec import FailurePolicy, FailureRule, parse_spec
from tests.unit.test_crds import SPEC

POLICY = SPEC["failurePolicy"]["properties"]


@pytest.mark.parametrize(
    ("schema", "choices"),
    [
        (SPEC["completion"]["properties"]["mode"], CompletionMode),
        (POLICY["action"], FailureAction),
        (POLICY["rules"]["items"]["properties"]["action"], RuleAction),
        (POLICY["pods"], PodPolicy),
    ],
)
def test_choices_are_those_of_the_schema(schema, choices):
    assert schema["enum"] == list(choices)
    assert json.dumps(list(choices)) == json.dumps(schema["enum"])


def test_a_choice_is_read_from_its_text():
    for action in RuleAction:
        assert parse_choice(action.value, RuleAction.FAIL, RuleAction.FAIL) is action
    assert parse_choice(None, RuleAction.FAIL, RuleAction.RETRY) is RuleAction.FAIL


def test_a_choice_that_is_not_known_fails_and_deletes_nothing():
    later = {"action": "Later", "pods": "Later", "rules": [{"exitCodes": [3], "action": "Later"}]}
    spec = parse_spec({"completion": {"mode": "Later"}, "failurePolicy": later})
    assert spec.completion.mode is CompletionMode.LOG
    rule = FailureRule((3,), RuleAction.RETRY)
    assert spec.failure_policy == FailurePolicy(
        FailureAction.CONTINUE, rules=(rule,), pods=PodPolicy.KEEP
    )

import json
import pickle

import orjson
import pytest

from daemonset_job.api.shape import STRING
from daemonset_job.api.states import ConditionType, NodeState, Phase, parse_node_state

MEMBERS = [*Phase, *ConditionType, *NodeState]


@pytest.mark.parametrize("member", MEMBERS, ids=repr)
def test_a_member_is_its_text(member):
    text = member.value
    assert type(text) is str
    assert (member, hash(member), f"{member}", str(member)) == (text, hash(text), text, text)
    assert {"raw": text} == {"raw": member}
    assert repr([member]) == repr([text])
    assert {text: 1} == {member: 1}
    assert json.dumps({member: member}) == json.dumps({text: text})
    assert orjson.dumps([member]) == orjson.dumps([text])
    assert pickle.loads(pickle.dumps(member)) is member


@pytest.mark.parametrize("member", MEMBERS, ids=repr)
def test_a_member_is_read_as_a_text(member):
    STRING(member)


@pytest.mark.parametrize("state", NodeState)
def test_a_node_state_is_read_from_its_text(state):
    assert parse_node_state(state.value) is state


@pytest.mark.parametrize("text", [None, "", "Sleeping"])
def test_an_unknown_node_state_counts_as_waiting(text):
    assert parse_node_state(text) is NodeState.WAITING

"""Server-side apply by several managers, and updates between."""

from copy import deepcopy

import pytest

from tests.fakekube.apply import (
    Apply,
    Manager,
    applied,
    body_of_new,
    first_owners,
    owners_after_update,
)
from tests.fakekube.kinds import STATUS, kind_of
from tests.fakekube.refusals import Refused

JOBS = kind_of("example.com", "jobs")
META = {"name": "x", "uid": "u", "resourceVersion": "7", "generation": 1}
A, B = Apply("a"), Apply("b")


class Object:
    """An object and its owners, as a store keeps them."""

    def __init__(self, how=A, **spec):
        self.raw = {"metadata": META, "spec": spec}
        self.owners = first_owners(JOBS, self.raw, how.owner)

    def apply(self, how, body):
        """Apply, and return whether the object has changed."""
        before = deepcopy((self.raw, self.owners))
        new, owners = applied(JOBS, self.raw, self.owners, body, how)
        assert (self.raw, self.owners) == before
        is_changed = new is not self.raw or owners != self.owners
        self.raw, self.owners = new, owners
        return is_changed

    def spec(self, how, **spec):
        return self.apply(how, {"spec": spec})

    def update(self, writer, spec):
        new = {**self.raw, "spec": spec}
        writer = Manager(writer, "Update")
        self.owners = owners_after_update(self.owners, self.raw, new, writer)
        self.raw = new


def refusal(act, *args, **kwargs):
    with pytest.raises(Refused) as caught:
        act(*args, **kwargs)
    return caught.value


def test_applying_the_same_again_changes_nothing():
    found = Object(x=1, y={"z": [1]})
    raw = found.raw
    assert not found.spec(A, x=1, y={"z": [1]})
    assert found.raw is raw


def test_what_is_left_out_is_removed_with_the_maps_that_become_empty():
    found = Object(x=1, y={"z": {"n": 1}})
    assert found.spec(A, x=2)
    assert found.raw["spec"] == {"x": 2}
    assert found.raw["metadata"]["generation"] == 2


def test_what_others_own_too_stays_until_the_last_leaves_it_out():
    found = Object(x=1)
    assert found.spec(B, x=1)  # another owner is a change
    assert not found.spec(B, x=1)
    assert found.apply(A, {})
    assert found.raw["spec"] == {"x": 1}
    assert found.apply(B, {})
    assert not found.raw.get("spec")


def test_a_field_of_another_manager_is_a_conflict_unless_forced():
    found = Object(x=1, y=1)
    refused = refusal(found.spec, B, x=2, y=1)
    assert (refused.status, refused.message) == (409, 'Apply failed: conflict with "a": .spec.x')
    assert found.spec(Apply("b", force=True), x=2)
    assert found.spec(A, y=1) is False  # it has lost the field already
    assert found.raw["spec"] == {"x": 2, "y": 1}


def test_a_list_is_one_field():
    found = Object(x=[1, 2])
    assert refusal(found.spec, B, x=[1]).status == 409
    assert found.spec(A, x=[2])
    assert found.raw["spec"] == {"x": [2]}


def test_an_update_takes_the_fields_that_it_changes():
    found = Object(x=1, y=1)
    found.update("editor", {"x": 5, "y": 1})
    assert not found.spec(A, y=1)
    assert found.raw["spec"] == {"x": 5, "y": 1}
    assert "editor" in refusal(found.spec, A, x=6, y=1).message
    assert found.spec(Apply("a", force=True), x=6, y=1)
    assert found.owners.keys() == {A.owner}


def test_a_field_that_an_update_removed_belongs_to_nobody():
    found = Object(x={"n": 1}, y=1)
    found.update("editor", {"y": 1})
    assert found.owners == {A.owner: frozenset({("spec", "y")})}
    assert found.spec(B, x={"n": 2})


def test_a_map_that_an_update_replaces_is_lost_with_its_fields():
    found = Object(x={"n": 1}, y={})
    found.update("editor", {"x": 3, "y": {"n": 1}})
    assert found.owners == {
        A.owner: frozenset({("spec", "y")}),
        Manager("editor", "Update"): frozenset({("spec", "x"), ("spec", "y", "n")}),
    }


def test_a_map_and_its_fields_can_belong_to_two():
    found = Object(x={})
    assert found.spec(B, x={"n": 1})
    assert not found.spec(A, x={})
    assert found.spec(Apply("c"), x={})  # no conflict: it takes nothing away
    assert found.apply(A, {})
    assert found.raw["spec"] == {"x": {"n": 1}}


def test_an_object_of_which_owners_were_dropped_keeps_none():
    found = Object(x=1)
    found.owners = {}
    found.update("editor", {"x": 2})
    assert found.owners == {}


def test_nulls_names_and_what_the_server_writes_are_no_fields():
    found = Object(x=1)
    meta = {"name": "x", "uid": "u", "creationTimestamp": None, "generation": 9}
    assert not found.apply(A, {"apiVersion": "v", "kind": "K", "metadata": meta, "spec": {"x": 1}})
    assert not found.spec(A, x=1, y=None)


def test_the_status_is_applied_by_its_subresource_only():
    found, body = Object(x=1), {"spec": {"x": 2}, "status": {"p": 1}}
    assert not found.apply(A, {"spec": {"x": 1}, "status": {"p": 1}})
    assert found.apply(Apply("a", subresource=STATUS), body)
    assert (found.raw["spec"], found.raw["status"]) == ({"x": 1}, {"p": 1})
    # The same manager owns what it applies to each of both for itself.
    assert not found.spec(A, x=1)
    assert found.raw["status"] == {"p": 1}


def test_a_kind_without_status_has_a_field_of_that_name():
    body = {"metadata": META, "status": "x"}
    assert first_owners(kind_of("", "secrets"), body, A.owner) == {
        A.owner: frozenset({("status",)})
    }
    assert first_owners(JOBS, body, A.owner) == {A.owner: frozenset()}


@pytest.mark.parametrize(
    ("meta", "code"),
    [({"uid": "other"}, 422), ({"resourceVersion": "6"}, 409), ({"name": "other"}, 400)],
)
def test_preconditions(meta, code):
    assert refusal(Object(x=1).apply, A, {"metadata": meta}).status == code


def test_an_object_that_is_not_there_is_created():
    body = {"metadata": {"resourceVersion": "6"}, "spec": {"x": 1}}
    assert body_of_new(body, "x") == {"metadata": {"name": "x"}, "spec": {"x": 1}}
    assert refusal(body_of_new, {"metadata": {"uid": "u"}}, "x").status == 409
    assert refusal(body_of_new, {"metadata": {"name": "other"}}, "x").status == 400

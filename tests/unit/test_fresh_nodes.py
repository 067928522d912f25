"""What was read of single nodes, laid over what a cache holds."""

import asyncio
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from daemonset_job.api.node import parse_node
from daemonset_job.kube.client.answers import Found
from job_controller.fresh_nodes import (
    FRESH_SECONDS,
    REREAD_SECONDS,
    FreshNodeReader,
    NodeRead,
    with_fresh_nodes,
)
from tests.unit.builders import make_node

AWAY = make_node("a", ready=False, resource_version="3")
BACK = replace(AWAY, ready=True, resource_version="7")


@pytest.mark.parametrize("version", ["3", "5", "9"])
def test_fresh_read_counts_unless_the_cache_is_newer(version):
    cached = replace(AWAY, resource_version=version)
    reads = {"a": NodeRead(AWAY, BACK, 0.0, version="8")}
    assert with_fresh_nodes({"a": cached}, reads) == {"a": cached if version == "9" else BACK}


def test_deleted_node_is_left_out_although_the_cache_is_stale():
    cached = replace(AWAY, resource_version="5")
    assert with_fresh_nodes({"a": cached}, {"a": NodeRead(AWAY, None, 0.0, version="8")}) == {}


def test_a_node_that_came_again_after_it_was_read_is_there():
    again = replace(AWAY, uid="another", resource_version="9")
    reads = {"a": NodeRead(AWAY, None, 0.0, version="8")}
    assert with_fresh_nodes({"a": again}, reads) == {"a": again}


def test_without_a_version_what_the_cache_received_since_counts():
    cached = replace(AWAY, resource_version="5")
    assert with_fresh_nodes({"a": cached}, {"a": NodeRead(AWAY, BACK, 0.0)}) == {"a": cached}


@dataclass
class Server:
    """Answers with `answers` in turn, and is the clock, too."""

    answers: list[Found]
    moment: float = 0.0
    asked: list[str] = field(default_factory=list)

    async def find(self, _resource: Any, name: str, **_options: Any) -> Found:
        self.asked.append(name)
        return self.answers.pop(0)

    def monotonic(self) -> float:
        return self.moment


def found(version, *, ready="True", uid="a-uid"):
    status = {"conditions": [{"type": "Ready", "status": ready}]}
    metadata = {"name": "a", "uid": uid, "resourceVersion": version}
    return Found({"metadata": metadata, "status": status}, version)


def reader_of(*answers):
    server = Server(list(answers))
    return server, FreshNodeReader(server, server)


def read(reader, *nodes):
    return asyncio.run(reader.read(nodes, asyncio.Event()))


def seen(reader, cached):
    return with_fresh_nodes({"a": cached}, reader.ahead_of({"a": cached})).get("a")


@pytest.mark.parametrize("version", ["8", "9"])
def test_an_answer_counts_until_the_cache_is_as_new(version):
    server, reader = reader_of(found("8"))
    read(reader, AWAY)
    for server.moment in (0.0, 100.0, 10_000.0):
        assert seen(reader, AWAY).ready
        assert seen(reader, replace(AWAY, resource_version="5")).ready
    assert not seen(reader, replace(AWAY, resource_version=version)).ready
    # It is forgotten then.
    assert not seen(reader, AWAY).ready
    assert reader.reread_seconds() is None


def test_the_answer_about_a_node_that_is_registered_again_counts_as_well():
    _, reader = reader_of(found("8", uid="another"))
    read(reader, AWAY)
    assert seen(reader, AWAY).uid == "another"


def test_a_deleted_node_stays_so_until_the_cache_has_that_or_another_one():
    _, reader = reader_of(Found(None, "8"))
    read(reader, AWAY)
    assert seen(reader, AWAY) is None
    assert seen(reader, replace(AWAY, resource_version="7")) is None
    again = replace(AWAY, uid="another", resource_version="9")
    assert seen(reader, again) == again
    assert reader.ahead_of({}) == {}


def test_a_node_of_which_the_cache_receives_nothing_is_read_again():
    server, reader = reader_of(found("8"), found("12", ready="False"))
    read(reader, AWAY)
    assert reader.find_due({}) == []
    assert reader.reread_seconds() == REREAD_SECONDS
    server.moment = REREAD_SECONDS
    assert reader.reread_seconds() == FRESH_SECONDS
    (due,) = reader.find_due({})
    after = read(reader, due)
    assert reader.find_due(after) == []
    assert not seen(reader, replace(AWAY, resource_version="11")).ready
    assert reader.reread_seconds() == REREAD_SECONDS
    assert server.asked == ["a", "a"]


def test_a_deleted_node_is_read_again_too():
    """Else one that is back in etcd, which was restored, would stay deleted."""
    server, reader = reader_of(Found(None, "8"), found("3", ready="False"))
    cached = parse_node(found("3", ready="False").item)
    read(reader, cached)
    assert seen(reader, cached) is None
    server.moment = REREAD_SECONDS
    read(reader, *reader.find_due({}))
    assert seen(reader, cached) == cached
    assert reader.reread_seconds() is None


def test_the_version_of_the_list_does_not_make_the_cache_older_than_the_answer():
    listed = replace(found("8"), resource_version="20")
    _, reader = reader_of(listed)
    read(reader, AWAY)
    assert seen(reader, AWAY).ready
    assert reader.ahead_of({"a": parse_node(listed.item)}) == {}


def test_what_the_cache_has_already_is_not_kept():
    same = found("3", ready="False")
    cached = parse_node(same.item)
    _, reader = reader_of(same)
    read(reader, cached)
    assert reader.ahead_of({"a": cached}) == {}

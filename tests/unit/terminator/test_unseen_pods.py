"""Before a Job is deleted: pods that the API server has, and the cache has not seen yet."""

from dataclasses import replace
from unittest.mock import AsyncMock

import pytest

from daemonset_job.kube.client.answers import Page
from daemonset_job.kube.client.unreadable import Unreadable
from terminator.unknown_nodes import has_unknown_nodes
from terminator.unseen_pods import has_unseen_pod
from tests.unit.terminator.builders import make_daemon_set, make_job, make_node, make_pod
from tests.unit.terminator.snapshots import NAMES, record, world

OWNER = make_daemon_set(3)


def raw(uid, owner=OWNER.uid):
    references = [{"uid": owner, "controller": True}]
    return {"metadata": {"name": uid, "uid": uid, "ownerReferences": references}}


def client(*pages):
    found = AsyncMock()
    found.page.side_effect = [
        Page(list(items), "1", str(number) if number < len(pages) else "", 100)
        for number, items in enumerate(pages, 1)
    ]
    return found


KNOWN = [make_pod(name) for name in NAMES]
CACHED = [raw(pod.uid) for pod in KNOWN]


@pytest.mark.parametrize(
    ("pages", "is_unseen"),
    [
        ([CACHED], False),
        ([CACHED[:1]], False),
        ([[*CACHED, raw("new")]], True),
        ([CACHED, [raw("new")]], True),
        ([[*CACHED, raw("forged", owner="another")]], False),
    ],
)
async def test_a_pod_that_is_not_cached_is_seen(pages, is_unseen):
    assert await has_unseen_pod(client(*pages), make_job(), OWNER, KNOWN) == is_unseen


async def test_pages_are_bounded_and_what_cannot_be_read_is_skipped():
    unreadable = Unreadable.of(raw("odd"), "too large")
    assert not await has_unseen_pod(client([unreadable]), make_job(), OWNER, KNOWN)
    many = client(*([[]] * 100))
    assert await has_unseen_pod(many, make_job(), OWNER, KNOWN)
    assert many.page.await_count == 40


def test_only_a_node_of_which_nothing_is_known_needs_the_look():
    snapshot = world()
    assert not has_unknown_nodes(snapshot)
    joined = {**snapshot.nodes, "new": make_node("new")}
    assert has_unknown_nodes(replace(snapshot, nodes=joined))
    known = {**snapshot.records, "new": record("new-uid", "Removed")}
    assert not has_unknown_nodes(replace(snapshot, nodes=joined, records=known))
    former = {**snapshot.records, "new": record("former-uid", "Removed")}
    assert has_unknown_nodes(replace(snapshot, nodes=joined, records=former))
    with_pod = [*snapshot.pods, make_pod("new")]
    assert not has_unknown_nodes(replace(snapshot, nodes=joined, pods=with_pod))
    assert not has_unknown_nodes(replace(snapshot, nodes=joined, daemon_set=None))

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemonset_job.kube.cache.store import Store
from daemonset_job.kube.client.resource import EVENTS, JOBS, NODES, POD_LOGS, PODS


@dataclass(frozen=True)
class Item:
    namespace: str
    name: str
    tags: tuple[str, ...] = ()
    uid: str = "u"
    resource_version: str = "1"


def make() -> Store[Item]:
    return Store({"tag": lambda item: item.tags})


def test_store_holds_replaces_and_removes():
    store, first = make(), Item("a", "x", ("t",))
    assert store.put(first) is None
    second = Item("a", "x", ("u",))
    assert store.put(second) is first
    assert store.get(("a", "x")) is second
    assert ("a", "x") in store
    assert store.keys() == [("a", "x")]
    assert (len(store), list(store)) == (1, [second])
    assert store.by_index("tag", "t") == []
    assert store.by_index("tag", "u") == [second]
    assert store.remove(("a", "x")) is second
    assert store.remove(("a", "x")) is None
    assert store.get(("a", "x")) is None


def test_snapshot_is_not_touched_by_later_changes():
    store = make()
    store.put(Item("a", "x"))
    values = store.values()
    store.remove(("a", "x"))
    assert len(values) == 1


def test_unknown_index_is_a_key_error():
    with pytest.raises(KeyError):
        make().by_index("nothing", "x")


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abc"), st.booleans(), st.lists(st.sampled_from("xyz"), max_size=3)
        )
    )
)
def test_index_always_agrees_with_the_objects(steps):
    store = make()
    for name, is_put, tags in steps:
        if is_put:
            store.put(Item("n", name, tuple(tags)))
        else:
            store.remove(("n", name))
    for tag in "xyz":
        expected = {item.name for item in store.values() if tag in item.tags}
        assert {item.name for item in store.by_index("tag", tag)} == expected
    held = {value for index in store._indexes["tag"].values() for value in index}
    assert held <= set(store.keys())


@pytest.mark.parametrize(
    ("resource", "arguments", "path"),
    [
        (PODS, (), "/api/v1/pods"),
        (PODS, ("n",), "/api/v1/namespaces/n/pods"),
        (POD_LOGS, ("n", "p"), "/api/v1/namespaces/n/pods/p/log"),
        (NODES, (None, "node-1"), "/api/v1/nodes/node-1"),
        (EVENTS, ("n", "a b?c#d"), "/api/v1/namespaces/n/events/a%20b%3Fc%23d"),
        (JOBS, (), "/apis/daemonset.darkowlzz.space/v1beta1/jobs"),
    ],
)
def test_path_is_that_of_the_api(resource, arguments, path):
    assert resource.path(*arguments) == path


@pytest.mark.parametrize(
    ("resource", "arguments"),
    [
        (NODES, ("n",)),
        (PODS, (None, "p")),
        (POD_LOGS, ("n",)),
        (PODS, ("", "p")),
        (PODS, ("n", "")),
        (PODS, ("..", "p")),
        (NODES, (None, "a/b")),
    ],
)
def test_path_that_means_something_else_is_refused(resource, arguments):
    with pytest.raises(ValueError, match=r"."):
        resource.path(*arguments)

"""The rules of both garbage collectors: objects without an owner, and pods without a node."""

from collections.abc import Callable

from tests.fakekube.daemon_sets import Raw


def is_orphan(raw: Raw, is_there: Callable[[str], bool]) -> bool:
    """Return whether a raw object has owners, and none of them is there; `is_there` gets a UID.

    attemptToDeleteItem in pkg/controller/garbagecollector/garbagecollector.go.
    """
    owners = raw["metadata"].get("ownerReferences") or ()
    return bool(owners) and not any(is_there(owner["uid"]) for owner in owners)


def has_lost_node(pod: Raw, is_there: Callable[[str], bool]) -> bool:
    """Return whether a raw pod is bound to a node that is not there; `is_there` gets its name.

    gcOrphaned in pkg/controller/podgc/gc_controller.go. It counts a node as there until it has been
    missing for 40 s.
    """
    node = pod["spec"].get("nodeName")
    return bool(node) and not is_there(node)

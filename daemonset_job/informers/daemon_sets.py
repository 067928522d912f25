"""The DaemonSets of Jobs, as both programs cache them, and which of them a change affects.

Which pods and nodes count for a Job is not decided here: each program has its own code for that.
"""

from collections.abc import Callable, Iterator
from typing import Any

from daemonset_job.api import names
from daemonset_job.api.affinity import changed_labels, indexed_labels, label_keys
from daemonset_job.api.daemon_set import DaemonSet, parse_daemon_set
from daemonset_job.api.node import Node
from daemonset_job.api.pod import Pod
from daemonset_job.informers.informers import CachedKind
from daemonset_job.kube.cache.store import Store
from daemonset_job.kube.client.resource import DAEMON_SETS


def daemon_set_kind(compact: Callable[[DaemonSet], DaemonSet]) -> CachedKind[DaemonSet]:
    """Return the kind of all DaemonSets with our label, of which `compact` keeps a part."""

    def parse(raw: Any) -> DaemonSet:
        return compact(parse_daemon_set(raw))

    indexers = {
        "uid": lambda found: (found.uid,),
        "node label": _selecting_labels,
    }
    return CachedKind(DAEMON_SETS, parse, indexers, names.MANAGED_SELECTOR)


def owners_of_pod(store: Store[DaemonSet], pod: Pod) -> Iterator[DaemonSet]:
    """Yield the DaemonSet that controls the pod, if it is cached; pods may carry a forged UID."""
    for found in store.by_index("uid", pod.owner_uid):
        if found.namespace == pod.namespace:
            yield found


def selecting_by_changed_label(
    store: Store[DaemonSet], old: Node, new: Node
) -> Iterator[DaemonSet]:
    """Yield each DaemonSet that selects nodes by a label in which `old` and `new` differ.

    One that selects by several of them is yielded once for each, and one that selects by very many
    labels for a change of any label. A heartbeat changes no label.
    """
    for label in changed_labels(old.labels, new.labels):
        yield from store.by_index("node label", label)


def _selecting_labels(found: DaemonSet) -> frozenset[str]:
    return indexed_labels(label_keys(found.pod_spec))

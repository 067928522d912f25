"""The DaemonSet controller on the fake API server; its rules are those of tests/fakekube."""

from collections.abc import Callable

from daemonset_job.kube.client.resource import DAEMON_SETS, NODES, PODS
from tests.contract.fake_api import FakeApiServer
from tests.contract.fake_storage import Raw
from tests.fakekube.daemon_set_objects import (
    build_pod,
    build_status,
    has_status,
    owned_pods,
)
from tests.fakekube.daemon_sets import sync
from tests.fakekube.garbage_collector import has_lost_node
from tests.fakekube.pod_endings import collected


def write_status(server: FakeApiServer, daemon_set: Raw) -> None:
    """Have the status of a DaemonSet say what follows from the nodes and pods that there are."""
    meta = daemon_set["metadata"]
    pods = owned_pods(daemon_set, server.list(PODS))
    status = build_status(daemon_set, server.list(NODES), pods)
    if not has_status(daemon_set, status):
        server.patch(DAEMON_SETS, meta["name"], {"status": status}, meta["namespace"])


def keep_pods(server: FakeApiServer, daemon_set: Raw, name_pod: Callable[[], str]) -> None:
    """Create and delete pods as the DaemonSet wants; `name_pod` returns the name of a new one.

    The status follows first: it counts the pods as they were before. A failed pod goes at once.
    """
    meta = daemon_set["metadata"]
    pods = owned_pods(daemon_set, server.list(PODS))
    outcome = sync(daemon_set, server.list(NODES), pods)
    write_status(server, daemon_set)
    for node in outcome.create:
        new = build_pod(daemon_set, node)
        new["metadata"] |= {"name": name_pod(), "namespace": meta["namespace"]}
        server.put(PODS, new)
    for pod in outcome.delete:
        server.storage.delete(PODS, (meta["namespace"], pod["metadata"]["name"]), {})


def collect_pods(server: FakeApiServer) -> None:
    """Delete the pods that are bound to nodes which do not exist (the pod garbage collector)."""
    known = {raw["metadata"]["name"] for raw in server.list(NODES)}
    for pod in server.list(PODS):
        if has_lost_node(pod, known.__contains__):
            name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
            server.patch(PODS, name, {"status": collected(pod)}, namespace)
            server.remove(PODS, name, namespace)

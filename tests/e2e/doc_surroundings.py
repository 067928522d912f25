"""What surrounds a page when its commands run: what it needs on the nodes, and what it did there.

Each function prepares the nodes, yields while the page runs, checks the nodes from outside of
Kubernetes, and removes what is left.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from tests.e2e.cluster import RealCluster
from tests.e2e.jobs import in_turn, one_at_a_time

Surroundings = Callable[[RealCluster], AbstractContextManager[None]]
_JOURNAL = "systemctl show systemd-journald -p ActiveEnterTimestampMonotonic"


@contextmanager
def old_cache(cluster: RealCluster) -> Iterator[None]:
    """README: the directory is gone, and its neighbour is not."""
    cluster.on_all_nodes("mkdir -p /var/tmp/old-cache/deep; echo x > /var/tmp/old-cache/deep/x")
    cluster.on_all_nodes("touch /var/tmp/kept-cache")
    yield
    look = "cd /var/tmp; ls -d old-cache kept-cache 2>/dev/null; rm -f kept-cache"
    left = cluster.on_all_nodes(look)
    assert set(left.values()) == {"kept-cache\n"}


@contextmanager
def journal(cluster: RealCluster) -> Iterator[None]:
    """The file is on every host, and the service was restarted there."""
    before = cluster.on_all_nodes(_JOURNAL)
    conf = "/etc/systemd/journald.conf.d"
    try:
        yield
        after = cluster.on_all_nodes(_JOURNAL)
        assert [node for node in cluster.nodes if before[node] == after[node]] == []
        files = cluster.on_all_nodes(f"cat {conf}/size.conf")
        assert set(files.values()) == {"[Journal]\nSystemMaxUse=500M\n"}
    finally:
        cluster.on_all_nodes(f"rm -rf {conf}; systemctl restart systemd-journald")


@contextmanager
def max_map_count(cluster: RealCluster) -> Iterator[None]:
    """The value is set. Nodes of kind share a kernel, so it is one value."""
    path = "/proc/sys/vm/max_map_count"
    node = cluster.nodes[0]
    before = cluster.on_node(node, f"cat {path}").strip()
    try:
        cluster.on_node(node, f"echo 65530 > {path}")
        yield
        assert set(cluster.on_all_nodes(f"cat {path}").values()) == {"262144\n"}
    finally:
        cluster.on_node(node, f"echo {before} > {path}")


@contextmanager
def app_logs(cluster: RealCluster) -> Iterator[None]:
    """The large log is empty, the small one is as it was."""
    folder = "/var/log/app"
    cluster.on_all_nodes(
        f"mkdir -p {folder}; truncate -s 101M {folder}/large.log; echo x > {folder}/small.log"
    )
    try:
        yield
        sizes = cluster.on_all_nodes(f"stat -c '%n %s' {folder}/*.log")
        assert set(sizes.values()) == {f"{folder}/large.log 0\n{folder}/small.log 2\n"}
    finally:
        cluster.on_all_nodes(f"rm -rf {folder}")


@contextmanager
def first_and_rest(cluster: RealCluster) -> Iterator[None]:
    """Every node has the file."""
    try:
        yield
        files = cluster.on_all_nodes("cat /etc/example/proxy.conf")
        assert set(files.values()) == {"proxy=10.0.0.1:3128\n"}
    finally:
        cluster.kubectl("label", "node", *cluster.nodes, "example.com/first-")
        cluster.on_all_nodes("rm -rf /etc/example")


@contextmanager
def two_workers(cluster: RealCluster) -> Iterator[None]:
    """The two nodes with the label ran each revision once, the named one again; no other did."""
    folder = "/var/lib/node-setup"
    try:
        yield
        left = cluster.on_all_nodes(f"cat {folder}/prepared 2>/dev/null; true")
        both = "prepared\nprepared again\n"
        expected = dict.fromkeys((n for n in cluster.nodes if "worker" in n), both)
        first = min(expected)
        expected[first] += "prepared again\n"
        assert {node: text for node, text in left.items() if text} == expected
    finally:
        cluster.kubectl("label", "node", *cluster.nodes, "example.com/setup-")
        cluster.on_all_nodes(f"rm -rf {folder}")


@contextmanager
def two_versions(cluster: RealCluster) -> Iterator[None]:
    """Each version ran once on each node, however often it was applied."""
    folder = "/var/lib/motd"
    try:
        yield
        files = cluster.on_all_nodes(f"cat {folder}/motd {folder}/runs")
        assert set(files.values()) == {"version 2\nx\nx\n"}
    finally:
        cluster.on_all_nodes(f"rm -rf {folder}")


@contextmanager
def tainted_control_plane(cluster: RealCluster) -> Iterator[None]:
    """A cluster as kubeadm makes it; the node with the taint is served like the others."""
    (node,) = [node for node in cluster.nodes if "control-plane" in node]
    taint = "node-role.kubernetes.io/control-plane"
    cluster.kubectl("taint", "node", node, f"{taint}=:NoSchedule", "--overwrite")
    try:
        yield
        visited = cluster.on_all_nodes("cat /var/lib/visited/visited")
        assert visited == {node: f"{node}\n" for node in cluster.nodes}
    finally:
        cluster.kubectl("taint", "node", node, f"{taint}:NoSchedule-")
        cluster.on_all_nodes("rm -rf /var/lib/visited")


@contextmanager
def first_run(cluster: RealCluster) -> Iterator[None]:
    """The tutorial removes /tmp/foo and leaves its permits, which are removed here."""
    with one_at_a_time("tmp-foo"):
        try:
            yield
            left = cluster.on_all_nodes("ls -d /tmp/foo 2>/dev/null; true")
            assert set(left.values()) == {""}
        finally:
            cluster.kubectl("delete", "namespace", "tour", "--ignore-not-found", "--wait=false")
            cluster.on_all_nodes("rm -rf /tmp/foo /var/tmp/permit")


@contextmanager
def facts(cluster: RealCluster) -> Iterator[None]:
    """Every node has written its facts."""
    with one_at_a_time("facts"):
        try:
            yield
            kernels = cluster.on_all_nodes("uname -r")
            for node, text in cluster.on_all_nodes("cat /var/tmp/facts/node-facts").items():
                found = dict(line.split("=", 1) for line in text.splitlines())
                assert (found["node"], found["kernel"]) == (node, kernels[node].strip())
                assert int(found["cpus"]) >= 1
        finally:
            cluster.on_all_nodes("rm -rf /var/tmp/facts")


@contextmanager
def limits(cluster: RealCluster) -> Iterator[None]:
    """Every node has its limit in the end, whose directory is removed here."""
    folder = "/etc/example-tutorial"
    try:
        yield
        found = cluster.on_all_nodes(f"cat {folder}/limit.conf")
        assert set(found.values()) == {"limit=200M\n"}
    finally:
        cluster.kubectl("delete", "namespace", "safely", "--ignore-not-found", "--wait=false")
        cluster.on_all_nodes(f"rm -rf {folder}")


@contextmanager
def permit(cluster: RealCluster) -> Iterator[None]:
    """The page makes a file on one node, without which its task fails there."""
    try:
        yield
    finally:
        cluster.on_all_nodes("rm -f /var/tmp/permit-retry")


@contextmanager
def checked_version(cluster: RealCluster) -> Iterator[None]:
    """Every node has the file that the check of the page looks for; it is removed here."""
    path = "/var/tmp/checked-version"
    try:
        yield
        assert set(cluster.on_all_nodes(f"cat {path}").values()) == {"new\n"}
    finally:
        cluster.on_all_nodes(f"rm -f {path}")


@contextmanager
def team_a(cluster: RealCluster) -> Iterator[None]:
    """The namespace that the page names."""
    cluster.kubectl("create", "namespace", "team-a")
    try:
        yield
    finally:
        cluster.kubectl("delete", "namespace", "team-a")


@contextmanager
def service_conf(cluster: RealCluster) -> Iterator[None]:
    """The second node has a lower limit. The file of each node is as it was, on none is a copy."""
    folder = "/etc/example-service"
    second = in_turn(cluster)[1]
    cluster.on_all_nodes(
        f"mkdir -p {folder}; echo workers=8 > {folder}/service.conf; echo 64 > {folder}/limit"
    )
    try:
        cluster.on_node(second, f"echo 16 > {folder}/limit")
        yield
        found = cluster.on_all_nodes(f"cd {folder}; ls; cat service.conf")
        assert set(found.values()) == {"limit\nservice.conf\nworkers=8\n"}
    finally:
        cluster.on_all_nodes(f"rm -rf {folder}")


SURROUNDINGS: dict[str, Surroundings] = {
    "README.md": old_cache,
    "docs/tutorial/first-run.md": first_run,
    "docs/tutorial/task-image.md": facts,
    "docs/tutorial/roll-out-safely.md": limits,
    "docs/how-to/choose-nodes.md": tainted_control_plane,
    "docs/how-to/gitops.md": two_versions,
    "docs/how-to/nodes-that-join.md": two_workers,
    "docs/how-to/one-node-first.md": first_and_rest,
    "docs/how-to/retry-and-rerun.md": permit,
    "docs/how-to/roll-back.md": service_conf,
    "docs/how-to/roll-out-in-steps.md": checked_version,
    "docs/how-to/run-on-the-host.md": journal,
    "docs/how-to/script-from-a-configmap.md": app_logs,
    "docs/how-to/set-a-sysctl.md": max_map_count,
    "docs/how-to/who-may-create-jobs.md": team_a,
}
# Pages that change what other tests need: taints of nodes.
ALONE = {"docs/how-to/choose-nodes.md"}

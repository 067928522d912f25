"""The kind cluster itself: make it, see whether it is well, take every trace of it away."""

import os
import time
from dataclasses import replace
from pathlib import Path

from hack.devcluster import (
    container_engine,
    debian,
    dockerd,
    fakenodes,
    gobuild,
    inotify,
    kindconfig,
    shell,
    state,
)
from hack.devcluster.container_engine import ContainerEngine
from hack.devcluster.errors import DevclusterError, MissingError, StepFailedError
from hack.devcluster.files import locked, remove
from hack.devcluster.kubectl import Kubectl, is_ready
from hack.devcluster.progress import say, step
from hack.devcluster.settings import (
    KIND_VERSION,
    KUBERNETES_VERSION,
    MAXIMUM_NODES,
    PUBLISHED_NODE_IMAGE,
    Paths,
)
from hack.devcluster.state import ClusterState

LOCK = "cluster"
READY_SECONDS = 120
WORKLOADS = ("deployment/coredns", "daemonset/kindnet", "daemonset/kube-proxy")
KIND_LABEL = "io.x-k8s.kind.cluster"
REAL = "kubernetes.io/os=linux"
"""A label of the kubelet's: simulated nodes do not carry it."""


def up(paths: Paths, *, nodes: int, fake: fakenodes.Wanted, scale: bool) -> None:
    """Make the cluster of this clone; nothing happens if it is there, healthy and as asked."""
    if not 1 <= nodes <= MAXIMUM_NODES:
        message = f"--nodes {nodes}: must be between 1 and {MAXIMUM_NODES}"
        raise DevclusterError(message)
    with locked(paths.cache, LOCK):
        found = container_engine.use(paths)
        wanted = ClusterState(paths.cluster_name, found.value, "", nodes, scale)
        reason = _why_not_usable(paths, wanted)
        if reason is None:
            say(f"cluster {wanted.name}: {nodes} nodes, healthy, nothing to do")
        else:
            if reason:
                say(f"cluster {wanted.name} is made again: {reason}")
            _create(paths, replace(wanted, image=container_engine.node_image(paths)))
        fakenodes.apply(paths, fake, scale=scale)
    say(f"export KUBECONFIG={paths.kubeconfig}")


def adopt(paths: Paths, context: str) -> None:
    """Make a context of the user's own kubeconfig the current cluster."""
    kubectl = Kubectl(paths, Path(os.environ.get("KUBECONFIG") or Path.home() / ".kube/config"))
    config = kubectl("config", "view", "--minify", "--flatten", "--raw", f"--context={context}")
    remove(paths.state)
    paths.state.mkdir(parents=True)
    paths.kubeconfig.touch(mode=0o600)
    paths.kubeconfig.write_text(config)
    count = len(Kubectl(paths, paths.kubeconfig).items("nodes"))
    state.write(paths, ClusterState(context, "", "", count, scale=False))
    say(f"using your context {context} ({count} nodes)\nexport KUBECONFIG={paths.kubeconfig}")


def down(paths: Paths, *, purge: bool, everyone: bool = False) -> None:
    """Delete the cluster, KWOK, and the private dockerd unless another clone needs it."""
    with locked(paths.cache, LOCK):
        fakenodes.stop(paths)
        known = state.read(paths)
        if (
            known is not None
            and known.engine == ContainerEngine.PRIVATE
            and not dockerd.is_up(paths)
        ):
            dockerd.start(paths)  # or its containers would come back with the next one
        if container_engine.use_running(paths) and (known is None or known.is_ours):
            _delete(paths.cluster_name)
            _remove_network()
        if everyone and dockerd.is_left(paths):
            _delete_left(paths)
        if dockerd.is_up(paths):
            _stop_unused(paths)
        remove(paths.state)
        if purge:
            _purge(paths)
    say("cluster down")


def containers(name: str) -> list[str]:
    """Return the node containers of a kind cluster, stopped ones too, in the order of roles."""
    names = shell.output(
        ["docker", "ps", "-a", "--format={{.Names}}", f"--filter=label={KIND_LABEL}={name}"]
    ).split()
    return sorted(names, key=lambda node: ("control-plane" not in node, len(node), node))


def require_kind(paths: Paths) -> Path:
    """Return a kind of the pinned version: the user's or one built from its Go module."""
    found = debian.find_program("kind")
    if found and KIND_VERSION in shell.output([found, "version"]):
        return Path(found)
    if not gobuild.location(paths, gobuild.KIND).exists() and not gobuild.has_go():
        raise MissingError(
            f"kind {KIND_VERSION}",
            why="making the cluster",
            fix="https://kind.sigs.k8s.io/docs/user/quick-start/#installation, or install Go",
        )
    return gobuild.ensure(paths, gobuild.KIND)


def _why_not_usable(paths: Paths, wanted: ClusterState) -> str | None:
    """Return why the cluster must be made: "" if there is none, None if it need not be."""
    found = containers(wanted.name)
    if not found:
        return ""
    known = state.read(paths)
    if known is None or not paths.kubeconfig.exists():
        return "an earlier run did not finish"
    if replace(known, image="") != wanted:
        return "another shape was asked for"
    try:
        nodes = Kubectl(paths, paths.kubeconfig).items("nodes", "-l", REAL)
    except StepFailedError:
        return "its API server does not answer"
    well = sum(map(is_ready, nodes))
    return None if well == wanted.nodes else f"{well} of {wanted.nodes} nodes are Ready"


def _create(paths: Paths, wanted: ClusterState) -> None:
    kind = require_kind(paths)
    fakenodes.stop(paths)
    if containers(wanted.name):
        _delete(wanted.name)
    if words := inotify.read_problem(wanted.nodes):
        say(f"cluster {wanted.name}: {words}")
    remove(paths.state)
    paths.state.mkdir(parents=True)
    log = paths.logs / "kind-create.log"
    log.unlink(missing_ok=True)
    version = PUBLISHED_NODE_IMAGE if wanted.image == PUBLISHED_NODE_IMAGE else KUBERNETES_VERSION
    config = paths.state / "kind.yaml"
    config.write_text(
        kindconfig.render(
            wanted.nodes, scale=wanted.scale, kubernetes=kindconfig.minor_version(version)
        )
    )
    with step(f"creating cluster {wanted.name} with {wanted.nodes} nodes"):
        command: list[str | Path] = [kind, "create", "cluster", "--wait=120s"]
        command += [f"--name={wanted.name}", f"--image={wanted.image}"]
        command += [f"--config={config}", f"--kubeconfig={paths.kubeconfig}"]
        shell.logged(command, log)
        _wait_ready(paths)
    state.write(paths, wanted)


def _wait_ready(paths: Paths) -> None:
    """Wait for nodes, DNS and network: kind itself waits for the control plane alone."""
    kubectl = Kubectl(paths, paths.kubeconfig)
    patience = f"--timeout={READY_SECONDS}s"
    longer = READY_SECONDS + 10
    kubectl("wait", "--for=condition=Ready", "node", "--all", patience, timeout_seconds=longer)
    for workload in WORKLOADS:
        arguments = ("rollout", "status", "-n", "kube-system", workload, patience)
        kubectl(*arguments, timeout_seconds=longer)
    deadline = time.monotonic() + READY_SECONDS
    while not kubectl.exists("serviceaccount", "default", "-n", "default"):
        if time.monotonic() > deadline:
            raise StepFailedError("the cluster made no default service account")
        time.sleep(0.5)


def _delete(name: str) -> None:
    nodes = containers(name)
    if not nodes:
        return
    with step(f"deleting cluster {name}"):
        shell.output(["docker", "rm", "-f", "-v", *nodes], timeout_seconds=120)


def _delete_left(paths: Paths) -> None:
    """Delete every cluster in the private dockerd: what killed runs of other clones left."""
    dockerd.start(paths)
    os.environ["DOCKER_HOST"] = dockerd.socket(paths)
    pattern = f'{{{{.Label "{KIND_LABEL}"}}}}'
    listing = shell.output(["docker", "ps", "-a", f"--format={pattern}"])
    for name in sorted(set(listing.split())):
        if name.startswith("dsj-"):
            _delete(name)
    _remove_network()


def _remove_network() -> None:
    """Remove kind's network once no kind cluster is left; kind makes it again when needed."""
    nodes = shell.output(["docker", "ps", "-aq", f"--filter=label={KIND_LABEL}"])
    names = shell.output(["docker", "network", "ls", "--format", "{{.Name}}"]).split()
    if not nodes.strip() and "kind" in names:
        shell.succeeds(["docker", "network", "rm", "kind"])


def _stop_unused(paths: Paths) -> None:
    os.environ["DOCKER_HOST"] = dockerd.socket(paths)
    others = shell.output(["docker", "ps", "-aq"]).split()
    if others:
        say("the private dockerd goes on: another clone's cluster uses it")
        return
    with step("stopping the private dockerd"):
        dockerd.stop(paths)


def _purge(paths: Paths) -> None:
    if dockerd.is_up(paths):
        say(f"kept {paths.cache}: another clone's cluster uses it")
        return
    with step(f"removing {paths.cache}"):
        remove(paths.cache)

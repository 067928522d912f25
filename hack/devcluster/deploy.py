"""Installing the project on the current cluster from the working tree, and taking it off again."""

import json
import os
import re
from pathlib import Path

from hack.devcluster import images, load, state
from hack.devcluster.archive import read_images
from hack.devcluster.errors import DevclusterError, StepFailedError
from hack.devcluster.kubectl import Kubectl
from hack.devcluster.progress import say, step
from hack.devcluster.settings import Paths

NAMESPACE = "daemonset-job-system"
DEPLOYMENT = "daemonset-job-controller"
CRDS = ("jobs", "jobreports", "scheduledjobs")
GROUP = "daemonset.darkowlzz.space"
WAIT_SECONDS = 120
FIRST_EXAMPLE = "examples/01-cleanup/job.yaml"
LAST = ("CustomResourceDefinition", "Namespace")
"""Deleted after everything else, in this order: with the CRDs go the Jobs."""


def deploy(paths: Paths) -> None:
    """Build and load the images, apply deploy/, and wait until it serves."""
    kubectl = Kubectl(paths)
    changed = _bring_images(paths)
    with step("applying deploy/"):
        _apply(paths, kubectl)
        crds = [f"crd/{name}.{GROUP}" for name in CRDS]
        _wait(kubectl, "wait", "--for=condition=Established", *crds)
    if changed and kubectl.exists("pods", "-n", NAMESPACE):
        # The tag is the same, so the Deployment cannot see that its image is another one.
        kubectl("rollout", "restart", "-n", NAMESPACE, f"deployment/{DEPLOYMENT}")
    with step(f"waiting for deployment/{DEPLOYMENT}"):
        try:
            _wait(kubectl, "rollout", "status", "-n", NAMESPACE, f"deployment/{DEPLOYMENT}")
        except StepFailedError as failure:
            pods = kubectl("describe", "pods", "-n", NAMESPACE)
            raise StepFailedError(f"{failure}\n{pods[-4000:]}") from failure
    _remember(paths)
    say(f"deployed; try `kubectl apply -f {FIRST_EXAMPLE} && kubectl get dsj -w`")
    if "KUBECONFIG" not in os.environ:
        say('first, for this shell: eval "$(python3 -m hack.devcluster env)"')


def undeploy(paths: Paths) -> None:
    """Delete everything of deploy/, Jobs included; nothing in the way can make it hang."""
    kubectl = Kubectl(paths)
    documents = split(kubectl("kustomize", _source(paths)))
    with step("deleting what deploy/ made"):
        for kinds in (None, *LAST):
            part = [d for d in documents if (kind(d) == kinds if kinds else kind(d) not in LAST)]
            if part:
                arguments = ("delete", "--ignore-not-found", "--wait", f"--timeout={WAIT_SECONDS}s")
                text = "\n---\n".join(part)
                kubectl(*arguments, "-f", "-", stdin=text, timeout_seconds=WAIT_SECONDS + 10)
    _loaded_file(paths).unlink(missing_ok=True)


def split(manifests: str) -> list[str]:
    """Return the documents of a YAML stream."""
    return [d for d in re.split(r"(?m)^---\s*$", manifests) if kind(d)]


def kind(document: str) -> str:
    """Return a document's kind, empty if it has none."""
    found = re.search(r"(?m)^kind:\s*(\S+)", document)
    return found.group(1) if found else ""


def _bring_images(paths: Paths) -> bool:
    """Bring our images to the nodes; return whether any is another than the last time."""
    known = state.read(paths)
    if known is not None and not known.is_ours and not known.name.startswith("kind-"):
        if images.prefix() == images.DEFAULT_PREFIX:
            raise DevclusterError(load.NOT_KIND.format(name=known.name))
        say(f"images are pulled from {images.prefix()}")
        return False
    archives = images.build(paths, [])
    before = _loaded(paths)
    fresh = [file for file in archives if any(i not in before.items() for i in _ids(file).items())]
    if fresh:
        load.load(paths, fresh)
    return bool(fresh)


def _apply(paths: Paths, kubectl: Kubectl) -> None:
    arguments = ("apply", "--server-side", "--force-conflicts", "-k", _source(paths))
    kubectl(*arguments, timeout_seconds=WAIT_SECONDS)


def _source(paths: Paths) -> Path:
    """Return deploy/, or a kustomization over it that puts IMAGE_PREFIX into the image names."""
    source = paths.root / "deploy"
    if not (source / "kustomization.yaml").exists():
        raise DevclusterError("deploy/kustomization.yaml: no such file")
    if images.prefix() == images.DEFAULT_PREFIX:
        return source
    overlay = paths.state / "deploy"
    overlay.mkdir(parents=True, exist_ok=True)
    names = [short.partition(":")[0] for short in images.NAMES.values()]
    spellings = (images.DEFAULT_PREFIX, images.DEFAULT_PREFIX.removeprefix("docker.io/"))
    renames = [
        {"name": f"{old}/{name}", "newName": f"{images.prefix()}/{name}"}
        for name in names
        for old in spellings
    ]
    # As deploy/ itself says: only the outermost kustomization is asked for the order.
    content = {
        "sortOptions": {"order": "fifo"},
        "resources": [os.path.relpath(source, overlay)],
        "images": renames,
    }
    (overlay / "kustomization.yaml").write_text(json.dumps(content))
    return overlay


def _wait(kubectl: Kubectl, *arguments: str) -> None:
    patience = f"--timeout={WAIT_SECONDS}s"
    kubectl(*arguments, patience, timeout_seconds=WAIT_SECONDS + 10)


def _ids(archive: Path) -> dict[str, str]:
    return read_images(archive)


def _loaded(paths: Paths) -> dict[str, str]:
    try:
        return dict(json.loads(_loaded_file(paths).read_text()))
    except (OSError, ValueError):
        return {}


def _remember(paths: Paths) -> None:
    found: dict[str, str] = {}
    for name in images.NAMES:
        archive = paths.build / f"{name}.tar"
        if archive.exists():
            found.update(_ids(archive))
    paths.state.mkdir(parents=True, exist_ok=True)
    _loaded_file(paths).write_text(json.dumps(found, indent=2) + "\n")


def _loaded_file(paths: Paths) -> Path:
    return paths.state / "loaded.json"

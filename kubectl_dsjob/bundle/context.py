"""The build context of a task image: a Dockerfile, and copies of the files that were checked."""

from __future__ import annotations

import hashlib
import json
import re
from importlib import metadata
from pathlib import Path
from typing import Final

from daemonset_job.api.names import LABEL_VALUE_LIMIT
from kubectl_dsjob.bundle.folder import Folder
from kubectl_dsjob.errors import CliError
from kubectl_dsjob.exit_codes import ExitCode

TASK_IMAGE: Final = "docker.io/darkowlzz/daemonset-job-task"
_IMAGE: Final = re.compile(
    r"(?:[a-zA-Z0-9][a-zA-Z0-9.-]*(?::[0-9]{1,5})?/)?"
    r"[a-z0-9][a-z0-9._-]*(?:/[a-z0-9][a-z0-9._-]*)*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@sha256:[0-9a-f]{64})?"
)
_NAME_LIMIT: Final = 255


def default_base() -> str:
    """Return the task image of this version."""
    return f"{TASK_IMAGE}:v{metadata.version('daemonset-job')}"


def dockerfile(base: str) -> str:
    """Return the Dockerfile. No name of a file is in it, so none can change its meaning."""
    return (
        f"FROM {base}\n"
        "# Each file directly in task.d is run once on each node, in the order of their names.\n"
        "COPY task.d/ /task.d/\n"
        'ENTRYPOINT ["/usr/local/bin/run-once"]\n'
    )


def digest(folder: Folder, base: str) -> str:
    """Return a hash of all that the image is made of."""
    found = hashlib.sha256(dockerfile(base).encode())
    for file in folder.files:
        # The mode is not in it: every file is executable in the image.
        found.update(json.dumps([file.path, len(file.content)]).encode())
        found.update(file.content)
    return found.hexdigest()


def image_name(tag: str, folder_name: str, content_hash: str) -> str:
    """Return the image's name: `tag`, which gets a tag of the content if it has none.

    A name with a tag of the content never names two images, so that no node runs an old one.
    """
    name = tag or f"dsjob.local/{job_name(folder_name)}"
    check_image(name)
    if has_tag(name):
        return name
    return f"{name}:{content_hash[:12]}"


def has_tag(image: str) -> bool:
    """Return whether an image's name has a tag."""
    return ":" in image.rpartition("/")[2]


def check_image(image: str) -> None:
    """Raise CliError for what is no name of an image, such as an option or two lines."""
    if len(image) > _NAME_LIMIT or not _IMAGE.fullmatch(image):
        way = "Write it as REGISTRY/NAME or REGISTRY/NAME:TAG, in lower case."
        raise CliError(f"{image[:80]!r} is no name of an image", way, ExitCode.USAGE)


def job_name(folder_name: str) -> str:
    """Return a name for the Job by that of the folder: a DNS label."""
    kept = re.sub(r"[^a-z0-9]+", "-", folder_name.lower()).strip("-")
    return kept[:LABEL_VALUE_LIMIT].strip("-") or "scripts"


def write_context(folder: Folder, base: str, target: Path) -> None:
    """Write Dockerfile and files below `target`, which is an empty folder."""
    (target / "Dockerfile").write_text(dockerfile(base), "utf-8")
    tasks = target / "task.d"
    tasks.mkdir()
    for file in folder.files:
        path = tasks / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.content)
    # For all users: spec.template may run the task as any of them. Not by the mode of mkdir, from
    # which the user's umask takes rights.
    for path in (tasks, *tasks.rglob("*")):
        path.chmod(0o755)

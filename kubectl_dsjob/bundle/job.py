"""The Job that runs a bundled image: its manifest, and what it says about the order. Pure."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Any, Final

import yaml

from daemonset_job.api import names
from kubectl_dsjob.bundle.folder import Folder
from kubectl_dsjob.errors import CliError
from kubectl_dsjob.exit_codes import ExitCode
from kubectl_dsjob.manifests import Wish, build_job
from kubectl_dsjob.node_tables import format_objects
from kubectl_dsjob.outputs import Output

_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_FILE_LIMIT: Final = 1024 * 1024
_TIMESTAMP: Final = "tag:yaml.org,2002:timestamp"
_NUMBERS: Final = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")


class _Loader(yaml.SafeLoader):
    """Reads dates, and numbers with colons such as `22:30`, as texts, as kubectl does."""

    def resolve(self, kind: Any, value: Any, implicit: Any) -> Any:
        tag = super().resolve(kind, value, implicit)  # type: ignore[no-untyped-call]
        if kind is yaml.ScalarNode and (tag == _TIMESTAMP or (tag in _NUMBERS and ":" in value)):
            return self.DEFAULT_SCALAR_TAG
        return tag


@dataclass(frozen=True, slots=True)
class JobWish:
    """What the Job has beside its image: "" and () for what is not given.

    `template` is the text of a manifest, of which only the image is replaced.
    """

    name: str
    mount: str = ""
    selector: str = ""
    arguments: tuple[str, ...] = ()
    template: str = ""


def bundle_job(wish: JobWish, image: str, bundle: str, namespace: str) -> dict[str, Any]:
    """Return the manifest of the Job that runs the image."""
    if wish.template:
        if wish.mount or wish.selector or wish.arguments:
            message = "--job excludes --mount, --nodes and arguments"
            raise CliError(message, "Write them into the manifest.", ExitCode.USAGE)
        job = _from_template(wish, image)
    else:
        plain = Wish(
            wish.name, image, mount=wish.mount, selector=wish.selector, arguments=wish.arguments
        )
        job = build_job(plain, namespace)
        job["spec"]["completion"] = {"token": _token(image)}
    metadata = job["metadata"]
    if not namespace:
        metadata.pop("namespace", None)
    elif not metadata.get("namespace"):
        metadata["namespace"] = namespace
    if not _NAME.fullmatch(str(metadata["name"])):
        way = "Use lower case letters, digits and -: --name NAME."
        raise CliError(f"{metadata['name']!r} is no name of a Job", way, ExitCode.USAGE)
    labels = metadata.get("labels")
    metadata["labels"] = {
        **(labels if isinstance(labels, dict) else {}),
        names.LABEL_BUNDLE: bundle,
    }
    return job


def format_manifest(job: dict[str, Any], folder: Folder, output: Output) -> str:
    """Return the manifest, for `kubectl apply -f -`; in YAML with the order as comments."""
    text = format_objects(job, output)
    return text if output == Output.JSON else "".join(f"# {s}\n" for s in order(folder)) + text


def order(folder: Folder) -> list[str]:
    """Return which scripts each node runs, and in which order."""
    found = [file.path for file in folder.scripts]
    if len(found) == 1:
        return [f"Each node runs {found[0]} once."]
    lines = [f"Each node runs {len(found)} scripts, one after the other, until one fails:"]
    return lines + [f"  {number}. {name}" for number, name in enumerate(found, 1)]


def _token(image: str) -> str:
    """Return a token that no script prints on its way, as it may print the default one, `done`."""
    return f"completed-{hashlib.sha256(image.encode()).hexdigest()[:12]}"


def _from_template(wish: JobWish, image: str) -> dict[str, Any]:
    way = "Name a file with one Job (daemonset.darkowlzz.space)."
    if len(wish.template) > _FILE_LIMIT:
        raise CliError("the file of --job is longer than 1 MiB", way, ExitCode.USAGE)
    try:
        # A SafeLoader, as `yaml.safe_load` has.
        found = yaml.load(wish.template, _Loader)  # noqa: S506
    except RecursionError:
        text = "the file of --job is nested too deep"
        raise CliError(text, way, ExitCode.USAGE) from None
    except yaml.YAMLError as error:
        text = f"the file of --job is no YAML of one object: {error}"
        raise CliError(text, way, ExitCode.USAGE) from error
    is_job = isinstance(found, dict) and found.get("kind") == names.JOB_KIND
    if not is_job or found.get("apiVersion") != names.API_VERSION:
        raise CliError("the file of --job is no manifest of a Job", way, ExitCode.USAGE)
    metadata, spec = found.get("metadata") or {}, found.get("spec") or {}
    if not isinstance(metadata, dict) or not isinstance(spec, dict):
        raise CliError("metadata and spec of --job must be objects", way, ExitCode.USAGE)
    if spec.get("script") or spec.get("scriptFrom"):
        message = "the Job of --job has a script of its own, which the image would run"
        raise CliError(message, "Remove spec.script and spec.scriptFrom.", ExitCode.USAGE)
    name = metadata.get("name") or wish.name
    return {**found, "metadata": {**metadata, "name": name}, "spec": {**spec, "image": image}}

"""Makes the manifest of a Job from the options of `kubectl dsjob run`. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from daemonset_job.api import names
from daemonset_job.api.rerun import REQUEST_LIMIT
from kubectl_dsjob.errors import CliError
from kubectl_dsjob.exit_codes import ExitCode

_NODES_LIMIT: Final = 100_000
_DIGITS_LIMIT: Final = 6


@dataclass(frozen=True, slots=True)
class Wish:
    """What a user wants to run: "" and () for what is not given.

    `canary` and `max_parallel` are numbers of nodes or percentages, such as `10%`.
    `script` is the text of the script, `selector` the labels of nodes, such as `role=edge,zone=a`.
    `arguments` are those of the image or script, or with `is_command` the command of the image.
    `kept_seconds`: how long the Job and its logs are kept after the end.
    """

    name: str
    image: str = ""
    script: str = ""
    mount: str = ""
    selector: str = ""
    arguments: tuple[str, ...] = ()
    is_command: bool = False
    is_on_host: bool = False
    has_exit_mode: bool = False
    canary: str = ""
    max_parallel: str = ""
    backoff_limit: int | None = None
    kept_seconds: int | None = None


def build_job(wish: Wish, namespace: str) -> dict[str, Any]:
    """Return the manifest. CliError if options contradict each other."""
    _check(wish)
    spec: dict[str, Any] = {}
    if wish.image:
        spec["image"] = wish.image
    if wish.script:
        spec["script"] = wish.script if wish.script.endswith("\n") else wish.script + "\n"
    if wish.is_on_host:
        spec["hostExec"] = True
    if wish.arguments:
        spec["command" if wish.is_command else "args"] = list(wish.arguments)
    if wish.mount:
        spec["mountPath"] = wish.mount
    if wish.selector:
        spec["nodes"] = {"selector": {"matchLabels": parse_labels(wish.selector)}}
    if wish.has_exit_mode or (wish.image and wish.script):
        spec["completion"] = {"mode": "Exit"}
    spec |= _limits(wish)
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.JOB_KIND,
        "metadata": {"name": wish.name, "namespace": namespace},
        "spec": spec,
    }


def _limits(wish: Wish) -> dict[str, Any]:
    """Return the fields that say how often and in which order nodes are tried, and what is kept."""
    rollout: dict[str, Any] = {}
    if wish.max_parallel:
        rollout["maxParallel"] = parse_share(wish.max_parallel, "--max-parallel")
    if wish.canary:
        first = parse_share(wish.canary, "--canary")
        rollout["steps"] = [{"nodes": first, "approval": "Required"}]
    limits: dict[str, Any] = {"rollout": rollout} if rollout else {}
    if wish.backoff_limit is not None:
        limits["backoffLimit"] = wish.backoff_limit
    if wish.kept_seconds is not None:
        limits["ttlSecondsAfterFinished"] = wish.kept_seconds
    return limits


def parse_labels(text: str) -> dict[str, str]:
    """Return the labels in `a=b,c=d`. CliError for anything else."""
    labels = {}
    for part in text.split(","):
        key, is_equal, value = part.strip().partition("=")
        if not key or not is_equal or key.endswith("!") or value.startswith("="):
            way = "Write KEY=VALUE,KEY=VALUE. Other selections need a manifest: spec.nodes."
            raise CliError(f"{part.strip()!r} is no label of a node", way, ExitCode.USAGE)
        labels[key] = value
    return labels


def parse_share(text: str, option: str) -> int | str:
    """Return the number of nodes, or the percentage, in `5` or `10%`. CliError for others."""
    digits = text.removesuffix("%")
    is_number = digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS_LIMIT
    number = int(digits) if is_number else 0
    if not 1 <= number <= (100 if text.endswith("%") else _NODES_LIMIT):
        way = "Write a number of nodes from 1, such as 5, or a percentage, such as 10%."
        raise CliError(f"{option} {text}: that is no number of nodes", way, ExitCode.USAGE)
    return f"{number}%" if text.endswith("%") else number


def _check(wish: Wish) -> None:
    if not wish.image and not wish.script:
        raise _usage("there is nothing to run", "Name an image with --image, or a --script.")
    if wish.is_on_host and not wish.script:
        raise _usage("--host runs a script on the node", "Name the script with --script.")
    if wish.is_command and wish.script:
        raise _usage("--command and --script exclude each other", "Leave out one of them.")
    if wish.is_on_host and wish.image:
        raise _usage("--host and --image exclude each other", "Leave out one of them.")


def _usage(message: str, way_out: str) -> CliError:
    return CliError(message, way_out, ExitCode.USAGE)


def retry_patch(request: str) -> dict[str, Any]:
    """Return the merge patch that requests a retry of the failed nodes."""
    return {"metadata": {"annotations": {names.ANNOTATION_RETRY: request}}}


def rerun_patch(nodes: Sequence[str], request: str) -> dict[str, Any]:
    """Return the merge patch that requests another run on these nodes, on all if there are none."""
    value = f"{','.join(nodes) or '*'}@{request}"
    if len(value) > REQUEST_LIMIT:
        raise _usage(
            f"a request for these {len(nodes)} nodes is longer than {REQUEST_LIMIT} characters",
            "Name fewer nodes. Request the next ones when status.observedRerun has changed.",
        )
    return {"metadata": {"annotations": {names.ANNOTATION_RERUN: value}}}


def suspend_patch(*, is_suspended: bool) -> dict[str, Any]:
    """Return the merge patch that pauses or resumes a run."""
    return {"spec": {"suspend": is_suspended}}

"""The Job that rolls back nodes of a run: `spec.rollback`, on these nodes and no others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from daemonset_job.api.job import Job
from job_controller.core.desired.owned_job import (
    build_owned_job,
    copied_spec,
    owned_name,
    runs_as,
    without_selection,
)

# For how long a rollback waits for a node that is away, if the Job does not say it.
_AWAY_SECONDS: Final = 60
_WHAT_RUNS: Final = ("script", "scriptFrom", "command", "args")
_TOKEN_FIELDS: Final = ("token", "match", "failureToken")


def rollback_suffix(number: int) -> str:
    """Return the suffix of the name of a rollback's Job, by its number from 1."""
    return "rollback" if number == 1 else f"rollback-{number}"


def rollback_name(parent: Job, number: int) -> str:
    """Return the name of a rollback's Job, by its number from 1."""
    return owned_name(parent.name, rollback_suffix(number))


def build_rollback_job(parent: Job, number: int, node_names: Sequence[str]) -> dict[str, Any]:
    """Return the Job that rolls back these nodes, BATCH_NODES at most.

    A node on which it fails stops it. A node that is away does not keep the others from being
    rolled back.
    """
    raw = parent.raw_spec
    rollback: Mapping[str, Any] = raw.get("rollback") or {}
    spec = copied_spec(parent)
    spec.update({key: rollback[key] for key in _WHAT_RUNS if key in rollback})
    spec.update(_image_and_completion(raw, rollback))
    if not _is_script(rollback):
        spec.pop("hostExec", None)  # it runs scripts only
    if not spec.get("image"):
        spec.pop("image", None)
    if "template" in spec:
        spec["template"] = without_selection(spec["template"])
    policy = raw.get("failurePolicy") or {}
    away = policy.get("unreachableSeconds")
    spec["failurePolicy"] = {
        "action": "FailFast",
        "maxFailedNodes": 0,
        "maxUnreachableNodes": "100%",
        "unreachableSeconds": _AWAY_SECONDS if away is None else away,
        "pods": "Delete" if policy.get("pods") == "Delete" else "DeleteFailed",
    }
    spec["nodes"] = {"include": list(node_names)}
    return build_owned_job(parent, rollback_suffix(number), spec)


def is_of_rollback(parent: Job, number: int, owned: Job) -> bool:
    """Return whether a Job does to its nodes what the Job of the rollback of that number does."""
    body = build_rollback_job(parent, number, owned.spec.nodes.include)
    return runs_as(owned, body["spec"])


def _is_script(raw: Mapping[str, Any]) -> bool:
    return bool(raw.get("script") or raw.get("scriptFrom"))


def _image_and_completion(raw: Mapping[str, Any], rollback: Mapping[str, Any]) -> dict[str, Any]:
    """Return the image that undoes the work, and how its end shows.

    A script runs in the image of the Job only if the Job runs a script in it, too: others need not
    have a shell. The mode is that of the Job, because `spec.template` is written for it. But a
    script with an image of its own needs mode Exit, since nothing there prints a token.
    """
    image = rollback.get("image") or ""
    completion = raw.get("completion") or {}
    mode = completion.get("mode") or "Log"
    if _is_script(rollback):
        if not image and _is_script(raw):
            image = raw.get("image") or ""
        return {"image": image, "completion": {"mode": "Exit" if image else mode}}
    tokens = {key: completion[key] for key in _TOKEN_FIELDS if key in completion}
    return {"image": image or raw.get("image") or "", "completion": {"mode": mode, **tokens}}

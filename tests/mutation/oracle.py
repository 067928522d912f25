"""The state that a Job has to report, judged only by what its user asked for.

A Job is refused by a message that names the field, or completes on the nodes that its spec
chooses, or reports another state by its conditions. Anything else is a run that stops without a
message.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from zoneinfo import available_timezones

from daemonset_job.kube.client.errors import KubeError
from tests.mutation.cluster import NODES

Raw = dict[str, Any]

# The case waits for a time to live up to this. A longer one is not waited for.
SHORT_TTL_SECONDS = 10
# Starts of a window that no time fits, or that cannot be read.
NEVER = ("0 0 30 2 *", "60 * * * *", "0 0 0 0 0", "x")


_WAITING_REASONS = ("OutsideWindow", "RolloutSoaking", "WaitingForJob")


@dataclass(frozen=True)
class ReportedState:
    """A state that a Job reports. `is_final`: only the user can change it."""

    words: str
    is_final: bool = True


def names_a_field(error: KubeError, words: frozenset[str]) -> bool:
    """Return whether a refusal names one of these fields; any field, where none is given."""
    text = f"{error.message} {dict(error.details)}"
    return any(word in text for word in words or {"spec", "metadata"})


def condition(job: Raw, type_: str) -> Raw:
    """Return a condition of a Job, empty when it has none of that type."""
    found = (job.get("status") or {}).get("conditions") or ()
    return next((raw for raw in found if raw["type"] == type_), {})


def is_true(job: Raw, type_: str) -> bool:
    """Return whether a condition is True."""
    return condition(job, type_).get("status") == "True"


def reported_state(job: Raw) -> ReportedState | None:
    """Return the state that a Job's status reports, None while it reports none."""
    status, spec = job.get("status") or {}, job["spec"]
    if status.get("observedGeneration") != job["metadata"]["generation"]:
        return None
    stays = spec.get("ttlSecondsAfterFinished", -1) > SHORT_TTL_SECONDS
    stays = stays or is_continuous(spec)
    if is_true(job, "Complete"):
        failed = (status.get("nodes") or {}).get("failed")
        is_partial = failed or condition(job, "Complete")["reason"] == "MinCompletedReached"
        stays = stays or (is_partial and "ttlSecondsAfterFinished" not in spec)
        return ReportedState("Complete") if stays else None
    if is_true(job, "Failed"):
        lives = stays or "ttlSecondsAfterFinished" not in spec
        lives = lives and not _is_rolling_back(job)
        return ReportedState(f"Failed: {condition(job, 'Failed')['message']}") if lives else None
    if is_true(job, "Suspended"):
        return ReportedState(f"Suspended: {condition(job, 'Suspended')['message']}")
    progressing = condition(job, "Progressing")
    waits = _asked_to_wait(spec) and progressing.get("reason") in _WAITING_REASONS
    if progressing.get("message") and (progressing["status"] == "False" or waits):
        words = f"{progressing['reason']}: {progressing['message']}"
        return ReportedState(words, is_final=False)
    return None


def _is_rolling_back(job: Raw) -> bool:
    """Return whether a failed run is to be rolled back, and the end of that is not known."""
    action = (job["spec"].get("failurePolicy") or {}).get("action")
    reason = condition(job, "RolledBack").get("reason", "RollbackWaiting")
    is_asked = action == "Rollback" and "rollback" in job["spec"]
    return is_asked and reason in {"RollbackWaiting", "RollingBack"}


def _asked_to_wait(spec: Raw) -> bool:
    """Return whether the user asked for a time in which no node starts."""
    rollout = spec.get("rollout") or {}
    steps = rollout.get("steps") or ()
    # A check has five minutes to pass, and its condition says what it waits for.
    waits = any(step.get("soakSeconds") or step.get("check") for step in steps)
    return bool(rollout.get("window") or spec.get("after")) or waits


def is_continuous(spec: Raw) -> bool:
    """Return whether the Job goes on to serve nodes after it is complete."""
    return (spec.get("completion") or {}).get("policy") == "Continuous"


def state_words(job: Raw | None, report: Raw | None) -> str:
    """Return what a user sees of a Job, in a few lines."""
    if job is None:
        status = (report or {}).get("status") or {}
        return f"the Job is gone; its report says {status.get('phase')}: {status.get('message')}"
    status = job.get("status") or {}
    lines = [
        f"phase {status.get('phase')}, generation {job['metadata']['generation']}",
        f"observed {status.get('observedGeneration')}, nodes {status.get('nodes')}",
    ]
    lines += [
        f"{raw['type']}={raw['status']} {raw['reason']}: {raw['message'][:300]}"
        for raw in status.get("conditions") or ()
    ]
    return "\n".join(lines)


# --- what a spec asks for, and nothing came of it -------------------------------------------


def ignored(spec: Raw, job: Raw | None, report: Raw | None) -> Iterator[str]:
    """Yield what a run that succeeded would not have done, had its spec had an effect.

    Nothing is said where a change of the spec, or a person's request, may have come in between.
    """
    phase = ((job or report or {}).get("status") or {}).get("phase")
    if phase != "Succeeded":
        return
    rollout = spec.get("rollout") or {}
    if spec.get("suspend"):
        yield "it succeeded while it was suspended"
    if missing := [name for name in spec.get("after") or () if name.startswith("no-such")]:
        yield f"it succeeded, and {missing} did not"
    if any(step.get("approval") for step in rollout.get("steps") or ()):
        yield "it succeeded without the approval of a step"
    if window := rollout.get("window"):
        zone, start = window.get("timeZone", "UTC"), window["start"]
        if not _is_zone(zone):
            yield f"it succeeded in a window of the time zone {zone[:80]!r}"
        if start in NEVER:
            yield f"it succeeded in a window that starts at {start!r}"


def _is_zone(name: str) -> bool:
    return name.casefold() in {each.casefold() for each in available_timezones()}


# --- the nodes that a spec chooses ----------------------------------------------------------


def chosen(spec: Raw) -> set[str]:
    """Return the short names of the nodes that a Job's spec.nodes chooses."""
    nodes = spec.get("nodes") or {}
    include, exclude = nodes.get("include") or (), nodes.get("exclude") or ()
    return {
        short
        for short, labels in NODES.items()
        if (not include or f"node-{short}" in include)
        and f"node-{short}" not in exclude
        and _matches(nodes.get("selector") or {}, labels)
    }


def _matches(selector: Raw, labels: Mapping[str, str]) -> bool:
    desired = selector.get("matchLabels") or {}
    if any(labels.get(key) != value for key, value in desired.items()):
        return False
    return all(_holds(rule, labels) for rule in selector.get("matchExpressions") or ())


def _holds(rule: Raw, labels: Mapping[str, str]) -> bool:
    value, values = labels.get(rule["key"]), rule.get("values") or ()
    return {
        "In": value in values,
        "NotIn": value not in values,
        "Exists": value is not None,
        "DoesNotExist": value is None,
    }[rule["operator"]]


def is_placed_by_nodes_alone(spec: Raw) -> bool:
    """Return whether nothing but spec.nodes says where pods go."""
    template = (spec.get("template") or {}).get("spec") or {}
    return not template.get("affinity") and not template.get("nodeSelector")


def misjudged(spec: Raw, job: Raw | None, report: Raw | None) -> Iterator[str]:
    """Yield contradictions between the reported state and the nodes that the spec chooses.

    `spec` is the newest one, with the nodes' short names. `report` names them the same way.
    """
    # With a successPolicy nodes may be left out, and the message says which.
    if not is_placed_by_nodes_alone(spec) or spec.get("successPolicy"):
        return
    desired = chosen(spec)
    status = (report or {}).get("status") or {}
    states = {node: raw["state"] for node, raw in (status.get("nodeStates") or {}).items()}
    if job is not None:
        reason = condition(job, "Progressing").get("reason")
        if reason == "NoMatchingNodes" and desired:
            yield f"it says that no node matches, and {sorted(desired)} do"
        if not is_true(job, "Complete"):
            return
    elif status.get("phase") != "Succeeded":
        return
    missing = {node for node in desired if states.get(node) not in {"Completed", "Failed"}}
    if missing:
        yield f"it completed without {sorted(missing)}: {states}"

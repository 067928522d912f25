"""What the API conventions and the project's documents ask of a Job's status, write by write."""

from collections.abc import Iterator

from tests.simulation.oracle.invariant import Invariant
from tests.simulation.server import Raw

INVARIANTS = (
    Invariant(
        "conventions",
        "Conditions and times of a Job's status follow the conventions of the Kubernetes API. An "
        "end is final until a retry, or until a change of spec.nodes adds nodes.",
        mutant="changes_every_transition_time",
        seed=1,
    ),
)

PHASES = {"Pending", "Running", "Paused", "Succeeded", "Failed"}


def status_faults(old: Raw, new: Raw, now: str) -> list[str]:
    """Return in words what is wrong with how a raw Job's status changed by now; [] is good."""
    before, after = old.get("status") or {}, new.get("status") or {}
    if before == after:
        return []
    is_taken_back = "startTime" not in after and _is(after, "Suspended")
    # A change of what a Job of policy Continuous runs is another rollout.
    is_revised = before.get("revision") != after.get("revision")
    may_reopen = is_taken_back or is_revised
    faults = list(_condition_faults(old, before, after, may_reopen=may_reopen))
    is_over = _is(after, "Complete") or _is(after, "Failed")
    if ("completionTime" in after) != is_over:
        faults.append(f"completionTime {after.get('completionTime')} and ended: {is_over}")
    if _is(after, "Complete") and _is(after, "Failed"):
        faults.append("both Complete and Failed")
    if after.get("phase") not in PHASES:
        faults.append(f"phase {after.get('phase')}")
    seen = after.get("observedGeneration", 0)
    if seen > new["metadata"]["generation"] or seen < before.get("observedGeneration", 0):
        faults.append(f"observedGeneration {seen}")
    is_changed = "startTime" in before and before["startTime"] != after.get("startTime")
    if is_changed and not is_taken_back:
        faults.append("startTime changed")
    finished = after.get("completionTime")
    if finished and not after.get("startTime", "") <= finished <= now:
        faults.append(f"completionTime {finished} not between {after.get('startTime')} and {now}")
    nodes = after.get("nodes") or {}
    if any(value < 0 for value in nodes.values() if isinstance(value, int)):
        faults.append(f"a negative count: {nodes}")
    return faults


def _condition_faults(old_job: Raw, before: Raw, after: Raw, *, may_reopen: bool) -> Iterator[str]:
    was = {c["type"]: c for c in before.get("conditions") or ()}
    for condition in after.get("conditions") or ():
        old = was.pop(condition["type"], None)
        if old is None:
            continue
        if condition["lastTransitionTime"] < old["lastTransitionTime"]:
            yield f"lastTransitionTime of {condition['type']} goes back"
        if condition["status"] == old["status"]:
            if condition["lastTransitionTime"] != old["lastTransitionTime"]:
                yield f"lastTransitionTime of {condition['type']} moves without a transition"
        elif old["type"] == "Failed" and old["status"] == "True" and not may_reopen:
            annotations = old_job["metadata"].get("annotations") or {}
            if before.get("observedRetry", "") == next(iter(annotations.values()), ""):
                yield "Failed is taken back without a retry"
    for type_ in was:
        yield f"condition {type_} vanishes"


def _is(status: Raw, type_: str) -> bool:
    conditions = status.get("conditions") or ()
    return any(c["type"] == type_ and c["status"] == "True" for c in conditions)

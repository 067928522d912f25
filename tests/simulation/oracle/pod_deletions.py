"""The controller deletes a pod only for a reason: a deletion costs the work of its node.

Reasons are a retry, a start that is taken back, and a failure on record. So are a task that printed
the token and exited, and a pod of a former node of that name. With `completion.release` a completed
node is one, too. With `failurePolicy.pods: Keep` a failure is none. In a rollout the pod of a node
that is set aside is one: its task must not go on beside that of the next node. In a run that is
rolled back, it is a later pod of a completed node, or one that has not started the task. The
rollback would wait for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.oracle.facts import find_job, rollout_of
from tests.simulation.oracle.invariant import Invariant
from tests.simulation.oracle.shards import node_states, reports_of
from tests.simulation.oracle.timeouts import TOLERANCE_SECONDS
from tests.simulation.pod_status import task_status
from tests.simulation.server import NODES, Raw

if TYPE_CHECKING:
    from tests.simulation.world import World

INVARIANTS = (
    Invariant(
        "pod deletion",
        "The controller deletes a pod on a node only after a retry, or if its failure is on "
        "record and failurePolicy.pods is not Keep. For a retry it deletes no pod whose task is "
        "at work on a node on which nothing has failed, and whose time is not over. It also "
        "deletes a pod whose task completed its node and exited, a pod that is older than its "
        "node, and one whose node is due again (`demands`). With completion.release it deletes "
        "the pod of a node in the ledger, and in a rollout that of a node that is set aside. In a "
        "run that is rolled back it deletes a later pod of a completed node, and one whose task "
        "cannot start. While a start is taken back, it deletes pods that are on record for that.",
        mutant="deletes_running_pods",
        seed=1,
        excuses={
            "clocks differ": "The pod is older than its node by the clocks of two API servers "
            "(guarantees.md, At least once).",
            "grace": "For a retry, after a task has ended whose evidence the terminator could not "
            "record: it looks failed (guarantees.md, At least once).",
            "former node": "The node was registered again, and the controller's watch had not "
            "shown that when it decided. What the pod did is on record for the former node of that "
            "name, which had to lose its pod for it (guarantees.md, At least once).",
        },
    ),
)


def judge_pod_deletion(world: World, pod: Raw) -> None:
    """Judge the deletion of a pod by the controller that is about to take effect."""
    oracle = world.oracle
    if not pod["spec"].get("nodeName") or not oracle.job_of.get(pod["metadata"]["uid"]):
        # It has not done anything, or no Job has made it, and the next DaemonSet would adopt it.
        return
    job_uid, node = oracle.job_of[pod["metadata"]["uid"]], pod["spec"]["meant_for"]
    raw = world.server.get(NODES, node, "")
    if raw is None or oracle.born[pod["metadata"]["uid"]] < oracle.born[raw["metadata"]["uid"]]:
        return
    spec = oracle.completion.newest(job_uid)
    is_released = spec.get("completion", {}).get("release", False)
    is_rolled_out = rollout_of({"spec": spec}) is not None
    demands, pod_uid = oracle.demands, pod["metadata"]["uid"]
    if job_uid in demands.images and demands.may_run_again(
        job_uid, node, raw["metadata"]["uid"], pod_uid
    ):
        return
    if (
        _is_retried(world, pod, job_uid)
        or _has_exited_after_token(world, pod, job_uid)
        or (is_released and oracle.is_entered(job_uid, node, raw["metadata"]["uid"]))
        or _is_taken_back(world, pod, job_uid)
        or (is_rolled_out and "setAsideAt" in (node_states(world, job_uid).get(node) or {}))
        or _holds_rollback(world, pod, job_uid)
    ):
        return
    is_kept = spec.get("failurePolicy", {}).get("pods") == "Keep"
    record = node_states(world, job_uid).get(node, {})
    has_failed = (record.get("state"), record.get("uid")) == ("Failed", raw["metadata"]["uid"])
    if has_failed and not is_kept:
        # Any pod of the node: none of them may run the task any more.
        return
    if _is_excused(world, pod, raw, job_uid):
        return
    words = f"the pod of {node} is deleted for nothing{oracle.timeouts.skews()}"
    oracle.violate("pod deletion", words)


def _is_excused(world: World, pod: Raw, node: Raw, job_uid: str) -> bool:
    pod_at, node_at = (found["metadata"]["creationTimestamp"] for found in (pod, node))
    if pod_at < node_at:
        world.oracle.excuse("pod deletion", "clocks differ")
        return True
    has_ended = bool(task_status(pod).get("restartCount"))
    is_unread = world.oracle.failures.is_unread(node["metadata"]["name"])
    if has_ended and _is_retry_drawn(world) and is_unread:
        world.oracle.excuse("pod deletion", "grace")
        return True
    if _is_taken_for_former(world, pod, node, job_uid):
        world.oracle.excuse("pod deletion", "former node")
        return True
    return False


def _is_taken_for_former(world: World, pod: Raw, node: Raw, job_uid: str) -> bool:
    """Return whether the end of this very pod is on record for the node that the controller knew.

    It did not know of the node that has the name now.
    """
    _, nodes_until = world.decided_on.get(job_uid, (0.0, 0.0))
    if world.oracle.born[node["metadata"]["uid"]] < nodes_until:
        return False
    spec, name = world.oracle.completion.newest(job_uid), pod["spec"]["meant_for"]
    if _has_failed_on_record(world, pod, job_uid):
        return bool(spec.get("failurePolicy", {}).get("pods") != "Keep")
    entries = ((each.get("evidence") or {}).get(name, {}) for each in reports_of(world, job_uid))
    has_completed = any(
        entry.get("podUID") == pod["metadata"]["uid"] and entry.get("completedAt")
        for entry in entries
    )
    return has_completed and (spec.get("completion", {}).get("release", False) or _has_ended(pod))


def _is_retried(world: World, pod: Raw, job_uid: str) -> bool:
    """Return whether a user requests a retry, and the pod is not at work without a failure."""
    node = pod["spec"]["meant_for"]
    if not _is_retry_drawn(world):
        return False
    machine = world.machines.get(node)
    run = machine.pods.get(pod["metadata"]["uid"]) if machine is not None else None
    if run is None or not run.is_at_work or _may_be_late(world, pod, job_uid):
        return True
    return not world.oracle.failures.may_not_fail(node, job_uid)


def _is_retry_drawn(world: World) -> bool:
    return any(d.kind == "retry" for d in world.schedule.disturbances)


def _may_be_late(world: World, pod: Raw, job_uid: str) -> bool:
    """Return whether the time of the node may be over: a failure, also if it is not written.

    It begins when the first pod of the current try is taken up, and goes on in the next ones.
    """
    seconds = world.oracle.completion.newest(job_uid).get("nodeDeadlineSeconds")
    machine = world.machines.get(pod["spec"]["meant_for"])
    if seconds is None or machine is None:
        return False
    taken_up = world.oracle.timeouts.taken_up_at((job_uid, machine.uid))
    return bool(world.loop.moment - taken_up >= seconds - TOLERANCE_SECONDS)


def _holds_rollback(world: World, pod: Raw, job_uid: str) -> bool:
    """Return whether a run is rolled back, and the pod does no work that has to be finished."""
    job = find_job(world.server, job_uid)
    if job is None or not world.oracle.rollbacks.is_asked(job):
        return False
    entry = world.oracle.evidence.entered.get((job_uid, pod["spec"]["meant_for"]))
    if entry is not None and entry[1] != pod["metadata"]["name"]:
        return True
    task = task_status(pod)
    has_begun = bool({"running", "terminated"} & (task.get("state") or {}).keys())
    return not has_begun and not task.get("lastState") and not task.get("restartCount")


def _is_taken_back(world: World, pod: Raw, job_uid: str) -> bool:
    """Return whether the Job is suspended, and the pod is on record as one that may have begun."""
    record = node_states(world, job_uid).get(pod["spec"]["meant_for"], {})
    # The Job may have been deleted in this moment.
    is_suspended = bool(world.oracle.completion.newest(job_uid).get("suspend"))
    if is_suspended and not record.get("attempts") and _has_failed_on_record(world, pod, job_uid):
        return True
    pods = record.get("reason"), record.get("podUID")
    return pods == ("PodTakenBack", pod["metadata"]["uid"])


def _has_failed_on_record(world: World, pod: Raw, job_uid: str) -> bool:
    record = node_states(world, job_uid).get(pod["spec"]["meant_for"], {})
    return (record.get("state"), record.get("podUID")) == ("Failed", pod["metadata"]["uid"])


def _has_exited_after_token(world: World, pod: Raw, job_uid: str) -> bool:
    """Return whether the ledger names this pod, and its task has ended there at least once."""
    entry = world.oracle.evidence.entered.get((job_uid, pod["spec"]["meant_for"]))
    return entry is not None and entry[1] == pod["metadata"]["name"] and _has_ended(pod)


def _has_ended(pod: Raw) -> bool:
    """Return whether the task has ended in the pod at least once."""
    task = task_status(pod)
    states = (task.get("state") or {}, task.get("lastState") or {})
    return any("terminated" in state for state in states)

"""Only a node or a run on which something failed is recorded as failed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemonset_job.api.names import ANNOTATION_ROLLBACK
from tests.simulation.oracle.facts import is_true
from tests.simulation.oracle.invariant import Invariant
from tests.simulation.server import Raw

if TYPE_CHECKING:
    from tests.simulation.kubelet import PodRun
    from tests.simulation.oracle.core import Oracle
    from tests.simulation.world import World

INVARIANTS = (
    Invariant(
        "false failure",
        "Only a node on which something failed is recorded as failed. A run fails only with such "
        "a node, or with one that was away for as long as the Job allows.",
        mutant="judges_exits_at_once",
        seed=11,
        excuses={
            "grace": "The terminator could not read a token within the controller's grace period: "
            "its own requests failed, or the logs could not be read.",
            "lost log": "The kubelet deleted the log of an attempt that had printed the token.",
        },
    ),
    Invariant(
        "message",
        "The message of a node names one cause and at most one line of its log.",
        mutant="repeats_last_lines",
        seed=34,
    ),
)

# A cause and one line of a log. The schema allows 1,024 and refuses all of a report with more.
LONGEST_MESSAGE = 512
# Which pods have yet to leave a node, and what the API server says of their evictions.
LONGEST_DRAIN_MESSAGE = 640
DRAINING = {"Draining", "DrainBlocked"}


class Failures:
    """Receives failing tasks, and what reports and Jobs say of nodes."""

    def __init__(self, world: World, oracle: Oracle) -> None:
        self._world = world
        self._oracle = oracle
        self.blamed: set[tuple[str, str | None]] = set()
        self.printed: set[tuple[str, int]] = set()
        self.refused: set[tuple[str, int]] = set()
        # Node and Job of each record that rightly calls a node unreachable.
        self.unreachable: set[tuple[str, str]] = set()
        # Node and Job of each instance whose log is gone, with the token in it.
        self.lost: dict[tuple[str, int], tuple[str, str | None]] = {}

    # --- allowed failures --------------------------------------------------------------------

    def task_succeeds(self, run: PodRun) -> None:
        """Note that an instance prints the token, or ends with 0 in mode Exit."""
        self.printed.add((run.pod_uid, run.instance))

    def task_refuses(self, run: PodRun) -> None:
        """Note that an instance prints the failure token."""
        self.refused.add((run.pod_uid, run.instance))
        self.allow_failure_of(run)

    def task_failed(self, run: PodRun) -> None:
        """Note that an instance ended without having printed the token."""
        if (run.pod_uid, run.instance) not in self.printed:
            self.allow_failure_of(run)

    def log_is_lost(self, run: PodRun, instance: int) -> None:
        """Note that the kubelet deletes the log of an instance that has ended."""
        if (run.pod_uid, instance) in self.printed:
            place = run.machine.name, self._oracle.job_of.get(run.pod_uid)
            self.lost[run.pod_uid, instance] = place
        self._oracle.evidence.results.cannot_be_asked(run)

    def allow_failure_of(self, run: PodRun) -> None:
        """Allow the Job of this pod to record the pod's node as failed."""
        self.allow_failure(run.machine.name, self._oracle.job_of.get(run.pod_uid))

    def allow_failure(self, node: str, job_uid: str | None = None) -> None:
        """Allow this Job, or all, to record a node as failed or unreachable."""
        self.blamed.add((node, job_uid))

    def may_not_fail(self, node: str, job_uid: str) -> bool:
        """Return whether nothing has happened for which the node may be recorded as failed."""
        is_blamed = {(node, None), (node, job_uid)} & self.blamed
        return not (is_blamed or self._oracle.reboots.is_of_another_job(node, job_uid))

    def judge(self, old: Raw, new: Raw) -> None:
        """Judge what a report says of nodes."""
        before = (old.get("status") or {}).get("nodeStates") or {}
        after = (new.get("status") or {}).get("nodeStates") or {}
        job_uid = new["spec"]["job"]["uid"]
        for node, record in after.items():
            state = record.get("state")
            was = before.get(node) or {}
            is_draining = record.get("reason") in DRAINING
            longest = LONGEST_DRAIN_MESSAGE if is_draining else LONGEST_MESSAGE
            if len(record.get("message") or "") > longest:
                self._oracle.violate("message", f"{node}: {len(record['message'])} characters")
            if (state, record.get("uid")) != (was.get("state"), was.get("uid")):
                self._oracle.timeouts.judge(job_uid, node, was, record)
            if state == (before.get(node) or {}).get("state"):
                continue
            if state == "Failed" and record.get("reason") == "DeadlineExceeded":
                self.allow_failure(node, job_uid)  # `patience` has judged whether rightly so
            if state == "Unreachable" and self._oracle.timeouts.has_been_away(node, job_uid):
                self.unreachable.add((node, job_uid))
            elif state in {"Failed", "Unreachable"} and self.may_not_fail(node, job_uid):
                self._accuse(f"{node} is called {state}: {record.get('message')}", node, job_uid)

    def judge_end(self, old: Raw, new: Raw) -> None:
        """Judge a Job that is called failed for the first time."""
        uid = new["metadata"]["uid"]
        if not is_true(new, "Failed") or is_true(old, "Failed"):
            return
        if is_true(new, "Failed", "DeadlineExceeded"):
            return  # see `deadlines`
        if is_true(new, "Failed", "Aborted") and uid in self._oracle.holds.aborts:
            return
        is_asked = ANNOTATION_ROLLBACK in (new["metadata"].get("annotations") or {})
        if is_asked and is_true(new, "Failed", "RollbackRequested"):
            return  # a person has ended it
        if self._oracle.timeouts.is_late(uid):
            return  # its report may be refused, and does not allow_failure the node
        # What failed may be a part of the run that has a Job of its own, such as a check.
        jobs = [uid, *(part for part, owner in self._oracle.owners.items() if owner == uid)]
        nodes = [plan.name for plan in self._world.schedule.nodes]
        if not any(self._may_fail_for(node, each) for node in nodes for each in jobs):
            self._accuse("the Job is called failed, and nothing has failed")

    def _may_fail_for(self, node: str, job_uid: str) -> bool:
        """Return whether a run may fail for what has happened to a node."""
        if not self.may_not_fail(node, job_uid) or (node, job_uid) in self.unreachable:
            return True
        # The report may be refused that says so.
        return self._oracle.timeouts.has_been_away(node, job_uid)

    def is_unread(self, node: str) -> bool:
        """Return whether the terminator could not record what the node has printed lately."""
        if self._world.logs_failed_lately(node, 6.0):
            return True
        return self._world.undisturbed_from["terminator"] >= self._world.loop.moment - 6.0

    def _accuse(self, words: str, node: str = "", job_uid: str = "") -> None:
        if self.is_unread(node):
            self._oracle.excuse("false failure", "grace")
        elif (node, job_uid) in self.lost.values():
            self._oracle.excuse("false failure", "lost log")
        else:
            self._oracle.violate("false failure", words + self._oracle.timeouts.skews())

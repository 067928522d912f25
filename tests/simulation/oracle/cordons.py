"""The cordons of Jobs: before a task, during it, after it, and those of people.

A person's cordon is one that was there before that of the Job, or of which a person removed the
mark. If a person uncordons a node meanwhile, nothing is expected of its cordon until its next one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from daemonset_job.api.names import ANNOTATION_CORDONED_BY
from tests.fakekube.node_lifecycle import ready_status
from tests.simulation import intent
from tests.simulation.cordons import is_cordoned
from tests.simulation.oracle.facts import cordons, rollout_of
from tests.simulation.oracle.invariant import Invariant
from tests.simulation.oracle.shards import node_states
from tests.simulation.oracle.turns import share
from tests.simulation.server import NODES, Raw

if TYPE_CHECKING:
    from tests.simulation.kubelet import PodRun
    from tests.simulation.oracle.core import Oracle
    from tests.simulation.world import World

INVARIANTS = (
    Invariant(
        "cordoned first",
        "With spec.cordon or spec.drain a task begins only while its node is cordoned, and not by "
        "another Job.",
        mutant="starts_before_cordon",
        seed=3_000_000_000,
        excuses={
            "uncordoned": "A person has uncordoned the node meanwhile (guarantees.md).",
            "was away": "The cordon was lifted at the end of the run, while the node could not be "
            "reached (guarantees.md), and its task begins when it is back.",
            "registered again": "The Node object was made again after the gate was removed "
            "(guarantees.md, Cordons and drains).",
        },
    ),
    Invariant(
        "cordon at work",
        "The controller does not uncordon a node while a task of the Job is at work there, unless "
        "the node is completed. It does not matter whether the node or the run has failed.",
        mutant="uncordons_failed_nodes_at_once",
        seed=3_000_000_000,
        excuses={
            "away": "The node cannot be reached, and the run has ended (guarantees.md).",
            "killed late": "A pod was deleted by force, and its kubelet is about to kill its task.",
        },
    ),
    Invariant(
        "left cordoned",
        "At rest a node has the mark of a Job only if a task of that Job is at work there. Without "
        "a mark it is cordoned only by a person.",
        mutant="leaves_cordons",
        seed=3_000_000_001,
    ),
    Invariant(
        "other cordons",
        "The controller neither marks nor lifts the cordon of a person.",
        mutant="lifts_all_cordons",
        seed=3_000_000_000,
    ),
    Invariant(
        "cordons at a time",
        "No more nodes have the mark of a Job at a time than maxParallel of its rollout allows.",
        mutant="gives_turns_to_all",
        seed=3_000_000_001,
        excuses={
            "away": "A marked node is unreachable, or was set aside: nothing waits for it.",
        },
    ),
)


class Cordons:
    """Receives the writes of nodes, the removals of gates, and starting tasks."""

    def __init__(self, world: World, oracle: Oracle) -> None:
        self._world = world
        self._oracle = oracle
        # Nodes that a person has cordoned, by UID.
        self._of_people: set[str] = set()
        # By UID of a node: since when it is cordoned, and when a person uncordoned it.
        self.cordoned_at: dict[str, float] = {}
        self._uncordoned_at: dict[str, float] = {}
        # Nodes, by UID, whose cordon was lifted while they could not be reached.
        self._lifted_away: set[str] = set()
        # How many cordons of Jobs there were.
        self.count = 0
        # By UID of a pod: when its gate was removed.
        self._opened_at: dict[str, float] = {}

    # --- what happens ------------------------------------------------------------------------

    def node_written(self, actor: str, old: Raw | None, new: Raw) -> None:
        """Note who cordons and uncordons a node; judge what the controller does."""
        old = old or {"metadata": {}}
        uid, now = new["metadata"]["uid"], self._world.loop.moment
        was, is_ = is_cordoned(old), is_cordoned(new)
        if is_ and not was:
            self.cordoned_at[uid] = now
            self._lifted_away.discard(uid)
        if actor == "controller":
            if mark_of(new) and not mark_of(old):
                self._judge_mark(old, new)
            elif (was and not is_) or (mark_of(old) and not mark_of(new)):
                self._judge_lift(old, new)
            return
        if was and not is_:
            self._uncordoned_at[uid] = now
        if is_ and not mark_of(new):
            self._of_people.add(uid)
        elif not is_:
            self._of_people.discard(uid)

    def judge_gate(self, pod: Raw) -> None:
        """Judge the removal of a pod's gate by the controller."""
        uid = pod["metadata"]["uid"]
        self._opened_at[uid] = self._world.loop.moment
        job = self._oracle.job(self._oracle.job_of.get(uid, ""))
        node = self._world.server.get(NODES, pod["spec"]["meant_for"], "")
        if job is None or node is None or not cordons(job):
            return
        self._judge_cordoned(job, node, "may start")

    def task_starts(self, run: PodRun) -> None:
        """Judge the first start of a task in a pod."""
        job_uid = self._oracle.job_of.get(run.pod_uid, "")
        job, node = self._oracle.job(job_uid), self._world.server.get(NODES, run.machine.name, "")
        if job is None or node is None or run.is_forged or len(run.logs) > 1 or run.instance:
            return
        if not cordons(job) or self._is_done(run, job_uid):
            return
        if self._oracle.born[node["metadata"]["uid"]] > self._opened_at.get(run.pod_uid, 0.0):
            self._oracle.excuse("cordoned first", "registered again")
            return
        self._judge_cordoned(job, node, "starts")

    def _judge_cordoned(self, job: Raw, node: Raw, what: str) -> None:
        name, uid = node["metadata"]["name"], node["metadata"]["uid"]
        if self.is_of_another_job(name, job):
            self._oracle.violate("cordoned first", f"{name} {what}, and another Job has it")
        elif not is_cordoned(node) and self.was_uncordoned(uid):
            self._oracle.excuse("cordoned first", "uncordoned")
        elif not is_cordoned(node) and uid in self._lifted_away:
            self._oracle.excuse("cordoned first", "was away")
        elif not is_cordoned(node):
            self._oracle.violate("cordoned first", f"{name} {what}, and is not cordoned")

    def was_uncordoned(self, node_uid: str) -> bool:
        """Return whether a person has uncordoned the node since it was cordoned last."""
        return self._uncordoned_at.get(node_uid, -1.0) >= self.cordoned_at.get(node_uid, 0.0)

    def is_of_another_job(self, node: str, job: Raw) -> bool:
        """Return whether a node has the mark of another Job, and the Job prepares its nodes."""
        raw = self._world.server.get(NODES, node, "")
        mark = mark_of(raw) if raw is not None else ""
        return bool(mark) and cordons(job) and job_of(mark) != job["metadata"]["uid"]

    # --- what the controller writes ----------------------------------------------------------

    def _judge_mark(self, old: Raw, new: Raw) -> None:
        self.count += 1
        name, mark = new["metadata"]["name"], mark_of(new)
        if is_cordoned(old):
            self._oracle.violate("other cordons", f"{name} was cordoned before, and is marked")
        job = self._oracle.job(job_of(mark))
        if job is None:
            return
        others = [
            node
            for node in self._world.server.all(NODES)
            if mark_of(node) == mark and node["metadata"]["name"] != name
        ]
        limit = share((rollout_of(job) or {}).get("maxParallel"), self._oracle.turns.count_nodes())
        if limit is None or len(others) < limit:
            return
        records = node_states(self._world, job["metadata"]["uid"])
        names = sorted(node["metadata"]["name"] for node in others)
        if any(_is_away(node, records.get(node["metadata"]["name"]) or {}) for node in others):
            self._oracle.excuse("cordons at a time", "away")
            return
        words = f"{name} is cordoned beside {names}, and {limit} may"
        self._oracle.violate("cordons at a time", words)

    def _judge_lift(self, old: Raw, new: Raw) -> None:
        name, mark = new["metadata"]["name"], mark_of(old)
        if not mark or new["metadata"]["uid"] in self._of_people:
            self._oracle.violate("other cordons", f"the cordon of {name} is lifted")
            return
        if ready_status(new) != "True":
            self._lifted_away.add(new["metadata"]["uid"])
        job = self._oracle.job(job_of(mark))
        for run in self._at_work(name, job_of(mark)) if job is not None else ():
            if run.pod() is None:
                self._oracle.excuse("cordon at work", "killed late")
            elif ready_status(new) != "True":
                self._oracle.excuse("cordon at work", "away")
            else:
                words = f"{name} is uncordoned, and {run.pod_name} is at work"
                self._oracle.violate("cordon at work", words)

    def _at_work(self, node: str, job_uid: str) -> Iterator[PodRun]:
        machine = self._world.machines.get(node)
        for run in machine.pods.values() if machine is not None else ():
            is_of_job = self._oracle.job_of.get(run.pod_uid) == job_uid and not run.is_forged
            if is_of_job and run.is_at_work and not self._is_done(run, job_uid):
                yield run

    def _is_done(self, run: PodRun, job_uid: str) -> bool:
        """Return whether the node is completed, by this pod or by another one."""
        machine = run.machine
        is_entered = self._oracle.is_entered(job_uid, machine.name, machine.uid)
        return is_entered or self._oracle.evidence.is_of(run, job_uid)

    # --- the end -----------------------------------------------------------------------------

    def judge_rest(self) -> None:
        """Judge the cordons that are there at rest."""
        for node in self._world.server.all(NODES):
            name, mark = node["metadata"]["name"], mark_of(node)
            job = self._oracle.job(job_of(mark))
            machine = self._world.machines.get(name)
            if not mark:
                if is_cordoned(node) and node["metadata"]["uid"] not in self._of_people:
                    self._oracle.violate("left cordoned", f"{name} is cordoned without a mark")
            elif job is None:
                self._oracle.violate("left cordoned", f"{name} has the mark of a deleted Job")
            elif machine is not None and not machine.is_up:
                continue  # its task may be at work there
            elif intent.is_held(job["spec"], node) and not _has_ended(job):
                continue  # its turn goes on when its pod is no longer kept off
            elif not any(self._at_work(name, job_of(mark))):
                self._oracle.violate("left cordoned", f"{name} is marked, and no task is at work")


def mark_of(node: Raw) -> str:
    """Return the mark of a Job on a raw node, "" for none."""
    return str((node["metadata"].get("annotations") or {}).get(ANNOTATION_CORDONED_BY) or "")


def job_of(mark: str) -> str:
    """Return the UID of the Job that a mark names."""
    return mark.rpartition("/")[2]


def _has_ended(job: Raw) -> bool:
    return (job.get("status") or {}).get("phase") in {"Succeeded", "Failed"}


def _is_away(node: Raw, record: Raw) -> bool:
    is_unreachable = record.get("state") == "Unreachable" or "setAsideAt" in record
    return is_unreachable or ready_status(node) != "True"

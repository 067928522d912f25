"""Which nodes have begun a Job's work, as far as the controller has to know.

A node that has begun stays desired when a condition of its own keeps pods off it. A program that
sees everything late cannot know of a task whose pod went at once. So a node counts from the moment
that its start is on record, and at the latest KNOWN_SECONDS after the start of its task. The latter
holds only if the controller was not disturbed within that time, and no client has deleted the
DaemonSet of the pod by then. A node that is only recorded as
unreachable, or failed before its task has started, counts as long as that is on record. So does one
whose pod is deleted to take the start of the run back. What takes that off the record may complete
the run without the node, if no task has started there.

For policy Continuous, a start in a pod of an earlier revision counts only once the ledger has had
the node, however late it is. A start that is on record for the newest revision counts also if there
was none. A kubelet reports such a start of a pod that has ended with its node's shutdown.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from daemonset_job.api.names import ANNOTATION_REVISION
from tests.simulation.server import DAEMON_SETS, NODES, PODS, Raw, controller_of

if TYPE_CHECKING:
    from tests.simulation.kubelet import PodRun
    from tests.simulation.oracle.core import Oracle
    from tests.simulation.world import World

KNOWN_SECONDS = 8.0


@dataclass(slots=True)
class StartedNodes:
    """Receives starts and records; moments by the UIDs of a Job and of a node."""

    world: World
    oracle: Oracle
    known: dict[tuple[str, str], float] = field(default_factory=dict)
    # Of nodes whose start is not on record: since when what counts for it is, and in which report.
    recorded: dict[tuple[str, str], tuple[float, str]] = field(default_factory=dict)
    # Nodes of these whose pod is deleted to take the start of the run back.
    taken_back: set[tuple[str, str]] = field(default_factory=set)
    # The revision of the pod in which it last started, by the same.
    started: dict[tuple[str, str], str] = field(default_factory=dict)
    # The revision of the start that is on record, by the same.
    revisions: dict[tuple[str, str], str] = field(default_factory=dict)
    # What the ledger has had, by the same.
    entered: set[tuple[str, str]] = field(default_factory=set)

    def task_starts(self, run: PodRun) -> None:
        """Receive an instance of a task that starts.

        In a pod whose DaemonSet a client deletes before the start is on record, it does not count.
        Nor does it in a pod that seems older than its node, because the clocks of two API servers
        differ.
        """
        node = self.world.server.get(NODES, run.machine.name, "")
        if node is not None and _created(run.raw) < _created(node):
            return
        if not self._has_daemon_set(run):
            return
        if job_uid := self.oracle.job_of.get(run.pod_uid):
            now, key = self.world.loop.moment, (job_uid, run.machine.uid)
            annotations = run.raw["metadata"].get("annotations") or {}
            self.started[key] = annotations.get(ANNOTATION_REVISION, "")
            self.world.loop.call_later(KNOWN_SECONDS, self._note, key, run, now)

    def _note(self, key: tuple[str, str], run: PodRun, since: float) -> None:
        controller = self.world.processes["controller"]
        was_well = controller.is_up and controller.started_at < since
        is_there = self.world.server.now(PODS, run.raw) is not None and self._has_daemon_set(run)
        if was_well and is_there and self.world.undisturbed_from["controller"] < since:
            self.known.setdefault(key, self.world.loop.moment)

    def _has_daemon_set(self, run: PodRun) -> bool:
        """Return whether the DaemonSet that made or adopted the pod is there."""
        pod = self.world.server.now(PODS, run.raw) or run.raw
        owners = {raw["metadata"]["uid"] for raw in self.world.server.all(DAEMON_SETS)}
        return controller_of(pod) in owners

    def judge_record(self, report: Raw) -> None:
        """Note which nodes have begun by a report."""
        job_uid, where = report["spec"]["job"]["uid"], report["metadata"]["name"]
        now, records = self.world.loop.moment, (report.get("status") or {}).get("nodeStates") or {}
        now_recorded = set()
        self.entered |= {(job_uid, e["nodeUID"]) for e in (report.get("evidence") or {}).values()}
        for record in records.values():
            key = (job_uid, record.get("uid"))
            is_marked = record.get("reason") == "PodTakenBack"
            self.revisions.pop(key, None)
            if record.get("attempts") and not is_marked:
                self.known.setdefault(key, now)
                self.revisions[key] = record.get("revision", "")
            elif is_marked or record.get("state") in {"Active", "Unreachable", "Failed"}:
                now_recorded.add(key)
                self.recorded.setdefault(key, (now, where))
                if is_marked:
                    self.taken_back.add(key)
                else:
                    self.taken_back.discard(key)
        for key, (_, found) in list(self.recorded.items()):
            if key[0] == job_uid and found == where and key not in now_recorded:
                del self.recorded[key]

    def start_taken_back(self, job_uid: str) -> None:
        """Forget the records of a run whose start is taken back: it has begun nowhere."""
        for found in (self.known, self.recorded):
            for key in [key for key in found if key[0] == job_uid]:
                del found[key]

    def not_begun_after_all(self, job_uid: str) -> frozenset[str]:
        """Return the UIDs of nodes whose pod was deleted to take a start back, and has ended.

        No task has started on them, and no record says any longer that one may have.
        """
        rest = self.taken_back - self.recorded.keys() - self.known.keys() - self.started.keys()
        return frozenset(node for job, node in rest if job == job_uid)

    def until(self, job_uid: str, moment: float) -> frozenset[str]:
        """Return the UIDs of the nodes that had begun a Job's work before a moment."""
        found = [*self.known.items(), *((key, at) for key, (at, _) in self.recorded.items())]
        begun = {node for (job, node), at in found if job == job_uid and at < moment}
        if job_uid in (demands := self.oracle.demands).images:
            newest = demands.revisions.get(job_uid)
            begun = {
                node
                for node in begun
                if (job_uid, node) in self.entered | self.recorded.keys()
                or newest
                in {self.revisions.get((job_uid, node)), self.started.get((job_uid, node))}
            }
        return frozenset(begun)


def _created(raw: Raw) -> str:
    return str(raw["metadata"]["creationTimestamp"])

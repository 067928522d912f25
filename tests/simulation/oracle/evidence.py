"""Evidence is true, stays, and gains nothing but results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from daemonset_job.api.evidence import Evidence as LedgerEntry
from tests.simulation.oracle.invariant import Invariant
from tests.simulation.oracle.results import Results
from tests.simulation.server import NODES, Raw

if TYPE_CHECKING:
    from tests.simulation.kubelet import PodRun
    from tests.simulation.oracle.core import Oracle
    from tests.simulation.world import World

INVARIANTS = (
    Invariant(
        "evidence",
        "Evidence of a completion is true, never changes except that results are added, and is "
        "never lost.",
        mutant="completes_at_any_exit_code",
        seed=21,
        excuses={
            "former node": "The token of a recreated node is recorded for the former node, while "
            "the terminator's watch has delivered only that one's UID.",
            "clocks": "The pod of a former node of that name seems as young as the new node. Both "
            "were created within one second, or within that by which API servers' clocks differ.",
            "unseen": "The task printed the token twice. A process that has ended sent evidence "
            "that its successor could not see (guarantees.md, What is not promised).",
        },
    ),
)

# How long evidence may be on its way from the log into the ledger.
FLUSH_SECONDS = 5.0


class Evidence:
    """Receives tokens, and what is written into reports."""

    def __init__(self, world: World, oracle: Oracle) -> None:
        self._world = world
        self._oracle = oracle
        # By name and UID of a node: the UIDs of the Jobs whose token was printed there.
        self.tokens: dict[tuple[str, str | None], set[str]] = {}
        # By UID of a Job and name of a node: the entry's node UID and pod, and when it was made.
        self.entered: dict[tuple[str, str], tuple[str | None, str | None, float]] = {}
        self.entered_pods: dict[tuple[str, str], str | None] = {}
        # UIDs of pods whose task ended with 0 because it got TERM.
        self.ended_on_term: set[str] = set()
        # What the writer of what is written now knows of the report's evidence.
        self.seen: Mapping[str, LedgerEntry] = {}
        self.results = Results(world)

    def task_succeeds(self, run: PodRun) -> None:
        """Note that an instance prints the token, or ends with 0 in mode Exit."""
        self.results.succeeded(run)
        if job_uid := self._oracle.job_of.get(run.pod_uid):
            node = run.machine
            self.tokens.setdefault((node.name, node.uid), set()).add(job_uid)

    def judge(self, old: Raw, new: Raw) -> None:
        before, after = old.get("evidence") or {}, new.get("evidence") or {}
        if before == after:
            return
        job_uid = new["spec"]["job"]["uid"]
        for node, entry in after.items():
            was = before.get(node) or {}
            if entry != was and entry.get("completedAt"):
                self._judge_completed(job_uid, node, was, entry)
        for node, was in before.items():
            if was.get("completedAt") and not (after.get(node) or {}).get("completedAt"):
                current = self._world.server.get(NODES, node, "")
                if current and current["metadata"]["uid"] == was.get("nodeUID"):
                    if not self._is_due_again(job_uid, node, was):
                        self._oracle.violate("evidence", f"the entry of {node} was lost")
                    self.entered.pop((job_uid, node), None)

    def is_of(self, run: PodRun, job_uid: str) -> bool:
        """Return whether the entry of a node is of this very pod, and of the node as it is now."""
        key = job_uid, run.machine.name
        is_of_node = self.entered.get(key, ("",))[0] == run.machine.uid
        return is_of_node and self.entered_pods.get(key) == run.pod_uid

    def _judge_completed(self, job_uid: str, node: str, was: Raw, entry: Raw) -> None:
        """Judge an entry that completes a node."""
        uid = entry.get("nodeUID")
        if job_uid not in self.tokens.get((node, uid), ()):
            if self._is_taken_for_former(job_uid, node):
                self._oracle.excuse("evidence", "former node")
                return
            if self._seems_younger(job_uid, node, entry):
                self._oracle.excuse("evidence", "clocks")
            else:
                words = f"{node} ({uid}) never printed the token for this Job"
                if entry.get("podUID") in self.ended_on_term:
                    words += ", its task got TERM"
                self._oracle.violate("evidence", words)
        self.results.judge_entry(self._oracle.plans[job_uid], node, entry)
        is_another = was.get("podUID") != entry.get("podUID")
        if (
            not was.get("completedAt")
            or was.get("nodeUID") != uid
            or (is_another and self._is_due_again(job_uid, node, was))
        ):
            self.entered[job_uid, node] = (uid, entry.get("pod"), self._world.loop.moment)
            self.entered_pods[job_uid, node] = entry.get("podUID")
        elif not _has_only_gained_results(was, entry):
            what = "results" if {**entry, "results": 0} == {**was, "results": 0} else "entry"
            if not self._had_seen(node, uid):
                self._oracle.excuse("evidence", "unseen")
            else:
                self._oracle.violate("evidence", f"the {what} of {node} changed: {was} to {entry}")

    def _is_due_again(self, job_uid: str, node: str, was: Raw) -> bool:
        """Whether the user has asked for more since the pod of an entry was let start."""
        demands, node_uid = self._oracle.demands, str(was.get("nodeUID"))
        return job_uid in demands.images and demands.may_run_again(
            job_uid, node, node_uid, was.get("podUID")
        )

    def _had_seen(self, node: str, node_uid: str | None) -> bool:
        """Whether who sent the write that is being judged knew that the node had completed."""
        entry = self.seen.get(node)
        return entry is not None and entry.is_completed and entry.node_uid == node_uid

    def _seems_younger(self, job_uid: str, node: str, entry: Raw) -> bool:
        """Whether a pod of a former node of that name, which printed the token, seems the node's.

        The API server that the pod was created through may be ahead of that of the node.
        """
        born, skew = self._oracle.born, self._world.server.skew
        if not any(name == node and job_uid in jobs for (name, _), jobs in self.tokens.items()):
            return False
        if entry.get("nodeUID") not in born or entry.get("podUID") not in born:
            return False
        gap = born[entry["nodeUID"]] - born[entry["podUID"]]
        ahead = skew("daemonset-controller") - skew("kubelet")
        return ahead >= 0 and 0 < gap < ahead + 1.0  # API times are whole seconds

    def _is_taken_for_former(self, job_uid: str, node: str) -> bool:
        """Whether the node did print the token, and the terminator cannot know its new UID yet."""
        current = self._world.server.get(NODES, node, "")
        if current is None or job_uid not in self.tokens.get(
            (node, current["metadata"]["uid"]), ()
        ):
            return False
        watch = self._world.processes["terminator"].watches["nodes"]
        learnt = watch.delivered_at.get(("", node), 0.0)
        return watch.is_behind or learnt > self._world.loop.moment - FLUSH_SECONDS


def _has_only_gained_results(was: Raw, entry: Raw) -> bool:
    before, after = was.get("results") or {}, entry.get("results") or {}
    omitted, omitted_now = was.get("omittedResults") or (), entry.get("omittedResults") or ()
    others = {"results": 0, "omittedResults": 0}
    return (
        before.items() <= after.items()
        and set(omitted) <= set(omitted_now)
        and {**entry, **others} == {**was, **others}
    )

"""A run whose start is taken back has begun nowhere, and the tasks of a run have one image."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemonset_job.api.names import CONTAINER_NAME
from tests.simulation.corrections import image_of
from tests.simulation.oracle.facts import find_job, is_continuous
from tests.simulation.oracle.invariant import Invariant
from tests.simulation.server import PODS, Raw

if TYPE_CHECKING:
    from tests.simulation.kubelet import PodRun
    from tests.simulation.oracle.core import Oracle
    from tests.simulation.world import World

INVARIANTS = (
    Invariant(
        "taken back",
        "The start of a run is taken back only if no task of the Job has begun on any node. None "
        "begins before the Job has started again, and all tasks of a run have the same image. No "
        "gate is removed of a pod with another image than that of the Job.",
        mutant="takes_back_what_has_begun",
        seed=5_000_000_001,
        excuses={
            "unseen": "The pod was gone before a controller recorded that its task had begun: it "
            "was removed while no controller ran (guarantees.md, Corrections).",
            "unseen by a late watch": "The task began, and its pod was removed, while the "
            "controller's watch of pods was late (guarantees.md, Corrections).",
        },
    ),
)


class Corrections:
    """Receives starting tasks, and the status of Jobs."""

    def __init__(self, world: World, oracle: Oracle) -> None:
        self._world = world
        self._oracle = oracle
        # By UID of a Job: where its task has begun, its images there, and how often its start was
        # taken back. `_open` has those that have not started again.
        self._began: dict[str, list[PodRun]] = {}
        # By UID of a pod: when its task began.
        self._began_at: dict[str, float] = {}
        self._images: dict[str, set[str]] = {}
        self._open: set[str] = set()
        self.count = 0

    def task_starts(self, run: PodRun) -> None:
        """Judge the image of a task that begins."""
        uid = self._oracle.job_of.get(run.pod_uid, "")
        if not uid or uid in self._oracle.demands.images:
            return
        self._began.setdefault(uid, []).append(run)
        self._began_at.setdefault(run.pod_uid, self._world.loop.moment)
        images = self._images.setdefault(uid, set())
        images.add(image_of(run.raw, CONTAINER_NAME))
        if uid in self._open:
            self._violate(uid, f"{run.machine.name} begins before the Job has started again")
        if len(images) > 1:
            self._violate(uid, f"{run.machine.name} begins with another image: {sorted(images)}")

    def judge_gate(self, pod: Raw) -> None:
        """Judge the image of a pod whose gate the controller has removed."""
        uid = self._oracle.job_of.get(pod["metadata"]["uid"], "")
        job = find_job(self._world.server, uid)
        if job is None or is_continuous(job):
            return
        own, asked = image_of(pod, CONTAINER_NAME), job["spec"].get("image", "")
        # A script without an image runs in the task image.
        if asked and own != asked:
            self._violate(uid, f"the gate of a pod with image {own} is removed, not {asked}")

    def job_written(self, old: Raw, new: Raw) -> None:
        """Judge that a start is taken back."""
        uid = new["metadata"]["uid"]
        before, after = ("startTime" in (each.get("status") or {}) for each in (old, new))
        if after:
            self._open.discard(uid)
        if not before or after or is_continuous(new):
            return
        self.count += 1
        self._open.add(uid)
        self._oracle.started_nodes.start_taken_back(uid)
        self._oracle.step_nodes.start_taken_back(uid)
        self._oracle.completion.started_with.pop(uid, None)
        if runs := self._began.get(uid):
            nodes = sorted({run.machine.name for run in runs})
            if not self._is_late(runs):
                self._violate(uid, f"a start is taken back, and {nodes} have begun")
                return
            self._oracle.excuse("taken back", "unseen by a late watch")
            # The next start may have another image.
            del self._began[uid], self._images[uid]

    def _violate(self, uid: str, words: str) -> None:
        if self._is_unseen(uid):
            self._oracle.excuse("taken back", "unseen")
            return
        self._oracle.violate("taken back", words)

    def _is_late(self, runs: list[PodRun]) -> bool:
        """Return whether the controller's watch of pods is from before the tasks of gone pods."""
        known_until = self._world.processes["controller"].watches[PODS].known_until
        return all(run.pod() is None and self._began_at[run.pod_uid] >= known_until for run in runs)

    def _is_unseen(self, uid: str) -> bool:
        """Return whether the pods in which the task has begun were gone before it was recorded."""
        kinds = {d.kind for d in self._world.schedule.disturbances}
        may_miss = {"crash", "crash_on"}
        runs = self._began.get(uid) or []
        return bool(kinds & may_miss) and all(run.pod() is None for run in runs)

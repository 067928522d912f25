"""What users ask of a Job of policy Continuous while it runs: who has to run the task again.

Three things ask for that: a change of what runs, a rerun request, and labels of a node that leave
the selection and come back. What a pod runs is its image. A program that was away, or whose watch
was late, cannot know of a change that was taken back meanwhile. So a demand that another one has
replaced binds only if it was there for KNOWN_SECONDS while nothing disturbed the controller. So
does one whose revision was in the Job's status, and the newest one. A request binds, too, for a
node whose record had it. Another demand may be met.

Labels that came back bind only if that must have been noticed before they left again, and before an
edit of the selection. They do not bind after an edit has taken the node in while they were away.
Nor do they if they left, or came back, under another selection. Then a node may run again.

A rerun request is about the nodes that the Job has at that time. For others it does not bind. A
task that has started counts for a request if neither the controller's watch of pods nor the ledger
had shown the start when it read the request. A start that was seen later, and before the report had
the request, may count or not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from daemonset_job.api.json_text import json_hash
from daemonset_job.api.names import ANNOTATION_RERUN, CONTAINER_NAME
from daemonset_job.api.pod import Pod
from tests.simulation import intent
from tests.simulation.oracle.demand import FOREVER, Demand, Due, PodFacts
from tests.simulation.oracle.facts import is_continuous
from tests.simulation.server import JOBS, NODES, Raw

if TYPE_CHECKING:
    from job_controller.core.state.snapshot import Snapshot
    from tests.simulation.kubelet import PodRun
    from tests.simulation.oracle.core import Oracle
    from tests.simulation.world import World

KNOWN_SECONDS = 8.0


@dataclass(slots=True)
class Demands:
    """Receives Jobs, nodes, pods and starts; asked by the invariants. By the UID of a Job."""

    world: World
    oracle: Oracle
    images: dict[str, list[Demand]] = field(default_factory=dict)
    reruns: dict[str, list[Demand]] = field(default_factory=dict)
    returns: dict[str, list[Demand]] = field(default_factory=dict)
    # By UIDs of a Job and of a node: when its labels left the selection; known as a Demand is.
    left: dict[tuple[str, str], Demand] = field(default_factory=dict)
    # The same of nodes whose labels left or came back while the Job had another selection.
    crossed: set[tuple[str, str]] = field(default_factory=set)
    pods: dict[str, PodFacts] = field(default_factory=dict)
    # What the status has, by the UID of a Job.
    revisions: dict[str, str] = field(default_factory=dict)

    # --- what happens ----------------------------------------------------------------------

    def job_written(self, old: Raw | None, new: Raw) -> None:
        """Note what a write of a Job asks for."""
        if not is_continuous(new):
            return
        uid = new["metadata"]["uid"]
        if old is None:
            self.images[uid], self.reruns[uid], self.returns[uid] = [], [], []
            self._note_left_before(new)
        image = new["spec"]["image"]
        if old is None or old["spec"]["image"] != image:
            demand = Demand(self.world.loop.moment, image, new["metadata"]["generation"])
            self._add(self.images[uid], demand)
        if old is not None and intent.selection(old["spec"]) != intent.selection(new["spec"]):
            self._note_selection(new)
        self._note_revision(uid, old or {}, new)
        before, after = (_annotation(raw) for raw in (old or {"metadata": {}}, new))
        if after != before:
            self._add(self.reruns[uid], self._rerun(new, after))

    def _note_left_before(self, job: Raw) -> None:
        """Note the nodes whose labels left before a Job was made, as they would after it.

        The DaemonSet controller has yet to see that, so it may make a pod for each. guarantees.md:
        such a node runs the task in another pod when its labels come back.
        """
        for node in self.world.server.all(NODES):
            seen = self.world.cluster.seen_node(node["metadata"]["name"])
            if seen is None or not intent.matches(job["spec"], seen):
                continue
            if not intent.matches(job["spec"], node):
                self._leave((job["metadata"]["uid"], node["metadata"]["uid"]))

    def _leave(self, key: tuple[str, str]) -> None:
        """Note that the labels of a node leave the selection of a Job."""
        self.left[key] = demand = Demand(self.world.loop.moment)
        self._note_later(demand)

    def _note_selection(self, job: Raw) -> None:
        """Note what an edit of the selection does with nodes that their labels have taken out.

        That such a node is still out has to be known once more, unless the edit takes it in. If its
        labels came back before that edit, it may run again.
        """
        uid, now = job["metadata"]["uid"], self.world.loop.moment
        for node in self.world.server.all(NODES):
            key = uid, node["metadata"]["uid"]
            self._unbind_return(key)
            if (away := self.left.get(key)) is None:
                continue
            is_taken_in, away.is_replaced = intent.matches(job["spec"], node), True
            self.left[key] = replace(away, is_known=False, is_replaced=False)
            if away.is_known and not is_taken_in:
                self._note_later(self.left[key], since=now)
            if is_taken_in and key in self.crossed:
                nodes = {node["metadata"]["name"]: key[1]}
                self.returns[uid].append(Demand(now, nodes=nodes))

    def _note_revision(self, uid: str, old: Raw, new: Raw) -> None:
        """Note that the controller has read what runs, if the status got another revision.

        The write fails if the Job was changed since it was read.
        """
        was, is_ = (raw.get("status") or {} for raw in (old, new))
        if was.get("revision") == is_.get("revision"):
            return
        self.revisions[uid] = is_.get("revision", "")
        if self.revisions[uid]:
            self.images[uid][-1].is_known = True

    def _rerun(self, job: Raw, value: str) -> Demand:
        words = {word for word in value.partition("@")[0].split(",") if word}
        desired = self.oracle.completion.desired(job)
        named = {node: uid for node, uid in desired.items() if words & {"*", node}}
        return Demand(self.world.loop.moment, nodes=named, words=frozenset(words), value=value)

    def _add(self, demands: list[Demand], demand: Demand) -> None:
        if demands:
            demands[-1].is_replaced = True
        demands.append(demand)
        self._note_later(demand)

    def _note_later(self, demand: Demand, since: float | None = None) -> None:
        """Note after a while that the controller must have read a demand that is still there."""
        since = demand.at if since is None else since

        def note() -> None:
            if not demand.is_replaced and self._was_well(since):
                demand.is_known = True

        self.world.loop.call_later(KNOWN_SECONDS, note)

    def _was_well(self, since: float) -> bool:
        """Return whether nothing has disturbed the controller since a moment."""
        controller = self.world.processes["controller"]
        is_well = controller.is_up and controller.started_at < since
        return is_well and self.world.undisturbed_from["controller"] < since

    def node_written(self, old: Raw | None, new: Raw) -> None:
        """Note that the labels of a node leave the selection of a Job, or come back."""
        if old is None or not self.images:
            return
        uid, name = new["metadata"]["uid"], new["metadata"]["name"]
        for job in self.world.server.all(JOBS):
            key = job["metadata"]["uid"], uid
            if key[0] not in self.images:
                continue
            was, is_ = (intent.matches(job["spec"], raw) for raw in (old, new))
            if was and not is_:
                self._unbind_return(key)
                self._leave(key)
            elif is_ and not was and (key in self.left or key in self.crossed):
                self._come_back(key, name)
            elif was == is_ and self._is_crossing(job, old, new):
                self.crossed.add(key)

    def _come_back(self, key: tuple[str, str], name: str) -> None:
        """Note that the labels of a node come back to the selection of a Job."""
        back = Demand(self.world.loop.moment, nodes={name: key[1]})
        if away := self.left.pop(key, None):
            away.is_replaced = True
            back.is_known = away.is_known
        self.returns[key[0]].append(back)

        def note() -> None:
            back.is_noticed = self._was_well(back.at)

        self.world.loop.call_later(KNOWN_SECONDS, note)

    def _unbind_return(self, key: tuple[str, str]) -> None:
        """Note that labels leave again, or an edit chooses, which hides that they were back."""
        for demand in self.returns[key[0]]:
            if key[1] in demand.nodes.values() and not demand.is_noticed:
                demand.is_known = False

    def _is_crossing(self, job: Raw, old: Raw, new: Raw) -> bool:
        """Return whether a node leaves, or comes to match, another selection that the Job had."""
        specs = self.oracle.completion.specs[job["metadata"]["uid"]].values()
        return any(intent.matches(each, old) != intent.matches(each, new) for each in specs)

    def pod_made(self, pod: Raw, job_uid: str) -> None:
        """Note a new pod of a Job.

        A pod that is made without the gate, in the first seconds of a Job, starts by itself. So no
        program can know whether it started before a request or after it.
        """
        if job_uid in self.images:
            self.pods[pod["metadata"]["uid"]] = PodFacts(image_of(pod))

    def gate_removed(self, pod: Raw, job_uid: str) -> None:
        """Note that the controller lets a pod start, with what it knew when it decided that."""
        if facts := self.pods.get(pod["metadata"]["uid"]):
            facts.jobs_known, facts.nodes_known = self.world.gates_decided.get(job_uid, (0.0, 0.0))

    def task_starts(self, run: PodRun) -> None:
        """Note the first start of the task of a pod."""
        if facts := self.pods.get(run.pod_uid):
            facts.started = min(facts.started, self.world.loop.moment)

    def controller_decides(self, snapshot: Snapshot) -> None:
        """Note what the controller knows while it reads a request that no report has."""
        job = snapshot.job
        value = job.annotations.get(ANNOTATION_RERUN) or ""
        read = next((d for d in reversed(self.reruns.get(job.uid, ())) if d.value == value), None)
        if read is None:
            return
        if read.started is None:
            read.started = frozenset(_started_pods(snapshot))
        elif job.has_open_request:
            read.started_later.update(_started_pods(snapshot))

    def report_written(self, old: Raw, new: Raw) -> None:
        """Note which nodes have a request in their records now, and had not."""
        was, is_ = ((raw.get("status") or {}).get("nodeStates") or {} for raw in (old, new))
        for node, record in is_.items():
            request = record.get("observedRerun") or ""
            if not request or request == (was.get(node) or {}).get("observedRerun"):
                continue
            for demand in reversed(self.reruns.get(new["spec"]["job"]["uid"], ())):
                if request.endswith(json_hash(demand.value)):
                    demand.recorded.add(record["uid"])
                    break

    # --- what is asked ---------------------------------------------------------------------

    def newest_image(self, job_uid: str, until: float) -> str:
        """Return what a program knows to run that has seen all Jobs up to a moment."""
        found = [demand for demand in self.images[job_uid] if demand.at < until]
        return (found or self.images[job_uid])[-1].image

    def due(
        self,
        job_uid: str,
        node: str,
        node_uid: str,
        *,
        until: float = FOREVER,
        generation: int | None = None,
    ) -> Due:
        """Return what a completed node must have run by the demands up to a moment."""
        images = [
            demand
            for demand in self.images[job_uid]
            if demand.at < until and (generation is None or demand.generation <= generation)
        ] or self.images[job_uid][:1]
        newest = images[-1]
        since, why, started = newest.at, "what runs was changed", None
        for earlier in reversed(images[:-1]):
            if earlier.image == newest.image:
                since = earlier.at
            elif earlier.is_known:
                break
        reruns = [demand for demand in self.reruns[job_uid] if demand.at < until]
        for number, demand in enumerate(reruns):
            is_bound = demand.is_known or demand is reruns[-1] or node_uid in demand.recorded
            if is_bound and demand.nodes.get(node) == node_uid:
                asked = _asked_first(reruns[: number + 1])
                if asked > since:
                    since, why, started = asked, "a rerun was requested", demand.started
        for demand in self.returns[job_uid]:
            is_bound = demand.is_known and demand.nodes.get(node) == node_uid
            if is_bound and since < demand.at < until:
                since, why, started = demand.at, "its labels came back", None
        return Due(newest.image, since, why, started)

    def meets(self, pod_uid: str | None, due: Due) -> bool:
        """Return whether a completion in this pod is of what is due."""
        facts = self.pods.get(pod_uid or "")
        if facts is None:
            return True
        is_unseen = due.started is not None and pod_uid not in due.started
        return facts.image == due.image and (facts.started >= due.since or is_unseen)

    def may_be_earlier(self, job_uid: str, pod_uid: str) -> bool:
        """Return whether a task was seen to start before a report had a request.

        A controller that was away has not seen which of the two was first.
        """
        return any(
            pod_uid in demand.started_later or pod_uid in (demand.started or ())
            for demand in self.reruns[job_uid]
        )

    def may_run_again(self, job_uid: str, node: str, node_uid: str, pod_uid: str | None) -> bool:
        """Return whether anything was asked of a node that a pod of it was not let start for."""
        facts = self.pods.get(pod_uid or "")
        if facts is None or facts.image != self.images[job_uid][-1].image:
            return True
        jobs = facts.jobs_known
        return any(
            (
                *(demand.at >= jobs for demand in self.images[job_uid][1:]),
                *(demand.at >= jobs for demand in self._reruns_of(job_uid, node)),
                self.has_returned(job_uid, node, node_uid, pod_uid),
            )
        )

    def has_returned(self, job_uid: str, node: str, node_uid: str, pod_uid: str | None) -> bool:
        """Return whether labels of a node came back that a pod of it was not let start for."""
        facts = self.pods.get(pod_uid or "")
        return facts is None or any(
            demand.at >= facts.nodes_known and demand.nodes.get(node) == node_uid
            for demand in self.returns[job_uid]
        )

    def is_named_elsewhere(self, job_uid: str, node: str) -> bool:
        """Return whether a request names a node that was none of the Job's nodes then."""
        return any(node not in demand.nodes for demand in self._reruns_of(job_uid, node))

    def is_asked_within(self, job_uid: str, node: str, since: float) -> bool:
        """Return whether anything was asked of a node soon after a moment, or just before."""
        asked = (*self.images[job_uid][1:], *self._reruns_of(job_uid, node))
        return any(abs(demand.at - since) <= KNOWN_SECONDS for demand in asked)

    def unread_from(self, job_uid: str, node: str, since: float, until: float) -> float:
        """Return when the first thing was asked between two moments that need not be read yet.

        Without such a thing, that is the second one.
        """
        asked = (*self.images[job_uid][1:], *self._reruns_of(job_uid, node))
        unread = (each.at for each in asked if not each.is_known and since < each.at < until)
        return min(unread, default=until)

    def _reruns_of(self, job_uid: str, node: str) -> Iterator[Demand]:
        for demand in self.reruns[job_uid]:
            if demand.words & {"*", node}:
                yield demand


def _started_pods(snapshot: Snapshot) -> Iterator[str]:
    """Yield the UIDs of the pods whose task has started, as pods or the ledger show."""
    yield from (pod.uid for pod in snapshot.pods if _has_started(pod))
    for report in snapshot.reports:
        yield from (entry.pod_uid for entry in report.evidence.values())


def _has_started(pod: Pod) -> bool:
    """Return whether a program can see that the task of a pod has started."""
    task = pod.container
    return task is not None and (
        task.state in {"running", "terminated"}
        or task.restart_count > 0
        or task.last_exit_code is not None
    )


def _asked_first(demands: list[Demand]) -> float:
    """Return when the last of these requests was made, perhaps as an earlier one.

    One that is made again is the same if no other one had to be read between them.
    """
    *earlier, last = demands
    asked = last.at
    for demand in reversed(earlier):
        if demand.value == last.value:
            asked = demand.at
        elif demand.is_read:
            break
    return asked


def image_of(pod: Raw) -> str:
    """Return the image of the task of a raw pod."""
    spec = pod["spec"]
    containers = (*(spec.get("initContainers") or ()), *spec["containers"])
    return next((str(c.get("image")) for c in containers if c["name"] == CONTAINER_NAME), "")


def _annotation(job: Raw) -> str:
    """Return the rerun request of a raw Job."""
    return str((job["metadata"].get("annotations") or {}).get(ANNOTATION_RERUN) or "")

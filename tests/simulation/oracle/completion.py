"""A Job is called complete, and deleted, only when every node that its user asked for is done.

Which nodes these are, `intent` says: the Job's spec and the nodes. These sentences bound what can
be asked of programs that see everything late. Each of them is one that users can read:

- A node that has begun (see `started_nodes`) counts while only its own condition keeps pods off it.
- A node counts from the moment the DaemonSet controller has counted it, and the program that claims
  has seen that. `counted` are the nodes as that controller had them when it last wrote the status.
- A node does not count if it is not desired by the newest version of it that the program that
  claims has seen. This holds only if that version is newer than the DaemonSet controller's count.
- A change of the spec counts from the generation that the claim names (status.observedGeneration),
  whatever the DaemonSet says by then. A deletion is a claim about the newest one.
- A node that is recorded as set aside, and is unreachable, counts like a failed one.
- After `Complete`, when its time to live is over, a Job stays for a node that is at work. For one
  that joined later and has no pod of it yet, it stays for ten minutes. It does not stay for one
  that failed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tests.fakekube import daemon_sets
from tests.simulation import intent
from tests.simulation.oracle import departures, shards, sufficiency
from tests.simulation.oracle.facts import is_continuous, is_true
from tests.simulation.oracle.invariant import Invariant
from tests.simulation.oracle.node_versions import NodeVersions, is_newer
from tests.simulation.oracle.set_aside import is_reachable
from tests.simulation.oracle.timeouts import TOLERANCE_SECONDS
from tests.simulation.server import DAEMON_SETS, JOBS, NODES, PODS, REPORTS, Raw, controller_of

if TYPE_CHECKING:
    from tests.simulation.oracle.core import Oracle
    from tests.simulation.process import Process
    from tests.simulation.world import World

INVARIANTS = (
    Invariant(
        "complete",
        "A Job is called Complete only when every node that its user asked for is completed, or "
        "failed or is unreachable as far as maxFailedNodes allows.",
        mutant="completes_early",
        seed=2,
    ),
    Invariant(
        "deletion",
        "Only the terminator deletes a Job, and only when every desired node is completed. With "
        "failures it does so only if the Job has a time to live.",
        mutant="ignores_nodes_without_pod",
        seed=23,
        excuses={
            "a node joined after the end": "After Complete, a node that joined later and has no "
            "pod keeps a Job for ten minutes only. They begin with the end of its time to live, or "
            "the start of the terminator (guarantees.md, The time to live).",
            "kept off": "The DaemonSet controller does not count a node without a pod if a taint, "
            "or its condition, keeps a new pod off (guarantees.md, The time to live).",
        },
    ),
)

# How long a Job stays for a node without a pod, from when its time to live is over.
OVERDUE_SECONDS = 600.0
# Disturbances that put taints on nodes.
TAINTING = {"taint", "drain"}


@dataclass(frozen=True, slots=True)
class View:
    """What a program knew when it made a claim about a Job.

    Attributes:
        generation: That of the spec that the claim is about.
        counted: The nodes by name as the DaemonSet controller had them, None before it looked.
        until: The moment up to which the program had seen everything.
        nodes_until: The moment up to which it had seen every change of a node.
        jobs_until: The same of Jobs, when it decided.
        reports_until: The same of reports.
        begun: The UIDs of the nodes that it knew to have begun.
    """

    generation: int
    counted: Mapping[str, Raw] | None
    until: float
    nodes_until: float
    begun: frozenset[str] = frozenset()
    jobs_until: float = 0.0
    reports_until: float = 0.0
    since: float = 0.0


@dataclass(slots=True)
class Completion:
    """Receives specs, counts and claims."""

    world: World
    oracle: Oracle
    specs: dict[str, dict[int, Raw]] = field(default_factory=dict)
    # By UID of a Job and generation: when it was written.
    written_at: dict[tuple[str, int], float] = field(default_factory=dict)
    node_versions: NodeVersions = field(default_factory=NodeVersions)
    counts: dict[str, list[tuple[float, Mapping[str, Raw]]]] = field(default_factory=dict)
    views: dict[str, View] = field(default_factory=dict)
    claims: dict[str, View] = field(default_factory=dict)
    superseded: set[str] = field(default_factory=set)
    # By UID of a Job: the specs one of which the program knew that made the first report.
    started_with: dict[str, list[Raw]] = field(default_factory=dict)

    # --- what is known ---------------------------------------------------------------------

    def job_written(self, job: Raw) -> None:
        """Note what a generation of a Job asks for."""
        meta = job["metadata"]
        self.specs.setdefault(meta["uid"], {})[meta["generation"]] = job["spec"]
        self.written_at.setdefault((meta["uid"], meta["generation"]), self.world.loop.moment)

    def counted(self, job_uid: str, nodes: Mapping[str, Raw]) -> None:
        """Note that the DaemonSet controller has written a count of these nodes."""
        counts = self.counts.setdefault(job_uid, [])
        if not counts or counts[-1][1] is not nodes:
            counts.append((self.world.loop.moment, nodes))

    def view(self, process: Process, job_uid: str, generation: int) -> View:
        """Return what a process knows at this moment of a Job's nodes."""
        until = min(process.watches[p].known_until for p in (DAEMON_SETS, PODS, NODES))
        counts = self.counts.get(job_uid, ())
        # A program that has not seen the first one cannot know of fewer nodes.
        known = [nodes for at, nodes in counts if at < until] or [nodes for _, nodes in counts[:1]]
        reports_until = process.watches[REPORTS].known_until
        return View(
            generation,
            known[-1] if known else None,
            until,
            nodes_until=process.watches[NODES].known_until,
            begun=self.oracle.started_nodes.until(job_uid, min(until, reports_until)),
            jobs_until=self.world.seen_until.get(job_uid, 0.0),
            reports_until=reports_until,
            since=process.started_at,
        )

    def deletion_view(self, process: Process, name: str, namespace: str) -> View | None:
        """Return what a process knows when it asks for a Job's deletion, None for no such Job."""
        job = process.cached(JOBS, name, namespace)
        return self.view(process, job.uid, job.generation) if job is not None else None

    # --- claims ----------------------------------------------------------------------------

    def judge_claim(self, job: Raw) -> None:
        """Judge that a run is called complete: where that is said first, and if it has no end."""
        uid = job["metadata"]["uid"]
        if uid in self.claims and not is_continuous(job):
            return
        view = self.views[uid]
        begun = view.begun - self.oracle.started_nodes.not_begun_after_all(uid)
        view = self.claims[uid] = replace(view, begun=begun)
        lacking = self._lacking("complete", job, view)
        failed = {
            node
            for node in lacking
            if self.oracle.has_failed(job, node, lacking[node], view.jobs_until)
        }
        away = {node for node in lacking.keys() - failed if self._is_away(job, view, node)}
        spec = self._spec(uid, view.generation)
        self.oracle.lifetime.claimed(uid, self.truth(job, view).values())
        self.oracle.images_first.claimed(uid, self._required(job, view).values())
        if self._is_enough(spec, job, view):
            return
        count = max(len(view.counted or ()), len(self.truth(job, view)))
        limit, away_limit = tolerated_failures(spec, count), tolerated_absences(spec, count)
        lost = failed if away_limit is not None else failed | away
        if len(lost) > limit or len(away) > (count if away_limit is None else away_limit):
            words = f"{sorted(lost)} failed and {limit} may{self.explain(uid, lost)}"
            self.oracle.violate("complete", words)
        for node in sorted(lacking.keys() - failed - away):
            self._violate("complete", job, node)

    def _is_enough(self, spec: Raw, job: Raw, view: View) -> bool:
        """Return whether as many nodes have completed as `successPolicy.minCompleted` asks for.

        The nodes that count are those that are desired in truth, or by the newest count.
        """
        if "successPolicy" not in spec or view.counted is None:
            return False
        truth = self.truth(job, view)
        desired = min(len(view.counted), len(truth)) or len(truth)
        uid = job["metadata"]["uid"]
        unselected = max(len(found) for found in self.completed_unselected(job))
        done = sum(self.oracle.is_entered(uid, node, truth[node]) for node in truth)
        return done + unselected >= sufficiency.required(spec, desired + unselected)

    def _is_away(self, job: Raw, view: View, node: str) -> bool:
        """Return whether a node is recorded as set aside, and was unreachable as far as was seen.

        The run does not wait for such a node, which counts as failed.
        """
        reports = shards.reports_of(self.world, job["metadata"]["uid"])
        records = [
            ((report.get("status") or {}).get("nodeStates") or {}).get(node) or {}
            for report in reports
        ]
        seen = self.node_versions.newest(node, view.nodes_until)
        if seen is None or not any("setAsideAt" in record for record in records):
            return False
        return not is_reachable(seen)

    def judge_deletion(self, job: Raw, view: View | None) -> None:
        """Judge the deletion of a complete Job that is about to take effect."""
        uid, spec = job["metadata"]["uid"], job["spec"]
        if view is None:
            self.oracle.violate("deletion", "by a program that does not know the Job")
            return
        view = replace(view, generation=job["metadata"]["generation"])
        lacking = self._lacking("deletion", job, view)
        if self._is_enough(self._spec(uid, view.generation), job, view):
            return
        claim = self.claims.get(uid)
        for node, node_uid in sorted(lacking.items()):
            if self.oracle.has_failed(job, node, node_uid):
                if "ttlSecondsAfterFinished" not in spec:
                    words = f"{node} failed, and there is no time to live"
                    self.oracle.violate("deletion", words + self.explain(uid, [node]))
            elif claim is not None and self._joined_later(uid, claim, node, node_uid):
                self._judge_wait(job, view, node)
            else:
                self._violate("deletion", job, node)
        truth = self.truth(job, view)
        if any(not self.oracle.is_entered(uid, node, truth[node]) for node in truth):
            self.superseded.add(uid)

    def truth(self, job: Raw, view: View) -> dict[str, str]:
        """Return which nodes a Job is for now, in truth, by the spec that a view is about."""
        uid = job["metadata"]["uid"]
        nodes = self.world.server.all(NODES)
        return intent.desired_nodes(
            self._spec(uid, view.generation),
            nodes,
            self._occupied(uid, view.until),
            view.begun,
        )

    def desired(self, job: Raw) -> dict[str, str]:
        """Return which nodes a Job is for now, in truth, by its newest spec."""
        uid, now = job["metadata"]["uid"], self.world.loop.moment
        begun = self.oracle.started_nodes.until(uid, now)
        nodes = self.world.server.all(NODES)
        return intent.desired_nodes(job["spec"], nodes, self._occupied(uid, now), begun)

    def completed_unselected(self, job: Raw) -> list[dict[str, str]]:
        """Return the nodes, with UIDs, that have completed and are no longer chosen.

        They count if the Job's selection is the one with which the run started. More than one set
        of them is right if it is not known which of two selections that was.
        """
        uid, desired = job["metadata"]["uid"], self.desired(job)
        found = {
            name: node["metadata"]["uid"]
            for node in self.world.server.all(NODES)
            if (name := node["metadata"]["name"]) not in desired
            and self.oracle.is_entered(uid, name, node["metadata"]["uid"])
        }
        if is_continuous(job):
            return departures.completed_unselected(self.world, job, desired)
        newest = intent.selection(job["spec"])
        same = {intent.selection(spec) == newest for spec in self.started_with.get(uid, ())}
        return [found if is_same else {} for is_same in sorted(same)] or [{}]

    def _lacking(self, invariant: str, job: Raw, view: View) -> dict[str, str]:
        """Return the nodes, with UIDs, that are desired and have not completed."""
        if view.counted is None:
            self.oracle.violate(invariant, "the DaemonSet controller has not looked at it yet")
            return {}
        uid = job["metadata"]["uid"]
        return {
            node: node_uid
            for node, node_uid in self._required(job, view).items()
            if not self._has_completed(uid, node, node_uid, view)
        }

    def _required(self, job: Raw, view: View) -> dict[str, str]:
        """Return the nodes, with UIDs, that a claim has to be true of."""
        uid = job["metadata"]["uid"]
        occupied = self._occupied(uid, view.until)
        spec, nodes = self._spec(uid, view.generation), (view.counted or {}).values()
        counted = intent.desired_nodes(spec, nodes, occupied, view.begun)
        truth = self.truth(job, view)
        return {
            node: node_uid
            for node, node_uid in counted.items()
            if truth.get(node) == node_uid and not self._left_as_seen(uid, view, node)
        }

    def _has_completed(self, uid: str, node: str, node_uid: str, view: View) -> bool:
        """Return whether a node has completed what was asked for as far as a view goes."""
        demands = self.oracle.demands
        if uid not in demands.images:
            return self.oracle.is_entered(uid, node, node_uid)
        until, generation = view.jobs_until, view.generation
        due = demands.due(uid, node, node_uid, until=until, generation=generation)
        return self.oracle.has_met(uid, node, node_uid, due)

    def _left_as_seen(self, uid: str, view: View, node: str) -> bool:
        """Return whether a node is not desired by the newest version that a program has seen.

        Only if that is newer than what the DaemonSet controller has counted.
        """
        seen = self.node_versions.newest(node, view.nodes_until)
        counted = (view.counted or {}).get(node)
        if seen is None or counted is None or not is_newer(seen, counted):
            return False
        occupied = self._occupied(uid, view.until)
        spec = self._spec(uid, view.generation)
        return not intent.desired_nodes(spec, [seen], occupied, view.begun)

    def _joined_later(self, uid: str, claim: View, node: str, node_uid: str) -> bool:
        """Return whether a node became one of the Job's by its own change, and has no pod of it."""
        spec = self._spec(uid, claim.generation)
        was = intent.desired_nodes(spec, (claim.counted or {}).values(), (), claim.begun)
        current = self.world.server.get(NODES, node, "")
        assert current is not None
        fits_old_spec = bool(intent.desired_nodes(spec, [current], (), {node_uid}))
        return (
            (was.get(node) != node_uid or self._left_as_seen(uid, claim, node))
            and fits_old_spec
            and node not in self._occupied(uid, self.world.loop.moment)
        )

    def _judge_wait(self, job: Raw, view: View, node: str) -> None:
        """Judge that a Job has stayed for long enough for a node that has no pod."""
        now, uid = self.world.loop.moment, job["metadata"]["uid"]
        current = self.world.server.get(NODES, node, "")
        if current and not intent.placement(self.newest(uid), current).should_run:
            self.oracle.excuse("deletion", "kept off")
            return
        seconds = job["spec"].get("ttlSecondsAfterFinished") or 0
        waited = now - max(self.oracle.lifetime.ended.get(uid, now) + seconds, view.since)
        if waited < OVERDUE_SECONDS - TOLERANCE_SECONDS:
            words = f"{node} joined later and has no pod, and the Job stayed for {waited:.0f} s"
            self.oracle.violate("deletion", words + self.oracle.timeouts.skews())
        else:
            self.oracle.excuse("deletion", "a node joined after the end")

    def newest(self, uid: str) -> Raw:
        """Return the newest spec of a Job, which may be gone."""
        specs = self.specs[uid]
        return specs[max(specs)]

    def known(self, uid: str, until: float) -> list[Raw]:
        """Return the specs one of which a program knows that has seen everything up to then."""
        seen = [number for number in self.specs[uid] if self.written_at[uid, number] < until]
        newest = max(seen, default=0)
        return [spec for number, spec in self.specs[uid].items() if number >= newest]

    def _spec(self, uid: str, generation: int) -> Raw:
        return self.specs[uid][generation]

    def _occupied(self, job_uid: str, until: float) -> set[str]:
        """Return the nodes on which a pod of the Job, made before that moment, lives.

        Pods whose DaemonSet was deleted are about to go.
        """
        born, job_of = self.oracle.born, self.oracle.job_of
        owners = {found["metadata"]["uid"] for found in self.world.server.all(DAEMON_SETS)}
        return {
            pod["spec"]["nodeName"]
            for pod in self.world.server.all(PODS)
            if pod["spec"].get("nodeName")
            and job_of.get(pod["metadata"]["uid"]) == job_uid
            and controller_of(pod) in owners
            and not daemon_sets.is_deleting(pod)
            and not daemon_sets.is_terminal(pod)
            and born[pod["metadata"]["uid"]] < until
        }

    def _violate(self, invariant: str, job: Raw, node: str) -> None:
        """Report a node that has not completed, with what the model knows of the reason."""
        why = self.explain(job["metadata"]["uid"], [node])
        self.oracle.violate(invariant, f"{node} has not completed{why}")

    def explain(self, job_uid: str, nodes: Iterable[str]) -> str:
        """Return in words what the model knows of why a Job is wrong about these nodes."""
        server, daemon_set = self.world.server, self.oracle.daemon_set_of(job_uid)
        if daemon_set is None:
            return ", there is no DaemonSet"
        template = daemon_set["spec"]["template"]
        raws = [raw for node in nodes if (raw := server.get(NODES, node, ""))]
        if not all(daemon_sets.placement(template, raw).should_continue for raw in raws):
            refused = self.world.is_refused(DAEMON_SETS)
            return (
                ", its DaemonSet is refused" if refused else ", its DaemonSet does not ask for it"
            )
        struck = [d for d in self.world.schedule.disturbances if d.at <= self.world.loop.moment]
        words: str = ""
        if any(d.kind in TAINTING for d in struck):
            words += ", there were taints"
        if len({repr(spec.get("nodes")) for spec in self.specs[job_uid].values()}) > 1:
            words += ", spec.nodes was changed"
        if any(key[0] == job_uid for key in self.oracle.timeouts.unstarted):
            words += ", a task has not started"
        return f"{words}{self.oracle.timeouts.skews()}"

    # --- reports ---------------------------------------------------------------------------

    def report_made(self, report: Raw) -> None:
        """Note which spec a run may have started with, once."""
        uid = report["spec"]["job"]["uid"]
        until = self.world.seen_until[uid]
        self.started_with.setdefault(uid, self.known(uid, until))

    def judge_report(self, report: Raw) -> None:
        """Judge a report that says Succeeded: the Job's status repeats it later."""
        uid = report["spec"]["job"]["uid"]
        if (report.get("status") or {}).get("phase") != "Succeeded" or uid in self.claims:
            return
        where = report["metadata"]["namespace"]
        job = self.world.server.get(JOBS, report["spec"]["job"]["name"], where)
        if job is not None and job["metadata"]["uid"] == uid and not is_continuous(job):
            self.judge_claim(job)

    def judge_end(self, old: Raw, new: Raw) -> None:
        """Judge a status that says Complete for the first time."""
        is_new = is_continuous(new) and old.get("status") != new.get("status")
        if is_true(new, "Complete") and (is_new or not is_true(old, "Complete")):
            self.judge_claim(new)

    def judge_left_report(self, job: Raw) -> None:
        """Judge what a Job that is being deleted leaves: its report has to say so."""
        reports = shards.reports_of(self.world, job["metadata"]["uid"])
        phase = (reports[0].get("status") or {}).get("phase") if reports else None
        if phase != "Succeeded":
            self.oracle.violate("report", f"the Job is deleted and its report says {phase}")


def tolerated_failures(spec: Raw, count: int) -> int:
    """Return how many of `count` nodes may fail by the policy of a raw spec."""
    return _share((spec.get("failurePolicy") or {}).get("maxFailedNodes", 0), count)


def tolerated_absences(spec: Raw, count: int) -> int | None:
    """Return how many of `count` nodes may be away, None if those count as failed ones."""
    limit = (spec.get("failurePolicy") or {}).get("maxUnreachableNodes")
    return None if limit is None else _share(limit, count)


def _share(limit: int | str, count: int) -> int:
    return limit if isinstance(limit, int) else int(limit.rstrip("%")) * count // 100

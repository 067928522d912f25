"""No more nodes work at a time than the rollout of a Job allows, by what runs on the machines."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from tests.simulation import intent
from tests.simulation.oracle.chosen_steps import selects_by_labels
from tests.simulation.oracle.facts import find_job, is_continuous, is_true, rollout_of
from tests.simulation.oracle.invariant import Invariant
from tests.simulation.oracle.reboots import allowed_seconds
from tests.simulation.oracle.set_aside import is_reachable
from tests.simulation.oracle.shards import node_states
from tests.simulation.schedule import TOPOLOGY_ZONE
from tests.simulation.server import JOBS, NODES, Raw

if TYPE_CHECKING:
    from tests.simulation.kubelet import PodRun
    from tests.simulation.machine import Machine
    from tests.simulation.oracle.core import Oracle
    from tests.simulation.world import World

INVARIANTS = (
    Invariant(
        "turns",
        "No task starts while those of maxParallel other nodes are at work, or before the nodes of "
        "an earlier step have finished, or within its soak.",
        mutant="gives_turns_to_all",
        seed=57,
        excuses={
            "set aside": "A node that was unreachable, and was set aside, has come back, and its "
            "task has not ended yet.",
            "killed late": "A pod is deleted, and its kubelet is about to kill its task.",
            "away": "A node was unreachable for its grace period, not desired, and is back.",
            "after the end": "A node that joins after Complete waits for a place of maxParallel, "
            "and for no step, nor for an approval (guarantees.md, The time to live).",
            "rerun": "A request runs a node of an earlier step again, and a later one had begun "
            "by then (guarantees.md, Rollouts).",
            "few nodes": "A step that asked for more nodes than there were is over with those, and "
            "nodes that join after its end are none of it (guarantees.md, Rollouts).",
            "former node": "A machine that has the name of a deleted node starts the very pod that "
            "completed that node, before the pod is deleted (guarantees.md, Rollouts).",
        },
    ),
    Invariant(
        "zones",
        "No task starts while those of maxParallelPerZone other nodes of its zone are at work. "
        "It is excused as turns are.",
        mutant="ignores_zones",
        seed=2_000_000_002,
        excuses={
            "moved": "The cloud gave one of these nodes another zone after the start of the run: "
            "it may have had its turn before.",
        },
    ),
)

# The times in the status of a Job are whole seconds.
SOAK_TOLERANCE_SECONDS = 1.0


class Turns:
    """Receives starting tasks."""

    def __init__(self, world: World, oracle: Oracle) -> None:
        self._world = world
        self._oracle = oracle
        # By the UID of a Job, the UIDs of the nodes whose task was started.
        self._begun: dict[str, set[str]] = {}
        # By the UID of a Job, how many nodes it has had at one time, and how many of the nodes that
        # the DaemonSet controller knew then.
        self._sizes: dict[str, set[int]] = {}
        # By name of a node: when it got another zone than it had when it joined; its newest zone.
        self._moved_at: dict[str, float] = {}
        self._zones: dict[str, str] = {}
        # By the UID of a Job and its revision: the name and UID of each node that a step has had.
        self._turned: dict[tuple[str, str], set[tuple[str, str]]] = {}
        # The UIDs of a Job and of a node that it has set aside.
        self._set_aside: set[tuple[str, str]] = set()
        # When each step began, by the UID of the Job, its revision and the number of the step.
        self._steps_at: dict[tuple[str, str, int], float] = {}
        # By the same, how many nodes the controller knew then.
        self._nodes_known: dict[tuple[str, str, int], int] = {}

    def job_written(self, old: Raw | None, job: Raw) -> None:
        """Note when a step of a Job began; judge the success of the run."""
        if is_true(job, "Complete", "AllNodesCompleted") and not is_true(old or {}, "Complete"):
            self._judge_end(job)
        status = job.get("status") or {}
        step = (status.get("rollout") or {}).get("step")
        if step is not None:
            key = job["metadata"]["uid"], status.get("revision", ""), step
            if key not in self._steps_at:
                self._steps_at[key] = self._world.loop.moment
                self._nodes_known[key] = self._count_known(job)

    def sizes(self, job_uid: str) -> set[int]:
        """Return how many nodes a Job has had at one time."""
        self.nodes_changed()
        return self._sizes[job_uid]

    def counted(self, job_uid: str, nodes: Mapping[str, Raw]) -> None:
        """Note how many of these nodes the user asks for: steps are percentages of them.

        They are those that the DaemonSet controller knows when it writes its counts. It sees each
        change of a node late, and on its own. So its nodes may differ from those at any one time.
        Its DaemonSet, which the product has made, has no part in this. A change of the spec counts
        once the controller has decided on it.
        """
        if job_uid in self._oracle.completion.specs:
            until = self._world.seen_until.get(job_uid, 0.0)
            for spec in self._oracle.completion.known(job_uid, until):
                size = len(intent.desired_nodes(spec, nodes.values(), ()))
                self._sizes.setdefault(job_uid, set()).add(max(size, 1))

    def nodes_changed(self) -> None:
        """Note how many nodes each Job has now: of those a step is a percentage."""
        for job in self._world.server.all(JOBS):
            if (job["spec"].get("rollout") or {}).get("steps"):
                size = len(self._oracle.completion.desired(job))
                self._sizes.setdefault(job["metadata"]["uid"], set()).add(max(size, 1))

    def node_written(self, old: Raw | None, new: Raw) -> None:
        """Note in which zone a node is."""
        self._zones[new["metadata"]["name"]] = _zone(new)
        if old is not None and _zone(old) != _zone(new):
            self._moved_at[new["metadata"]["name"]] = self._world.loop.moment

    def report_written(self, new: Raw) -> None:
        """Note which nodes a report sets aside, and which have had their turn."""
        job_uid = new["spec"]["job"]["uid"]
        for name, record in ((new.get("status") or {}).get("nodeStates") or {}).items():
            if "step" in record:
                turned = self._turned.setdefault((job_uid, record.get("revision", "")), set())
                turned.add((name, record["uid"]))
            if "setAsideAt" in record:
                self._set_aside.add((job_uid, record["uid"]))

    def task_starts(self, run: PodRun) -> None:
        """Judge the start of an instance of a task, whatever the controller has recorded."""
        job_uid = self._oracle.job_of.get(run.pod_uid, "")
        job = self._job(job_uid)
        rollout = rollout_of(job) if job is not None else None
        if job is None or rollout is None or run.is_forged:
            return
        is_changed = self._oracle.turn_specs.is_changed(job_uid)
        if self._oracle.is_entered(job_uid, run.machine.name, run.machine.uid):
            return  # it is completed: after a reboot its container starts once more, and waits
        others = dict(self._at_work(job_uid, run))
        limit = self._limit("maxParallel", run, others, self.count_nodes())
        if limit is not None and len(others) >= limit:
            words = f"{run.machine.name} starts beside {sorted(others)}, and {limit} may"
            if not self._is_excused(job_uid, run, others):
                self._oracle.violate("turns", words)
        self._judge_zone(job, run, others)
        steps = rollout.get("steps") or ()
        if not is_changed and not selects_by_labels(steps):
            self._judge_steps(job, run, steps)
        self._oracle.chosen_steps.task_starts(job, run)
        self._oracle.step_nodes.task_starts(job, run)

    def _limit(self, field: str, run: PodRun, others: dict[str, PodRun], count: int) -> int | None:
        """Return how many nodes may be at work: by a spec that one of them had its turn by."""
        job_uid = self._oracle.job_of.get(run.pod_uid, "")
        specs = self._oracle.turn_specs.of(job_uid, (run, *others.values()))
        limits = [share((rollout_of({"spec": each}) or {}).get(field), count) for each in specs]
        known = [limit for limit in limits if limit is not None]
        return max(known) if len(known) == len(limits) else None

    def _judge_end(self, job: Raw) -> None:
        """Judge that the step with the last nodes is approved, and the ones before it.

        A run is judged whose nodes were the same ones at all times.
        """
        job_uid, steps = job["metadata"]["uid"], (rollout_of(job) or {}).get("steps") or ()
        nodes, sizes = self._begun.get(job_uid, set()), self._sizes.get(job_uid, set())
        desired = self._oracle.completion.desired(job)
        is_edited = len(self._oracle.completion.specs[job_uid]) > 1
        if is_continuous(job) or is_edited or nodes != set(desired.values()) or len(sizes) != 1:
            return
        if selects_by_labels(steps):
            return
        before = last = 0
        for number, step in enumerate(steps, 1):
            if before >= len(nodes):
                return
            size = share(step["nodes"], *sizes) or 0
            # One without nodes of its own waits for no approval if the last one that had some has.
            last = number if size > before else last
            is_needed = step.get("approval") == "Required"
            if is_needed and self._oracle.holds.approvals[job_uid] < last:
                words = f"the run succeeds before step {number} is approved"
                self._oracle.violate("held", words)
            before = max(before, size)

    def _judge_zone(self, job: Raw, run: PodRun, others: dict[str, PodRun]) -> None:
        job_uid, zone = job["metadata"]["uid"], self._zone_of(run.machine.name)
        beside = {name: each for name, each in others.items() if self._zone_of(name) == zone}
        limit = self._limit("maxParallelPerZone", run, beside, self.count_nodes(zone))
        if limit is None or len(beside) < limit:
            return
        born = self._oracle.born[job_uid]
        if any(self._moved_at.get(name, -1.0) > born for name in (run.machine.name, *beside)):
            self._oracle.excuse("zones", "moved")
        elif not self._is_excused(job_uid, run, beside):
            words = f"{run.machine.name} starts beside {sorted(beside)} in zone {zone or 'none'}"
            self._oracle.violate("zones", f"{words}, and {limit} may")

    def _is_excused(self, job_uid: str, run: PodRun, others: dict[str, PodRun]) -> bool:
        if self._has_completed_former(job_uid, run):
            self._oracle.excuse("turns", "former node")
            return True
        for other in others.values():
            if (job_uid, other.machine.uid) in self._set_aside:
                self._oracle.excuse("turns", "set aside")
                return True
            if other.is_ending and self._was_away(job_uid, other.machine.name):
                self._oracle.excuse("turns", "away")
                return True
            if other.pod() is None:
                self._oracle.excuse("turns", "killed late")
                return True
        return False

    def _has_completed_former(self, job_uid: str, run: PodRun) -> bool:
        """Return whether this very pod completed a former node of that name, and so had its turn.

        Its node took no place any more when the others had their turns.
        """
        key = job_uid, run.machine.name
        is_of_pod = self._oracle.evidence.entered_pods.get(key) == run.pod_uid
        return is_of_pod and self._oracle.evidence.entered[key][0] != run.machine.uid

    def _judge_steps(self, job: Raw, run: PodRun, steps: Sequence[Raw]) -> None:
        """Judge that the nodes of earlier steps have finished; they are counted as they start.

        A percentage is judged if it has meant the same number of nodes at all times.
        """
        job_uid = job["metadata"]["uid"]
        self.nodes_changed()
        records = self._records_of_revision(job)
        known = self._begun.setdefault(job_uid, set())
        if run.machine.uid in known:
            return
        # One that the user took out, and chose again, waits for another turn.
        begun = {
            name
            for name, record in records.items()
            # The record of a former node of that name says nothing of this one.
            if (machine := self._world.machines.get(name)) and record["uid"] == machine.uid
            # One whose pod was rejected, or that was set aside, may never have started its task.
            if _had_turn(record) and (record["uid"] in known or _is_over(record))
        }
        # One that has left since it started stays counted for its step.
        begun |= {
            name
            for name, record in records.items()
            if name not in self._world.machines and record["uid"] in known and "step" in record
        }
        # One has left, and another node has its name since. Then its step is not known. The other
        # one may have its turn in its place, or in a later step.
        current = {machine.uid for machine in self._machines()}
        current |= {records[name]["uid"] for name in begun}
        counted = {len(begun), len(begun) + len(known - current)}
        # One that had its turn, and was not desired before its task began, counts for its step.
        left = {
            name
            for name, record in records.items()
            if "step" in record and record["uid"] not in known
            if self._has_left(job, record, name)
        }
        counted = {size + len(left - {run.machine.name}) for size in counted}
        if run.machine.name in left:
            # It is back in its own step, or has its turn in a later one.
            counted |= {size + 1 for size in counted}
        # One had its turn, and left before its task began. Another node has its name since.
        former = self._former_nodes(job, records, known)
        counted |= {size + len(former) for size in counted}
        # It failed before its task had started, and may have its turn in another step now.
        counted |= {size - len(begun & {run.machine.name}) for size in counted}
        # One that the user took out made room for another one. Which spec is decided by when is not
        # known.
        counted |= {size - len(self.find_omitted(job, begun | left)) for size in counted}
        known.add(run.machine.uid)
        full = [
            number
            for number, step in enumerate(steps, 1)
            if counted == {share(step["nodes"], size) for size in self._sizes[job_uid]}
        ]
        if not full or len(counted) > 1 or self._is_of_another_time(job, run, records):
            return
        if is_true(job, "Complete") and not is_continuous(job):
            self._oracle.excuse("turns", "after the end")
            return
        self._oracle.holds.judge_step(job, run.machine.name, full)
        if any(self._had_few_nodes(job, number, steps) for number in full):
            self._oracle.excuse("turns", "few nodes")
            return
        self._judge_begun(job, run, begun, full)

    def _judge_begun(self, job: Raw, run: PodRun, begun: set[str], full: Sequence[int]) -> None:
        """Judge that the nodes of full steps have finished, and that the soak is over."""
        job_uid, steps = job["metadata"]["uid"], (rollout_of(job) or {}).get("steps") or ()
        records = self._records_of_revision(job)
        desired = self._oracle.completion.desired(job)
        if len(full) == 1:
            self._judge_soak(job, run, begun, steps[full[0] - 1])
        for name in sorted(begun & desired.keys()):
            machine = self._world.machines[name]
            state = (records.get(name) or {}).get("state")
            is_done = self._oracle.is_entered(job_uid, name, machine.uid)
            is_done |= self._was_done(job_uid, name, run)
            if is_done or state == "Failed" or "setAsideAt" in (records.get(name) or {}):
                continue
            if self._was_away(job_uid, name):
                self._oracle.excuse("turns", "away")
            elif self._is_rerun_late(job, records.get(name) or {}, max(full)):
                self._oracle.excuse("turns", "rerun")
            else:
                words = f"{run.machine.name} starts before {name} has finished its step"
                self._oracle.violate("turns", words)

    def _records_of_revision(self, job: Raw) -> dict[str, Raw]:
        """Return the records of what runs now: each revision has a rollout of its own."""
        revision = (job.get("status") or {}).get("revision")
        return {
            name: record
            for name, record in node_states(self._world, job["metadata"]["uid"]).items()
            if record.get("revision") == revision
        }

    def _former_nodes(self, job: Raw, records: dict[str, Raw], known: set[str]) -> set[str]:
        """Return the names of nodes whose former ones had a turn, and started no task."""
        revision = (job.get("status") or {}).get("revision", "")
        return {
            name
            for name, uid in self._turned.get((job["metadata"]["uid"], revision), ())
            if name in records and uid not in known | {records[name]["uid"]}
        }

    def _had_few_nodes(self, job: Raw, number: int, steps: Sequence[Raw]) -> bool:
        """Return whether a step has ended that asked for more nodes than the controller knew."""
        revision = (job.get("status") or {}).get("revision", "")
        known = self._nodes_known.get((job["metadata"]["uid"], revision, number + 1))
        return known is not None and (share(steps[number - 1]["nodes"], known) or 0) > known

    def _count_known(self, job: Raw) -> int:
        """Return how many nodes the controller knew when it decided: counted, or to be counted.

        A node that has left since its turn stays counted for its step.
        """
        job_uid, completion = job["metadata"]["uid"], self._oracle.completion
        decisions = self._oracle.chosen_steps.decisions.get(job_uid)
        until = decisions[-1][1] if decisions else 0.0
        counts = [nodes for at, nodes in completion.counts.get(job_uid, ()) if at < until]
        found = set(counts[-1] if counts else ())
        found |= {
            name for name, record in node_states(self._world, job_uid).items() if "step" in record
        }
        for node in self._world.server.all(NODES):
            raw = completion.node_versions.newest(node["metadata"]["name"], until)
            if raw is not None and intent.placement(job["spec"], raw).should_run:
                found.add(node["metadata"]["name"])
        return len(found)

    def _judge_soak(self, job: Raw, run: PodRun, begun: Iterable[str], step: Raw) -> None:
        """Judge that the soak of the step before is over, which begins when its last node is done.

        A node may complete after its step: it had failed, was set aside, or has a new request.
        """
        job_uid, soak = job["metadata"]["uid"], step.get("soakSeconds", 0)
        if self._oracle.holds.approvals.get(job_uid) == math.inf:
            return  # promoted
        records = node_states(self._world, job_uid)
        done_at = [
            self._oracle.evidence.entered[job_uid, name][2]
            for name in begun
            if self._is_done_once(job_uid, name, records.get(name) or {})
        ]
        waited = self._world.loop.moment - max(done_at, default=-math.inf)
        if waited < soak - SOAK_TOLERANCE_SECONDS:
            words = f"{run.machine.name} starts {waited:.1f} s after the step before, which soaks"
            self._oracle.violate("turns", f"{words} for {soak} s")

    def _is_done_once(self, job_uid: str, name: str, record: Raw) -> bool:
        machine = self._world.machines.get(name)
        is_done = machine is not None and self._oracle.is_entered(job_uid, name, machine.uid)
        return is_done and not {"failures", "setAsideAt", "observedRerun"} & record.keys()

    def _was_done(self, job_uid: str, name: str, run: PodRun) -> bool:
        """Return whether a node was completed by what was asked when a pod was let in.

        It may be due again by the time at which the task of that pod starts.
        """
        demands = self._oracle.demands
        facts = demands.pods.get(run.pod_uid)
        if facts is None:
            return False
        uid = self._world.machines[name].uid
        due = demands.due(job_uid, name, uid, until=facts.jobs_known)
        return self._oracle.has_met(job_uid, name, uid, due)

    def _is_rerun_late(self, job: Raw, record: Raw, number: int) -> bool:
        """Return whether a later step had begun when a request had the node run again."""
        job_uid = job["metadata"]["uid"]
        requests = self._oracle.demands.reruns.get(job_uid, ())
        if "observedRerun" not in record or not requests:
            return False
        return any(
            began_at < requests[-1].at
            for (uid, revision, step), began_at in self._steps_at.items()
            if (uid, revision) == (job_uid, record.get("revision", "")) and step > number
        )

    def _has_left(self, job: Raw, record: Raw, name: str) -> bool:
        """Return whether a node is gone, or was not desired at some time of the Job."""
        node = self._world.server.get(NODES, name, "")
        if node is None or node["metadata"]["uid"] != record["uid"]:
            return True
        born = self._oracle.born[job["metadata"]["uid"]]
        versions = self._oracle.completion.node_versions.versions.get(name, ())
        return any(
            at > born
            and raw["metadata"]["uid"] == record["uid"]
            and not intent.placement(job["spec"], raw).should_run
            for at, raw in versions
        )

    def find_omitted(self, job: Raw, names: Iterable[str]) -> set[str]:
        """Return those of these nodes that some version of an edited selection does not choose.

        After an edit, one that leaves by a label does not count either.
        """
        specs = list(self._oracle.completion.specs[job["metadata"]["uid"]].values())
        if all(intent.selection(spec) == intent.selection(specs[0]) for spec in specs):
            return set()
        nodes = {name: self._world.server.get(NODES, name, "") for name in names}
        return {
            name
            for name, raw in nodes.items()
            if raw is not None
            if not all(intent.matches(spec, raw) for spec in specs)
        }

    def _is_of_another_time(self, job: Raw, run: PodRun, records: Raw) -> bool:
        """Return whether a node starts what ran before, or is back in the step of its turn.

        Of what runs now, no node has completed anything until the controller has read it. An edit
        had taken the node out of its step.
        """
        images = self._oracle.demands.images.get(job["metadata"]["uid"])
        if images and not images[-1].is_known:
            return True
        name = run.machine.name
        had_turn = "step" in (records.get(name) or {})
        return had_turn and bool(self.find_omitted(job, [name]))

    def _was_away(self, job_uid: str, name: str) -> bool:
        """Return whether a node was away for as long as it may be, at some time."""
        specs = self._oracle.completion.specs[job_uid].values()
        allowed = min(map(allowed_seconds, specs))
        since: float | None = None
        longest = 0.0
        versions = self._oracle.completion.node_versions.versions.get(name, ())
        for at, raw in (*versions, (self._world.loop.moment, None)):
            if since is not None:
                longest = max(longest, at - since)
            is_away = raw is not None and not is_reachable(raw)
            since = (at if since is None else since) if is_away else None
        return longest >= allowed

    def _at_work(self, job_uid: str, run: PodRun) -> Iterator[tuple[str, PodRun]]:
        """Return the other nodes on which a task of the Job runs that has not completed them."""
        for machine in self._machines():
            if machine is run.machine or not machine.is_up:
                continue
            if self._oracle.is_entered(job_uid, machine.name, machine.uid):
                continue
            for other in machine.pods.values():
                is_of_job = self._oracle.job_of.get(other.pod_uid) == job_uid
                if not is_of_job or other.is_forged or not other.is_at_work:
                    continue
                # One that has completed waits: an earlier revision, before a rerun request, or as a
                # node that is registered again since.
                entered = self._oracle.evidence.entered_pods.get((job_uid, machine.name))
                if entered != other.pod_uid:
                    yield machine.name, other

    def _machines(self) -> list[Machine]:
        return [machine for machine in self._world.machines.values() if not machine.is_gone]

    def count_nodes(self, zone: str | None = None) -> int:
        """Return how many nodes there may be at most, of which a percentage is meant.

        In one zone, or in all of them.
        """
        plans = [plan for plan in self._world.schedule.nodes if zone in {None, plan.topology_zone}]
        nodes = [raw for raw in self._world.server.all(NODES) if zone in {None, _zone(raw)}]
        return max(len(plans), len(nodes))

    def _zone_of(self, node: str) -> str:
        """Return the zone of a node, also while its Node object is gone and its machine works."""
        return self._zones.get(node, "")

    def _job(self, uid: str) -> Raw | None:
        return find_job(self._world.server, uid)


def _zone(node: Raw) -> str:
    """Return the zone of a raw node, "" for none."""
    return str(node["metadata"]["labels"].get(TOPOLOGY_ZONE) or "")


def _had_turn(record: Raw) -> bool:
    """Return whether a node that has started had its turn in this step, or in an earlier one."""
    # One that a request has run again keeps its step, and waits for a place (guarantees.md,
    # Rollouts). So does one whose Node was registered again while its task was at work.
    keeps_step = record.get("state") in {"Removed", "Completed"} or "observedRerun" in record
    # One that was set aside before its turn counts for no step, also if it ran a former revision.
    keeps_step |= "setAsideAt" in record
    return "turnAt" in record or ("step" in record and keeps_step)


def _is_over(record: Raw) -> bool:
    """Return whether a node has failed, or was set aside after it had its turn in a step."""
    return record.get("state") == "Failed" or ("setAsideAt" in record and "step" in record)


def share(limit: int | str | None, nodes: int) -> int | None:
    """Return how many of `nodes` a limit means, at least one; None without a limit."""
    if limit is None or isinstance(limit, int):
        return limit
    return max(int(limit.rstrip("%")) * nodes // 100, 1)

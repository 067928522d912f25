"""The oracle as the rest of the model meets it: hears of everything and asks each invariant."""

from collections import Counter

from tests.simulation.oracle import gates, shards
from tests.simulation.oracle.begun import Begun
from tests.simulation.oracle.completion import Completion
from tests.simulation.oracle.conventions import status_faults
from tests.simulation.oracle.deadlines import Deadlines
from tests.simulation.oracle.evidence import Evidence
from tests.simulation.oracle.facts import is_true
from tests.simulation.oracle.lifetime import Lifetime
from tests.simulation.oracle.patience import Patience
from tests.simulation.oracle.records import Records
from tests.simulation.oracle.starts import Starts
from tests.simulation.server import DAEMON_SETS, JOBS, NODES, PODS, REPORTS, controller_of

OURS = ("controller", "terminator")


class Oracle:
    """Hears of everything; `violations` are (time, invariant, words), `excused` counts."""

    def __init__(self, world):
        self._world = world
        self.violations = []
        self.excused = Counter()
        self.last_write_at = 0.0
        self.our_writes = 0
        self.their_writes = 0
        # By UID: when an object was made in truth, the Job of a pod, the plan of a Job.
        self.born = {}
        self.job_of = {}
        self.plans = {}
        self.deleted_by_us = set()
        self.ledger_read_at = {}
        self.begun = Begun(world, self)
        self.completion = Completion(world, self)
        self.evidence = Evidence(world, self)
        self.records = Records(world, self)
        self.starts = Starts(world, self)
        self.patience = Patience(world, self)
        self.deadlines = Deadlines(world, self)
        self.lifetime = Lifetime(world, self)
        self.gates = gates.Gates(world)

    def violate(self, invariant, words):
        self.violations.append((round(self._world.loop.moment, 3), invariant, words))
        self._world.note("ORACLE", f"VIOLATION {invariant}: {words}")

    def _owner(self, pod):
        """Return the UID of the Job that a pod's owners lead to, "" for none."""
        for daemon_set in self._world.server.all(DAEMON_SETS):
            if daemon_set["metadata"]["uid"] == controller_of(pod):
                return controller_of(daemon_set)
        return ""

    # --- writes --------------------------------------------------------------------------

    def written(self, actor, plural, old, new):
        """Judge a write that changed something."""
        self.last_write_at = self._world.loop.moment
        if actor in OURS:
            self.our_writes += 1
        else:
            self.their_writes += 1
        if old is None:
            self.born[new["metadata"]["uid"]] = self._world.loop.moment
        if plural == JOBS and new is not None:
            self._job_written(old, new)
        elif plural == REPORTS and new is not None:
            self._report_written(old or {}, new)
        elif plural == DAEMON_SETS and old is None:
            self.gates.daemon_set_made(new)
        elif plural == NODES and new is not None:
            self.patience.node_written(new)
        elif plural == PODS:
            if old is None:
                self.job_of[new["metadata"]["uid"]] = self._owner(new)
                self.starts.judge_pause(new)
            self.gates.pod_written(old, new, self.ledger_read_at)
            self.patience.pod_written(old, new)

    def _job_written(self, old, new):
        self.completion.job_written(new)
        meta = new["metadata"]
        if old is None:
            self.plans[meta["uid"]] = self._world.schedule.job(
                f"{meta['namespace']}/{meta['name']}"
            )
            return
        self.deadlines.job_written(old, new)
        self.patience.job_written(old, new)
        self.lifetime.job_written(old, new)
        for words in status_faults(old, new, self._world.clock.stamp()):
            self.violate("conventions", words + self.patience.skews())
        self.completion.judge_end(old, new)
        self.records.judge_end(old, new)
        self.records.judge_count(old, new)

    def _report_written(self, old, new):
        self.evidence.judge(old, new)
        self.records.judge(old, new)
        self.begun.judge_record(new)
        self.completion.judge_report(new)
        for words in (
            *shards.evidence_faults(self._world, self.job_of, old, new),
            *shards.record_faults(self._world, self.job_of, old, new),
        ):
            self.violate("shards", words)

    def idle_write(self, process, what, sent_at):
        """Judge a write that changed nothing."""
        _, plural, name, namespace = what
        known = process.cached(plural, name, namespace)
        current = self._world.server.get(plural, name, namespace)
        if known is None or current is None:
            return
        if known.resource_version != current["metadata"]["resourceVersion"]:
            return
        decided = sent_at
        if process.name == "controller":
            decided = self._world.decided_at.get(self.job_about(plural, current), sent_at)
        delivered = process.feeds[plural].delivered_at.get((namespace, name), 0.0)
        if delivered < min(decided, sent_at):
            self.violate("idle write", f"{process.name}: {' '.join(what[:3])} changes nothing")

    def job_about(self, plural, raw):
        """Return the UID of the Job that an object belongs to, or is."""
        if plural == REPORTS:
            return raw["spec"]["job"]["uid"]
        if plural == PODS:
            return self.job_of.get(raw["metadata"]["uid"], "")
        return raw["metadata"]["uid"] if plural == JOBS else controller_of(raw)

    # --- deletion ------------------------------------------------------------------------

    def before_delete(self, process, plural, raw, view):
        """Judge the deletion of an object that is about to take effect."""
        if plural == PODS:
            self._judge_pod_deletion(raw)
        if plural == JOBS:
            self._judge_job_deletion(process, raw, view)

    def _judge_job_deletion(self, process, job, view):
        uid = job["metadata"]["uid"]
        if process.name != "terminator":
            self.violate("deletion", f"{process.name} deletes the Job")
        self.lifetime.judge_deletion(job)
        if is_true(job, "Failed"):
            if "ttlSecondsAfterFinished" not in job["spec"]:
                self.violate("deletion", "a failed Job without a time to live")
            return
        self.completion.judge_deletion(job, view)
        for report in shards.reports_of(self._world, uid):
            for node, entry in (report.get("evidence") or {}).items():
                self.evidence.results.note_deletion(self.plans[uid], node, entry)
        self.completion.judge_left_report(job)
        self.deleted_by_us.add(uid)

    def _judge_pod_deletion(self, pod):
        """Judge that the controller has a reason to delete a pod: it costs its node's work."""
        if not pod["spec"].get("nodeName"):
            return  # it has not done anything
        job_uid, node = self.job_of[pod["metadata"]["uid"]], pod["spec"]["meant_for"]
        raw = self._world.server.get(NODES, node, "")
        if raw is None or self.born[pod["metadata"]["uid"]] < self.born[raw["metadata"]["uid"]]:
            return
        spec = self.completion.newest(job_uid)
        is_retried = any(d.kind == "retry" for d in self._world.schedule.disturbances)
        if is_retried or spec.get("failurePolicy", {}).get("pods") == "Delete":
            return
        stamps = [found["metadata"]["creationTimestamp"] for found in (pod, raw)]
        if stamps[0] < stamps[1]:
            # guarantees.md, "At least once": the clocks of two API servers differ.
            self.excused["pod deletion: older than its node by the servers' clocks"] += 1
            return
        words = f"the pod of {node} is deleted for nothing{self.patience.skews()}"
        self.violate("pod deletion", words)

    # --- facts ---------------------------------------------------------------------------

    def has_failed(self, job, node, node_uid):
        """Whether it stands on record that the node failed (rightly: judged when written)."""
        record = shards.node_states(self._world, job["metadata"]["uid"]).get(node) or {}
        return record.get("state") == "Failed" and record.get("uid") == node_uid

    def daemon_set_of(self, job_uid):
        """Return the Job's DaemonSet, None if it has none."""
        for daemon_set in self._world.server.all(DAEMON_SETS):
            if controller_of(daemon_set) == job_uid:
                return daemon_set
        return None

    def is_entered(self, job_uid, node, node_uid):
        """Return whether the completion of this node stands in the ledger."""
        return self.evidence.entered.get((job_uid, node), ("",))[0] == node_uid

    # --- tasks ---------------------------------------------------------------------------

    def task_succeeds(self, run):
        """Hear of an instance that prints the token, or ends with 0 in mode Exit."""
        self.evidence.task_succeeds(run)
        self.lifetime.task_succeeds(self.job_of.get(run.pod_uid, ""), run.machine.uid)
        self.records.task_succeeds(run)

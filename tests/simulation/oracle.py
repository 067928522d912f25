"""What must hold at every moment, judged by the model's own truth and not by any cache.

1. The controller calls a Job Complete, and the terminator deletes it, only when every node that its
   DaemonSet wants stands in the ledger by its current UID, or is on record as failed within the
   limit; a failed Job goes only for its ttl. Excused and counted, because whoever acts from afar
   cannot know better: `unsynced`, the DaemonSet controller had not yet counted the node (by UID)
   when the request was sent; `stale`, the writer's watches had not yet brought the node's pod, its
   node or the DaemonSet, and were in truth behind. The report of a Job that was deleted so may say
   that a node has not ended (`overtaken`).
2. A node's task is not started by another pod once its completion stands in the ledger. Excused:
   `window`, the pod was made without the gate before the gate was due (see `gates`); `crossed`, its
   gate was opened on a reading of the ledger made before the entry.
3. Evidence is true: an own pod on that node printed the token, or ended with 0 in mode Exit; it is
   never changed or lost, and of its results (see `results`) none but new ones are added.
   Excused as `former node`: the token of a node made anew is entered for the one before, whose UID
   is the only one that the terminator's watch has brought (mended as soon as it knows better). And
   as `unseen`: of a task that printed the token twice, the one has replaced the other, which a
   process that died had sent and its successor could not have seen, or the other way round.
4. Conditions and times follow the API's conventions; ends are final; the report is told first.
5. No write changes nothing, unless the writer's cache was behind.
6. Without churn of nodes, the number of completed ones never goes down.
7. Only what failed is called failed. Excused as `grace`: a token that the terminator could not read
   within the controller's grace, because of its own or the logs' trouble.
8. Each node stands in one shard of its run's report, and nothing of one Job in another's; see
   `shards`.
9. While a Job says that it is suspended, no pod of it is made without the gate.
"""

from collections import Counter

from job_controller.api.names import report_name
from tests.simulation import gates, shards
from tests.simulation.cluster import matches
from tests.simulation.conventions import status_faults
from tests.simulation.results import Results
from tests.simulation.server import DAEMON_SETS, JOBS, NODES, PODS, REPORTS, controller_of, node_of

# What makes nodes that completed no longer wanted, or other nodes.
CHURN = {"leave", "renew", "reregister", "zone", "select"}
# How long evidence may be on its way from the log into the ledger.
FLUSH_SECONDS = 5.0
OURS = ("controller", "terminator")


class Oracle:
    """Hears of everything; `violations` are (time, invariant, words), `excused` counts."""

    def __init__(self, world):
        self._world = world
        self.violations = []
        self.excused = Counter()
        self.last_write_at = 0.0
        self.our_writes = 0
        self.tokens = {}
        self.job_of = {}
        self.plans = {}
        self.entered = {}
        self.blamed = set()
        self.printed = set()
        self.refused = set()
        self.deleted_by_us = set()
        self.overtaken = set()
        self.claimed = set()
        self.ledger_read_at = {}
        self.entries_seen = {}
        self.status_views = {}
        self.synced = {}
        self._churns = any(d.kind in CHURN for d in world.schedule.disturbances)
        self.gates = gates.Gates(world)
        self.results = Results(world)

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
        if plural == JOBS and old is None:
            meta = new["metadata"]
            key = f"{meta['namespace']}/{meta['name']}"
            self.plans[meta["uid"]] = self._world.schedule.job(key)
        elif plural == JOBS and new is not None:
            for words in status_faults(old, new):
                self.violate("conventions", words)
            self._judge_end(old, new)
            self._judge_count(old, new)
        elif plural == REPORTS and new is not None:
            self._judge_evidence(old or {}, new)
            self._judge_records(old or {}, new)
            self._judge_claim(new)
            for words in (
                *shards.evidence_faults(self._world, self.job_of, old or {}, new),
                *shards.record_faults(self._world, self.job_of, old or {}, new),
            ):
                self.violate("shards", words)
        elif plural == DAEMON_SETS and old is None:
            self.gates.daemon_set_made(new)
        elif plural == PODS:
            if old is None:
                self.job_of[new["metadata"]["uid"]] = self._owner(new)
                self._judge_pause(new)
            self.gates.pod_written(old, new, self.ledger_read_at)

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
            decided = self._world.decided_at.get(self._job_about(plural, current), sent_at)
        delivered = process.feeds[plural].delivered_at.get((namespace, name), 0.0)
        if delivered < min(decided, sent_at):
            self.violate("idle write", f"{process.name}: {' '.join(what[:3])} changes nothing")

    def _job_about(self, plural, raw):
        """Return the UID of the Job that an object belongs to, or is."""
        if plural == REPORTS:
            return raw["spec"]["job"]["uid"]
        if plural == PODS:
            return self.job_of.get(raw["metadata"]["uid"], "")
        return raw["metadata"]["uid"] if plural == JOBS else controller_of(raw)

    # --- the ledger ----------------------------------------------------------------------

    def task_succeeds(self, run):
        """Note that an instance prints the token, or ends with 0 in mode Exit."""
        self.printed.add((run.pod_uid, run.instance))
        self.results.succeeded(run)
        if job_uid := self.job_of.get(run.pod_uid):
            node = run.machine
            self.tokens.setdefault((node.name, node.uid), set()).add(job_uid)

    def _judge_evidence(self, old, new):
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
                    self.violate("evidence", f"the entry of {node} was lost")

    def _judge_completed(self, job_uid, node, was, entry):
        """Judge an entry that completes a node."""
        uid = entry.get("nodeUID")
        if job_uid not in self.tokens.get((node, uid), ()):
            if self._is_taken_for_former(job_uid, node):
                self.excused["evidence: former node"] += 1
                return
            self.violate("evidence", f"{node} ({uid}) never printed the token for this Job")
        self.results.judge_entry(self.plans[job_uid], node, entry)
        if not was.get("completedAt") or was.get("nodeUID") != uid:
            self.entered[job_uid, node] = (uid, entry.get("pod"), self._world.loop.moment)
        elif not _has_only_gained_results(was, entry):
            what = "results" if {**entry, "results": 0} == {**was, "results": 0} else "entry"
            if what == "results" and self.plans[job_uid].is_exit:
                # The logs of earlier attempts are read first, and what they declare is told too.
                self.excused["results: of an earlier attempt, for a moment"] += 1
            elif not self._had_seen(node, uid):
                self.excused["evidence: unseen"] += 1
            else:
                self.violate("evidence", f"the {what} of {node} changed: {was} to {entry}")

    def _had_seen(self, node, node_uid):
        """Whether who sent the write that is being judged knew that the node had completed."""
        entry = self.entries_seen.get(node)
        return entry is not None and entry.is_completed and entry.node_uid == node_uid

    def _is_taken_for_former(self, job_uid, node):
        """Whether the node did print the token, and the terminator cannot know its new UID yet."""
        current = self._world.server.get(NODES, node, "")
        if current is None or job_uid not in self.tokens.get(
            (node, current["metadata"]["uid"]), ()
        ):
            return False
        feed = self._world.processes["terminator"].feeds["nodes"]
        learnt = feed.delivered_at.get(("", node), 0.0)
        return feed.is_behind or learnt > self._world.loop.moment - FLUSH_SECONDS

    # --- deletion ------------------------------------------------------------------------

    def view(self, process):
        """Return what a process knows when it asks for a deletion, to judge it by."""
        pods, nodes = process.feeds["pods"].reflector.store, process.feeds["nodes"].reflector.store
        known = set()
        for pod in pods:
            node = nodes.get(("", pod.node_name))
            if node is not None and not pod.deleting and pod.created_at >= node.created_at:
                known.add((pod.node_name, node.uid, pod.owner_uid))
        owners = {controller_of(raw) for raw in self._world.server.all(DAEMON_SETS)}
        behind = any(process.feeds[p].is_behind for p in ("pods", "nodes", "daemonsets"))
        counted = {uid: dict(nodes) for uid, nodes in self.synced.items()}
        return known, behind, counted, owners

    def before_delete(self, process, plural, job, uid, view):
        """Judge the deletion of a Job that is about to take effect."""
        if plural != JOBS or job is None or job["metadata"]["uid"] != uid:
            return
        if process.name != "terminator":
            self.violate("deletion", f"{process.name} deletes the Job")
        if is_true(job, "Failed"):
            if "ttlSecondsAfterFinished" not in job["spec"]:
                self.violate("deletion", "a failed Job without a time to live")
            return
        self._judge_completion("deletion", job, view)
        for report in shards.reports_of(self._world, uid):
            for node, entry in (report.get("evidence") or {}).items():
                self.results.note_deletion(self.plans[uid], node, entry)
        self._judge_report(job)
        self.deleted_by_us.add(uid)

    def _judge_completion(self, invariant, job, view):
        """Judge a claim that every wanted node of a Job has completed, made with that view."""
        uid = job["metadata"]["uid"]
        daemon_set, known = self.daemon_set_of(uid), view[0]
        if daemon_set is None:
            if uid in view[3] or view[1]:
                self.excused[f"{invariant}: DaemonSet gone meanwhile"] += 1
            else:
                self.violate(invariant, "there is no DaemonSet")
            return
        ds_uid = daemon_set["metadata"]["uid"]
        counted = view[2].get(ds_uid, {})
        wanted = self.wanted(daemon_set)
        tolerated = tolerated_failures(job, max(len(wanted), len(counted)))
        for node, node_uid in wanted.items():
            if self.is_entered(uid, node, node_uid):
                continue
            if self.has_failed(job, node, node_uid) and tolerated > 0:
                tolerated -= 1
                continue
            if counted.get(node) != node_uid:
                self._excuse(f"{invariant}: unsynced", uid)
            elif (node, node_uid, ds_uid) not in known and view[1]:
                self._excuse(f"{invariant}: stale", uid)
            else:
                self.violate(invariant, f"{node} ({node_uid}) has not completed")

    def _excuse(self, words, job_uid):
        """Count a claim that a node has overtaken on its way, and note which Jobs went for one."""
        self.excused[words] += 1
        if words.startswith("deletion"):
            self.overtaken.add(job_uid)

    def report_of(self, job):
        """Return the raw report of a raw Job, None for none."""
        meta = job["metadata"]
        name = report_name(meta["name"], meta["uid"])
        return self._world.server.get(REPORTS, name, meta["namespace"])

    def has_failed(self, job, node, node_uid):
        """Whether it stands on record that the node failed (rightly: judged when written)."""
        record = shards.node_states(self._world, job["metadata"]["uid"]).get(node) or {}
        return record.get("state") == "Failed" and record.get("uid") == node_uid

    def _judge_report(self, job):
        report = self.report_of(job)
        phase = ((report or {}).get("status") or {}).get("phase")
        if phase != "Succeeded":
            self.violate("report", f"the Job is deleted and its report says {phase}")

    def daemon_set_synced(self, uid, counted):
        """Note which nodes (UID by name) the DaemonSet controller counts as wanted now."""
        self.synced[uid] = counted
        self.gates.daemon_set_synced(uid)

    def daemon_set_of(self, job_uid):
        """Return the Job's DaemonSet, None if it has none."""
        for daemon_set in self._world.server.all(DAEMON_SETS):
            if controller_of(daemon_set) == job_uid:
                return daemon_set
        return None

    def wanted(self, daemon_set):
        """Return the UIDs by name of the nodes that a DaemonSet wants in truth."""
        return {
            raw["metadata"]["name"]: raw["metadata"]["uid"]
            for raw in self._world.server.all(NODES)
            if matches(daemon_set, raw)
        }

    def is_entered(self, job_uid, node, node_uid):
        return self.entered.get((job_uid, node), ("",))[0] == node_uid

    # --- tasks ---------------------------------------------------------------------------

    def task_starts(self, run):
        """Judge the start of an instance of the task."""
        job_uid = self.job_of.get(run.pod_uid)
        entry = self.entered.get((job_uid, run.machine.name))
        if entry is None or entry[0] != run.machine.uid or entry[1] == run.pod_name:
            return
        if len(run.logs) > 1:
            return  # the kubelet's own restart
        verdict, words = self.gates.judge_start(run.pod_uid, job_uid, entry[2])
        if verdict:
            self.excused[f"started: {verdict}"] += 1
        else:
            self.violate("started again", f"{run.machine.name} in {run.pod_name}: {words}")

    def _judge_pause(self, pod):
        """Judge the making of a pod: a Job that says it is suspended lets no more nodes start."""
        if pod["spec"].get("schedulingGates"):
            return
        job_uid = self.job_of[pod["metadata"]["uid"]]
        job = next((j for j in self._world.server.all(JOBS) if j["metadata"]["uid"] == job_uid), {})
        # A run that a user has just resumed says so until the controller has written it.
        asked = job.get("spec", {}).get("suspend") and is_true(job, "Suspended")
        if asked or is_true(job, "Suspended", "FailedNodes"):
            self.violate("suspended", f"{pod['metadata']['name']} is made without the gate")

    def task_refuses(self, run):
        """Note that an instance prints the failure token."""
        self.refused.add((run.pod_uid, run.instance))
        self.blame_run(run)

    def task_failed(self, run):
        """Note that an instance ended without having printed the token."""
        if (run.pod_uid, run.instance) not in self.printed:
            self.blame_run(run)

    def blame_run(self, run):
        """Note that this node may be called failed by the Job of this pod."""
        self.blame(run.machine.name, self.job_of.get(run.pod_uid))

    def blame(self, node, job_uid=None):
        """Note that a node may be called failed or lost for something, by this Job or by all."""
        self.blamed.add((node, job_uid))

    def _is_innocent(self, node, job_uid):
        if {(node, None), (node, job_uid)} & self.blamed:
            return False
        return "nodeDeadlineSeconds" not in self.plans[job_uid].spec

    def _judge_records(self, old, new):
        before = (old.get("status") or {}).get("nodeStates") or {}
        after = (new.get("status") or {}).get("nodeStates") or {}
        job_uid = new["spec"]["job"]["uid"]
        for node, record in after.items():
            state = record.get("state")
            if state == (before.get(node) or {}).get("state"):
                continue
            if state in {"Failed", "Unreachable"} and self._is_innocent(node, job_uid):
                self._accuse(f"{node} is called {state}: {record.get('message')}")

    def _judge_claim(self, report):
        """Judge that a run is called completed where that is said first, which is in its report.

        The Job's status repeats it, at times much later and by another process.
        """
        job_uid = report["spec"]["job"]["uid"]
        if (report.get("status") or {}).get("phase") != "Succeeded" or job_uid in self.claimed:
            return
        self.claimed.add(job_uid)
        where = report["metadata"]["namespace"]
        job = self._world.server.get(JOBS, report["spec"]["job"]["name"], where)
        if job is not None and job["metadata"]["uid"] == job_uid:
            self._judge_completion("complete", job, self.status_views[job_uid])

    def _judge_end(self, old, new):
        uid = new["metadata"]["uid"]
        if is_true(new, "Complete") and not is_true(old, "Complete") and uid not in self.claimed:
            self._judge_completion("complete", new, self.status_views[uid])
        if not is_true(new, "Failed") or is_true(old, "Failed"):
            return
        if "activeDeadlineSeconds" in new["spec"]:
            return
        if all(self._is_innocent(plan.name, uid) for plan in self._world.schedule.nodes):
            self._accuse("the Job is called failed, and nothing has failed")

    def _judge_count(self, old, new):
        """A node counts once, whatever happens to its pod: without churn no count goes down."""
        if self._churns:
            return
        before, after = (((job.get("status") or {}).get("nodes") or {}) for job in (old, new))
        if after.get("completed", 0) >= before.get("completed", 0):
            return
        daemon_set = self.daemon_set_of(new["metadata"]["uid"])
        is_stale = self._is_behind("controller", DAEMON_SETS, daemon_set)
        if is_stale or self._was_news(daemon_set, JOBS, new):
            self.excused["uncounted: stale"] += 1
        else:
            self.violate("uncounted", f"completed: {before['completed']} to {after['completed']}")

    def _is_behind(self, who, plural, raw):
        """Whether the cache of a process has another version of an object than the server."""
        if raw is None:
            return True
        meta = raw["metadata"]
        known = self._world.processes[who].cached(plural, meta["name"], meta["namespace"])
        return known is None or known.resource_version != meta["resourceVersion"]

    def _was_news(self, daemon_set, plural, raw):
        """Whether the controller heard of the DaemonSet's state after deciding what to write.

        The report is written before the Job's status, and both are of one decision.
        """
        meta = daemon_set["metadata"]
        feed = self._world.processes["controller"].feeds[DAEMON_SETS]
        delivered = feed.delivered_at.get((meta["namespace"], meta["name"]), 0.0)
        return delivered >= self._world.decided_at.get(self._job_about(plural, raw), delivered)

    def _accuse(self, words):
        if self._world.clear_from["terminator"] >= self._world.loop.moment - 6.0:
            self.excused["failed: grace"] += 1
        else:
            self.violate("innocent", words)


def _has_only_gained_results(was, entry):
    before, after = was.get("results") or {}, entry.get("results") or {}
    return before.items() <= after.items() and {**entry, "results": 0} == {**was, "results": 0}


def is_true(job, type_, reason=""):
    """Return whether a condition of the raw Job is True, for that reason if one is given."""
    conditions = (job.get("status") or {}).get("conditions") or ()
    return any(
        c["type"] == type_ and c["status"] == "True" and reason in {"", c["reason"]}
        for c in conditions
    )


def tolerated_failures(job, count):
    """Return how many of so many nodes may fail by the raw Job's policy."""
    limit = job["spec"].get("failurePolicy", {}).get("maxFailedNodes", 0)
    return limit if isinstance(limit, int) else int(limit.rstrip("%")) * count // 100


def owned_by(server, daemon_set):
    """Return the pods of a DaemonSet that are not on their way out, by node."""
    uid = daemon_set["metadata"]["uid"]
    return {
        node_of(pod): pod
        for pod in server.all(PODS)
        if controller_of(pod) == uid and "deletionTimestamp" not in pod["metadata"]
    }

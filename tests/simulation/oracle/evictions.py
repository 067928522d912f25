"""Drains: which pods are evicted, which have left before a task begins, and which drains fail.

Which pods have to leave is computed here, by the rules of kubectl drain. A pod that the scheduler
binds at the moment of the cordon may be missed, as by kubectl drain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tests.fakekube.daemon_sets import is_terminal
from tests.simulation.cordons import is_cordoned
from tests.simulation.oracle.cordons import job_of, mark_of
from tests.simulation.oracle.invariant import Invariant
from tests.simulation.server import JOBS, NODES, PODS, Raw
from tests.simulation.workloads import MIRROR, OtherPod

if TYPE_CHECKING:
    from tests.simulation.oracle.core import Oracle
    from tests.simulation.world import World

INVARIANTS = (
    Invariant(
        "drained",
        "With spec.drain no gate is removed while a pod is on the node that has to leave it.",
        mutant="starts_undrained_nodes",
        seed=3_000_000_000,
        excuses={
            "bound late": "The scheduler had chosen the node before the cordon, and bound the pod "
            "after it.",
            "uncordoned": "A person has uncordoned the node meanwhile, and pods come again.",
        },
    ),
    Invariant(
        "evicted",
        "Only pods that have to leave are evicted, from nodes that are cordoned. No pod of a "
        "DaemonSet is, no mirror pod, and none beside a pod that must not be evicted.",
        mutant="evicts_all_pods",
        seed=3_000_000_000,
        excuses={
            "uncordoned": "A person has uncordoned the node meanwhile: the drain goes on.",
            "sent before": "The process that sent the request has died since, and the next one has "
            "uncordoned the node.",
        },
    ),
    Invariant(
        "drain failures",
        "A node fails by DrainTimedOut only after drain.timeoutSeconds, and while a pod that has "
        "to leave is there, which the message names; by DrainRefused only if a pod is there that "
        "must not be evicted.",
        mutant="fails_drains_at_once",
        seed=3_000_000_000,
        excuses={
            "not listed": "The pods of the node could not be listed, and the message says so.",
        },
    ),
)

# A gate is removed on a list of this age at most, and what is recorded of a drain is as old.
LIST_SECONDS = 10.0
# The start of a drain is on record in whole seconds.
TOLERANCE_SECONDS = 1.5
STAYS, REFUSED, LEAVES = "stays", "refused", "leaves"


class Evictions:
    """Receives evictions, removals of gates, and what reports say of drains."""

    def __init__(self, world: World, oracle: Oracle) -> None:
        self._world = world
        self._oracle = oracle
        # By UID of a Job and name of a node: since when its drain is on record.
        self._began: dict[tuple[str, str], float] = {}
        # How often pods were to be evicted, and drains have failed, by reason.
        self.counts: Counter[str] = Counter()

    def judge(self, pod: Raw, node: str) -> None:
        """Judge a request to evict a pod, before the API server decides about it."""
        self.counts["evictions"] += 1
        raw, path = self._world.server.get(NODES, node, ""), pod["metadata"]["name"]
        drains = self._drains_on(raw)
        answers = {_what_becomes_of(pod, drain) for drain in drains}
        if not answers or answers & {STAYS} or answers == {REFUSED}:
            self._oracle.violate("evicted", f"{path} on {node}, which does not have to leave")
        if raw is not None and not is_cordoned(raw):
            if self._oracle.cordons.was_uncordoned(raw["metadata"]["uid"]):
                self._oracle.excuse("evicted", "uncordoned")
            elif self._world.writer_is_dead:
                self._oracle.excuse("evicted", "sent before")
            else:
                self._oracle.violate("evicted", f"{path} on {node}, which is not cordoned")
        sent_at = self._world.sent_at
        known = (self._world.loop.moment if sent_at is None else sent_at) - LIST_SECONDS
        beside = [pod for pod in self._others_on(node) if pod.bound_at < known]
        for drain in drains if len(drains) == 1 else ():
            if kept := [each.path for each in beside if _becomes(each, drain) == REFUSED]:
                self._oracle.violate("evicted", f"{path} on {node}, beside {kept}")

    def judge_gate(self, pod: Raw) -> None:
        """Judge the removal of a pod's gate by the controller."""
        job = self._oracle.job(self._oracle.job_of.get(pod["metadata"]["uid"], ""))
        node = self._world.server.get(NODES, pod["spec"]["meant_for"], "")
        if job is None or node is None or "drain" not in job["spec"]:
            return
        name, uid, now = node["metadata"]["name"], node["metadata"]["uid"], self._world.loop.moment
        for other in self._others_on(name):
            if _becomes(other, job["spec"]["drain"]) == STAYS:
                continue
            if self._oracle.cordons.was_uncordoned(uid):
                self._oracle.excuse("drained", "uncordoned")
            elif other.bound_at > max(
                self._oracle.cordons.cordoned_at.get(uid, 0.0), now - LIST_SECONDS
            ):
                self._oracle.excuse("drained", "bound late")
            else:
                self._oracle.violate("drained", f"{name} may start, and {other.path} is there")

    # --- failures ----------------------------------------------------------------------------

    def judge_report(self, old: Raw, new: Raw) -> None:
        """Judge which drains are recorded as failed."""
        before, after = (
            (report.get("status") or {}).get("nodeStates") or {} for report in (old, new)
        )
        job_uid = new["spec"]["job"]["uid"]
        for node, record in after.items():
            if record.get("state") == "Failed" != (before.get(node) or {}).get("state"):
                self._judge_failure(job_uid, node, record)
            if "drainStartedAt" in record:
                self._began.setdefault((job_uid, node), self._world.loop.moment)
            else:
                self._began.pop((job_uid, node), None)

    def _judge_failure(self, job_uid: str, node: str, record: Raw) -> None:
        reason, message = record.get("reason"), str(record.get("message"))
        drain = self._oracle.plans[job_uid].spec.get("drain")
        if reason not in {"DrainTimedOut", "DrainRefused"} or drain is None:
            return
        self.counts[reason] += 1
        self._oracle.failures.allow_failure(node, job_uid)
        now = self._world.loop.moment
        # The write may come long after the decision.
        decided_at = self._world.decided_at.get(job_uid, now)
        pods = [*self._others_on(node, since=decided_at - LIST_SECONDS)]
        fates = {pod.path: _becomes(pod, drain) for pod in pods}
        if reason == "DrainRefused":
            is_so = REFUSED in fates.values() or any(self._forged_on(node))
            if not is_so:
                self._oracle.violate("drain failures", f"{node}: {message}, and no pod is refused")
            return
        elapsed = now - self._began.get((job_uid, node), now)
        if elapsed < drain["timeoutSeconds"] - TOLERANCE_SECONDS:
            words = f"{node} has failed after {elapsed:.1f} s, and not {drain['timeoutSeconds']} s"
            self._oracle.violate("drain failures", words)
        raw = self._world.server.get(NODES, node, "")
        if raw is not None and not self._oracle.cordons.cordoned_at.get(raw["metadata"]["uid"]):
            self._oracle.violate("drain failures", f"{node}: {message}, and it was not cordoned")
        elif "cannot be listed" in message:
            self._oracle.excuse("drain failures", "not listed")
        elif not any(
            path in message
            for path in (
                *(path for path, fate in fates.items() if fate == LEAVES),
                *(_path(pod) for pod in self._forged_on(node)),
            )
        ):
            self._oracle.violate("drain failures", f"{node}: {message}, which is not so")

    # --- pods --------------------------------------------------------------------------------

    def _others_on(self, node: str, since: float | None = None) -> Iterator[OtherPod]:
        return self._world.workloads.on_node(node, since)

    def _forged_on(self, node: str) -> Iterator[Raw]:
        """Yield the pods on a node that only carry the labels of a Job: they have no controller."""
        for pod in self._world.server.all(PODS):
            if pod["spec"].get("nodeName") == node and not pod["metadata"].get("ownerReferences"):
                yield pod

    def _drains_on(self, node: Raw | None) -> list[Raw]:
        """Return the drains that there may be of a node: that of the Job whose mark it has."""
        uid = job_of(mark_of(node)) if node is not None else ""
        jobs = [job for job in self._world.server.all(JOBS) if job["metadata"]["uid"] == uid]
        specs = [job["spec"] for job in jobs] or [each.spec for each in self._oracle.plans.values()]
        return [spec["drain"] for spec in specs if "drain" in spec]


def _path(pod: Raw) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def _becomes(pod: OtherPod, drain: Raw) -> str:
    return _what_becomes_of(pod.raw(-1.0), drain)


def _what_becomes_of(pod: Raw, drain: Raw) -> str:
    """Return whether a raw pod stays on a node that is drained, leaves it, or is refused."""
    meta = pod["metadata"]
    kinds = {owner["kind"] for owner in meta.get("ownerReferences") or () if owner["controller"]}
    if MIRROR in (meta.get("annotations") or {}) or "DaemonSet" in kinds or is_terminal(pod):
        return STAYS
    has_volume = any("emptyDir" in volume for volume in pod["spec"].get("volumes") or ())
    if not kinds and not drain.get("force"):
        return REFUSED
    return REFUSED if has_volume and not drain.get("deleteEmptyDirData") else LEAVES

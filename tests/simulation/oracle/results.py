"""Results: what each task printed as one, and that reports hold that and nothing else.

An entry of the ledger names its pod. Its values are the last ones that one start of the task in
this pod printed which completed the node, under names that the Job allows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from tests.simulation.oracle.invariant import Invariant
from tests.simulation.schedule import JobPlan
from tests.simulation.script import RESULTS
from tests.simulation.server import PODS, Raw

if TYPE_CHECKING:
    from tests.simulation.kubelet import PodRun
    from tests.simulation.world import World

INVARIANTS = (
    Invariant(
        "results",
        "The results of a node are the last values that one start of the task printed which "
        "completed the node, under names that the Job allows. At the end all of them are there.",
        mutant="records_no_results",
        seed=49,
        excuses={
            "lines lost": "The follow streams of the node lost lines. No later read looks for them "
            "once the token is found.",
            "gone": "The log is searched after the node has completed. Its pod went before, or "
            "what can be read of it. In mode Exit that may be at any time, in mode Log until a few "
            "seconds after the token. In mode Exit, a reboot within these seconds that starts the "
            "task again ends the search.",
            "given up": "In mode Exit, the log could not be read for longer than the terminator "
            "waits for it.",
            "left": "In mode Exit, the node was not desired any more when its Job was deleted.",
        },
    ),
)

# A log that could be read for this time before the deletion, or after its token, has to have been
# read and searched. This is stricter than what the code promises: its pauses between two tries grow
# longer. So a time limit that is too short for them shows.
READABLE_SECONDS = 5.0
# Who holds no stream on a log looks at it that much later.
POLL_SECONDS = 5.0
_PREFIX = b"dsjob:result "


class Results:
    """Receives every line; by pod UID and instance, the last value of each name."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._printed: dict[str, dict[int, dict[str, str]]] = {}
        self._pods: dict[tuple[str, str], set[str]] = {}
        self._successful: dict[str, dict[int, bool]] = {}
        # In mode Exit, by pod UID and time of a good end: the instances that ended then.
        self._ended: dict[tuple[str, str], set[int]] = {}
        self._unreadable: set[str] = set()
        # By pod UID: when its task printed the token, and which logs went too soon after that.
        self._printed_at: dict[str, float] = {}
        self._lost_soon: set[str] = set()
        self._left_behind: set[str] = set()
        self._impatient: set[str] = set()
        self._not_desired: set[str] = set()

    def said(self, run: PodRun, text: bytes) -> None:
        """Take note of a line that is a result."""
        if text.startswith(_PREFIX):
            name, _, value = text[len(_PREFIX) :].decode().partition("=")
            self._printed.setdefault(run.pod_uid, {}).setdefault(run.instance, {})[name] = value
            self._pods.setdefault((run.plan.key, run.machine.name), set()).add(run.pod_uid)

    def succeeded(self, run: PodRun) -> None:
        """Take note that the results of this instance are those of its node."""
        self._successful.setdefault(run.pod_uid, {})[run.instance] = True
        self._printed_at.setdefault(run.pod_uid, self._world.loop.moment)
        if run.is_init:
            at = run.last["terminated"]["finishedAt"]
            self._ended.setdefault((run.pod_uid, at), set()).add(run.instance)

    def starts_again(self, run: PodRun) -> None:
        """Note that a reboot starts a task again that has ended well.

        In mode Exit, nothing searches the log of the attempt before it from then on.
        """
        if run.pod_uid in self._lost_soon:
            self._unreadable.add(run.pod_uid)

    def became_unreadable(self, run: PodRun) -> None:
        """Note that the logs of this pod cannot be read any more."""
        self._unreadable.add(run.pod_uid)
        self.cannot_be_asked(run)

    def cannot_be_asked(self, run: PodRun) -> None:
        """Note that the logs of this pod cannot be read for now, or are not searched any more."""
        printed_at, now = self._printed_at.get(run.pod_uid), self._world.loop.moment
        if printed_at is not None:
            since = max(printed_at, self._world.undisturbed_from["terminator"])
            is_followed = self._world.schedule.streams >= len(self._world.server.all(PODS))
            if now < since + READABLE_SECONDS + (0.0 if is_followed else POLL_SECONDS):
                self._lost_soon.add(run.pod_uid)

    def judge_entry(self, plan: JobPlan, node: str, entry: Raw) -> None:
        """Judge what an entry that was just written says of results."""
        allowed = {result["name"] for result in plan.spec.get("results") or ()}
        found = entry.get("results") or {}
        for name in found.keys() - allowed:
            self._violate(f"{node}: {name} is not allowed")
        for name in allowed.intersection(entry.get("omittedResults") or ()):
            self._violate(f"{node}: {name} is listed and not too long, and is left out")
        found = {name: found[name] for name in sorted(found.keys() & allowed)}
        printed = list(self._of_successful(entry.get("podUID")))
        if not found or any(found.items() <= said.items() for said in printed):
            return
        pods = {value.partition(".")[0] for value in found.values()} - {entry.get("podUID")}
        if pods & set(self._pods_on(plan, node)):
            self._accuse(node, f"{node}: its results are {found}, of another pod there")
        else:
            self._accuse(node, f"{node}: its results are {found}, its task printed {printed}")

    def _pods_on(self, plan: JobPlan, node: str) -> set[str]:
        """Return the UIDs of all pods of a Job that have printed results on a node."""
        return self._pods.get((plan.key, node), set())

    def judge_whole(self, plan: JobPlan, node: str, entry: Raw) -> None:
        """Judge whether an entry of a report that is at rest has all its results, and its own."""
        if plan.is_exit:
            self._judge_start(node, entry)
        if lacking := self._lacking(plan, entry):
            if entry["podUID"] in self._impatient:
                self._world.oracle.excuse("results", "given up")
            elif entry["podUID"] in self._not_desired:
                self._world.oracle.excuse("results", "left")
            elif entry["podUID"] in self._left_behind:
                self._accuse(node, f"{node}: the Job was deleted before {lacking} was read")
            elif self._was_gone(plan, entry) or (plan.is_exit and self._is_down(node)):
                self._world.oracle.excuse("results", "gone")
            else:
                self._accuse(node, f"{node}: its task printed {lacking}, which is not there")

    def _judge_start(self, node: str, entry: Raw) -> None:
        """Judge that the results of an entry are those of the start of the task that it is of."""
        pod_uid = entry.get("podUID") or ""
        ended = self._ended.get((pod_uid, entry.get("completedAt") or ""))
        printed = self._printed.get(pod_uid, {})
        for name, value in (entry.get("results") or {}).items():
            if ended and not any(printed.get(i, {}).get(name) == value for i in ended):
                self._accuse(node, f"{node}: {name} is {value}, the node completed by {ended}")

    def note_deletion(self, plan: JobPlan, node: str, entry: Raw, *, is_desired: bool) -> None:
        """Note what the terminator deletes a Job without, though it was there to be read.

        In mode Log a node is entered when its log was searched, however long its Job goes on.
        """
        if not self._lacking(plan, entry) or self._was_gone(plan, entry):
            return
        if plan.is_exit and not is_desired:
            self._not_desired.add(entry["podUID"])
        elif plan.is_exit and self._world.logs_failed_lately(node, READABLE_SECONDS):
            self._impatient.add(entry["podUID"])
        else:
            self._left_behind.add(entry["podUID"])

    def _was_gone(self, plan: JobPlan, entry: Raw) -> bool:
        """Whether a log could not be read for as long as it takes to search it."""
        return entry["podUID"] in (self._unreadable if plan.is_exit else self._lost_soon)

    def _is_down(self, node: str) -> bool:
        """Whether a node, which is there, has been down until now."""
        machine = self._world.machines.get(node)
        return machine is not None and not machine.is_up

    def _lacking(self, plan: JobPlan, entry: Raw) -> Raw:
        """Return what the task printed of the results that an entry should have and has not."""
        if "results" not in plan.spec or not entry.get("completedAt"):
            return {}
        pod_uid, found = entry.get("podUID"), entry.get("results") or {}
        lacking = [
            {name: said[name] for name in RESULTS if name in said and name not in found}
            for said in self._of_successful(pod_uid)
        ]
        return min(lacking, key=len, default={})

    def _of_successful(self, pod_uid: str | None) -> Iterator[Mapping[str, str]]:
        """Yield what the instances in a pod that completed its node have printed, in order."""
        printed = self._printed.get(pod_uid or "", {})
        for instance in self._successful.get(pod_uid or "", ()):
            yield printed.get(instance, {})

    def _accuse(self, node: str, words: str) -> None:
        disturbances = self._world.schedule.disturbances
        if any(d.kind == "lose_lines" and d.what == node for d in disturbances):
            self._world.oracle.excuse("results", "lines lost")
        else:
            self._violate(words)

    def _violate(self, words: str) -> None:
        if any(task.noise for node in self._world.schedule.nodes for task in node.tasks):
            words += ", much was printed"
        self._world.oracle.violate("results", words)

"""Runs cases side by side on one cluster, and returns the result of each."""

import asyncio
import contextlib
import copy
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from daemonset_job.api import names
from daemonset_job.kube.client.errors import Conflict, KubeError, NotFound
from daemonset_job.kube.client.resource import DAEMON_SETS, JOB_REPORTS, JOBS, PODS
from tests.integration.simulated_nodes import is_gated
from tests.mutation.cases import Case
from tests.mutation.changes import Change
from tests.mutation.cluster import NODES, MutationCluster
from tests.mutation.oracle import (
    ReportedState,
    ignored,
    is_continuous,
    is_true,
    misjudged,
    names_a_field,
    reported_state,
    state_words,
)
from tests.mutation.results import Result, short, without_case
from tests.mutation.tasks import can_complete

Raw = dict[str, Any]

# A Job reports its state within this time, or goes on with its nodes for no longer than that.
REPORT_SECONDS = 60.0
PROGRESS_SECONDS = 240.0
POLL_SECONDS = 0.3
# How long the report of a Job that is gone may lack its end: it comes by another watch.
WATCH_LAG_SECONDS = 5.0
ENDED = frozenset({"Succeeded", "Failed"})
# A state counts once it has lasted this long. A state that a timeout ends (five seconds here, and
# the terminator's grace period) has to last longer, because another state follows.
FINAL_SECONDS = 0.5
STABLE_SECONDS = 3.0
PASSING_SECONDS = 20.0
_PASSING = (
    "TaskFailing",
    "TaskNotStarted",
    "ImagePullFailed",
    "ContainerStartFailed",
    "Unschedulable",
)
CONTROL_SECONDS = 45.0
# How long a change waits for the moment in a Job's life that it is meant for.
MOMENT_SECONDS = 15.0
# What a KubeError says of the user's input and not of the server.
_REFUSALS = (400, 403, 413, 422)
# An object of megabytes is refused by etcd, in words of its own.
_TOO_LARGE = ("request is too large", "larger than max")


class Runner:
    """Applies cases, watches what becomes of their Jobs, and cleans up after them."""

    def __init__(self, cluster: MutationCluster, at_once: int = 30, patience: float = 1) -> None:
        self.cluster = cluster
        self.results: list[Result] = []
        self.controls: list[Result] = []
        # Those of ScheduledJobs.
        self.others: list[Result] = []
        self.longest_stall = 0.0
        # How many times as long everything may take.
        self._patience = patience
        self._room = asyncio.Semaphore(at_once)
        self._jobs: dict[str, Raw] = {}
        self._reports: dict[str, Raw] = {}
        self._polled_at = 0.0
        self._polled = asyncio.Condition()
        self._running: dict[str, Case] = {}

    async def run(
        self, cases: Iterable[Case], report_each: Callable[[Result], None] | None = None
    ) -> list[Result]:
        """Return the results of all cases; raises if a program or the played world ends."""
        async with asyncio.TaskGroup() as group:
            helpers = [
                group.create_task(work)
                for work in (self._poll(), self._control(), self._measure_stalls())
            ]

            async def one(index: int, case: Case) -> None:
                try:
                    result = await self._one(index, case)
                finally:
                    self._room.release()
                self.results.append(result)
                if report_each:
                    report_each(result)

            running = []
            for index, case in enumerate(cases):
                await self._room.acquire()
                running.append(group.create_task(one(index, case)))
            await asyncio.gather(*running)
            # One more round of the control Job: nothing that was left behind may disturb it.
            count = len(self.controls)
            async with asyncio.timeout(2 * CONTROL_SECONDS * self._patience):
                while len(self.controls) < count + 2:  # noqa: ASYNC110 - a count, no event
                    await asyncio.sleep(POLL_SECONDS)
            for helper in helpers:
                helper.cancel()
        for words in self.cluster.complaints.defects.pop("", ()):
            self.controls.append(without_case(words))
        return self.results

    # --- looking --------------------------------------------------------------------------

    async def _poll(self) -> None:
        loop, admin = asyncio.get_running_loop(), self.cluster.admin
        while True:
            harness = self.cluster.harness
            for task in (harness.nodes_task, *(process.task for process in harness.processes)):
                assert not task.done(), f"it ended by itself: {task}"
            began = loop.time()
            jobs = await admin.list(JOBS, self.cluster.mutants)
            reports = await admin.list(JOB_REPORTS, self.cluster.mutants)
            self._jobs = {raw["metadata"]["name"]: raw for raw in jobs.get("items") or ()}
            self._reports = {
                raw["spec"]["job"]["uid"]: raw
                for raw in reports.get("items") or ()
                if not raw["spec"].get("shard")
            }
            async with self._polled:
                self._polled_at = began
                self._polled.notify_all()
            await asyncio.sleep(POLL_SECONDS)

    async def _next_poll(self, since: float) -> None:
        async with self._polled:
            await self._polled.wait_for(lambda: self._polled_at > since)

    async def _measure_stalls(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            before = loop.time()
            await asyncio.sleep(0.05)
            self.longest_stall = max(self.longest_stall, loop.time() - before - 0.05)

    # --- the control Job --------------------------------------------------------------------

    async def _control(self) -> None:
        """Have one plain Job after the other completed in a namespace of its own."""
        loop, number = asyncio.get_running_loop(), 0
        while True:
            number += 1
            name = f"control-{number}"
            case = Case(name, {"image": "example/task:v1"}, frozenset())
            result, began = Result(case, name), loop.time()
            await self.cluster.harness.apply(name=name, namespace=self.cluster.control)
            while await self.cluster.harness.find(JOBS, name, self.cluster.control):
                if loop.time() > began + CONTROL_SECONDS * self._patience:
                    others = [f"{n}: {each.label}" for n, each in self._running.items()]
                    result.violations.append(f"the control Job is disturbed by one of {others}")
                    break
                await asyncio.sleep(POLL_SECONDS)
            result.seconds = loop.time() - began
            result.violations += self.cluster.complaints.defects.pop(name, ())
            self.controls.append(result)

    # --- one case -----------------------------------------------------------------------------

    async def _one(self, index: int, case: Case) -> Result:
        loop = asyncio.get_running_loop()
        name = case.metadata.get("name") or f"m{index:05}"
        result, began = Result(case, name), loop.time()
        self._running[name] = case
        try:
            await self._live(result)
        finally:
            del self._running[name]
            result.violations += self.cluster.complaints.defects.pop(name, ())
        result.seconds = loop.time() - began
        return result

    async def _live(self, result: Result) -> None:
        case, name, cluster = result.case, result.name, self.cluster
        manifest = {
            "apiVersion": names.API_VERSION,
            "kind": names.JOB_KIND,
            "metadata": {"name": name, **case.metadata},
            "spec": self._renamed(case.spec, cluster.node),
        }
        scheduled = await cluster.admin.refusal_in_schedule(cluster.mutants, manifest["spec"])
        try:
            created = await cluster.admin.create_any(JOBS, cluster.mutants, manifest)
        except KubeError as error:
            result.outcome, result.state = "refused", str(error)
            result.violations += refusal_problems(error, case.touched)
            # A dry run sends etcd nothing, which may be too large for it.
            is_dry = "ResourceExhausted" in error.message
            if scheduled is None and not is_dry and "metadata." not in error.message:
                result.violations.append(f"a ScheduledJob takes what its Job refuses: {error}")
            return
        # The Jobs of a ScheduledJob have an end.
        if scheduled is not None and not is_continuous(created["spec"]):
            result.violations.append(f"only a ScheduledJob refuses it: {scheduled}")
        cluster.tasks.add(name, case.task, created["spec"])
        uid = created["metadata"]["uid"]
        spec, was_over = created["spec"], False
        for change in case.changes:
            await self._moment(name, change.when)
            await asyncio.sleep(change.after)
            try:
                changed = await self._change(name, uid, change)
            except NotFound:
                break
            except KubeError as error:
                words = frozenset((change.body or {}).get("spec") or {"metadata": None})
                result.violations += refusal_problems(error, words)
                continue
            if changed is not None:
                # Until the start what runs may change; what is asked for once a run is complete
                # need not be done any more.
                cluster.tasks.add(name, case.task, changed["spec"])
                was_over = is_true(changed, "Complete")
                spec = spec if was_over else changed["spec"]
        cluster.tasks.release(name)
        job, report = await self._settle(result, uid)
        short = self._renamed(spec, cluster.harness.nodes.short, back=True)
        if not was_over and result.outcome:
            result.violations += misjudged(short, job, self._short_report(report))
        if not case.changes:
            result.violations += ignored(spec, job, report)
        result.violations += self._repetitions(result)
        result.violations += _unnamed_field(result)
        await self._clean_up(name, uid)

    async def _moment(self, name: str, when: str) -> None:
        """Return when a Job is where a change is to meet it, or does not seem to get there."""
        loop, harness = asyncio.get_running_loop(), self.cluster.harness
        end = loop.time() + MOMENT_SECONDS if when else 0.0
        while loop.time() < end:
            job = self._jobs.get(name) or {}
            is_at_work = ((job.get("status") or {}).get("nodes") or {}).get("active")
            if when == "at work" and is_at_work:
                return
            if when == "gated" and is_at_work:
                found = await harness.find(DAEMON_SETS, names.daemon_set_name(name))
                if found is None or is_gated(found["spec"]["template"]):
                    return
            await asyncio.sleep(POLL_SECONDS)

    async def _change(self, name: str, uid: str, change: Change) -> Raw | None:
        """Do what a change says; return the Job after a patch."""
        admin, namespace = self.cluster.admin, self.cluster.mutants
        selector = f"{names.LABEL_JOB_UID}={uid}"
        match change.what:
            case "patch":
                body = copy.deepcopy(change.body)
                if isinstance(body.get("spec"), dict):
                    body["spec"] = self._renamed(body["spec"], self.cluster.node)
                body["metadata"] = {**(body.get("metadata") or {}), "uid": uid}
                return await admin.patch_job(namespace, name, body)
            case "daemonset":
                resource, most = DAEMON_SETS, 1
            case "report":
                resource, most = JOB_REPORTS, 1
            case other:
                resource, most = PODS, 1 if other == "pod" else len(NODES)
        found = (await admin.list(resource, namespace, label_selector=selector)).get("items") or ()
        for raw in found[:most]:
            with contextlib.suppress(NotFound, Conflict):
                await admin.delete(resource, raw["metadata"]["name"], namespace)
        return None

    async def _settle(self, result: Result, uid: str) -> tuple[Raw | None, Raw | None]:
        """Return Job and report once the Job reports a stable state, or the time is over."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        since, shown, counts = began, _Lasting("", began), _Lasting(None, began)
        while True:
            await self._next_poll(since)
            since = self._polled_at
            job, report = self._jobs.get(result.name), self._reports.get(uid)
            if job is not None and job["metadata"]["uid"] != uid:
                job = None
            result.state = state_words(job, report)
            if self.cluster.complaints.defects.get(result.name):
                result.outcome = ""
                return job, report
            if job is None:
                return None, await self._gone(result, uid)
            state = reported_state(job)
            reason = state.words.partition(":")[0] if state else ""
            lasted = shown.seconds(reason, loop.time())
            if state is not None and lasted >= _settling_seconds(reason, state) * self._patience:
                result.outcome = f"reported {reason}"
                return job, report
            if loop.time() > began + REPORT_SECONDS and not can_complete(job["spec"]):
                result.outcome = "runs until it is deleted, as requested"
                return job, report
            still = counts.seconds((job.get("status") or {}).get("nodes"), loop.time())
            is_late = loop.time() > began + PROGRESS_SECONDS * self._patience
            if is_late or still > REPORT_SECONDS * self._patience:
                result.violations.append(self._silence(result, job))
                return job, report

    def _silence(self, result: Result, job: Raw) -> str:
        warned = self.cluster.complaints.warnings.get(result.name)
        return (
            f"silent for {REPORT_SECONDS:g} s: {result.state}\nwarned: {warned}\n"
            f"template: {short(job['spec'].get('template'))}"
        )

    async def _gone(self, result: Result, uid: str) -> Raw | None:
        """Return the report of a Job that is gone, which has to say how it ended."""
        report = self._reports.get(uid)
        until = asyncio.get_running_loop().time() + WATCH_LAG_SECONDS * self._patience
        while _phase(report) not in ENDED and asyncio.get_running_loop().time() < until:
            # The watch of Jobs may be ahead of that of reports.
            await asyncio.sleep(0.1)
            report = self._reports.get(uid)
        if report is None:
            if not any(change.what == "report" for change in result.case.changes):
                result.violations.append("the Job is gone and there is no report")
            return None
        phase = _phase(report)
        result.outcome = f"gone, {phase}"
        if phase not in ENDED:
            result.violations.append(f"the Job is gone and its report says {phase}")
        return report

    def _repetitions(self, result: Result) -> Iterator[str]:
        """Yield the nodes that did their work twice without a cause.

        Causes are deletions, changes of the selection, and a retry of a failed node.
        """
        changes = result.case.changes
        keys = {key for change in changes for key in (change.body or {}).get("spec", ())}
        is_retried = any("metadata" in (change.body or {}) for change in changes)
        if is_retried or "nodes" in keys or any(change.what != "patch" for change in changes):
            return
        for node in NODES:
            times = self.cluster.tasks.completions[result.name, node]
            if times > 1:
                yield f"node {node} did its work {times} times"

    async def _clean_up(self, name: str, uid: str) -> None:
        admin, namespace = self.cluster.admin, self.cluster.mutants
        with contextlib.suppress(NotFound, Conflict):
            await admin.delete(JOBS, name, namespace, uid=uid)
        loop = asyncio.get_running_loop()
        await self._next_poll(loop.time())
        self.cluster.tasks.drop(name)
        if report := self._reports.get(uid):
            with contextlib.suppress(NotFound, Conflict):
                await admin.delete(JOB_REPORTS, report["metadata"]["name"], namespace)

    # --- names of nodes ---------------------------------------------------------------------

    def _renamed(self, spec: Any, rename: Callable[[str], str], *, back: bool = False) -> Any:
        """Return the spec with the nodes' real names for node-a, or the other way round."""
        nodes = spec.get("nodes") if isinstance(spec, dict) else None
        if not isinstance(nodes, dict):
            return spec
        table = {f"node-{short}": self.cluster.node(short) for short in NODES}
        if back:
            table = {real: short for short, real in table.items()}
        changed = {
            key: [table.get(each, each) if isinstance(each, str) else each for each in value]
            if key in {"include", "exclude"} and isinstance(value, list)
            else value
            for key, value in nodes.items()
        }
        return {**spec, "nodes": changed}

    def _short_report(self, report: Raw | None) -> Raw | None:
        if report is None:
            return None
        status = report.get("status") or {}
        short = self.cluster.harness.nodes.short
        states = {short(name): raw for name, raw in (status.get("nodeStates") or {}).items()}
        return {**report, "status": {**status, "nodeStates": states}}


def refusal_problems(error: KubeError, words: frozenset[str]) -> Iterator[str]:
    """Yield what is wrong with a refusal: it has to name one of these fields."""
    if any(words in error.message for words in _TOO_LARGE):
        return
    if error.status not in _REFUSALS:
        yield f"refused with {error.status}: {error}"
    elif not names_a_field(error, words):
        yield f"the refusal names none of {sorted(words)}: {error}"


def _phase(report: Raw | None) -> str | None:
    phase: str | None = ((report or {}).get("status") or {}).get("phase")
    return phase


@dataclass
class _Lasting:
    """A value, and since when it has been the same."""

    value: Any
    since: float

    def seconds(self, value: Any, now: float) -> float:
        """Return for how long the value has been this one."""
        if value != self.value:
            self.value, self.since = value, now
        return now - self.since


def _settling_seconds(reason: str, state: ReportedState) -> float:
    if state.is_final:
        return FINAL_SECONDS
    return PASSING_SECONDS if reason in _PASSING else STABLE_SECONDS


def _unnamed_field(result: Result) -> Iterator[str]:
    """Yield that a condition about a refusal does not name the field that caused it."""
    if result.case.label.endswith(" null"):
        return  # it removes a generated field: the refusal names the field that needs it
    last = result.case.field.replace("[]", "").replace("{}", "").rpartition(".")[2]
    if last and result.outcome == "reported DaemonSetRefused" and last not in result.state:
        yield f"the condition does not name {last}"

"""One Job of a soak run from its creation until it has been judged, as its user goes about it."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.soak_cluster import CommandError, SoakCluster, parse_lines, patiently
from benchmarks.soak_oracle import JobRun, judge
from benchmarks.soak_wish import Step, Wish, manifest
from daemonset_job.api import names
from daemonset_job.api.times import parse_time
from daemonset_job.kube.client.errors import AlreadyExists, KubeError, NotFound
from daemonset_job.kube.client.resource import JOB_REPORTS, JOBS

# A Job that has not come as far as it must after this time, beside its own work, is stuck. Quotas,
# taints and stopped nodes hold it up for a minute each, and the DaemonSet controller's back-off
# for as long again.
STUCK_SECONDS = 420.0
# A Job that has failed and should not have is given up after this time.
FAILED_SECONDS = 20.0
# Between the end of a Job and its judgement: pods have ten seconds to end.
SETTLE_SECONDS = 12.0
REPORT_SECONDS = 60.0
_LAST = {"Succeeded", "Failed", "Cancelled"}


class EndedError(Exception):
    """The Job is gone, or cannot get any further."""


class Driver:
    """Drives one Job."""

    def __init__(self, cluster: SoakCluster, wish: Wish) -> None:
        self.run = JobRun(wish)
        self._cluster = cluster
        self._wish = wish
        self._seen: dict[str, float] = {}
        """When each condition was first seen to be true."""
        self._last: Mapping[str, Any] = {}
        self._limit = 0.0
        self._answered_at = 0.0
        """When its creation was answered; a look that began before that may be without it."""

    async def drive(self) -> list[str]:
        """Return what was wrong with the Job."""
        await self._create()
        try:
            for step in self._wish.steps:
                await self._reach(step.when)
                await self._do(step)
            await self._reach("gone")
        except EndedError:
            pass
        run = self.run
        if run.problems:
            await self._give_up()
        self._note_end()
        await asyncio.sleep(SETTLE_SECONDS)
        run.reports = await self._reports()
        files = await self._cluster.take_file(self._wish.file)
        run.starts = {node: parse_lines(text) for node, text in files.items()}
        problems = judge(run, self._cluster.history, self._cluster.touches)
        if self._wish.has_unique_name:
            for report in run.reports:
                await self._remove_report(report["metadata"]["name"])
        return problems

    def explain(self) -> dict[str, Any]:
        """Return what helps to understand a problem."""
        run = self.run
        return {
            "spec": self._wish.spec,
            "created_at": run.created_at,
            "ended_at": run.ended_at,
            "gone_at": run.gone_at,
            "edits": run.edits,
            "starts": run.starts,
            "status": self._last.get("status"),
            "reports": [
                {"evidence": r.get("evidence"), "status": r.get("status")} for r in run.reports
            ],
        }

    async def _create(self) -> None:
        wish = self._wish
        self.run.created_at = time.time()
        try:
            body = manifest(wish)
            created = await patiently(
                lambda: self._cluster.client.create(JOBS, body, wish.namespace)
            )
        except AlreadyExists:  # a try before that got no answer
            created = await patiently(
                lambda: self._cluster.client.get(JOBS, wish.name, wish.namespace)
            )
        self._answered_at = time.time()
        self.run.uid = created["metadata"]["uid"]
        self.run.edits.append((self.run.created_at, wish.spec.get("nodes")))
        self._limit = time.time() + STUCK_SECONDS + wish.work_seconds

    async def _reach(self, when: str) -> None:
        """Return once the Job has come so far; EndedError when it never will."""
        wish, run = self._wish, self.run
        began = time.time()
        while True:
            await self._look()
            if run.gone_at is not None:
                if when != "gone" and wish.phase != "Succeeded":
                    run.problems.append(f"it was gone before it was {when}")
                raise EndedError
            if self._has_come(when):
                return
            if when == "gone" and self._has_failed(began):
                run.problems.append(f"it has failed: {self._conditions()}")
                raise EndedError
            if time.time() > self._limit:
                run.problems.append(f"not {when} in time: {self._conditions()}")
                raise EndedError

    async def _look(self) -> None:
        """Wait for the next look at the cluster and note what it shows of the Job."""
        await self._cluster.looked()
        found = self._cluster.jobs.get(self.run.uid)
        if found is None:
            if self._cluster.looked_at > self._answered_at:
                self.run.gone_at = self._cluster.looked_at
            return
        self._last = found
        for type_ in ("Complete", "Failed", "Suspended"):
            if self._is_true(type_):
                self._seen.setdefault(type_, self._cluster.looked_at)

    def _has_come(self, when: str) -> bool:
        if when == "created":
            return True
        if when == "started":
            nodes = self._last.get("status", {}).get("nodes") or {}
            return bool(nodes.get("active") or nodes.get("completed"))
        return self._is_true(when)

    def _has_failed(self, since: float) -> bool:
        """Return whether it has failed for a while since then, and should not have."""
        failed = self._seen.get("Failed")
        if self._wish.phase != "Succeeded" or failed is None or self.run.deleted:
            return False
        # A controller that was ended twice is away for longer: its next start waits, and then the
        # Lease has to expire. One that never comes back is found by the limit of the Job.
        annotations = self._last.get("metadata", {}).get("annotations") or {}
        observed = self._last.get("status", {}).get("observedRetry")
        if annotations.get(names.ANNOTATION_RETRY) != observed:
            return False
        return self._is_true("Failed") and time.time() > max(failed, since) + FAILED_SECONDS

    def _is_true(self, type_: str) -> bool:
        conditions = self._last.get("status", {}).get("conditions") or ()
        return any(c["type"] == type_ and c["status"] == "True" for c in conditions)

    def _conditions(self) -> str:
        status = self._last.get("status", {})
        conditions = status.get("conditions") or ()
        words = [f"{c['type']}={c['status']} {c['reason']}: {c['message']}" for c in conditions]
        return f"{status.get('phase')} {status.get('nodes')} {'; '.join(words)}"

    async def _do(self, step: Step) -> None:
        await asyncio.sleep(step.seconds)
        client, wish = self._cluster.client, self._wish
        try:
            if step.do == "fix":
                await self._cluster.fix_files(wish.file)
            elif step.do == "delete":
                self.run.deleted = True
                await patiently(lambda: client.delete(JOBS, wish.name, wish.namespace))
            elif step.do == "retry":
                annotations = {names.ANNOTATION_RETRY: str(time.time())}
                await self._patch({"metadata": {"annotations": annotations}})
                self.run.retries += 1
            else:
                await self._patch(step.patch)
        except NotFound:
            # What the rest of the system made of it is judged; a Job can end before an edit.
            return
        except CommandError as error:
            self.run.problems.append(f"the harness could not {step.do}: {error}")
            raise EndedError from error

    async def _patch(self, body: Mapping[str, Any]) -> None:
        wish, run = self._wish, self.run
        self._last = await patiently(
            lambda: self._cluster.client.merge_patch(JOBS, wish.name, body, wish.namespace)
        )
        now = time.time()
        if (body.get("spec") or {}).get("suspend") is False:
            run.resumed_at = now
        if "nodes" in (body.get("spec") or {}) and not self._is_true("Complete"):
            run.edits.append((now, body["spec"]["nodes"]))

    async def _give_up(self) -> None:
        """Delete the Job, so that the run goes on."""
        self.run.deleted = True
        try:
            await patiently(
                lambda: self._cluster.client.delete(JOBS, self._wish.name, self._wish.namespace)
            )
        except KubeError:
            return

    def _note_end(self) -> None:
        run = self.run
        run.gone_at = run.gone_at or time.time()
        run.ended_at = self._seen.get("Complete") or run.gone_at
        if run.wish.phase == "Failed":
            run.ended_at = self._seen.get("Failed") or run.ended_at
        finished = parse_time(self._last.get("status", {}).get("completionTime"))
        if finished is not None:
            run.kept_seconds = run.gone_at - finished.timestamp()

    async def _reports(self) -> Sequence[Mapping[str, Any]]:
        """Return the report of the run once it is closed, or as it is after some time."""
        deadline = time.time() + REPORT_SECONDS
        selector = f"{names.LABEL_JOB_UID}={self.run.uid}"
        while True:
            page = await patiently(
                lambda: self._cluster.client.list(
                    JOB_REPORTS, self._wish.namespace, label_selector=selector
                )
            )
            items: list[Mapping[str, Any]] = page["items"]
            phases = {(item.get("status") or {}).get("phase") for item in items} - {None}
            if (phases and phases <= _LAST) or time.time() > deadline:
                return items
            await asyncio.sleep(2)

    async def _remove_report(self, name: str) -> None:
        """Delete a report, as an administrator does who keeps them elsewhere."""
        try:
            await patiently(
                lambda: self._cluster.client.delete(JOB_REPORTS, name, self._wish.namespace)
            )
        except NotFound:
            return

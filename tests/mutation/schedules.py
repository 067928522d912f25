"""ScheduledJobs: edges of each field of a schedule, and what becomes of them.

What a Job's spec accepts, a ScheduledJob accepts too: the runner asks for that with each Job.
"""

import asyncio
import copy
from collections.abc import Iterator
from typing import Any

from daemonset_job.api import names
from daemonset_job.api.scheduled_job import SCHEDULING
from daemonset_job.kube.client.errors import KubeError
from daemonset_job.kube.client.resource import JOBS, SCHEDULED_JOBS
from tests.mutation.cases import Case
from tests.mutation.cluster import MutationCluster
from tests.mutation.oracle import condition
from tests.mutation.results import Result
from tests.mutation.runner import POLL_SECONDS, REPORT_SECONDS, refusal_problems
from tests.mutation.schema import part, walk
from tests.mutation.valid_jobs import IMAGE
from tests.mutation.values import edges, nested

Raw = dict[str, Any]
AT_ONCE = 60
# A minute until the next start, and then the time to report it.
START_SECONDS = 60.0 + REPORT_SECONDS
# The next start is later than the end of this run.
_RARELY = {"schedule": "0 0 29 2 *", "jobTemplate": {"spec": {"image": IMAGE}}}
_EACH_MINUTE = {**_RARELY, "schedule": "* * * * *"}


def schedule_cases() -> Iterator[Case]:
    """Yield a Case for each edge of each field, less those of the Job's spec within."""
    schema = copy.deepcopy(part("scheduledjobs", "spec"))
    schema["properties"]["jobTemplate"]["properties"]["spec"] = {"type": "object"}
    for each in walk(schema, "spec", lambda value: value):
        for word, value in edges(each.path, each.schema):
            found = each.spec_with(value)
            spec = {**_RARELY, **found} if isinstance(found, dict) else found
            touched = frozenset(each.path.replace("{}", "").replace("[]", "").split(".")[-2:])
            yield Case(f"schedule: {each.path} {word}", spec, touched)
    for policy in ("Allow", "Forbid", "Replace"):
        spec = {**_EACH_MINUTE, "concurrencyPolicy": policy}
        yield Case(f"schedule: each minute, {policy}", spec, frozenset())
    for spec in _odd_templates():
        yield Case("schedule: each minute, odd template", spec, frozenset({"jobTemplate"}))


def _odd_templates() -> Iterator[Raw]:
    job: Raw = {"image": IMAGE}
    for depth in (40, 60, 80, 120, 400):
        affinity = {"template": {"spec": {"affinity": nested(depth)}}}
        yield {**_EACH_MINUTE, "jobTemplate": {"spec": {**job, **affinity}}}
    for metadata in (
        {"labels": {"a": "b c"}},
        {"annotations": {"a b": "c"}},
        {"labels": {"a": "b"}, "annotations": {"a": "b"}},
        {"annotations": {"a": "x" * 262_144}},
    ):
        yield {**_EACH_MINUTE, "jobTemplate": {"metadata": metadata, "spec": job}}
    yield {**_EACH_MINUTE, "jobTemplate": {"spec": {**job, "args": ["x" * 1000] * 900}}}
    yield {**_EACH_MINUTE, "jobTemplate": {"spec": {**job, "template": {"spec": {"os": 7}}}}}


async def run_schedules(cluster: MutationCluster, cases: list[Case]) -> list[Result]:
    """Return what became of each ScheduledJob."""
    room = asyncio.Semaphore(AT_ONCE)

    async def one(index: int, case: Case) -> Result:
        async with room:
            result = Result(case, f"s{index:05}")
            await _live(cluster, result)
            defects = cluster.complaints.defects
            for key in [key for key in defects if key.startswith(result.name)]:
                result.violations += defects.pop(key)
            return result

    return await asyncio.gather(*(one(index, case) for index, case in enumerate(cases)))


async def _live(cluster: MutationCluster, result: Result) -> None:
    admin, namespace, loop = cluster.admin, cluster.mutants, asyncio.get_running_loop()
    manifest = {
        "apiVersion": names.API_VERSION,
        "kind": names.SCHEDULED_KIND,
        "metadata": {"name": result.name, **result.case.metadata},
        "spec": result.case.spec,
    }
    began = loop.time()
    try:
        await admin.create_any(SCHEDULED_JOBS, namespace, manifest)
    except KubeError as error:
        result.outcome, result.state = "schedule refused", str(error)
        result.violations += refusal_problems(error, result.case.touched)
        return
    starts = result.case.spec["schedule"] == _EACH_MINUTE["schedule"]
    wait = START_SECONDS if starts else REPORT_SECONDS
    problem = "not read"
    while problem and loop.time() < began + wait:
        await asyncio.sleep(POLL_SECONDS)
        found = await admin.get(SCHEDULED_JOBS, result.name, namespace)
        reports = cluster.complaints.warnings
        result.state = str(found.get("status"))[:1000]
        problem = _problem(found, starts=starts)
        if problem:
            problem += f"\nwarned: {reports.get(result.name)}"
    result.seconds = loop.time() - began
    if problem:
        result.violations.append(problem)
    else:
        result.outcome = f"schedule {condition(found, SCHEDULING)['reason']}"
    await admin.delete(SCHEDULED_JOBS, result.name, namespace)
    runs = await admin.list(
        JOBS, namespace, label_selector=f"{names.LABEL_SCHEDULED_JOB}={result.name}"
    )
    for run in runs.get("items") or ():
        await admin.delete(JOBS, run["metadata"]["name"], namespace)


def _problem(found: Any, *, starts: bool) -> str:
    """Return what the status of a ScheduledJob does not say, "" for nothing."""
    status, said = found.get("status") or {}, condition(found, SCHEDULING)
    if status.get("observedGeneration") != found["metadata"]["generation"] or not said:
        return "no condition says whether runs start"
    if said["status"] == "False":
        return "" if said["message"] else "runs do not start, and there is no message"
    if starts and not status.get("lastScheduleTime"):
        return "it should have started a run, and there is no word of it"
    return "" if status.get("nextScheduleTime") else "it says that runs start, and not when"

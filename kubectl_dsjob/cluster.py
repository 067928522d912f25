"""Reads Jobs and reports from the API server, as parsed objects."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from daemonset_job.api import names
from daemonset_job.api.job import Job, parse_job
from daemonset_job.api.report import JobReport, parse_report
from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.errors import KubeError, NotFound
from daemonset_job.kube.client.resource import JOB_REPORTS, JOBS, SCHEDULED_JOBS
from daemonset_job.kube.client.selection import Selection
from kubectl_dsjob.errors import CliError
from kubectl_dsjob.paging import list_objects
from kubectl_dsjob.proposals import CLUSTER, at_job
from kubectl_dsjob.run_view import RunView, group_runs, view_run

# Reports have up to 1.5 MiB each.
_REPORTS_PER_PAGE = 20


async def list_jobs(client: KubeClient, namespace: str | None, selector: str | None) -> list[Job]:
    """Return the Jobs that have these labels; those that cannot be parsed are left out."""
    page = await client.list(JOBS, namespace, label_selector=selector)
    return [job for raw in page.get("items") or () if (job := _try_job(raw)) is not None]


async def find_job(client: KubeClient, namespace: str, name: str) -> Job | None:
    """Return the Job of that name, None if there is none."""
    try:
        return parse_job(await client.get(JOBS, name, namespace))
    except NotFound as error:
        if error.details.get("name"):
            return None
        raise


async def read_reports(client: KubeClient, namespace: str, selector: str) -> list[JobReport]:
    """Return the reports with these labels, all shards."""
    what = Selection(JOB_REPORTS, namespace, selector)
    raws = list_objects(client, what, page_size=_REPORTS_PER_PAGE)
    return [_need_parsed(raw) async for raw in raws]


async def read_run(client: KubeClient, namespace: str, name: str, uid: str = "") -> RunView | None:
    """Return the run of the Job of that name, else the newest one that a report has.

    With `uid` it is the run of that Job alone, whatever has the name now. None without either.
    """
    job = await find_job(client, namespace, name)
    if job is not None and uid and job.uid != uid:
        job = None
    wanted = job.uid if job is not None else uid
    by_uid = f"{names.LABEL_JOB_UID}={wanted}"
    selector = by_uid if wanted else f"{names.LABEL_JOB}={names.job_label(name)}"
    runs = group_runs(
        [each for each in await read_reports(client, namespace, selector) if each.job_name == name]
    )
    if job is None and not runs:
        return None
    return view_run(job, runs[-1] if runs else ())


async def need_run(client: KubeClient, namespace: str, name: str) -> RunView:
    """Return the run as `read_run` does; CliError if there is neither a Job nor a report."""
    view = await read_run(client, namespace, name)
    if view is None:
        way = await find_near(client, namespace, name)
        raise CliError(f"there is no Job and no report of {name!r} in {namespace!r}", way)
    return view


async def find_near(client: KubeClient, namespace: str, name: str) -> str:
    """Return what the user may have meant: a run of a ScheduledJob, or a near name.

    Or the name in another namespace.
    """
    with suppress(KubeError):
        await client.get(SCHEDULED_JOBS, name, namespace)
        runs = f"kubectl get dsjr -n {namespace} -l {names.LABEL_SCHEDULED_JOB}={name}"
        return f"{name} is a ScheduledJob. Name one of its runs: {runs}"
    known: set[str] = set()
    for resource in (JOBS, JOB_REPORTS):
        with suppress(KubeError):
            page = await client.list(resource, namespace, metadata_only=True)
            found = [raw.get("metadata") or {} for raw in page.get("items") or ()]
            labels = [(meta.get("labels") or {}).get(names.LABEL_JOB) for meta in found]
            known |= {str(meta.get("name")) for meta in found if resource == JOBS}
            # The label of a longer name has its beginning and a hash: no Job has that name.
            whole = (str(label) for label in labels if label)
            known |= {label for label in whole if len(label) < names.LABEL_VALUE_LIMIT}
    if name in known:
        see = f"kubectl dsjob status {at_job(name, namespace)}"
        return f"Its run has no report yet. See how it is: {see}"
    near = get_close_matches(name, sorted(known), n=3)
    if near:
        return f"Did you mean {' or '.join(near)}?"
    # Most users may not list all namespaces; then there is only less to say.
    with suppress(KubeError):
        what = f"metadata.name={name}"
        page = await client.list(JOBS, field_selector=what, metadata_only=True)
        # An empty list of metadata only is null.
        found = [raw.get("metadata") or {} for raw in page.get("items") or ()]
        others = [str(meta.get("namespace")) for meta in found[:3]]
        if others:
            return f"There is one in namespace {' and in '.join(others)}: add -n {others[0]}"
    return f"List those that exist: kubectl dsjob list -n {namespace}{CLUSTER}"


async def read_history(client: KubeClient, namespace: str, name: str) -> Sequence[RunView]:
    """Return the runs of a name that have a report, the oldest first."""
    selector = f"{names.LABEL_JOB}={names.job_label(name)}"
    found = await read_reports(client, namespace, selector)
    return [view_run(None, run) for run in group_runs([r for r in found if r.job_name == name])]


async def need_report(client: KubeClient, namespace: str, report: str) -> RunView:
    """Return the run that a report is about, by the name of its first report."""
    try:
        first = _need_parsed(await client.get(JOB_REPORTS, report, namespace))
    except NotFound as error:
        if not error.details.get("name"):
            raise
        way = f"List the runs of a Job: kubectl dsjob history {at_job('NAME', namespace)}"
        raise CliError(f"there is no report {report!r} in {namespace!r}", way) from None
    selector = f"{names.LABEL_JOB_UID}={first.job_uid}"
    return view_run(None, await read_reports(client, namespace, selector) or [first])


async def read_rollback(client: KubeClient, view: RunView) -> RunView:
    """Return the run with the state of each node in its rollback, from the rollback's reports.

    A report that is deleted by now says nothing.
    """
    states: dict[str, str] = {}
    for report in view.rollback.reports if view.rollback else ():
        with suppress(CliError):
            undo = await need_report(client, view.namespace, report)
            states |= {node.name: str(node.state) for node in undo.nodes}
    nodes = tuple(replace(node, rollback=states.get(node.name, "")) for node in view.nodes)
    return replace(view, nodes=nodes)


def _need_parsed(raw: dict[str, Any]) -> JobReport:
    """Return the report; CliError that names it if it has a value of another type."""
    try:
        return parse_report(raw)
    except ValueError as error:
        meta = raw.get("metadata") or {}
        name, namespace = str(meta.get("name")), str(meta.get("namespace"))
        see = f"kubectl get dsjr {name} -n {namespace} -o yaml{CLUSTER}"
        way = f"Look at it, and correct or delete it: {see}"
        raise CliError(f"the report {name!r} cannot be read: {error}", way) from None


def _try_job(raw: dict[str, Any]) -> Job | None:
    try:
        return parse_job(raw)
    except ValueError:
        return None

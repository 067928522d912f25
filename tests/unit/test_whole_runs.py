"""Whose reports have to be whole before a Job is decided on: its own, its parts', its rivals'."""

import asyncio
from dataclasses import replace

import pytest

from daemonset_job.api.report import parse_report
from daemonset_job.api.report_summary import summarize
from daemonset_job.api.rollout import Rollout
from job_controller import whole_runs
from tests.unit.builders import make_job, make_pod
from tests.unit.informers.test_whole_reports import Server, raw_report
from tests.unit.test_caches import NotedCaches

OWN = make_job("sample", uid="sample-uid")


def keyed(job, key="kernel"):
    return replace(job, spec=replace(job.spec, rollout=Rollout(exclusive=key)))


def caches_of(*jobs):
    """Return caches as after a start: summaries of the reports, which the server has whole."""
    noted = NotedCaches(*jobs)
    raws = [raw_report(f"{job.name}-1234", uid=job.uid) for job in jobs]
    for raw in raws:
        noted.caches._reports.store.put(summarize(parse_report(raw)))
    noted.caches.whole_reports._client = Server(*raws)
    return noted.caches


def with_pod(caches, job):
    pod = make_pod("a", exclusive=job.spec.exclusive, job_uid=job.uid)
    caches._pods.store.put(pod)


OTHERS = {
    "shares the key": (keyed(OWN), keyed(make_job("other", uid="other-uid"))),
    "is owned": (OWN, make_job("sample-rollback", uid="other-uid", owner_uid=OWN.uid)),
}


@pytest.mark.parametrize(("job", "other"), OTHERS.values(), ids=OTHERS)
def test_what_another_job_has_on_record_is_read_before_a_decision_needs_it(job, other):
    caches = caches_of(job, other)
    with_pod(caches, other)
    asyncio.run(caches.whole_reports.read_whole(job.uid))
    assert not whole_runs.are_whole(caches, job)
    asyncio.run(whole_runs.read_whole(caches, job))
    assert whole_runs.are_whole(caches, job)
    (report,) = (each for each in caches.reports() if each.job_uid == other.uid)
    assert report.records


@pytest.mark.parametrize("key", ["kernel", "disk"])
def test_nothing_is_read_of_jobs_with_another_key_or_without_pods(key):
    job, other = keyed(OWN), keyed(make_job("other", uid="other-uid"), key)
    caches = caches_of(job, other)
    if key != "kernel":
        with_pod(caches, other)
    asyncio.run(whole_runs.read_whole(caches, job))
    assert whole_runs.are_whole(caches, job)
    assert not caches.whole_reports.are_whole(other.uid)
    assert caches.whole_reports._client.asked == 1

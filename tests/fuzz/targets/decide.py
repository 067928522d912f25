"""Any JSON value anywhere in what a decision is made from: it is made, and the CRDs take it."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from random import Random

from job_controller.core.decide import decide
from job_controller.core.owned_jobs.rollback_targets import find_not_ready
from job_controller.core.plan import RefusedWrite, WriteReportStatus, WriteStatus
from job_controller.core.state.absence import find_kept_off
from job_controller.core.state.first_seen import ObservedObjects, update_sightings
from job_controller.core.state.node_pods import current_pods
from job_controller.core.state.snapshot import Snapshot, merge_records
from tests.fuzz.both_caches import controller_caches, give
from tests.fuzz.raw_objects import DAEMON_SET, JOB, NODE, POD, REPORT, STAGES, Raw, read_stage
from tests.fuzz.source import Source
from tests.mutation.job_histories import JobHistory
from tests.mutation.schema import part, problems

_KINDS = (JOB, JOB, DAEMON_SET, POD, POD, NODE, REPORT, REPORT)
_NOW = datetime(2026, 1, 2, 3, 10, 0, tzinfo=UTC)
_SECONDS = (0, 1, 61, 301, 4000, 10**6)
_DROPPED = "it would be dropped"


def check(data: bytes) -> None:
    source = Source(data)
    objects = read_stage(source.pick(STAGES))
    now = _NOW + timedelta(seconds=source.pick(_SECONDS))
    for _ in range(1 + source.below(2)):
        kind = source.pick(_KINDS)
        if objects[kind]:
            number = source.below(len(objects[kind]))
            objects[kind][number] = _named_as(
                source.change(objects[kind][number]), objects[kind][number]
            )
    caches = controller_caches()
    give(caches, objects)
    for key in [(job.namespace, job.name) for job in caches.jobs()]:
        job = caches.job(key)
        assert job is not None
        found = caches.daemon_set(job.namespace, job.daemon_set_name)
        is_ours = found is not None and found.owner_uid == job.uid
        snapshot = Snapshot(
            job=job,
            daemon_set=found,
            pods=caches.pods_of(found) if found is not None and is_ours else (),
            nodes=caches.nodes(),
            reports=tuple(r for r in caches.reports_of(key) if r.job_uid == job.uid),
            failed_create_message=source.pick((None, "", "no")),
            refusals=source.pick(({}, {}, {RefusedWrite.DAEMON_SET: "no"})),
        )
        _check_decision(
            _seen(snapshot, now - timedelta(seconds=source.pick(_SECONDS))), now, objects
        )


def _named_as(raw: Raw, before: Raw) -> Raw:
    """Return an object that is what was asked for: the API server lets no other have its name."""
    metadata = raw.get("metadata")
    if not isinstance(metadata, dict):
        return {**raw, "metadata": before["metadata"]}
    known = {
        key: before["metadata"][key]
        for key in ("name", "namespace", "uid", "resourceVersion")
        if key in before["metadata"]
    }
    return {**raw, "metadata": {**metadata, **known}}


def _seen(snapshot: Snapshot, since: datetime) -> Snapshot:
    """Return the snapshot of a controller that has seen all of it since then."""
    failed = frozenset(n for n, r in merge_records(snapshot).items() if r.state == "Failed")
    pods = current_pods(snapshot)
    scene = ObservedObjects(
        pods,
        snapshot.nodes,
        failed=failed,
        tainted=find_kept_off(snapshot, pods),
        not_ready=find_not_ready(snapshot),
        retry=snapshot.job.retry_request,
    )
    return replace(snapshot, seen=update_sightings({}, scene, since))


def _check_decision(snapshot: Snapshot, now: datetime, objects: dict[str, list[Raw]]) -> None:
    plan = decide(snapshot, now)
    assert decide(snapshot, now) == plan
    life = _judge()
    life.job = objects[JOB][0]
    life.reports = objects[REPORT]
    found = [words for words in life.check(plan) if not words.endswith(_DROPPED)]
    if _is_accepted(objects):
        assert found == []
    assert all(len(event.message) <= 1024 for event in plan.events)
    for action in plan.actions:
        if isinstance(action, WriteStatus | WriteReportStatus):
            json.dumps(action.status.to_raw()).encode()


@cache
def _judge() -> JobHistory:
    return JobHistory(Random(0), {}, nodes=0)


def _is_accepted(objects: dict[str, list[Raw]]) -> bool:
    """Return whether the API server would have taken the Job and its reports."""
    checked: list[tuple[str, tuple[str, ...], list[Raw]]]
    checked = [("jobs", ("spec", "status"), objects[JOB])]
    checked += [("jobreports", ("spec", "status", "evidence"), objects[REPORT])]
    return not any(
        words
        for plural, parts, raws in checked
        for raw in raws
        for name in parts
        if name in raw
        for words in problems(part(plural, name), raw[name], name)
    )

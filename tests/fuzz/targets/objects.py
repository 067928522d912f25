"""Any JSON value anywhere in an object of a watch: it is read or it is not, and nothing ends."""

from job_controller.caches import Caches as ControllerCaches
from terminator.caches import Caches as TerminatorCaches
from tests.fuzz.both_caches import Caches, controller_caches, give, reflector, terminator_caches
from tests.fuzz.raw_objects import DAEMON_SET, JOB, NODE, POD, REPORT, STAGES, Raw, read_stage
from tests.fuzz.source import Source

_KINDS = (JOB, DAEMON_SET, POD, NODE, REPORT)


def check(data: bytes) -> None:
    source = Source(data)
    stage = read_stage(source.pick(STAGES[1:]))
    kind = source.pick(_KINDS)
    odd = source.change(stage[kind][0])
    if not isinstance(odd.get("metadata"), dict):
        odd = _versioned(odd, None)
    for make in (controller_caches, terminator_caches):
        caches = make()
        give(caches, stage)
        _check_watch(caches, kind, stage[kind][0], odd)
        _check_list(make(), kind, stage, odd)


def _versioned(raw: Raw, version: str | None) -> Raw:
    """Return the object as the version that it would be given; without one it is as it is."""
    metadata = raw.get("metadata")
    if version is None or not isinstance(metadata, dict):
        return raw
    return {**raw, "metadata": {**metadata, "resourceVersion": version}}


def _check_watch(caches: Caches, kind: str, good: Raw, odd: Raw) -> None:
    follower = reflector(caches, kind)
    others = len(follower.store) - 1
    key = (good["metadata"].get("namespace", ""), good["metadata"]["name"])
    follower.writer.apply_event({"type": "MODIFIED", "object": _versioned(odd, "6")})
    _read_all(caches)
    # Unreadable is not deleted, and what can be read again is.
    follower.writer.apply_event({"type": "MODIFIED", "object": _versioned(good, "7")})
    assert follower.store.get(key) is not None
    assert key not in follower.store.unreadable
    assert len(follower.store) >= others + 1
    _read_all(caches)
    follower.writer.apply_event({"type": "MODIFIED", "object": _versioned(odd, "8")})
    follower.writer.apply_event({"type": "DELETED", "object": _versioned(odd, "9")})
    follower.writer.apply_event({"type": "DELETED", "object": _versioned(good, "10")})
    assert key not in follower.store
    assert len(follower.store) >= others
    _read_all(caches)


def _check_list(caches: Caches, kind: str, stage: dict[str, list[Raw]], odd: Raw) -> None:
    """Its neighbours in a list are read."""
    follower = reflector(caches, kind)
    raws = {number: follower.writer.read(raw) for number, raw in enumerate([odd, *stage[kind]])}
    good = [raws[number] for number in raws if number]
    assert [item.name for item in good] == [raw["metadata"]["name"] for raw in stage[kind]]
    give(caches, stage)
    _read_all(caches)


def _read_all(caches: Caches) -> None:
    """Ask for all that the programs ask their caches for."""
    caches.nodes()
    for job in caches.jobs():
        whole = caches.job((job.namespace, job.name))
        assert whole is not None
        if isinstance(caches, TerminatorCaches):
            found = caches.daemon_set_of(whole)
            caches.reports_of(whole)
            caches.nodes_of(caches.pods_of(found) if found is not None else [])
            continue
        found = caches.daemon_set(whole.namespace, whole.daemon_set_name)
        if found is not None:
            caches.pods_of(found)
        caches.reports_of((job.namespace, job.name))
        caches.past_reports(job.namespace)
    if isinstance(caches, ControllerCaches):
        caches.reported_keys()
        caches.unreadable_keys()

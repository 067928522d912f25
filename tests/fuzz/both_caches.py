"""The caches of both programs, without an API server: objects are given to their reflectors."""

from typing import Any

from daemonset_job.kube.cache.reflector import Reflector
from daemonset_job.runtime.clock import SystemClock
from job_controller.caches import Caches as ControllerCaches
from terminator.caches import Caches as TerminatorCaches
from tests.fuzz.raw_objects import Raw

Caches = ControllerCaches | TerminatorCaches


class _Listener:
    """The terminator, as far as its caches know it."""

    def job_affected(self, key: Any, *, debounced: bool) -> None:
        assert all(isinstance(part, str) for part in key)

    def report_changed(self, report: Any) -> None:
        hash((report.namespace, report.name, report.job_uid))

    def job_deleted(self, job: Any) -> None:
        hash(job.uid)

    def needs_whole_reports(self, job_uid: str) -> bool:
        return False


def controller_caches() -> ControllerCaches:
    return ControllerCaches(
        None,  # type: ignore[arg-type]
        (),
        SystemClock(),
        wake=lambda key, seconds: None,
        progress=lambda *_: None,
    )


def terminator_caches() -> TerminatorCaches:
    return TerminatorCaches(
        None,  # type: ignore[arg-type]
        SystemClock(),
        _Listener(),
        namespaces=(),
        pod_label_selector="",
    )


def reflector(caches: Caches, plural: str) -> Reflector[Any]:
    (found,) = caches.reflectors()[plural]
    return found


def give(caches: Caches, objects: dict[str, list[Raw]]) -> None:
    """Give the caches all these objects, in the order in which they are listed."""
    for plural, raws in objects.items():
        follower = reflector(caches, plural)
        found = {}
        for raw in raws:
            metadata = raw["metadata"]
            found[metadata.get("namespace", ""), metadata["name"]] = follower.writer.read(raw)
        follower.replace(found, "5")

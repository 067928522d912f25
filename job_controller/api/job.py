"""A Job as this project sees it: frozen, parsed once from the raw object."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from job_controller.api import names
from job_controller.api.times import parse_time


@dataclass(frozen=True, slots=True)
class NodeSelection:
    """Which nodes: all that match `selector` (a raw LabelSelector), minus and plus names.

    `include` narrows to the nodes named (empty: no narrowing), `exclude` takes nodes out.
    """

    selector: Mapping[str, Any] | None = None
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Completion:
    """When a node counts as completed.

    `token` None means: the word the terminator is configured with (`TERMINATION_WORD`).
    `match` is `Line`, `Contains` or `Regex`.
    """

    token: str | None = None
    match: str = "Line"


@dataclass(frozen=True, slots=True)
class JobSpec:
    """What runs, where, and when a node is done. Defaults are those of the CRD."""

    image: str
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    mount_path: str | None = None
    template: Mapping[str, Any] = field(default_factory=dict)
    nodes: NodeSelection = NodeSelection()
    completion: Completion = Completion()


@dataclass(frozen=True, slots=True)
class Condition:
    """One metav1.Condition of a Job."""

    type: str
    status: bool
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Job:
    """A Job: identity, spec and the raw status (what was last written, compared before a write)."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    generation: int
    spec: JobSpec
    created_at: datetime | None = None
    deleting: bool = False
    annotations: Mapping[str, str] = field(default_factory=dict)
    status: Mapping[str, Any] = field(default_factory=dict)

    @property
    def daemon_set_name(self) -> str:
        """The name of this Job's DaemonSet."""
        return names.daemon_set_name(self.name)

    def condition(self, type_: str) -> Condition | None:
        """Return the condition of that type, None when it was never written."""
        for raw in self.status.get("conditions") or ():
            if raw.get("type") == type_:
                return Condition(
                    type_,
                    raw.get("status") == "True",
                    raw.get("reason") or "",
                    raw.get("message") or "",
                )
        return None

    def is_true(self, type_: str) -> bool:
        """Return whether the condition of that type stands and is True."""
        found = self.condition(type_)
        return found is not None and found.status


def parse_job(raw: Mapping[str, Any]) -> Job:
    """Return the Job in a raw object. Raises ValueError when it is not one (no name, no UID)."""
    meta = raw.get("metadata") or {}
    if not meta.get("name") or not meta.get("uid"):
        raise ValueError("a Job without metadata.name or metadata.uid")
    return Job(
        namespace=meta.get("namespace") or "",
        name=meta["name"],
        uid=meta["uid"],
        resource_version=meta.get("resourceVersion") or "",
        generation=int(meta.get("generation") or 0),
        spec=parse_spec(raw.get("spec") or {}),
        created_at=parse_time(meta.get("creationTimestamp")),
        deleting=bool(meta.get("deletionTimestamp")),
        annotations=meta.get("annotations") or {},
        status=raw.get("status") or {},
    )


def parse_spec(raw: Mapping[str, Any]) -> JobSpec:
    """Return the spec in its raw form, defaults filled in. Never raises: the CRD has checked it.

    An object stored before the CRD's rules can lack what they ask for; `core.validate` says so.
    """
    nodes = raw.get("nodes") or {}
    completion = raw.get("completion") or {}
    return JobSpec(
        image=raw.get("image") or "",
        command=tuple(raw.get("command") or ()),
        args=tuple(raw.get("args") or ()),
        mount_path=raw.get("mountPath") or None,
        template=raw.get("template") or {},
        nodes=NodeSelection(
            selector=nodes.get("selector"),
            include=tuple(nodes.get("include") or ()),
            exclude=tuple(nodes.get("exclude") or ()),
        ),
        completion=Completion(
            token=completion.get("token") or None,
            match=completion.get("match") or "Line",
        ),
    )

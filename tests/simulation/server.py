"""The model of the API server: its objects, and the effect of every write.

Modelled: UIDs, resourceVersions (one counter for everything, as in etcd), generations, the status
subresource, merge patches, preconditions, and graceful deletion of pods that have a node. Also
server-side apply (our manager owns labels, owners and the whole spec), writes without a change (not
stored, no event), and an immutable selector. Not modelled: admission and CEL rules, field managers,
foreground deletion, finalizers, pages of lists.

A stored object never changes: a write makes a new dict that shares the unchanged parts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from zlib import crc32

from daemonset_job.kube.client.errors import AlreadyExists, Conflict, Invalid, NotFound

if TYPE_CHECKING:
    from tests.simulation.loop import SimClock
    from tests.simulation.watch import Watch

# An object of the API as JSON, or a part of one. One that is stored is never changed.
Raw = Mapping[str, Any]

PODS, NODES, EVENTS = "pods", "nodes", "events"
JOBS, REPORTS, DAEMON_SETS = "jobs", "jobreports", "daemonsets"
# What Kubernetes gives a pod that names none.
GRACE_SECONDS = 30
_GENERATED = {JOBS: ("spec",), DAEMON_SETS: ("spec",), REPORTS: ("spec", "evidence")}


@dataclass(frozen=True, slots=True)
class Write:
    """One change of an object: the actor, the resource, and the object before and after it.

    A created object has no `old`, a removed one no `new`.
    """

    actor: str
    plural: str
    old: Raw | None
    new: Raw | None

    @property
    def raw(self) -> Raw:
        """The object after the write, or as it was when it was removed."""
        found = self.old if self.new is None else self.new
        assert found is not None
        return found


class Server:
    """Objects by resource and (namespace, name). `on_write` receives every write.

    `watches` by resource get every event, in order; who lags behind sees to that himself.
    """

    def __init__(
        self,
        clock: SimClock,
        on_write: Callable[[Write], None],
        skews: tuple[float, float] = (0.0, 0.0),
    ) -> None:
        self._clock = clock
        self._skews = skews
        self._on_write = on_write
        self.version = 100
        self._uids = 0
        plurals = (PODS, NODES, EVENTS, JOBS, REPORTS, DAEMON_SETS)
        self.objects: dict[str, dict[tuple[str, str], Raw]] = {plural: {} for plural in plurals}
        self.watches: dict[str, list[Watch]] = {plural: [] for plural in plurals}

    # --- reading -------------------------------------------------------------------------

    def get(self, plural: str, name: str, namespace: str) -> Raw | None:
        """Return the object or None; nodes are in the namespace ""."""
        return self.objects[plural].get((namespace, name))

    def now(self, plural: str, raw: Raw) -> Raw | None:
        """Return an object as it is now, None if it is gone or another one of its name is."""
        meta = raw["metadata"]
        found = self.objects[plural].get((meta["namespace"], meta["name"]))
        return found if found is not None and found["metadata"]["uid"] == meta["uid"] else None

    def find(self, plural: str, name: str, namespace: str) -> Raw:
        """Return the object; NotFound when there is none, as a GET answers."""
        return self._existing(plural, name, namespace)

    def all(self, plural: str) -> list[Raw]:
        return list(self.objects[plural].values())

    def select(
        self,
        plural: str,
        labels: Mapping[str, str] | None = None,
        namespace: str | None = None,
        name: str | None = None,
    ) -> list[Raw]:
        """Return the objects that carry all `labels` (a dict), and have that namespace and name."""
        found = self.all(plural)
        if labels:
            wanted = labels.items()
            found = [raw for raw in found if wanted <= raw["metadata"].get("labels", {}).items()]
        return [
            raw
            for raw in found
            if namespace in {None, raw["metadata"]["namespace"]}
            and name in {None, raw["metadata"]["name"]}
        ]

    # --- writing -------------------------------------------------------------------------

    def create(self, actor: str, plural: str, body: Raw, namespace: str) -> Raw:
        """Store a new object and return it; AlreadyExists."""
        meta = body["metadata"]
        key = (namespace, meta["name"])
        if key in self.objects[plural]:
            raise AlreadyExists(f"{plural} {meta['name']} exists")
        self._uids += 1
        full = {
            **meta,
            "namespace": namespace,
            "uid": f"{self._uids:08x}-{plural}",
            "creationTimestamp": self._clock.stamp(self.skew(actor)),
            "generation": 1,
        }
        return self._store(actor, plural, key, None, {**body, "metadata": full})

    def patch(
        self, actor: str, plural: str, name: str, body: Raw, *, namespace: str, status: bool = False
    ) -> tuple[Raw, bool]:
        """Apply a merge patch to the object or to its status; returns (object, changed)."""
        old = self._existing(plural, name, namespace)
        meta = body.get("metadata") or {}
        self._check(old, meta.get("uid"), meta.get("resourceVersion"))
        taken = {"status"} if status else set(body) - {"status", "metadata"}
        new = merge(old, {field: body[field] for field in taken if field in body})
        extra = {k: v for k, v in meta.items() if k in {"labels", "annotations"}}
        if extra and not status:
            new["metadata"] = merge(old["metadata"], extra)
        return self._changed(actor, plural, (namespace, name), old, new)

    def check_apply(self, name: str, body: Raw, namespace: str) -> None:
        """Raise what `apply` would raise."""
        old = self.get(DAEMON_SETS, name, namespace)
        if old is not None and old["spec"]["selector"] != body["spec"]["selector"]:
            raise Invalid("spec.selector: field is immutable")

    def apply(self, actor: str, name: str, body: Raw, namespace: str) -> tuple[Raw, bool]:
        """Server-side apply of a DaemonSet; returns (object, changed)."""
        wanted, old = body["metadata"], self.get(DAEMON_SETS, name, namespace)
        spec = {"revisionHistoryLimit": 10, **body["spec"]}
        meta = {key: wanted[key] for key in ("labels", "annotations", "ownerReferences")}
        if old is None:
            if wanted.get("uid"):
                raise Conflict("uid mismatch: no existing object was found")
            return self.create(
                actor, DAEMON_SETS, {"metadata": {"name": name, **meta}, "spec": spec}, namespace
            ), True
        self._check(old, wanted.get("uid"), None)
        if old["spec"]["selector"] != spec["selector"]:
            raise Invalid("spec.selector: field is immutable")
        new = {**old, "spec": spec, "metadata": {**old["metadata"], **meta}}
        return self._changed(actor, DAEMON_SETS, (namespace, name), old, new)

    def check(
        self,
        plural: str,
        name: str,
        *,
        namespace: str,
        uid: str | None = None,
        version: str | None = None,
    ) -> None:
        """Check the preconditions of a write; NotFound, Conflict."""
        self._check(self._existing(plural, name, namespace), uid, version)

    def delete(self, actor: str, plural: str, name: str, *, namespace: str) -> None:
        """Delete the object; a pod with a node lives on until its kubelet has ended it."""
        old = self._existing(plural, name, namespace)
        if plural == PODS and old["spec"].get("nodeName"):
            phase = old.get("status", {}).get("phase")
            if phase not in {"Failed", "Succeeded"}:
                if "deletionTimestamp" not in old["metadata"]:
                    grace = old["spec"].get("terminationGracePeriodSeconds", GRACE_SECONDS)
                    meta = {
                        **old["metadata"],
                        "deletionTimestamp": self._clock.stamp(self.skew(actor) + grace),
                        "deletionGracePeriodSeconds": grace,
                    }
                    self._store(actor, plural, (namespace, name), old, {**old, "metadata": meta})
                return
        self.remove(actor, plural, name, namespace)

    def remove(self, actor: str, plural: str, name: str, namespace: str) -> None:
        """Take the object away at once."""
        key = (namespace, name)
        old = self.objects[plural].pop(key)
        self.version += 1
        meta = {**old["metadata"], "resourceVersion": str(self.version)}
        self._on_write(Write(actor, plural, old, None))
        self._tell(plural, "DELETED", {**old, "metadata": meta})

    def set_status(self, actor: str, plural: str, raw: Raw, status: Raw) -> None:
        """Replace the status of the object as it is now, if it still exists (UID)."""
        old = self.now(plural, raw)
        if old is not None:
            key = (old["metadata"]["namespace"], old["metadata"]["name"])
            self._changed(actor, plural, key, old, {**old, "status": status})

    def set_spec(self, actor: str, plural: str, raw: Raw, spec: Raw) -> None:
        """Replace the spec of the object as it is now, if it still exists (UID)."""
        old = self.now(plural, raw)
        if old is not None:
            key = (old["metadata"]["namespace"], old["metadata"]["name"])
            self._changed(actor, plural, key, old, {**old, "spec": spec})

    def drop(self, actor: str, plural: str, raw: Raw) -> None:
        """Delete the object as a user or a controller does, if it still exists."""
        if self.now(plural, raw) is not None:
            meta = raw["metadata"]
            self.delete(actor, plural, meta["name"], namespace=meta["namespace"])

    def skew(self, actor: str) -> float:
        """Return by how much the clock of the API server that an actor talks to is ahead."""
        return self._skews[crc32(actor.encode()) % 2]

    # --- shared --------------------------------------------------------------------------

    def _existing(self, plural: str, name: str, namespace: str) -> Raw:
        old = self.objects[plural].get((namespace, name))
        if old is None:
            raise NotFound(f"{plural} {name} not found")
        return old

    def _check(self, old: Raw, uid: str | None, version: str | None) -> None:
        meta = old["metadata"]
        if uid and uid != meta["uid"]:
            raise Conflict(f"the UID in the precondition ({uid}) does not match ({meta['uid']})")
        if version and version != meta["resourceVersion"]:
            raise Conflict("the object has been modified")

    def _changed(
        self, actor: str, plural: str, key: tuple[str, str], old: Raw, new: Raw
    ) -> tuple[Raw, bool]:
        if new == old:
            return old, False
        return self._store(actor, plural, key, old, new), True

    def _store(
        self, actor: str, plural: str, key: tuple[str, str], old: Raw | None, new: Raw
    ) -> Raw:
        self.version += 1
        meta = {**new["metadata"], "resourceVersion": str(self.version)}
        if old is not None and any(
            new.get(part) != old.get(part) for part in _GENERATED.get(plural, ())
        ):
            meta["generation"] = old["metadata"]["generation"] + 1
        stored = {**new, "metadata": meta}
        self.objects[plural][key] = stored
        self._on_write(Write(actor, plural, old, stored))
        self._tell(plural, "ADDED" if old is None else "MODIFIED", stored)
        return stored

    def _tell(self, plural: str, kind: str, raw: Raw) -> None:
        for watch in list(self.watches[plural]):
            watch.push(kind, raw)


def merge(old: Raw, patch: Raw) -> dict[str, Any]:
    """Return `old` with an RFC 7386 merge patch applied; neither is changed."""
    new = dict(old)
    for key, value in patch.items():
        if value is None:
            new.pop(key, None)
        elif isinstance(value, dict):
            before = new.get(key)
            new[key] = merge(before if isinstance(before, dict) else {}, value)
        else:
            new[key] = value
    return new


def controller_of(raw: Mapping[str, Any]) -> str:
    """Return the UID of the controlling owner, "" for none."""
    for owner in raw["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            return str(owner["uid"])
    return ""


def node_of(pod: Mapping[str, Any]) -> str:
    """Return the node that a pod is on or meant for."""
    return str(pod["spec"].get("nodeName") or pod["spec"]["meant_for"])

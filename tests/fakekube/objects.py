"""What the API server makes of an object that a client creates or changes.

The rules are those of Kubernetes 1.34: k8s.io/apiserver pkg/registry/rest/{create,update}.go and
pkg/registry/generic/registry/store.go. The store gives new objects a UID and a time, and every
version a resourceVersion.

Not modelled: schemas, defaults and admission, `metadata.managedFields` (`apply.py` has the owners
of fields, the objects do not), and a PUT that creates.
"""

from collections.abc import Mapping
from typing import Any

from tests.fakekube.kinds import STATUS, Kind
from tests.fakekube.refusals import Refused, bad_request, conflict, invalid

Raw = Mapping[str, Any]

# What the server alone writes, in the metadata of an object.
_OF_THE_SERVER = (
    *("name", "namespace", "uid", "creationTimestamp", "generation", "resourceVersion"),
    *("deletionTimestamp", "deletionGracePeriodSeconds"),
)
_NOT_GENERATED = frozenset({"metadata", "status"})


def created(kind: Kind, body: Raw, *, namespace: str, uid: str, stamp: str) -> dict[str, Any]:
    """Return the object that a create makes of its body; `stamp` is the time as text.

    `namespace` is that of the URL, "" for kinds that have none. A `generateName` is completed by
    the first five digits of the UID. Refused: a body with a resourceVersion, without a name, or of
    another namespace.
    """
    given = body.get("metadata") or {}
    name = given.get("name") or (given.get("generateName") and given["generateName"] + uid[:5])
    if given.get("resourceVersion"):
        message = "resourceVersion should not be set on objects to be created"
        raise Refused(500, "InternalError", message)
    if not name:
        raise invalid("metadata.name", "Required value: name or generateName is required")
    meta = {key: value for key, value in given.items() if key not in _OF_THE_SERVER}
    meta["name"] = name
    if namespace:
        if given.get("namespace") not in (None, "", namespace):
            raise bad_request("the namespace of the provided object is not that of the request")
        meta["namespace"] = namespace
    if _is_reset(meta):
        del meta["managedFields"]
    meta["uid"] = uid
    meta["creationTimestamp"] = stamp
    if kind.has_generation:
        meta["generation"] = 1
    new = {**body, "metadata": meta}
    if kind.has_status and not kind.keeps_new_status:
        new.pop("status", None)
        if kind.new_status is not None:
            new["status"] = kind.new_status
    return new


def replaced(kind: Kind, old: Raw, body: Raw, subresource: str = "") -> Raw:
    """Return the object after a PUT, `old` itself for no change.

    A UID or a resourceVersion in the body is a precondition.
    """
    meta = body.get("metadata") or {}
    check_names(old, meta)
    if not meta.get("resourceVersion") and kind.needs_version:
        raise invalid("metadata.resourceVersion", "Invalid value: 0: must be specified")
    check_preconditions(old, meta.get("uid"), meta.get("resourceVersion"))
    return updated(kind, old, body, subresource)


def patched(kind: Kind, old: Raw, new: Raw, subresource: str = "") -> Raw:
    """Return the object after a PATCH of which the outcome is `new`; `old` itself for no change.

    A resourceVersion in the patch is a precondition. Another UID is a change of an immutable field,
    but for the status of a custom resource, where the server ignores it.
    """
    meta = new["metadata"]
    if meta is not old["metadata"]:
        check_names(old, meta)
        if not meta.get("resourceVersion") and kind.needs_version:
            raise invalid("metadata.resourceVersion", "Invalid value: 0: must be specified")
        check_preconditions(old, None, meta.get("resourceVersion"))
        if not (kind.is_custom and subresource == STATUS):
            check_same(old, meta)
    return updated(kind, old, new, subresource)


def updated(kind: Kind, old: Raw, requested: Raw, subresource: str = "") -> Raw:
    """Return the object that is stored when a client wants it to be so, without preconditions.

    The main resource writes all but the status. The subresource writes the status, and the metadata
    of built-in kinds. The result is `old` itself if nothing changes.
    """
    if not subresource:
        new = {**{key: old[key] for key in ("apiVersion", "kind") if key in old}, **requested}
        if kind.has_status:
            _take_over(new, old, "status")
        new["metadata"] = _metadata(old["metadata"], requested.get("metadata") or {})
    elif subresource == STATUS and kind.has_status:
        new = dict(old)
        _take_over(new, requested, "status")
        if not kind.is_custom:
            new["metadata"] = _metadata(old["metadata"], requested.get("metadata") or {})
    else:
        raise Refused(404, "NotFound", "the server could not find the requested resource")
    if new == old:
        return old
    if not subresource:
        _check_immutable(kind, old, new)
        if kind.has_generation and _is_generated(kind, old, new):
            meta = new["metadata"]
            new["metadata"] = {**meta, "generation": meta["generation"] + 1}
    return new


def check_names(old: Raw, meta: Raw) -> None:
    """Refuse (400) metadata with another name or namespace than the object has; none is right."""
    for key in ("name", "namespace"):
        check_name(meta, key, old["metadata"].get(key))


def check_name(meta: Raw, key: str, actual: str | None) -> None:
    """Refuse (400) metadata with another `key`, a name or a namespace, than the URL has."""
    if meta.get(key) and meta[key] != actual:
        raise bad_request(f"the {key} of the object ({meta[key]}) is not that of the URL")


def check_preconditions(old: Raw, uid: str | None, version: str | None) -> None:
    """Refuse (409) a write that is meant for another object or for another version; None: any."""
    meta = old["metadata"]
    if uid and uid != meta["uid"]:
        raise conflict(f"the UID in the precondition ({uid}) does not match ({meta['uid']})")
    if version and version != meta["resourceVersion"]:
        raise conflict("the object has been modified")


def check_same(old: Raw, meta: Raw) -> None:
    """Refuse (422) new metadata with another UID than the object has; none at all is the same."""
    uid = meta.get("uid")
    if uid and uid != old["metadata"]["uid"]:
        raise invalid("metadata.uid", f"Invalid value: {uid!r}: field is immutable")


def _check_immutable(kind: Kind, old: Raw, new: Raw) -> None:
    for field in kind.immutable:
        before, after = (raw.get("spec") or {} for raw in (old, new))
        if before.get(field) != after.get(field):
            raise invalid(f"spec.{field}", "field is immutable")


def _metadata(old: Raw, requested: Raw) -> Raw:
    """Return new metadata: the server's own part stays as it is."""
    if requested is old:
        return old
    stamp = requested.get("deletionTimestamp")
    if stamp and "deletionTimestamp" not in old:
        raise invalid("metadata.deletionTimestamp", f"Invalid value: {stamp!r}: field is immutable")
    new = dict(requested)
    for key in _OF_THE_SERVER:
        _take_over(new, old, key)
    if _is_reset(new):
        del new["managedFields"]
    finalizers = set(new.get("finalizers") or ())
    if "deletionTimestamp" in old and not finalizers <= set(old.get("finalizers") or ()):
        message = "Forbidden: no new finalizers can be added if the object is being deleted"
        raise invalid("metadata.finalizers", message)
    return old if new == old else new


def _is_reset(meta: Raw) -> bool:
    """Return whether a client asks to have no managedFields kept."""
    return bool(meta.get("managedFields") == [{}])


def _take_over(new: dict[str, Any], source: Raw, key: str) -> None:
    if key in source:
        new[key] = source[key]
    else:
        new.pop(key, None)


def _is_generated(kind: Kind, old: Raw, new: Raw) -> bool:
    """Return whether a change counts: of the spec, of a custom resource of all but the status."""
    if not kind.is_custom:
        return bool(old.get("spec") != new.get("spec"))
    return any(
        old.get(part) != new.get(part) for part in (old.keys() | new.keys()) - _NOT_GENERATED
    )

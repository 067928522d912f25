"""Who owns the fields of a DaemonSet: which ones other clients set, and how we can remove them.

The API server keeps the owners of all fields in `metadata.managedFields`. Values that it defaults,
or that a mutating webhook sets, have no owner there. So a field of another owner is a change by
another client. Server-side apply removes only fields that its own manager has applied before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from daemonset_job.api import names
from daemonset_job.api.times import parse_time

# Bounds of the text about fields and clients.
_FIELDS_LIMIT: Final = 8
_TEXT_LIMIT: Final = 400
_MANAGER_LIMIT: Final = 128  # that of the API server
_SPEC: Final = "f:spec"
_RESET: Final = "metadata.managedFields"

Raw = Mapping[str, Any]


def find_alteration(meta: Raw) -> str:
    """Return which clients changed what in the spec of a DaemonSet, "" if none did.

    `meta` is its metadata: "kubectl-patch: template.spec.hostPID". An object that never had
    managedFields says nothing.
    """
    entries = meta.get("managedFields") or ()
    words = [
        f"{entry.get('manager') or 'unknown'}: {_field_list(_spec_of(entry))}"
        for entry in entries
        if _is_foreign(entry)
    ]
    if not words and entries and not any(map(_is_ours, entries)):
        words = [_RESET]
    return "; ".join(words)[:_TEXT_LIMIT]


def find_spec_manager(meta: Raw) -> str:
    """Return which client last wrote fields of an object's spec, "" if none is known."""
    return _last_manager(meta, lambda entry: bool(_spec_of(entry)))


def find_spec_time(meta: Raw) -> datetime | None:
    """Return when a client last wrote fields of an object's spec, None if it is not known.

    By the clock of the API server, in whole seconds.
    """
    entries = meta.get("managedFields") or ()
    found = [each.get("time") for each in entries if not each.get("subresource") and _spec_of(each)]
    try:
        return parse_time(max((time for time in found if isinstance(time, str)), default=""))
    except ValueError:
        return None


def find_annotation_manager(meta: Raw, annotation: str) -> str:
    """Return which client last wrote an annotation of an object, "" if none is known."""
    path = ("f:metadata", "f:annotations", f"f:{annotation}")
    return _last_manager(meta, lambda entry: _has_path(entry.get("fieldsV1"), path))


def _last_manager(meta: Raw, owns: Callable[[Raw], bool]) -> str:
    """Return the manager of the newest entry that owns a field, shortened; "" if it is not known.

    Times of entries are in UTC and in whole seconds, so their texts have the order of the times.
    Of two clients in one second, nothing shows which was the last.
    """
    found = [
        (str(entry.get("time") or ""), str(entry.get("manager") or ""))
        for entry in meta.get("managedFields") or ()
        if not entry.get("subresource") and owns(entry)
    ]
    newest = max((time for time, _ in found), default="")
    managers = {manager for time, manager in found if time == newest}
    return managers.pop()[:_MANAGER_LIMIT] if len(managers) == 1 else ""


def _has_path(fields: object, path: Sequence[str]) -> bool:
    for key in path:
        if not isinstance(fields, Mapping) or key not in fields:
            return False
        fields = fields[key]
    return True


def has_own_entry(meta: Raw) -> bool:
    """Return whether the fields that were applied are still known to be ours."""
    return any(map(_is_ours, meta.get("managedFields") or ()))


def take_ownership(entries: Sequence[Raw]) -> list[dict[str, Any]]:
    """Return managedFields in which all fields of the spec that anybody set are ours.

    What is then applied without them removes them (client-go util/csaupgrade does the same).
    """
    spec: dict[str, Any] = {}
    for entry in entries:
        if _is_ours(entry) or _is_foreign(entry):
            spec = _union(spec, _spec_of(entry))
    taken = []
    for entry in entries:
        fields = dict(entry.get("fieldsV1") or {})
        if _is_ours(entry):
            fields[_SPEC] = spec
        elif _is_foreign(entry):
            del fields[_SPEC]
        if fields:
            taken.append({**entry, "fieldsV1": fields})
    return taken


def _is_ours(entry: Raw) -> bool:
    return (entry.get("manager"), entry.get("operation"), entry.get("subresource") or "") == (
        names.FIELD_MANAGER,
        "Apply",
        "",
    )


def _is_foreign(entry: Raw) -> bool:
    return not entry.get("subresource") and not _is_ours(entry) and bool(_spec_of(entry))


def _spec_of(entry: Raw) -> Raw:
    found = (entry.get("fieldsV1") or {}).get(_SPEC)
    return found if isinstance(found, Mapping) else {}


def _union(a: Raw, b: Raw) -> dict[str, Any]:
    """Return the union of two sets of fields (FieldsV1: maps within maps)."""
    return {**a, **{key: _union(a.get(key) or {}, value) for key, value in b.items()}}


def _field_list(fields: Raw) -> str:
    found: list[str] = []
    for path in _leaves(fields, ""):
        if len(found) == _FIELDS_LIMIT:
            found.append("...")
            break
        found.append(path)
    return ", ".join(found)


def _leaves(fields: Raw, path: str) -> Iterator[str]:
    """Return the paths of the fields: `template.spec.containers[{"name":"x"}].args`.

    Each path is cut to the length that a message can show. A client that may write the object
    chooses the depth of its fields and the length of their names. Whole paths of an object of
    1.3 MB take 588 MB of memory, and a second.
    """
    for key, inner in fields.items():
        kind, _, name = key.partition(":")
        if kind == ".":
            continue
        name = name[:_TEXT_LIMIT]
        here = (f"{path}.{name}".lstrip(".") if kind == "f" else f"{path}[{name}]")[:_TEXT_LIMIT]
        if isinstance(inner, Mapping) and any(inner_key != "." for inner_key in inner):
            yield from _leaves(inner, here)
        else:
            yield here

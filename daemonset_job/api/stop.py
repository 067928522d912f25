"""The stop of all Jobs of a cluster: what the ConfigMap of that name says.

While it says "stop", no node of any Job begins its task, and no ScheduledJob starts a run. What
cannot be read counts as a stop, because a stop must not be lost by a mistake in writing it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from daemonset_job.api import names
from daemonset_job.api.shape import METADATA, STRING, fields, map_of

_STOPS: Final = frozenset({"true", "yes", "on", "1"})
_LIFTS: Final = frozenset({"", "false", "no", "off", "0"})
_REASON_LIMIT: Final = 300
_SHOWN: Final = 40
_CONFIG_MAP: Final = fields(metadata=METADATA, data=map_of(STRING))


@dataclass(frozen=True, slots=True)
class StopOrder:
    """The ConfigMap, as it is cached: whether all Jobs are stopped, and the words for it."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    is_on: bool
    reason: str = ""


def parse_stop(raw: Mapping[str, Any]) -> StopOrder:
    """Return the order in a raw ConfigMap; raises ValueError when something has another type."""
    _CONFIG_MAP(raw)
    meta = raw.get("metadata") or {}
    data = raw.get("data") or {}
    text = str(data.get("stop") or "").strip()
    is_clear = text.lower() in _STOPS | _LIFTS
    unclear = f'data.stop is "{_shown(text, _SHOWN)}": write "true" or "false"'
    return StopOrder(
        namespace=meta.get("namespace") or "",
        name=meta.get("name") or "",
        uid=meta.get("uid") or "",
        resource_version=meta.get("resourceVersion") or "",
        is_on=text.lower() not in _LIFTS,
        reason=_shown(str(data.get("reason") or ""), _REASON_LIMIT) if is_clear else unclear,
    )


def _shown(text: str, limit: int) -> str:
    """Return a text as one line without control characters, at most `limit` characters long."""
    kept = "".join(c if c.isprintable() else " " for c in text[: 4 * limit])
    line = " ".join(kept.split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def stop_message(order: StopOrder | None) -> str:
    """Return the words that a condition has about a stop, "" if there is none."""
    if order is None or not order.is_on:
        return ""
    why = f" ({order.reason})" if order.reason else ""
    return (
        f"an administrator has stopped all Jobs of this cluster{why}: no further node starts; "
        f"running tasks continue. It ends with kubectl dsjob resume-all"
    )


def unknown_stop_message(namespace: str) -> str:
    """Return the words for a controller that cannot read whether all Jobs are stopped."""
    return (
        "it is not known whether an administrator has stopped all Jobs: the controller cannot read "
        f"ConfigMap {names.STOP_CONFIG_MAP} in namespace {namespace}. No further node starts; "
        "apply deploy/ again, which has the right to read it"
    )

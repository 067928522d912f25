"""Where the script of a task is, if it is not in the Job itself: a ConfigMap or a Secret."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from daemonset_job.api.shape import STRING, fields

_KEY_REFERENCE: Final = fields(name=STRING, key=STRING)
SCRIPT_SOURCE_SHAPE: Final = fields(configMapKeyRef=_KEY_REFERENCE, secretKeyRef=_KEY_REFERENCE)


@dataclass(frozen=True, slots=True)
class ScriptSource:
    """The key of a ConfigMap, or of a Secret, in the Job's namespace that holds the script."""

    name: str
    key: str
    is_secret: bool = False


def parse_script_source(raw: Mapping[str, Any]) -> ScriptSource | None:
    """Return the source in its raw form, None without one."""
    for field_name, is_secret in (("configMapKeyRef", False), ("secretKeyRef", True)):
        if found := raw.get(field_name):
            return ScriptSource(found.get("name") or "", found.get("key") or "", is_secret)
    return None

"""Generated fields that are left out because `spec.template` contradicts them.

The rules are the API server's (kubernetes pkg/apis/core/validation): it refuses a pod whose fields
contradict each other. Only generated fields are left out. The template's own fields stay as they
are, and the API server reports contradictions among them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from job_controller.core.desired.manifest import child, children, objects

# The only generated field of a container's securityContext that a pod for Windows may have.
_ON_WINDOWS_TOO: Final = frozenset({"runAsNonRoot"})
_ROOT: Final = 0


def drop_conflicting_defaults(
    generated: Mapping[str, Any], template: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the generated pod spec without what the template's pod spec contradicts."""
    is_windows = child(template, "os").get("name") == "windows"
    spec = dict(generated)
    if is_windows:
        # Its only generated field is the seccomp profile.
        spec.pop("securityContext", None)
    if _longest_sleep(template) > spec["terminationGracePeriodSeconds"]:
        # Kubernetes' own default is the longer one.
        del spec["terminationGracePeriodSeconds"]
    for field in ("initContainers", "containers"):
        if field in spec:
            theirs = objects(template, field)
            spec[field] = [_container(ours, theirs, is_windows) for ours in spec[field]]
    return spec


def _container(
    ours: Mapping[str, Any], theirs: Sequence[Mapping[str, Any]], is_windows: bool
) -> dict[str, Any]:
    same = [each for each in theirs if each.get("name") == ours["name"]]
    container = dict(ours)
    if "env" in ours:
        written = [variable for each in same for variable in objects(each, "env")]
        container["env"] = [_variable(variable, written) for variable in ours["env"]]
    context = dict(ours["securityContext"])
    contexts = [child(each, "securityContext") for each in same]
    if any(map(_is_privileged, contexts)):
        context.pop("allowPrivilegeEscalation", None)
    if any(each.get("runAsUser") == _ROOT for each in contexts):
        context.pop("runAsNonRoot", None)
    if is_windows:
        context = {key: value for key, value in context.items() if key in _ON_WINDOWS_TOO}
    container["securityContext"] = context
    if not context:
        del container["securityContext"]
    return container


def _is_privileged(context: Mapping[str, Any]) -> bool:
    """Return whether a container gains privileges in any case.

    The API server knows the capability as CAP_SYS_ADMIN only, container runtimes by both names.
    """
    return bool(context.get("privileged")) or any(
        name in {"SYS_ADMIN", "CAP_SYS_ADMIN"} for name in children(context, "capabilities", "add")
    )


def _variable(ours: Mapping[str, Any], written: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return a generated variable, without its value if the template gives it one.

    A variable has either a value or a source. The name keeps its place in the list, because only
    later variables can refer to it.
    """
    if any(
        theirs.get("name") == ours["name"] and (theirs.get("value") or theirs.get("valueFrom"))
        for theirs in written
    ):
        return {"name": ours["name"]}
    return ours


def _longest_sleep(template: Mapping[str, Any]) -> int:
    """Return the longest sleep of a container before it is stopped, 0 when there is none."""
    sleeps = [
        child(each, "lifecycle", "preStop", "sleep").get("seconds")
        for field in ("initContainers", "containers")
        for each in objects(template, field)
    ]
    return max((seconds for seconds in sleeps if isinstance(seconds, int)), default=0)

"""The revision of a Job of policy Continuous: a hash of what it runs.

A change of what runs is a new revision, and every node has to run that. Where it runs is no part of
it: neither `spec.nodes`, nor node selector, affinity and tolerations of `spec.template`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple
from typing import Any, Final

from daemonset_job.api.daemon_set import pod_spec_of
from daemonset_job.api.job_spec import JobSpec
from daemonset_job.api.json_text import json_hash

_PLACEMENT: Final = frozenset({"nodeSelector", "affinity", "tolerations"})


def find_revision(spec: JobSpec) -> str:
    """Return a hash of what the Job runs, 16 hexadecimal digits; "" for policy Once.

    It has only what the spec says. So a version that knows more fields, or that generates other
    pods, gives the same hash.
    """
    if not spec.is_continuous:
        return ""
    completion = spec.completion
    parts = {
        "image": spec.image,
        "script": spec.script,
        "scriptFrom": astuple(spec.script_from) if spec.script_from is not None else None,
        "hostExec": spec.host_exec,
        "command": spec.command,
        "args": spec.args,
        "mountPath": spec.mount_path,
        "mounts": [astuple(mount) for mount in spec.mounts],
        "template": _template(spec.template),
        "mode": completion.mode,
        "token": completion.token,
        "match": completion.match,
        "failureToken": completion.failure_token,
    }
    return json_hash({key: value for key, value in parts.items() if value})


def _template(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return `spec.template` without where its pods run."""
    spec = pod_spec_of({"template": raw})
    return {**raw, "spec": {key: value for key, value in spec.items() if key not in _PLACEMENT}}

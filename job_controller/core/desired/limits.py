"""How large a Job may be, checked before anything is built from it.

One process builds the DaemonSets of all Jobs. The API server bounds each field of a Job, but
neither their sum nor the product of two of them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from daemonset_job.api.affinity import REQUIRED
from daemonset_job.api.job import Job
from daemonset_job.api.job_spec import NodeSelection
from job_controller.core.desired.manifest import children
from job_controller.core.desired.node_affinity import needs_linux, node_terms

# Far above the longest pod manifests. The spec is stored four times (Job, JobReport, DaemonSet,
# ControllerRevision), and cached by both programs.
SPEC_LIMIT_BYTES: Final = 64 * 1024
# A thousand names of 253 characters come to 330 KB. etcd takes objects of 1.5 MiB.
TERMS_LIMIT_BYTES: Final = 512 * 1024


def spec_bytes(job: Job) -> int:
    """Return the size as JSON of a Job's spec without `spec.nodes`, see `measure_terms`."""
    if job.excess_bytes:
        return job.excess_bytes
    return _size({key: value for key, value in job.raw_spec.items() if key != "nodes"})


def measure_terms(job: Job) -> tuple[int, int]:
    """Return how many nodeSelectorTerms the pods get, and their size as JSON.

    Each term of `spec.nodes` is combined with each one of the template's affinity. Measuring costs
    only as much as reading both.
    """
    nodes, theirs = job.spec.nodes, _required_terms(job.spec.template)
    # The labels are repeated in the term of every name.
    by_name = node_terms(replace(nodes, selector=None))
    by_label = node_terms(
        NodeSelection(selector=nodes.selector), avoids_windows=needs_linux(job.spec)
    )
    ours_count = max(len(by_name), len(by_label))
    ours_bytes = _size(by_name) + max(len(by_name), 1) * _size(by_label)
    count = max(ours_count, 1) * max(len(theirs), 1) if ours_count or theirs else 0
    return count, ours_bytes * max(len(theirs), 1) + _size(theirs) * max(ours_count, 1)


def has_too_many_terms(job: Job) -> bool:
    """Return whether the Job's node selection is too large to be built."""
    return measure_terms(job)[1] > TERMS_LIMIT_BYTES


def _required_terms(template: Mapping[str, Any]) -> list[Any]:
    """Return the terms of a template's required node affinity, none where it is no affinity."""
    return children(template, "spec", "affinity", "nodeAffinity", REQUIRED, "nodeSelectorTerms")


def _size(value: Any) -> int:
    return len(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode())

"""The message of a completed node whose report lacks results, because they are too long."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from daemonset_job.api.evidence import Evidence
from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.reasons import NodeReason
from daemonset_job.api.result_limits import RESULT_BYTES, RESULTS_BYTES
from daemonset_job.api.states import NodeState
from job_controller.core.text.sanitize import single_line

# Names have 63 characters at most; the limits come after them, and are never cut off.
_NAMES_BYTES: Final = 150


def with_omitted_results(
    records: Mapping[str, NodeRecord], ledger: Mapping[str, Evidence]
) -> dict[str, NodeRecord]:
    """Return the records, with the names of results that are left out, by the ledger.

    A message that a record has already stays.
    """
    named = dict(records)
    for name, evidence in ledger.items():
        record = records.get(name)
        if not evidence.omitted_results or record is None or record.reason:
            continue
        if record.state == NodeState.COMPLETED and evidence.completes(record.uid):
            message = describe_omitted(evidence)
            named[name] = replace(record, reason=NodeReason.RESULT_TOO_LONG, message=message)
    return named


def describe_omitted(evidence: Evidence) -> str:
    """Return which results are left out, and the limits."""
    listed = single_line(", ".join(sorted(evidence.omitted_results)), _NAMES_BYTES)
    return (
        f"results that are too long for the report: {listed}; one may have {RESULT_BYTES:,} bytes, "
        f"and those of a node {RESULTS_BYTES:,}"
    )

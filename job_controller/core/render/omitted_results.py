"""The message of a completed node whose report lacks results: too long, or not listed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
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
_REASONS: Final = frozenset({NodeReason.RESULT_TOO_LONG, NodeReason.RESULT_NOT_LISTED})


def with_omitted_results(
    records: Mapping[str, NodeRecord], ledger: Mapping[str, Evidence], listed: Collection[str]
) -> dict[str, NodeRecord]:
    """Return the records, with the names of results that are left out, by the ledger.

    `listed` are the names that the Job lists. A record that has a message of another kind keeps it.
    Results that arrive late, as once the Job lists them, are no longer named.
    """
    named = dict(records)
    for name, evidence in ledger.items():
        record = records.get(name)
        if record is None or not (evidence.omitted_results or record.reason in _REASONS):
            continue
        if record.state == NodeState.COMPLETED and evidence.completes(record.uid):
            named[name] = _with_omitted(record, evidence, listed)
    return named


def _with_omitted(record: NodeRecord, evidence: Evidence, listed: Collection[str]) -> NodeRecord:
    if not evidence.omitted_results:
        return replace(record, reason="", message="")
    reason, message = _describe(evidence, listed)
    # Evidence does not say why a name is left out. If the Job lists it by now, the record knows.
    is_known = record.reason not in {"", reason}
    return record if is_known else replace(record, reason=reason, message=message)


def _describe(evidence: Evidence, listed: Collection[str]) -> tuple[NodeReason, str]:
    """Return why results are left out, and which; those that are too long come first."""
    too_long = sorted(set(evidence.omitted_results) & set(listed))
    if not too_long:
        names = _join(sorted(evidence.omitted_results))
        return (
            NodeReason.RESULT_NOT_LISTED,
            f"results that spec.results does not list are not kept: {names}",
        )
    return (
        NodeReason.RESULT_TOO_LONG,
        (
            f"results that are too long for the report: {_join(too_long)}; one may have "
            f"{RESULT_BYTES:,} bytes, those of a node {RESULTS_BYTES:,}, and less if the Job "
            "declared results only while it ran"
        ),
    )


def _join(names: list[str]) -> str:
    return single_line(", ".join(names), _NAMES_BYTES)

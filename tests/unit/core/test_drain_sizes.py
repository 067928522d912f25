"""What a shard takes when the drain of each of its nodes fails for pods of hostile tenants."""

from dataclasses import replace
from datetime import timedelta

import pytest

from daemonset_job.api.drained_pod import DrainedPod
from daemonset_job.api.report_status import ReportStatus
from daemonset_job.api.states import NodeState
from job_controller.core.decide import decide
from job_controller.core.desired.limits import SPEC_LIMIT_BYTES
from job_controller.core.render.report_status import ARGUMENTS_LIMIT
from job_controller.core.state.evictions import NodeDrain
from tests.mutation.schema import OBJECT_BYTES, stored_bytes
from tests.unit.builders import NOW
from tests.unit.core.full_shards import ledger_of
from tests.unit.core.test_preparation import marked, record_of, turns, waiting

# The longest names that the API server takes.
PODS = tuple(DrainedPod("n" * 63, f"{n}{'p' * 250}", f"u{n}", {}, "ReplicaSet") for n in range(9))
REFUSED = NodeDrain(refused=tuple((pod, f"reason {pod.uid}: {'r' * 60}") for pod in PODS))
LEFT = NodeDrain(leaving=PODS, answers={pod.uid: f"{pod.uid}: {'a' * 390}" for pod in PODS})
NAME = "ip-10-0-{:04}.eu-central-1.compute.internal"


def failed_record(found):
    """Return the record of a node whose drain failed, with all that a record may have."""
    cluster = marked(waiting("a"))
    turns(cluster, "a", drainStartedAt="2026-01-02T03:00:00Z")
    record = record_of(decide(cluster.snapshot(drains={"a": found}), NOW))
    assert record.state == NodeState.FAILED
    return replace(
        record,
        attempts=100,
        attempts_in_earlier_pods=90,
        finished_in_pod=10,
        exit_code=137,
        started_at=NOW,
        finished_at=NOW + timedelta(seconds=9),
        pod_uid="p" * 36,
        retry="0",
        step=20,
    )


@pytest.mark.parametrize("found", [REFUSED, LEFT], ids=["refused", "left"])
def test_a_shard_of_failed_drains_fits_into_etcd_beside_the_evidence_of_earlier_tries(found):
    record = failed_record(found)
    records = {NAME.format(n): replace(record, uid=f"{n:036}") for n in range(1000)}
    ledger = ledger_of(records)
    raw = {
        "spec": {"manifest": "x" * SPEC_LIMIT_BYTES, "args": ["x" * ARGUMENTS_LIMIT]},
        "evidence": {name: entry.to_raw() for name, entry in ledger.items()},
        "status": ReportStatus(node_states=records).to_raw(),
    }
    assert stored_bytes(raw) < OBJECT_BYTES

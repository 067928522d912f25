"""What a JobReport accepts: two writers, two halves, and a spec that never changes."""

import json
from dataclasses import replace
from typing import Any

import pytest

from daemonset_job.api.evidence import Evidence
from daemonset_job.api.job import parse_job
from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.report import parse_report
from daemonset_job.api.report_status import ReportStatus
from daemonset_job.api.result_limits import RESULT_BYTES, RESULTS_LIMIT
from daemonset_job.api.shard_room import NODES_PER_ROLLOUT_SHARD, EvidenceSizes
from daemonset_job.api.states import NodeState
from job_controller.core.desired.limits import SPEC_LIMIT_BYTES
from job_controller.core.render.report_status import build_report
from terminator.ledger.assignment import ShardRule, assign_to_shards, build_patch
from tests.integration.jobs import job, report
from tests.integration.kube_env import KubeEnv

EVIDENCE = Evidence("uid-1", "2025-01-01T00:00:00.123456789Z", "sample-daemonset-job-x2v5q")


def path(namespace: str, name: str = "") -> str:
    return f"/apis/daemonset.darkowlzz.space/v1beta1/namespaces/{namespace}/jobreports{name}"


def patch(env: KubeEnv, where: str, body: dict[str, Any]) -> dict[str, Any]:
    status, answer = env.request("PATCH", f"{where}?fieldValidation=Strict", body)
    assert status == 200, answer
    return answer


def test_the_schema_knows_all_that_is_recorded(kube_env: KubeEnv, namespace):
    spec = {"image": "a", "command": ["b"], "args": ["c"], "mountPath": "/d"}
    body = build_report(parse_job(kube_env.apply(job(namespace, spec))))
    status, made = kube_env.request("POST", f"{path(namespace)}?fieldValidation=Strict", body)
    assert status == 201, made
    assert made["spec"] == body["spec"]


def test_evidence_is_kept_as_the_kubelet_wrote_it(kube_env: KubeEnv, namespace):
    kube_env.apply(report(namespace))
    body = {"evidence": {"node-1": EVIDENCE.to_raw(), "node-2.example.com": {"nodeUID": "uid-2"}}}
    written = parse_report(patch(kube_env, path(namespace, "/sample-1234"), body))
    assert written.evidence == {"node-1": EVIDENCE, "node-2.example.com": Evidence("uid-2")}


def test_the_two_writers_do_not_touch_each_others_half(kube_env: KubeEnv, namespace):
    kube_env.apply(report(namespace))
    both = {"evidence": {"a": EVIDENCE.to_raw()}, "status": {"phase": "Running"}}
    written = patch(kube_env, path(namespace, "/sample-1234"), both)
    assert "status" not in written
    both["evidence"] = {"b": EVIDENCE.to_raw()}
    written = patch(kube_env, path(namespace, "/sample-1234/status"), both)
    assert set(written["evidence"]) == {"a"}
    assert written["status"] == {"phase": "Running"}


@pytest.mark.parametrize(
    "phase", ["Pending", "Running", "Paused", "Succeeded", "Failed", "Cancelled"]
)
def test_status_is_kept(kube_env: KubeEnv, namespace, phase):
    kube_env.apply(report(namespace))
    status = {
        "phase": phase,
        "startTime": "2025-01-01T00:00:00Z",
        "completionTime": "2025-01-01T00:00:07Z",
        "nodes": {"desired": 2, "waiting": 0, "active": 0, "completed": 2, "completedNames": "a,b"},
        "message": "2 of 2 nodes completed",
    }
    written = patch(kube_env, path(namespace, "/sample-1234/status"), {"status": status})
    assert written["status"] == status


@pytest.mark.parametrize(
    "change", [{"job": {"uid": "other"}}, {"image": "other"}, {"args": ["x"]}, {"shard": 1}]
)
def test_the_spec_never_changes(kube_env: KubeEnv, namespace, change):
    kube_env.apply(report(namespace))
    status, answer = kube_env.request("PATCH", path(namespace, "/sample-1234"), {"spec": change})
    assert status == 422
    assert "spec cannot change: a report says what ran" in answer["message"]


def test_evidence_without_the_nodes_uid_is_refused(kube_env: KubeEnv, namespace):
    kube_env.apply(report(namespace))
    status, answer = kube_env.request(
        "PATCH", path(namespace, "/sample-1234"), {"evidence": {"a": {"pod": "b"}}}
    )
    assert status == 422
    assert "evidence.a.nodeUID: Required value" in answer["message"]


def test_a_report_names_its_run(kube_env: KubeEnv):
    manifest = report("default")
    del manifest["spec"]["job"]["uid"]
    refusal = kube_env.refusal("apply", "-f", "-", input=json.dumps(manifest))
    assert "spec.job.uid: Required value" in refusal


def test_columns_and_short_name(kube_env: KubeEnv, namespace):
    kube_env.apply(report(namespace))
    status = {"phase": "Running", "nodes": {"desired": 5, "completed": 3}}
    kube_env.patch_status("dsjr", "sample-1234", namespace, status)
    head, row = kube_env.kubectl("get", "dsjr", "-n", namespace).splitlines()
    columns = ["NAME", "JOB", "PHASE", "DESIRED", "COMPLETED", "FAILED", "SECONDS", "AGE"]
    assert head.split() == columns
    assert row.split()[:5] == ["sample-1234", "sample", "Running", "5", "3"]


def test_a_thousand_nodes_fit_one_report(kube_env: KubeEnv, namespace):
    kube_env.apply(report(namespace))
    uid = "0" * 36
    entry = Evidence(uid, EVIDENCE.completed_at, "a" * 63).to_raw()
    body = {
        "evidence": {f"ip-10-0-{i:04}.eu-central-1.compute.internal": entry for i in range(1000)}
    }
    written = patch(kube_env, path(namespace, "/sample-1234"), body)
    assert len(written["evidence"]) == 1000


# As large as four results of a node can be: plain, as JSON, and of characters that etcd stores as
# six bytes each.
NODE_NAME = "ip-10-0-{:04}.eu-central-1.compute.internal"
POD_NAME = "sample-daemonset-job-" + "p" * 42
TEXTS = {"plain": "x" * RESULT_BYTES, "json": '{"k":"' * 170, "html": "<" * 341}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_the_fullest_shard_with_large_results_fits_into_etcd(kube_env: KubeEnv, namespace, text):
    """As many nodes as the terminator puts there, beside the records of a thousand nodes."""
    manifest = report(namespace)
    manifest["spec"]["manifest"] = "m" * SPEC_LIMIT_BYTES
    kube_env.apply(manifest)
    entry = Evidence(
        "0" * 36,
        EVIDENCE.completed_at,
        POD_NAME,
        "1" * 36,
        results=dict.fromkeys(("first", "second", "third", "fourth"), text),
        attempt=100,
    )
    pending = {NODE_NAME.format(n): entry for n in range(NODES_PER_ROLLOUT_SHARD)}
    rule = ShardRule(NODES_PER_ROLLOUT_SHARD, EvidenceSizes(reserve_bytes=8068, node_bytes=600))
    found = parse_report(kube_env.request("GET", path(namespace, "/sample-1234"))[1])
    entries = assign_to_shards(pending, [found], rule)[found.name]
    assert 60 <= len(entries) < 200
    patch(kube_env, path(namespace, "/sample-1234"), build_patch(found, entries))
    stored = with_full_records(kube_env, namespace)
    assert stored["evidence"].keys() == entries.keys()


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_a_full_shard_fits_whose_job_declares_results_while_it_runs(
    kube_env: KubeEnv, namespace, text
):
    """A thousand nodes had begun by then, and the names of the results are long."""
    manifest = report(namespace)
    manifest["spec"]["manifest"] = "m" * SPEC_LIMIT_BYTES
    kube_env.apply(manifest)
    begun = Evidence("0" * 36, "", POD_NAME, "1" * 36, attempt=100)
    names = [NODE_NAME.format(n) for n in range(NODES_PER_ROLLOUT_SHARD)]
    results = {f"{number:02}".ljust(63, "r"): text for number in range(RESULTS_LIMIT)}
    done = replace(begun, completed_at=EVIDENCE.completed_at, results=results)
    for entry in (begun, done):
        found = parse_report(kube_env.request("GET", path(namespace, "/sample-1234"))[1])
        rule = ShardRule(NODES_PER_ROLLOUT_SHARD, EvidenceSizes(node_bytes=600))
        entries = assign_to_shards(dict.fromkeys(names, entry), [found], rule)[found.name]
        assert len(entries) == NODES_PER_ROLLOUT_SHARD
        patch(kube_env, path(namespace, "/sample-1234"), build_patch(found, entries))
    stored = with_full_records(kube_env, namespace)
    assert all(entry["completedAt"] for entry in stored["evidence"].values())


def with_full_records(kube_env, namespace):
    """Return the report with the largest records of a thousand nodes."""
    record = NodeRecord(
        uid="0" * 36,
        state=NodeState.COMPLETED,
        reason="ResultTooLong",
        message="m" * 300,
        attempts=100,
        attempts_in_earlier_pods=90,
        finished_in_pod=10,
        exit_code=137,
        pod_uid="1" * 36,
        retry="0",
        revision="1-0123456789abcdef",
        selection="0123456789abcdef",
        rerun="1-0123456789abcdef",
        earlier_pods=("2" * 36, "3" * 36),
    )
    records = {NODE_NAME.format(n): record for n in range(NODES_PER_ROLLOUT_SHARD)}
    body = {"status": ReportStatus(node_states=records).to_raw()}
    stored = patch(kube_env, path(namespace, "/sample-1234/status"), body)
    assert len(stored["status"]["nodeStates"]) == NODES_PER_ROLLOUT_SHARD
    return stored

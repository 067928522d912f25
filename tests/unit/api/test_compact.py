"""What is kept of Jobs and DaemonSets: all that is asked for, and little memory."""

import json
import tracemalloc
from dataclasses import replace

import pytest

from daemonset_job.api import names
from daemonset_job.api.compact import (
    compact_daemon_set,
    compact_daemon_set_placement,
    compact_job,
    compact_job_placement,
    expand_daemon_set,
    expand_job,
    expand_job_placement,
)
from daemonset_job.api.daemon_set import parse_daemon_set
from daemonset_job.api.job import parse_job
from daemonset_job.api.packed_json import pack_json
from job_controller.caches import parse_cached_job
from job_controller.core.desired.limits import SPEC_LIMIT_BYTES, spec_bytes

LONG = [f"echo step {number} of the work on this node" for number in range(1200)]
AFFINITY = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}}
SPEC = {
    "image": "example/task:v1",
    "command": ["run-once"],
    "args": ["a", "\u00e4", "\U0001f600"],
    "nodes": {"include": ["a"], "exclude": ["b"], "selector": {"matchLabels": {"x": "y"}}},
    "template": {
        "metadata": {"labels": {"team": "x"}},
        "spec": {
            "affinity": AFFINITY,
            "nodeSelector": {"zone": "a"},
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "job-container", "env": [{"name": "A", "value": "b"}]}],
        },
    },
    "completion": {"token": "finished"},
    "results": [{"name": "size"}],
    "suspend": True,
}


def raw_job(number=0, **spec):
    return {
        "metadata": {
            "name": f"job-{number}",
            "namespace": "default",
            "uid": f"uid-{number}",
            "resourceVersion": "1",
            "generation": 1,
            "annotations": {names.ANNOTATION_RETRY: "again", "kubectl": "x" * 1000},
        },
        "spec": spec or SPEC,
    }


def long_job(number=0):
    env = [{"name": f"NAME_{n}", "value": f"{number} {text}"} for n, text in enumerate(LONG[:800])]
    containers = [{"name": "job-container", "env": env}]
    return raw_job(number, image="i", template={"spec": {"containers": containers}})


def raw_daemon_set(spec):
    meta = raw_job()["metadata"] | {
        "labels": {names.LABEL_MANAGED: "true", "theirs": "x"},
        "annotations": {
            names.ANNOTATION_NODES_HASH: "abc",
            names.ANNOTATION_SELECTION_CHANGED: "true",
            "theirs": "x",
        },
    }
    return {"metadata": meta, "spec": {"selector": {}, "template": spec["template"]}}


def test_a_kept_job_is_whole_again_when_it_is_looked_at():
    job = parse_job(raw_job())
    only_ours = {names.ANNOTATION_RETRY: "again"}
    assert expand_job(compact_job(job)) == replace(job, annotations=only_ours)
    assert expand_job(compact_job(job)).manifest() == job.manifest()
    assert expand_job(job) is job


def test_the_terminator_keeps_what_chooses_nodes():
    job = parse_job(raw_job())
    found = expand_job_placement(compact_job_placement(job))
    assert found.nodes_hash == job.nodes_hash
    assert found.spec.nodes == job.spec.nodes
    template = SPEC["template"]["spec"]
    placing = {key: template[key] for key in ("affinity", "nodeSelector", "tolerations")}
    assert found.spec.template == {"spec": placing}
    kept = (found.spec.completion, found.spec.results, found.spec.suspend, found.retry_request)
    assert kept == (job.spec.completion, ("size",), True, "again")


def test_a_job_without_a_choice_of_nodes_keeps_its_hash():
    job = parse_job(raw_job(image="i"))
    assert expand_job_placement(compact_job_placement(job)).nodes_hash == job.nodes_hash


def test_cached_daemon_set_is_restored_except_for_foreign_labels():
    found = parse_daemon_set(raw_daemon_set(SPEC))
    whole = expand_daemon_set(compact_daemon_set(found))
    assert (whole.spec, whole.nodes_hash) == (found.spec, "abc")
    assert whole.selection_changed
    assert whole.labels == {names.LABEL_MANAGED: "true"}
    placing = compact_daemon_set_placement(found)
    assert (placing.nodes_hash, placing.pod_spec["affinity"]) == ("abc", AFFINITY)
    assert "containers" not in placing.pod_spec


def test_a_spec_that_is_too_large_is_measured_and_not_kept():
    raw = raw_job(image="i", args=["x" * SPEC_LIMIT_BYTES])
    size = spec_bytes(parse_job(raw))
    job = expand_job(parse_cached_job(raw))
    assert (spec_bytes(job), dict(job.raw_spec), job.spec.args) == (size, {}, ())
    # One that has started before there was a limit goes on.
    raw["status"] = {"startTime": "2026-01-01T00:00:00Z"}
    assert expand_job(parse_cached_job(raw)).spec.args == ("x" * SPEC_LIMIT_BYTES,)


def test_what_is_read_of_packed_json_is_a_new_object():
    packed = pack_json({"a": {"b": [1]}, "c": None})
    packed["a"]["b"].append(2)
    assert packed == {"a": {"b": [1]}, "c": None}
    assert (list(packed), len(packed), packed.get("x")) == (["a", "c"], 2, None)


@pytest.mark.parametrize(
    ("project", "limit"),
    [
        (parse_cached_job, 16 * 1024),
        (lambda raw: compact_job_placement(parse_job(raw)), 4 * 1024),
        (lambda raw: compact_daemon_set(parse_daemon_set(raw_daemon_set(raw["spec"]))), 16 * 1024),
        (
            lambda raw: compact_daemon_set_placement(parse_daemon_set(raw_daemon_set(raw["spec"]))),
            4 * 1024,
        ),
    ],
    ids=["Job", "Job in the terminator", "DaemonSet", "DaemonSet in the terminator"],
)
def test_a_spec_at_its_limit_takes_little_memory(project, limit):
    texts = [json.dumps(long_job(number)) for number in range(20)]
    assert 48 * 1024 < spec_bytes(parse_job(json.loads(texts[0]))) <= SPEC_LIMIT_BYTES
    project(json.loads(texts[0]))
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        kept = [project(json.loads(text)) for text in texts]
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (after - before) / len(kept) < limit


@pytest.mark.parametrize("compact", [compact_job, compact_job_placement])
def test_what_says_what_runs_again_is_kept(compact):
    raw = raw_job(image="x", completion={"policy": "Continuous"})
    raw["metadata"]["annotations"] = {names.ANNOTATION_RERUN: "a@1"}
    job = parse_job(raw)
    assert job.revision
    kept = compact(job)
    assert (kept.revision, kept.rerun, kept.spec.is_continuous) == (job.revision, job.rerun, True)


@pytest.mark.parametrize("compact", [compact_daemon_set, compact_daemon_set_placement])
def test_the_revision_of_a_daemon_set_is_kept(compact):
    raw = {"metadata": {"name": "a", "annotations": {names.ANNOTATION_REVISION: "1"}}}
    assert compact(parse_daemon_set(raw)).revision == "1"

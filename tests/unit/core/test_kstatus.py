"""What generic tools read of a Job: the rules of kstatus, written independently of the product."""

from dataclasses import replace

import pytest

from daemonset_job.api import names
from daemonset_job.api.job_spec import FailurePolicy
from tests.unit.builders import done, make_cluster, make_node, make_pod
from tests.unit.core.runs import failing, run, spec, three_nodes


def kstatus(job):
    """Return the status that kstatus computes for any custom resource (status/generic.go)."""
    raw = job.status.to_raw()
    if raw.get("observedGeneration") != job.generation:
        return "InProgress"
    true = {each["type"] for each in raw["conditions"] if each["status"] == "True"}
    if "Reconciling" in true:
        return "InProgress"
    return "Failed" if "Stalled" in true else "Current"


def test_a_run_is_in_progress_until_it_has_succeeded():
    cluster = make_cluster("a", "b", gated=True, evidence={"a": done("a")})
    run(cluster)
    assert kstatus(cluster.job) == "InProgress"
    cluster.evidence["b"] = done("b")
    run(cluster)
    assert kstatus(cluster.job) == "Current"


def test_a_suspended_run_is_in_progress():
    cluster = spec(make_cluster("a", gated=True), suspend=True)
    run(cluster)
    assert kstatus(cluster.job) == "InProgress"


def test_a_failed_run_has_failed_until_it_is_retried():
    cluster = three_nodes()
    run(cluster)
    assert kstatus(cluster.job) == "Failed"
    cluster.job = replace(cluster.job, annotations={names.ANNOTATION_RETRY: "1"})
    run(cluster)
    assert kstatus(cluster.job) == "InProgress"
    cluster.evidence |= {name: done(name) for name in "bc"}
    run(cluster)
    assert kstatus(cluster.job) == "Current"


@pytest.mark.parametrize("allowed", [0, 1])
def test_failures_count_by_the_limit(allowed):
    cluster = make_cluster("a", "b", gated=True, evidence={"a": done("a")})
    cluster.pods[1] = failing("b")
    spec(cluster, failure_policy=FailurePolicy("Continue", allowed))
    run(cluster)
    assert kstatus(cluster.job) == ("Current" if allowed else "Failed")


def test_a_changed_job_is_in_progress_until_it_was_observed():
    cluster = make_cluster("a", gated=True, evidence={"a": done("a")})
    run(cluster)
    cluster.job = replace(cluster.job, generation=2)
    assert kstatus(cluster.job) == "InProgress"
    run(cluster)
    assert kstatus(cluster.job) == "Current"


def test_a_node_that_joins_later_leaves_a_kept_job_current():
    cluster = make_cluster("a", gated=True, evidence={"a": done("a")})
    spec(cluster, ttl_seconds_after_finished=3600)
    run(cluster)
    cluster.nodes["b"] = make_node("b")
    cluster.pods.append(make_pod("b"))
    cluster.desired = cluster.scheduled = 2
    run(cluster)
    assert kstatus(cluster.job) == "Current"

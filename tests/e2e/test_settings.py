"""The deployed system with other settings of its terminator, those of the seed among them."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import yaml

from tests.e2e.cluster import (
    CONTROLLER,
    SYSTEM,
    WAIT,
    RealCluster,
    consistently,
    eventually,
    make_job,
)
from tests.e2e.jobs import shell, wait_condition

pytestmark = pytest.mark.alone

# The environment of the sidecar in deploy/manager-deploy.yaml of the first daemonset-job
# (https://github.com/darkowlzz/daemonset-job), word for word.
SEED_ENVIRONMENT = """
- name: NAMESPACE
  value: "default"
- name: POD_LABEL_SELECTOR
  value: "daemonset-job=true"
- name: TERMINATION_WORD
  value: "done"
- name: TICKER_DURATION
  value: "10"
"""
# config/samples/daemonset_v1beta1_job.yaml there.
SEED_SAMPLE = """
apiVersion: daemonset.darkowlzz.space/v1beta1
kind: Job
metadata:
  labels:
    controller-tools.k8s.io: "1.0"
  name: job-sample
spec:
  image: darkowlzz/cleanup:v0.0.2
  args: ["/basetarget/foo"]
  mountPath: "/tmp"
"""


@contextmanager
def environment(
    cluster: RealCluster, requested: list[dict[str, str]], *containers: str
) -> Iterator[None]:
    """Run containers of the system with these variables, in place of those of their names."""
    deployment = ("deployment", CONTROLLER, "-n", SYSTEM)
    before = cluster.get(*deployment)["spec"]["template"]["spec"]["containers"]
    names = {variable["name"] for variable in requested}
    changed = [
        {
            **container,
            "env": [v for v in container["env"] if v["name"] not in names] + requested,
        }
        if container["name"] in containers
        else container
        for container in before
    ]

    def replace(found) -> None:
        body = json.dumps(
            [{"op": "replace", "path": "/spec/template/spec/containers", "value": found}]
        )
        cluster.kubectl("patch", *deployment, "--type=json", "-p", body)
        cluster.wait_for_system(1)

    try:
        replace(changed)
        yield
    finally:
        replace(before)


def test_the_first_projects_environment_and_sample_work_word_for_word(cluster):
    cluster.on_all_nodes("mkdir -p /tmp/foo/deep")
    with environment(cluster, yaml.safe_load(SEED_ENVIRONMENT), "terminator"):
        cluster.kubectl("apply", "-f", "-", stdin=SEED_SAMPLE)  # into the namespace default
        try:
            cluster.wait_gone("default", "job-sample")
            assert cluster.completed("default", "job-sample") == set(cluster.nodes)
        finally:
            cluster.kubectl("delete", "dsj,dsjr", "--all", "-n", "default")
    left = cluster.on_all_nodes("ls -d /tmp/foo 2>/dev/null; true")
    assert set(left.values()) == {""}


@pytest.mark.on_demand
def test_another_word_namespace_and_label_selector(cluster, namespace, other_namespace):
    """The Job that the terminator does not watch stays, however often its tasks say the word."""
    requested = [
        {"name": "NAMESPACE", "value": namespace},
        {"name": "POD_LABEL_SELECTOR", "value": "daemonset-job=true,team=a"},
        {"name": "TERMINATION_WORD", "value": "finished"},
    ]
    task = {**shell("echo done; echo finished;" + WAIT), "ttlSecondsAfterFinished": 0}
    label = {"template": {"metadata": {"labels": {"team": "a"}}}}
    with environment(cluster, requested, "terminator", "controller"):
        cluster.apply(
            make_job("theirs", namespace, **task, **label),
            make_job("unlabelled", namespace, **task),
            make_job("elsewhere", other_namespace, **task, **label),
            make_job("old-word", namespace, **shell("echo done;" + WAIT), **label),
        )
        cluster.wait_gone(namespace, "theirs")
        others = [
            (namespace, "unlabelled"),
            (other_namespace, "elsewhere"),
            (namespace, "old-word"),
        ]
        for where, name in others:
            eventually(lambda w=where, n=name: len(running(cluster, w, n)) == len(cluster.nodes))
        consistently(lambda: all(cluster.job(where, name) is not None for where, name in others), 6)
        assert not any(cluster.completed(where, name) for where, name in others)


def running(cluster: RealCluster, namespace: str, name: str) -> list[str]:
    """Return the names of the Job's pods that run."""
    return [
        pod["metadata"]["name"]
        for pod in cluster.pods(namespace, name)
        if pod["status"].get("phase") == "Running"
    ]


KEYS = [{"name": "CLUSTER_EXCLUSIVE_KEYS", "value": "kernel,disk-*"}]


@pytest.mark.on_demand
def test_a_key_that_the_administrator_names_holds_over_two_namespaces(cluster, namespace, folder):
    """mkdir fails if the directory is there: then another task is at work on the node."""
    other = f"{namespace}-other"
    busy, collision = "/basetarget/busy", "/basetarget/collision"
    script = f"mkdir {busy} || touch {collision}; sleep 3; rmdir {busy}; echo done; {WAIT}"
    places = ((namespace, "first"), (other, "second"))
    cluster.kubectl("create", "namespace", other)
    try:
        with environment(cluster, KEYS, "controller"):
            cluster.apply(
                *(
                    make_job(
                        name,
                        place,
                        **shell(script),
                        mountPath=folder,
                        rollout={"exclusive": "disk-1"},
                        ttlSecondsAfterFinished=600,
                    )
                    for place, name in places
                )
            )

            def is_told() -> bool:
                found = [cluster.condition(*place, "Progressing") for place in places]
                return any(
                    each.get("reason") == "NodeInUse"
                    and "Job of another namespace" in each["message"]
                    for each in found
                )

            eventually(is_told, 60, "a condition says that the node is in use")
            for place, name in places:
                wait_condition(cluster, place, name, "Complete")
                assert cluster.completed(place, name) == set(cluster.nodes)
            found = cluster.on_all_nodes(f"ls {folder}")
            assert not [node for node, names in found.items() if "collision" in names]
    finally:
        cluster.kubectl("delete", "namespace", other, "--wait=false")

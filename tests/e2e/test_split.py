"""Controller and terminator as two Deployments with two service accounts: deploy/components/split.

Replaces the system for the time of the test, and puts it back as it was.
"""

import pytest

from tests.e2e.cluster import CONTROLLER, SYSTEM, counting, eventually, make_job
from tests.e2e.manifests import apply, build, rolled_out

TERMINATOR = "daemonset-job-terminator"
# What the component adds, and what it changes: the rest of deploy/ is the same with and without it.
CHANGED = {"Deployment", "ServiceAccount", "Role", "RoleBinding", "ClusterRoleBinding"}
ADDED = {"PodDisruptionBudget", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}


def key(raw):
    return raw["kind"], raw["metadata"]["name"]


@pytest.mark.alone
@pytest.mark.on_demand
def test_two_deployments_with_an_account_each_complete_a_job(cluster, namespace, folder, tmp_path):
    plain = build(cluster, tmp_path)
    split = build(cluster, tmp_path, "split")
    # Images and settings stay those of this cluster: they are taken from what runs.
    image = {
        container["name"]: container["image"]
        for container in cluster.get("deployment", CONTROLLER, "-n", SYSTEM)["spec"]["template"][
            "spec"
        ]["containers"]
    }
    for raw in (*plain, *split):
        if raw["kind"] == "Deployment":
            for container in raw["spec"]["template"]["spec"]["containers"]:
                container["image"] = image[container["name"]]
    known = {key(raw) for raw in plain}
    requested = [raw for raw in split if raw["kind"] in CHANGED | ADDED]
    added = [raw for raw in requested if key(raw) not in known]
    try:
        apply(cluster, requested)
        rolled_out(cluster, CONTROLLER, TERMINATOR)

        def are_apart():
            pods = cluster.get("pods", "-n", SYSTEM)["items"]
            return {
                (pod["spec"]["serviceAccountName"], *(c["name"] for c in pod["spec"]["containers"]))
                for pod in pods
            } == {(CONTROLLER, "controller"), (TERMINATOR, "terminator")}

        eventually(are_apart, 120, "a pod and an account for each program")
        cluster.apply(make_job("apart", namespace, mountPath=folder, **counting()))
        cluster.wait_gone(namespace, "apart", timeout=120)
        assert set(cluster.runs(folder).values()) == {1}
        (report,) = cluster.get("jobreports", "-n", namespace)["items"]
        assert report["status"]["phase"] == "Succeeded"
        assert set(report["evidence"]) == set(cluster.nodes)
    finally:
        apply(cluster, [raw for raw in plain if raw["kind"] in CHANGED])
        for raw in added:
            where = ["-n", SYSTEM] if raw["metadata"].get("namespace") else []
            kind, name = key(raw)
            cluster.kubectl("delete", kind.lower(), name, *where, "--ignore-not-found")
        rolled_out(cluster, CONTROLLER)
        cluster.wait_for_system(1)

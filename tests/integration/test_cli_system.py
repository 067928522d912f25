"""`kubectl dsjob install`, `upgrade`, `uninstall` and `doctor` against a real API server."""

import copy
import itertools
import json
import os
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta

import pytest
import yaml

from daemonset_job.api.names import ANNOTATION_INSTALL
from kubectl_dsjob.system import kustomize, render
from tests.integration.jobs import job as make_job
from tests.integration.kube_env import ROOT, KubeEnv, kube_env

SYSTEM = "daemonset-job-system"
CONTROLLER = "daemonset-job-controller"
CRD = "jobs.daemonset.darkowlzz.space"
COMPONENTS = render.component_names()
FILES = render.files()
LEASES = (CONTROLLER, "daemonset-job-terminator")


@pytest.fixture(scope="module")
def server():
    """An API server without the system."""
    with kube_env(
        controllers=["clusterrole-aggregation-controller", "namespace-controller"]
    ) as env:
        yield env


def call(env, *args, kubeconfig=None):
    return subprocess.run(
        [sys.executable, "-m", "kubectl_dsjob.main", *args],
        env={
            **os.environ,
            "KUBECONFIG": str(kubeconfig or env.kubeconfig),
            "PYTHONPATH": str(ROOT),
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture
def empty(server):
    """The server, with nothing of the system before and after."""
    yield server
    server.kubectl("delete", "deployments", "-A", "--all")
    done = call(server, "uninstall", "--delete-reports", "--delete-jobs")
    assert done.returncode == 0, done


@pytest.fixture
def installed(empty):
    done = call(empty, "install", "--no-wait")
    assert done.returncode == 0, done
    return empty


def make_ready(env, namespace=SYSTEM, name=CONTROLLER):
    """Play the Deployment controller: all pods are there and ready."""
    found = env.get("deployment", name, namespace)
    count = found["spec"]["replicas"]
    fields = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")
    status = dict.fromkeys(fields, count) | {"observedGeneration": found["metadata"]["generation"]}
    env.patch_status("deployment", name, namespace, status)


def hold_leases(env, *, age=0.0):
    for name in LEASES:
        renewed = datetime.now(UTC) - timedelta(seconds=age)
        spec = {
            "holderIdentity": "pod-1",
            "leaseDurationSeconds": 15,
            "renewTime": f"{renewed:%Y-%m-%dT%H:%M:%S.%fZ}",
        }
        metadata = {"name": name, "namespace": SYSTEM}
        env.apply(
            {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": metadata,
                "spec": spec,
            }
        )


def names(env: KubeEnv) -> set[str]:
    """Return all objects of the system that a user would look for."""
    kinds = (
        "crd,namespace,clusterrole,clusterrolebinding,validatingadmissionpolicy,"
        "validatingadmissionpolicybinding"
    )
    here = env.kubectl("get", kinds, "-o", "name").split()
    inside = "deployment,configmap,serviceaccount,role,rolebinding,networkpolicy,pdb"
    here += env.kubectl("get", inside, "-n", SYSTEM, "-o", "name").split()
    return {name for name in here if "daemonset" in name}


# Each installs the system and uninstalls it again, 15 s and more. Of `make test`, e2e
# test_install does so on real nodes.
LONG = pytest.mark.on_demand


# --- the manifests ------------------------------------------------------------------------


# Each alone, and pairs, with `make test-integration-long`.
@pytest.mark.parametrize(
    "chosen",
    [
        (),
        *(pytest.param((name,), marks=LONG) for name in COMPONENTS),
        COMPONENTS,
        *(pytest.param(pair, marks=LONG) for pair in itertools.combinations(COMPONENTS, 2)),
    ],
    ids=",".join,
)
def test_the_manifests_are_those_of_kustomize(server, tmp_path, chosen):
    """In whatever order an overlay lists the components."""
    for order in (list(chosen), list(reversed(chosen))):
        paths = [
            os.path.relpath(FILES / "deploy" / "components" / name, tmp_path) for name in order
        ]
        overlay = {
            "sortOptions": {"order": "fifo"},
            "resources": [os.path.relpath(FILES / "deploy", tmp_path)],
            "components": paths,
        }
        (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
        expected = list(yaml.safe_load_all(server.kubectl("kustomize", str(tmp_path))))
        folders = [FILES / "deploy" / "components" / name for name in order]
        assert kustomize.build(FILES / "deploy", folders) == expected


# --- install ------------------------------------------------------------------------------


@LONG
def test_install_brings_everything_and_waits_until_it_is_ready(empty):
    stop = threading.Event()

    def play():
        while not stop.wait(0.2):
            if empty.run("get", "deployment", CONTROLLER, "-n", SYSTEM).returncode == 0:
                make_ready(empty)
                return

    thread = threading.Thread(target=play)
    thread.start()
    done = call(
        empty, "install", "--components", "node-changes", "--image-prefix", "r.example/team"
    )
    stop.set()
    thread.join()
    assert done.returncode == 0, done
    assert "ready" in done.stderr
    wish = render.SystemWish(("node-changes",), image_prefix="r.example/team")
    for manifest in render.render(wish):
        where = manifest["metadata"].get("namespace")
        found = empty.get(manifest["kind"], manifest["metadata"]["name"], where)
        managers = {each["manager"] for each in found["metadata"].get("managedFields", [])}
        assert manifest["metadata"]["labels"].items() <= found["metadata"]["labels"].items()
        assert managers <= {"kubectl-dsjob", "kube-apiserver", "kube-controller-manager", "kubectl"}
    pod = empty.get("deployment", CONTROLLER, SYSTEM)["spec"]["template"]["spec"]
    assert {each["image"].rpartition("/")[0] for each in pod["containers"]} == {"r.example/team"}
    data = empty.get("configmap", CONTROLLER, SYSTEM)["data"]
    assert data["TASK_IMAGE"].startswith("r.example/team/daemonset-job-task:")
    again = call(
        empty, "install", "--components", "node-changes", "--image-prefix", "r.example/team",
        "--no-wait",
    )  # fmt: skip
    assert again.stderr.startswith(f"{len(list(render.render(wish)))} objects unchanged")


@LONG
def test_the_policies_come_before_what_they_guard(empty):
    done = call(empty, "install", "--no-wait")
    lines = done.stderr.splitlines()
    policy = lines.index("ValidatingAdmissionPolicyBinding daemonset-job-needs-daemonsets created")
    assert policy < lines.index(f"CustomResourceDefinition {CRD} created")
    assert lines.index(f"CustomResourceDefinition {CRD} created") < lines.index(
        f"Deployment {CONTROLLER} created"
    )


@LONG
def test_a_dry_run_says_what_would_change_and_changes_nothing(empty):
    before = names(empty)
    done = call(empty, "install", "--dry-run")
    assert done.returncode == 0, done
    assert f"Deployment {CONTROLLER} would be created" in done.stdout
    assert names(empty) == before == set()


@LONG
def test_what_is_not_ready_is_named_with_the_reason(installed):
    pod = copy.deepcopy(installed.get("deployment", CONTROLLER, SYSTEM)["spec"]["template"])
    pod |= {"apiVersion": "v1", "kind": "Pod"}
    pod["metadata"] |= {"name": "pod-1", "namespace": SYSTEM}
    installed.apply(pod)
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
    statuses = [
        {"name": "controller", "image": "i", "imageID": "", "ready": False, "restartCount": 0,
         "state": waiting}
    ]  # fmt: skip
    installed.patch_status("pod", "pod-1", SYSTEM, {"containerStatuses": statuses})
    done = call(installed, "install", "--timeout", "0.1")
    installed.kubectl("delete", "pod", "pod-1", "-n", SYSTEM, "--force", "--grace-period=0")
    assert done.returncode == 4, done
    assert "container controller: ImagePullBackOff no such image" in done.stderr
    assert "--image-prefix" in done.stderr


@LONG
def test_what_another_client_changed_is_not_overwritten_by_accident(installed):
    patch = '{"data":{"LOG_LEVEL":"DEBUG"}}'
    installed.kubectl("patch", "configmap", CONTROLLER, "-n", SYSTEM, "--type=merge", "-p", patch)
    done = call(installed, "install", "--no-wait", "--image-prefix", "other.example")
    assert done.returncode == 1, done
    assert "LOG_LEVEL" in done.stderr
    assert "belong to another client" in done.stderr
    assert "apply that again instead" in done.stderr
    assert "--force-conflicts" in done.stderr
    pod = installed.get("deployment", CONTROLLER, SYSTEM)["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"].startswith("docker.io/"), "nothing was written"
    assert call(installed, "install", "--no-wait", "--force-conflicts").returncode == 0
    assert installed.get("configmap", CONTROLLER, SYSTEM)["data"]["LOG_LEVEL"] == "INFO"


@LONG
def test_a_namespace_of_others_is_refused_and_one_of_its_own_is_used_everywhere(empty):
    empty.kubectl("create", "namespace", "team")
    done = call(empty, "install", "--namespace", "team", "--no-wait")
    assert done.returncode == 1, done
    assert "not the system's" in done.stderr
    done = call(empty, "install", "--namespace", "jobs-system", "--no-wait")
    assert done.returncode == 0, done
    policy = empty.get("validatingadmissionpolicy", "daemonset-job-system-pods")
    expression = policy["spec"]["matchConditions"][0]["expression"]
    assert "system:serviceaccount:jobs-system:daemonset-job-controller" in expression
    subject = empty.get("clusterrolebinding", CONTROLLER)["subjects"][0]
    assert subject["namespace"] == "jobs-system"
    assert "already" in call(empty, "install", "--no-wait").stderr
    assert call(empty, "uninstall", "-n", SYSTEM).returncode == 2
    done = call(empty, "upgrade", "--no-wait")
    assert done.returncode == 0, done
    assert "objects unchanged" in done.stderr


@LONG
def test_a_tenant_cannot_pass_off_a_namespace_as_that_of_the_system(empty):
    """Its Deployment has the name and the label, and the annotation with images of its own."""
    assert call(empty, "install", "--namespace", "jobs-system", "--no-wait").returncode == 0
    real = empty.get("deployment", CONTROLLER, "jobs-system")
    annotations = {ANNOTATION_INSTALL: '{"components": [], "imagePrefix": "evil"}'}
    metadata = {"name": CONTROLLER, "namespace": "a-team", "annotations": annotations}
    metadata["labels"] = real["metadata"]["labels"]
    empty.kubectl("create", "namespace", "a-team")
    empty.apply({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata,
                 "spec": {"selector": real["spec"]["selector"],
                          "template": real["spec"]["template"]}})  # fmt: skip
    done = call(empty, "upgrade", "--no-wait", "--force-conflicts")
    assert done.returncode == 0, done
    assert empty.get("clusterrolebinding", CONTROLLER)["subjects"][0]["namespace"] == "jobs-system"
    pod = empty.get("deployment", CONTROLLER, "a-team")["spec"]["template"]["spec"]
    assert not any(each["image"].startswith("evil") for each in pod["containers"])
    done = call(empty, "upgrade", "--namespace", "a-team")
    assert "that is not the system's" in done.stderr, done
    done = call(empty, "uninstall")
    assert done.returncode == 0, done
    assert empty.run("get", "deployment", CONTROLLER, "-n", "jobs-system").returncode == 1
    assert empty.get("deployment", CONTROLLER, "a-team")
    done = call(empty, "install", "--no-wait", "--dry-run")
    assert done.returncode == 0, done


@LONG
def test_a_component_is_not_left_half_installed(empty):
    assert call(empty, "install", "--components", "split", "--no-wait").returncode == 0
    binding = "daemonset-job-system-halves"
    empty.kubectl("delete", "validatingadmissionpolicybinding", binding)
    assert f"{binding} is not bound" in call(empty, "doctor").stdout
    done = call(empty, "install", "--no-wait")
    assert done.returncode == 2, done
    assert "--components split" in done.stderr
    done = call(empty, "install", "--components", "monitoring,split", "--no-wait")
    assert "PrometheusRules" in done.stderr
    assert call(empty, "upgrade", "--no-wait").returncode == 0, "the components are known"
    assert "no component nothing" in call(empty, "install", "--components", "nothing").stderr


# --- upgrade ------------------------------------------------------------------------------


def change_crd(env, change):
    crd = env.get("crd", CRD)
    change(crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"])
    crd["metadata"] = {"name": CRD, "labels": crd["metadata"]["labels"]}
    del crd["status"]
    env.kubectl(
        "apply", "--server-side", "--force-conflicts", "--field-manager=kubectl-dsjob", "-f", "-",
        input=json.dumps(crd),
    )  # fmt: skip


def label(env, version):
    env.kubectl(
        "label", "deployment", CONTROLLER, "-n", SYSTEM, "--overwrite",
        f"app.kubernetes.io/version={version}",
    )  # fmt: skip


@LONG
def test_an_upgrade_says_which_fields_come_and_keeps_options_and_jobs(empty):
    assert call(empty, "install", "--image-prefix", "r.example", "--no-wait").returncode == 0
    change_crd(empty, lambda spec: spec["properties"].pop("suspend"))
    empty.kubectl("create", "namespace", "jobs")
    empty.apply(make_job("jobs", {"image": "i:v1"}, "kept"))
    label(empty, "0.0.9")
    assert "kubectl dsjob upgrade" in call(empty, "install").stderr
    done = call(empty, "upgrade", "--dry-run", "--force-conflicts")
    assert f"CustomResourceDefinition {CRD} would be changed" in done.stdout
    done = call(empty, "upgrade", "--no-wait", "--force-conflicts")
    assert done.returncode == 0, done
    assert f"{CRD}: 1 new fields (spec.suspend)" in done.stderr
    assert "upgrade from 0.0.9 to 0.1.0" in done.stderr
    schema = empty.get("crd", CRD)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert "suspend" in schema["properties"]["spec"]["properties"]
    pod = empty.get("deployment", CONTROLLER, SYSTEM)["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"].startswith("r.example/")
    assert empty.get("dsj", "kept", "jobs")["spec"]["image"] == "i:v1"


@LONG
def test_a_downgrade_is_refused_by_version_and_by_fields(installed):
    label(installed, "9.9.9")
    done = call(installed, "upgrade")
    assert done.returncode == 1, done
    assert "would be a downgrade" in done.stderr
    label(installed, "0.1.0")
    change_crd(installed, lambda spec: spec["properties"].update(later={"type": "string"}))
    done = call(installed, "upgrade")
    assert done.returncode == 1, done
    assert "spec.later" in done.stderr


@LONG
def test_what_kustomize_installed_is_upgraded_only_if_it_is_asked_for(empty):
    empty.kubectl("apply", "--server-side", "-k", str(ROOT / "deploy"))
    done = call(empty, "upgrade")
    assert done.returncode == 1, done
    assert "kustomization" in done.stderr
    done = call(empty, "upgrade", "--components", "", "--no-wait", "--force-conflicts")
    assert done.returncode == 0, done
    assert call(empty, "upgrade", "--no-wait").returncode == 0


@LONG
def test_without_a_system_there_is_nothing_to_upgrade(empty):
    done = call(empty, "upgrade")
    assert done.returncode == 1
    assert "kubectl dsjob install" in done.stderr


# --- uninstall ----------------------------------------------------------------------------


@LONG
def test_uninstall_leaves_nothing_but_reports_and_works_twice(installed):
    report = {
        "apiVersion": "daemonset.darkowlzz.space/v1beta1",
        "kind": "JobReport",
        "metadata": {"name": "kept", "namespace": "default"},
        "spec": {"job": {"name": "kept", "uid": "u"}, "image": "i"},
    }
    installed.apply(report)
    metadata = {"name": "daemonset-job-view", "labels": {"app.kubernetes.io/name": "x"}}
    foreign = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "rules": []}
    installed.kubectl("delete", "clusterrole", "daemonset-job-view")
    installed.apply(foreign | {"metadata": metadata})
    dry = call(installed, "uninstall", "--dry-run")
    assert f"Deployment {CONTROLLER} would be deleted" in dry.stdout
    done = call(installed, "uninstall")
    assert done.returncode == 0, done
    assert "1 report." in done.stderr
    assert "ClusterRole daemonset-job-view stays" in done.stderr
    crds = "customresourcedefinition.apiextensions.k8s.io/"
    assert {name for name in names(installed) if not name.startswith(crds)} == {
        "clusterrole.rbac.authorization.k8s.io/daemonset-job-view"
    }
    assert installed.get("dsjr", "kept", "default")
    installed.kubectl("delete", "clusterrole", "daemonset-job-view")
    again = call(installed, "uninstall")
    assert (again.returncode, again.stderr[:13]) == (0, "Nothing to do"), again
    done = call(installed, "uninstall", "--delete-reports")
    assert "Nothing is left" in done.stderr
    assert names(installed) == set()


@LONG
def test_jobs_are_deleted_only_when_that_is_asked_for(installed):
    job = make_job("default", {"image": "i:v1"}, "runs")
    installed.apply(job)
    schedule = {"schedule": "0 3 * * *", "jobTemplate": {"spec": job["spec"]}}
    installed.apply(
        {
            "apiVersion": job["apiVersion"],
            "kind": "ScheduledJob",
            "metadata": {"name": "nightly", "namespace": "default"},
            "spec": schedule,
        }
    )
    for args in ((), ("--delete-reports",)):
        done = call(installed, "uninstall", *args)
        assert done.returncode == 1, done
        assert "default/runs" in done.stderr
        assert "default/nightly" in done.stderr
        assert "--delete-jobs" in done.stderr
    assert installed.get("deployment", CONTROLLER, SYSTEM)
    done = call(installed, "uninstall", "--keep-jobs", "--delete-reports")
    assert done.returncode == 2
    done = call(installed, "uninstall", "--keep-jobs")
    assert done.returncode == 0, done
    assert "1 Job is left without a controller" in done.stderr
    assert installed.get("dsj", "runs", "default")
    done = call(installed, "uninstall", "--delete-jobs")
    assert done.returncode == 0, done
    assert installed.run("get", "dsj", "runs").returncode == 1


@LONG
def test_uninstall_waits_for_the_controller_to_lift_cordons(installed):
    mark = "daemonset.darkowlzz.space/cordoned-by"
    metadata = {"name": "held-1", "annotations": {mark: "default/gone/12345678-uid"}}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": metadata}
    installed.apply(node | {"spec": {"unschedulable": True}})
    try:
        done = call(installed, "uninstall", "--timeout", "1")
        assert done.returncode == 4, done
        assert "not uncordoned nodes of deleted Jobs: held-1" in done.stderr
        assert f"`kubectl annotate node NODE {mark}-`" in done.stderr
        assert installed.get("deployment", CONTROLLER, SYSTEM)
        done = call(installed, "uninstall", "--keep-jobs")
        assert done.returncode == 0, done
        assert "Jobs have left cordons on held-1" in done.stderr
        # Without a controller there is nothing to wait for.
        assert call(installed, "uninstall", "--timeout", "1").returncode == 0
    finally:
        installed.kubectl("delete", "node", "held-1")


# --- doctor -------------------------------------------------------------------------------


@LONG
def test_doctor_finds_what_is_missing_on_an_empty_server(empty):
    done = call(empty, "doctor")
    assert done.returncode == 1, done
    assert f"there is no CRD {CRD}" in done.stdout
    assert "kubectl dsjob install" in done.stdout


def checks(done, level="problem"):
    found = json.loads(done.stdout)["checks"]
    return [each["message"] for each in found if each["level"] == level]


@LONG
def test_doctor_says_that_all_is_well_and_then_what_is_not(installed):
    make_ready(installed)
    hold_leases(installed)
    done = call(installed, "doctor", "-A", "-o", "json")
    assert done.returncode == 0, done
    assert checks(done) == checks(done, "unknown") == []

    hold_leases(installed, age=600)
    binding = "daemonset-job-needs-nodes"
    installed.kubectl("delete", "validatingadmissionpolicybinding", binding)
    installed.kubectl("scale", "deployment", CONTROLLER, "-n", SYSTEM, "--replicas=0")
    change_crd(installed, lambda spec: spec["properties"].pop("suspend"))
    rules = installed.get("clusterrole", CONTROLLER)["rules"]
    left = [rule for rule in rules if "jobs/status" not in rule["resources"]]
    patch = json.dumps({"rules": left})
    installed.kubectl("patch", "clusterrole", CONTROLLER, "--type=merge", "-p", patch)
    since = f"{datetime.now(UTC) - timedelta(minutes=9):%Y-%m-%dT%H:%M:%SZ}"
    installed.apply(make_job("default", {"image": "i:v1"}, "stuck"))
    condition = {"type": "Progressing", "status": "False", "reason": "FailedCreate",
                 "message": "exceeded quota", "lastTransitionTime": since}  # fmt: skip
    status = {"phase": "Running", "conditions": [condition]}
    installed.patch_status("dsj", "stuck", "default", status)
    done = call(installed, "doctor", "-A", "-o", "json")
    assert done.returncode == 1, done
    found = checks(done)
    assert any("lacks spec.suspend" in each for each in found)
    assert any("0 replicas" in each for each in found)
    assert sum("has not renewed the Lease" in each for each in found) == 2
    assert any("daemonset-job-needs-nodes is not bound" in each for each in found)
    assert any(f"the ClusterRole {CONTROLLER}: patch jobs/status" in each for each in found)
    assert any("default/stuck" in each and "exceeded quota" in each for each in found)


@LONG
def test_doctor_says_what_a_user_may_not_read_and_goes_on(installed):
    make_ready(installed)
    hold_leases(installed)
    account = {"apiVersion": "v1", "kind": "ServiceAccount",
               "metadata": {"name": "reader", "namespace": "default"}}  # fmt: skip
    installed.apply(account)
    kubeconfig = installed.kubeconfig_for_service_account("default", "reader")
    done = call(installed, "doctor", "-o", "json", kubeconfig=kubeconfig)
    assert done.returncode == 0, done
    unknown = checks(done, "unknown")
    assert any("you may not read the CRD" in each for each in unknown)
    assert any("you may not read the admission policies" in each for each in unknown)
    assert any("you may not create Jobs" in each for each in checks(done, "note"))
    args = (
        "create",
        "rolebinding",
        "reader",
        "--clusterrole=edit",
        "--serviceaccount=default:reader",
    )
    installed.kubectl(*args)
    try:
        done = call(installed, "doctor", kubeconfig=kubeconfig)
    finally:
        installed.kubectl("delete", "rolebinding", "reader")
    assert done.returncode == 0, done
    assert "so it exists" in done.stdout
    assert "have Jobs start pods" in done.stdout

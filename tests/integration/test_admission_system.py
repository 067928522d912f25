"""What the system's own account may not do although RBAC, which knows no labels, lets it."""

import json
import time
from dataclasses import dataclass
from typing import Any

import pytest

from daemonset_job.api.owners import owner_reference
from tests.integration.jobs import API_VERSION, job, report
from tests.integration.kube_env import KubeEnv, User, service_account

ACCOUNT = service_account("daemonset-job-system", "daemonset-job-controller")
OURS = {"daemonset-job": "true"}
TURN = "daemonset.darkowlzz.space/start"
UID_LABEL = "daemonset.darkowlzz.space/job-uid"
UID = "12345678-0000-0000-0000-000000000000"


@pytest.fixture(autouse=True, scope="module")
def _policies_in_force(kube_env: KubeEnv) -> None:
    """The API server takes about a second to follow policies: wait for the one applied last."""
    kube_env.apply(job("default", name="probe"))
    words = ("delete", "dsj", "probe", "-n", "default", "--dry-run=server")
    deadline = time.monotonic() + 30
    while not kube_env.run(*words, user=ACCOUNT).returncode:
        assert time.monotonic() < deadline, "the policies are not in force"
        time.sleep(0.1)


def make(env: KubeEnv, body: dict[str, Any]) -> dict[str, Any]:
    """Create an object as administrator."""
    out = env.kubectl("create", "-o", "json", "-f", "-", input=json.dumps(body))
    made: dict[str, Any] = json.loads(out)
    return made


def pod(namespace: str, name: str, **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, **metadata},
        "spec": {
            "containers": [{"name": "main", "image": "example/task:v1"}],
            "schedulingGates": [{"name": TURN}, {"name": "example.com/other"}],
        },
    }


def daemon_set(namespace: str, name: str = "sample") -> dict[str, Any]:
    """Return a DaemonSet as the controller makes it, as far as the policy looks."""
    labels = OURS | {UID_LABEL: UID}
    owner = {"apiVersion": API_VERSION, "kind": "Job", "name": "sample", "uid": UID}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": labels,
            "ownerReferences": [owner | {"controller": True}],
        },
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "main", "image": "example/task:v1"}]},
            },
        },
    }


PATHS = {
    "pods": "/api/v1",
    "daemonsets": "/apis/apps/v1",
    "jobreports": f"/apis/{API_VERSION}",
    "jobs": f"/apis/{API_VERSION}",
}


@dataclass(frozen=True)
class Account:
    """What the system's account receives when it changes objects of a namespace."""

    env: KubeEnv
    namespace: str
    user: User = ACCOUNT

    def patch(self, resource: str, name: str, body: dict[str, Any]) -> str:
        """Merge-patch an object; return why that was refused, "" if it was not."""
        return self._ask("PATCH", resource, name, body)

    def delete(self, resource: str, name: str) -> str:
        """Delete an object; return why that was refused, "" if it was not."""
        return self._ask("DELETE", resource, name, None)

    def _ask(self, method: str, resource: str, name: str, body: Any) -> str:
        path = f"{PATHS[resource]}/namespaces/{self.namespace}/{resource}/{name}"
        status, answer = self.env.request(method, path, body, self.user)
        assert status in {200, 202, 403}, answer
        return str(answer["message"]) if status == 403 else ""


@pytest.fixture
def account(kube_env: KubeEnv, namespace: str) -> Account:
    return Account(kube_env, namespace)


# --- pods --------------------------------------------------------------------------------


def test_pods_of_others_are_neither_changed_nor_deleted(kube_env, namespace, account):
    make(kube_env, pod(namespace, "other"))
    image = {"spec": {"containers": [{"name": "main", "image": "example/evil:v1"}]}}
    for refusal in (
        account.patch("pods", "other", image),
        account.patch("pods", "other", {"spec": {"schedulingGates": None}}),
        account.patch("pods", "other", {"metadata": {"labels": OURS}}),
        account.delete("pods", "other"),
    ):
        assert "only pods with the label daemonset-job=true" in refusal


def test_of_its_own_pods_only_its_own_gate_comes_off(kube_env, namespace, account):
    made = make(kube_env, pod(namespace, "mine", labels=OURS))
    for spec in (
        {"containers": [{"name": "main", "image": "example/evil:v1"}]},
        {"activeDeadlineSeconds": 1},
        {"tolerations": [*made["spec"]["tolerations"], {"operator": "Exists"}]},
        {"nodeSelector": {"a": "b"}},
    ):
        refusal = account.patch("pods", "mine", {"spec": spec})
        assert "may remove scheduling gates of a pod and change nothing else" in refusal
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": UID}
    for metadata in (
        {"labels": {"a": "b"}},
        {"labels": None},
        {"annotations": {"a": "b"}},
        {"ownerReferences": [owner]},
        {"finalizers": ["example.com/stay"]},
    ):
        refusal = account.patch("pods", "mine", {"metadata": metadata})
        assert "no label, annotation, owner or finalizer of a pod" in refusal
    refusal = account.patch("pods", "mine", {"spec": {"schedulingGates": None}})
    assert "no scheduling gate but" in refusal
    others = {"spec": {"schedulingGates": [{"name": "example.com/other"}]}}
    assert account.patch("pods", "mine", others) == ""
    assert account.delete("pods", "mine") == ""


def test_the_gate_of_the_first_version_comes_off_too(kube_env, namespace, account):
    body = pod(namespace, "mine", labels=OURS)
    body["spec"]["schedulingGates"] = [{"name": "daemonset.darkowlzz.space/turn"}]
    make(kube_env, body)
    assert account.patch("pods", "mine", {"spec": {"schedulingGates": None}}) == ""


# --- DaemonSets --------------------------------------------------------------------------


def test_daemon_sets_of_others_are_neither_changed_nor_deleted(kube_env, namespace, account):
    body = daemon_set(namespace)
    owners = body["metadata"].pop("ownerReferences")
    body["spec"]["selector"] = {"matchLabels": {"app": "other"}}
    body["spec"]["template"]["metadata"] = {"labels": {"app": "other"}}
    make(kube_env, body)
    for refusal in (
        account.patch("daemonsets", "sample", {"metadata": {"ownerReferences": owners}}),
        account.patch("daemonsets", "sample", {"spec": {"minReadySeconds": 1}}),
        account.delete("daemonsets", "sample"),
    ):
        assert "only DaemonSets that it created" in refusal


@pytest.mark.parametrize("lacking", ["label", "owner", "controller", "kind", "group", "uid"])
def test_no_daemon_set_is_made_that_no_job_controls(kube_env: KubeEnv, namespace, lacking):
    body = daemon_set(namespace)
    meta = body["metadata"]
    (owner,) = meta["ownerReferences"]
    match lacking:
        case "label":
            del meta["labels"]["daemonset-job"]
            meta["labels"] = dict(meta["labels"])
            body["spec"]["selector"] = {"matchLabels": OURS | {UID_LABEL: UID}}
            body["spec"]["template"]["metadata"] = {"labels": OURS | {UID_LABEL: UID}}
        case "owner":
            del meta["ownerReferences"]
        case "controller":
            owner["controller"] = False
        case "kind":
            owner["kind"] = "JobReport"
        case "group":
            owner["apiVersion"] = "batch/v1"
        case "uid":
            owner["uid"] = UID.replace("1", "2")
    words = ("apply", "--server-side", "-f", "-")
    refusal = kube_env.refusal(*words, input=json.dumps(body), user=ACCOUNT)
    assert "that a Job (daemonset.darkowlzz.space) controls" in refusal
    assert kube_env.run("get", "ds", "sample", "-n", namespace).returncode


def test_its_own_daemon_sets_are_made_mended_and_deleted(kube_env, namespace, account):
    words = ("apply", "--server-side", "--force-conflicts", "-f", "-")
    kube_env.kubectl(*words, input=json.dumps(daemon_set(namespace)), user=ACCOUNT)
    # A user takes off what the controller finds it by; it puts that back.
    spoilt = {"metadata": {"labels": None, "ownerReferences": None}}
    as_user = Account(kube_env, namespace, User("admin", ("system:masters",)))
    assert as_user.patch("daemonsets", "sample", spoilt) == ""
    kube_env.kubectl(*words, input=json.dumps(daemon_set(namespace)), user=ACCOUNT)
    assert kube_env.get("ds", "sample", namespace)["metadata"]["labels"] == OURS | {UID_LABEL: UID}
    for metadata in ({"labels": {"daemonset-job": None}}, {"ownerReferences": None}):
        refusal = account.patch("daemonsets", "sample", {"metadata": metadata})
        assert "may create only DaemonSets with the label" in refusal
    assert account.delete("daemonsets", "sample") == ""


# --- reports and Jobs --------------------------------------------------------------------


def evidence(node: str) -> dict[str, Any]:
    return {
        "evidence": {
            node: {"nodeUID": "u", "podUID": "p", "completedAt": "2025-01-01T00:00:00Z"},
        }
    }


def test_a_report_begins_without_evidence_and_keeps_its_labels(kube_env, namespace, account):
    words = ("create", "-f", "-")
    forged = report(namespace) | evidence("a")
    refusal = kube_env.refusal(*words, input=json.dumps(forged), user=ACCOUNT)
    assert "must create a JobReport without evidence" in refusal
    kube_env.kubectl(*words, input=json.dumps(report(namespace)), user=ACCOUNT)
    name = report(namespace)["metadata"]["name"]
    assert account.patch("jobreports", name, evidence("a")) == ""
    body = {"metadata": {"labels": {UID_LABEL: "another"}}}
    refusal = account.patch("jobreports", name, body)
    assert "no label, annotation, owner or finalizer of a JobReport" in refusal
    assert account.patch("jobreports", name, {"metadata": {"managedFields": [{}]}}) == ""


@pytest.mark.parametrize("condition", [None, "Complete", "Failed"])
def test_a_job_is_deleted_only_when_its_status_says_that_it_is_over(
    kube_env: KubeEnv, namespace, account, condition
):
    kube_env.apply(job(namespace))
    assert "condition Complete or Failed" in account.delete("jobs", "sample")
    condition_body = {
        "type": condition or "Progressing",
        "status": "True",
        "reason": "Testing",
        "message": "",
        "lastTransitionTime": "2025-01-01T00:00:00Z",
    }
    kube_env.patch_status("dsj", "sample", namespace, {"conditions": [condition_body]})
    refusal = account.delete("jobs", "sample")
    assert ("condition Complete or Failed" in refusal) is (condition is None)


@pytest.mark.parametrize("kind", ["Job", "ScheduledJob", "JobReport", ""])
def test_a_job_is_created_only_for_a_job_or_a_scheduled_job(
    kube_env: KubeEnv, namespace, account, kind
):
    body = job(namespace)
    if kind:
        body["metadata"]["ownerReferences"] = [owner_reference(kind, "other", UID)]
    words = ("create", "-f", "-")
    if kind in {"Job", "ScheduledJob"}:
        kube_env.kubectl(*words, input=json.dumps(body), user=ACCOUNT)
        # It may be deleted at any time, too.
        assert account.delete("jobs", "sample") == ""
    else:
        refusal = kube_env.refusal(*words, input=json.dumps(body), user=ACCOUNT)
        assert "only Jobs that a ScheduledJob or a Job controls" in refusal


def test_the_policies_do_not_apply_to_other_users(kube_env: KubeEnv, namespace):
    make(kube_env, pod(namespace, "other"))
    kube_env.kubectl("label", "pod", "other", "a=b", "-n", namespace)
    kube_env.kubectl("delete", "pod", "other", "-n", namespace, "--wait=false")
    kube_env.apply(job(namespace))
    kube_env.kubectl("delete", "dsj", "sample", "-n", namespace)

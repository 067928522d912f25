"""spec.cordon and spec.drain: who may ask for it, what the account may do, what is refused."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.conftest import install
from tests.integration.jobs import IMAGE, job
from tests.integration.kube_env import ROOT, KubeEnv, User, service_account
from tests.integration.kube_env import kube_env as run_kube_env
from tests.integration.test_admission import grant

pytestmark = pytest.mark.timeout(120)

COMPONENTS = ROOT / "deploy" / "components"
ACCOUNT = service_account("daemonset-job-system", "daemonset-job-controller")
MARK = "daemonset.darkowlzz.space/cordoned-by"
JOB = "shop/sample/1234"
BOTH = "only together with its mark"
NODES_RIGHT = "needs the right to patch nodes, which user writer does not have"
EVICTION_RIGHT = "needs the right to evict them there, which user writer does not have"


@pytest.fixture(scope="module")
def kube_env() -> Iterator[KubeEnv]:
    """An API server of this module's own, with the component."""
    with run_kube_env(controllers=["clusterrole-aggregation-controller"]) as env:
        install(env, ROOT / "deploy")
        env.kubectl("apply", "--server-side", "-k", str(COMPONENTS / "drain"))
        make_node(env, "probe")
        wait_refusal(env, "probe", {"spec": {"unschedulable": True}}, BOTH)
        yield env


def make_node(env: KubeEnv, name: str, mark: str = "", **spec: Any) -> None:
    annotations = {"note": "b"} | ({MARK: mark} if mark else {})
    metadata = {"name": name, "labels": {"team": "a"}, "annotations": annotations}
    body = {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec}
    env.kubectl("create", "-f", "-", input=json.dumps(body))
    env.kubectl("taint", "node", name, "node.kubernetes.io/not-ready-")


def patch_node(env: KubeEnv, name: str, body: dict[str, Any]) -> str:
    """Patch a node as the controller's account; return why that was refused, "" if it was not."""
    status, answer = env.request("PATCH", f"/api/v1/nodes/{name}", body, ACCOUNT)
    assert status in {200, 403}, answer
    return str(answer["message"]) if status == 403 else ""


def wait_refusal(env: KubeEnv, name: str, body: dict[str, Any], words: str) -> None:
    """Return once the policies are in force: the API server takes about a second."""
    deadline = time.monotonic() + 30
    while words not in (answer := patch_node(env, name, body)):
        assert time.monotonic() < deadline, answer
        time.sleep(0.2)
        env.kubectl("uncordon", name)  # without a change there is nothing to refuse
        env.kubectl("label", "node", name, "c-", "node-role.kubernetes.io/a-")


def cordon(mark: str | None, cordoned: bool | None) -> dict[str, Any]:
    return {"metadata": {"annotations": {MARK: mark}}, "spec": {"unschedulable": cordoned}}


# --- the author of a Job -----------------------------------------------------------------


@pytest.fixture
def writer(kube_env: KubeEnv, namespace: str) -> User:
    """A user who may write Jobs and create DaemonSets, and neither patch nodes nor evict."""
    user = User("writer")
    rules = ("*", "jobs.daemonset.darkowlzz.space"), ("create", "daemonsets.apps")
    grant(kube_env, namespace, user, *rules)
    return user


def allow(env: KubeEnv, user: User, verb: str, resource: str, name: str) -> None:
    env.kubectl("create", "clusterrole", name, f"--verb={verb}", f"--resource={resource}")
    env.kubectl(
        "create", "clusterrolebinding", name, f"--clusterrole={name}", f"--user={user.name}"
    )


@pytest.mark.parametrize("spec", [{"cordon": True}, {"drain": {}}], ids=["cordon", "drain"])
def test_an_author_without_the_right_to_patch_nodes_is_refused(kube_env, namespace, writer, spec):
    body = json.dumps(job(namespace, IMAGE | spec))
    assert NODES_RIGHT in kube_env.refusal("apply", "-f", "-", input=body, user=writer)


def test_an_author_needs_the_right_to_evict_pods_everywhere_for_a_drain(kube_env, namespace):
    user = User("writer")
    rules = ("*", "jobs.daemonset.darkowlzz.space"), ("create", "daemonsets.apps")
    # In the namespace of the Job alone, the right to evict does not do.
    grant(kube_env, namespace, user, *rules, ("create", "pods/eviction"))
    allow(kube_env, user, "patch", "nodes", f"patch-{namespace}")
    try:
        kube_env.apply(job(namespace, IMAGE | {"cordon": True}), user=user)
        drained = json.dumps(job(namespace, IMAGE | {"drain": {}}, name="drained"))
        refusal = kube_env.refusal("apply", "-f", "-", input=drained, user=user)
        assert EVICTION_RIGHT in refusal
        assert "ask an administrator for the verb create on pods/eviction" in refusal
        allow(kube_env, user, "create", "pods/eviction", f"evict-{namespace}")
        kube_env.apply(json.loads(drained), user=user)
    finally:
        for name in (f"patch-{namespace}", f"evict-{namespace}"):
            kube_env.kubectl("delete", "clusterrolebinding,clusterrole", name, "--ignore-not-found")


def test_a_job_that_does_not_cordon_needs_no_such_right(kube_env, namespace, writer):
    kube_env.apply(job(namespace, IMAGE | {"cordon": False}), user=writer)


# --- the fields --------------------------------------------------------------------------

BAD = {
    "no time at all": ({"drain": {"timeoutSeconds": 0}}, "spec.drain.timeoutSeconds"),
    "negative grace": ({"drain": {"gracePeriodSeconds": -1}}, "spec.drain.gracePeriodSeconds"),
    "operator without values": (
        {"drain": {"podSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}}},
        "needs values with In and NotIn",
    ),
    "after itself": ({"after": ["sample"]}, "spec.after must not name the Job itself"),
    "after no name": ({"after": ["No Name"]}, "spec.after must hold names of Jobs"),
}


@pytest.mark.parametrize(("spec", "words"), BAD.values(), ids=BAD)
def test_bad_values_are_refused_with_their_field(kube_env, namespace, spec, words):
    body = json.dumps(job(namespace, IMAGE | spec))
    assert words in kube_env.refusal("apply", "-f", "-", input=body)


def test_what_a_started_job_does_to_nodes_stays(kube_env, namespace):
    kube_env.apply(job(namespace, IMAGE | {"drain": {}}))
    words = ("patch", "dsj", "sample", "-n", namespace, "--type=merge")
    start = json.dumps({"status": {"startTime": "2026-01-02T03:04:05Z"}})
    kube_env.kubectl(
        "patch",
        "dsj",
        "sample",
        "-n",
        namespace,
        "--subresource=status",
        "--type=merge",
        "-p",
        start,
    )

    def refusal(spec: dict[str, Any]) -> str:
        return kube_env.refusal(*words, "-p", json.dumps({"spec": spec}))

    assert "spec.drain cannot be added or removed" in refusal({"drain": None})
    assert "spec.cordon cannot change" in refusal({"cordon": True})
    # More time, or force, for a drain that was refused.
    body = json.dumps({"spec": {"drain": {"timeoutSeconds": 900, "force": True}}})
    kube_env.kubectl(*words, "-p", body)


# --- the account of the controller -------------------------------------------------------


def test_the_account_cordons_and_uncordons_with_its_mark(kube_env: KubeEnv):
    make_node(kube_env, "free")
    assert patch_node(kube_env, "free", cordon(JOB, True)) == ""
    assert patch_node(kube_env, "free", cordon(None, None)) == ""
    # A user uncordons it: the mark alone goes.
    assert patch_node(kube_env, "free", cordon(JOB, True)) == ""
    kube_env.kubectl("uncordon", "free")
    assert patch_node(kube_env, "free", cordon(None, None)) == ""


TAINT = {"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}}
FINALIZER = {"metadata": {"finalizers": ["example.com/a"]}}
CONFINED = {
    "cordon without mark": ("plain", {"spec": {"unschedulable": True}}, BOTH),
    "lift a person's cordon": ("cordoned", {"spec": {"unschedulable": None}}, BOTH),
    "mark a person's cordon": ("cordoned", cordon(JOB, True), "was there before is not its own"),
    "mark alone": ("plain", {"metadata": {"annotations": {MARK: JOB}}}, "only when it cordons"),
    "leave the mark": ("marked", {"spec": {"unschedulable": None}}, BOTH),
    "another mark": ("marked", cordon("shop/other/1", True), "only when it cordons"),
    "label": ("plain", {"metadata": {"labels": {"a": "b"}}}, "no label, taint or other annotation"),
    "annotation": ("plain", {"metadata": {"annotations": {"note": None}}}, "no label, taint"),
    "taint": (
        "plain",
        TAINT,
        "no label, taint",
    ),
    "pod range": ("plain", {"spec": {"podCIDR": "10.0.0.0/24"}}, "nothing else of its spec"),
    "finalizer": (
        "plain",
        {"metadata": {"finalizers": ["example.com/a"]}},
        "no owner or finalizer",
    ),
}


@pytest.fixture(scope="module")
def confined(kube_env: KubeEnv) -> None:
    make_node(kube_env, "plain")
    make_node(kube_env, "cordoned", unschedulable=True)
    make_node(kube_env, "marked", mark=JOB, unschedulable=True)


@pytest.mark.usefixtures("confined")
@pytest.mark.parametrize(("name", "body", "words"), CONFINED.values(), ids=CONFINED)
def test_the_account_changes_nothing_else_of_a_node(kube_env: KubeEnv, name, body, words):
    assert words in patch_node(kube_env, name, body)


def test_the_account_lists_and_evicts_pods_of_all_namespaces(kube_env: KubeEnv):
    for verb, resource in (("list", "pods"), ("create", "pods/eviction"), ("patch", "nodes")):
        assert kube_env.is_allowed(ACCOUNT, verb, resource, "anywhere"), resource
    for verb, resource in (("create", "pods"), ("update", "nodes"), ("patch", "nodes/status")):
        assert not kube_env.is_allowed(ACCOUNT, verb, resource, "anywhere"), resource


def test_with_the_other_component_each_policy_confines_its_own_fields(kube_env: KubeEnv):
    folder = str(COMPONENTS / "node-changes")
    make_node(kube_env, "both")
    label = {"metadata": {"labels": {"example.com/prepared": "true"}}}
    try:
        kube_env.kubectl("apply", "--server-side", "-k", folder)
        reserved = {"metadata": {"labels": {"node-role.kubernetes.io/a": ""}}}
        wait_refusal(kube_env, "both", reserved, "unless an administrator chose them")
        assert patch_node(kube_env, "both", label) == ""
        assert patch_node(kube_env, "both", cordon(JOB, True)) == ""
        assert patch_node(kube_env, "both", cordon(None, None)) == ""
        assert BOTH in patch_node(kube_env, "both", {"spec": {"unschedulable": True}})
        other = {"metadata": {"annotations": {"daemonset.darkowlzz.space/other": "a"}}}
        assert "unless an administrator chose them" in patch_node(kube_env, "both", other)
    finally:
        kube_env.kubectl("delete", "-k", folder, "--ignore-not-found")
    wait_refusal(kube_env, "both", {"metadata": {"labels": {"c": "d"}}}, "no label, taint")

"""spec.onSuccess and results on nodes: who may ask for it, what the account may do, the change."""

import asyncio
import json
import os
import time
from collections.abc import Iterator
from typing import Any

import pytest

from daemonset_job.kube.client.resource import JOBS, NODES
from tests.integration.conftest import install
from tests.integration.harness import condition, open_harness
from tests.integration.jobs import IMAGE, job
from tests.integration.kube_env import ROOT, KubeEnv, User, service_account
from tests.integration.kube_env import kube_env as run_kube_env
from tests.integration.simulated_nodes import OWNER_LABEL, TaskRun
from tests.integration.test_admission import grant
from tests.integration.test_scheduled import scheduled

pytestmark = pytest.mark.timeout(90)

COMPONENT = ROOT / "deploy" / "components" / "node-changes"
ACCOUNT = service_account("daemonset-job-system", "daemonset-job-controller")
KEY = "example.com/prepared"
TAINT = "example.com/not-prepared"
ROLE = "node-role.kubernetes.io/storage"
RIGHT = "needs the right to patch nodes, which user writer does not have"


@pytest.fixture(scope="module")
def kube_env() -> Iterator[KubeEnv]:
    """An API server of this module's own, with the component."""
    with run_kube_env(controllers=["clusterrole-aggregation-controller"]) as env:
        install(env, ROOT / "deploy")
        env.kubectl("apply", "--server-side", "-k", str(COMPONENT))
        make_node(env, "probe")
        _wait_refused(env, {"metadata": {"labels": {ROLE: ""}}})
        yield env


def make_node(env: KubeEnv, name: str, **spec: Any) -> None:
    metadata = {
        "name": name,
        "labels": {"kubernetes.io/hostname": name, "team": "a"},
        "annotations": {"note": "b"},
    }
    body = {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec}
    env.kubectl("create", "-f", "-", input=json.dumps(body))


def patch_node(env: KubeEnv, name: str, body: dict[str, Any]) -> str:
    """Patch a node as the controller's account; return why that was refused, "" if it was not."""
    status, answer = env.request("PATCH", f"/api/v1/nodes/{name}", body, ACCOUNT)
    assert status in {200, 403}, answer
    return str(answer["message"]) if status == 403 else ""


def _wait_refused(env: KubeEnv, body: dict[str, Any]) -> None:
    """Return once the policies are in force: the API server takes about a second."""
    deadline = time.monotonic() + 30
    while not patch_node(env, "probe", body):
        env.kubectl("label", "node", "probe", f"{ROLE}-")
        assert time.monotonic() < deadline, "the policies are not in force"
        time.sleep(0.1)
    refused = json.dumps(job("default", IMAGE | {"onSuccess": {"labels": {ROLE: "a"}}}))
    while not env.run("create", "--dry-run=server", "-f", "-", input=refused).returncode:
        assert time.monotonic() < deadline, "the policies are not in force"
        time.sleep(0.1)


# --- the author of a Job -----------------------------------------------------------------

CHANGING = {
    "onSuccess": {"onSuccess": {"labels": {KEY: "true"}}},
    "label": {"results": [{"name": "kernel", "label": "example.com/kernel"}]},
    "annotation": {"results": [{"name": "kernel", "annotation": "example.com/kernel"}]},
}


@pytest.fixture
def writer(kube_env: KubeEnv, namespace: str) -> User:
    """A user who may write Jobs and create DaemonSets, and not patch nodes."""
    user = User("writer")
    rules = ("*", "jobs.daemonset.darkowlzz.space"), ("create", "daemonsets.apps")
    grant(kube_env, namespace, user, *rules)
    return user


@pytest.mark.parametrize("spec", CHANGING.values(), ids=CHANGING)
def test_an_author_without_the_right_to_patch_nodes_is_refused(kube_env, namespace, writer, spec):
    body = json.dumps(job(namespace, IMAGE | spec))
    refusal = kube_env.refusal("apply", "-f", "-", input=body, user=writer)
    assert RIGHT in refusal
    assert "ask an administrator for the verb patch on nodes" in refusal


def test_a_job_that_changes_no_node_needs_no_such_right(kube_env, namespace, writer):
    kube_env.apply(job(namespace, IMAGE | {"results": [{"name": "kernel"}]}), user=writer)


def test_no_change_of_such_a_job_is_left_to_others(kube_env, namespace, writer):
    kube_env.apply(job(namespace, IMAGE | CHANGING["onSuccess"]))
    for spec in ({"nodes": {"include": ["a"]}}, {"suspend": True}):
        refusal = kube_env.refusal(
            "patch", "dsj", "sample", "-n", namespace, "--type=merge",
            "-p", json.dumps({"spec": spec}), user=writer,
        )  # fmt: skip
        assert RIGHT in refusal
    for request in ("retry=1", "rerun=*@1"):
        words = ("annotate", "dsj", "sample", "-n", namespace)
        refusal = kube_env.refusal(*words, f"daemonset.darkowlzz.space/{request}", user=writer)
        assert RIGHT in refusal
    # What starts nothing, and what changes no node any more.
    kube_env.kubectl("label", "dsj", "sample", "a=b", "-n", namespace, user=writer)
    kube_env.kubectl(
        "patch", "dsj", "sample", "-n", namespace, "--type=merge",
        "-p", '{"spec": {"onSuccess": null}}', user=writer,
    )  # fmt: skip


def test_an_author_who_may_patch_nodes_is_not_refused(kube_env, namespace):
    user = User("operator")
    rules = ("*", "jobs.daemonset.darkowlzz.space"), ("create", "daemonsets.apps")
    grant(kube_env, namespace, user, *rules)
    name = f"patch-nodes-{namespace}"
    kube_env.kubectl("create", "clusterrole", name, "--verb=patch", "--resource=nodes")
    kube_env.kubectl(
        "create", "clusterrolebinding", name, f"--clusterrole={name}", f"--user={user.name}"
    )
    kube_env.apply(job(namespace, IMAGE | CHANGING["onSuccess"]), user=user)


RESERVED = {
    "label": ({"onSuccess": {"labels": {ROLE: ""}}}, ROLE),
    "annotation": (
        {"onSuccess": {"annotations": {"cluster-autoscaler.kubernetes.io/a": ""}}},
        "cluster-autoscaler.kubernetes.io/a",
    ),
    "taint": (
        {"onSuccess": {"removeTaints": [TAINT, "node.kubernetes.io/unschedulable"]}},
        "(node.kubernetes.io/unschedulable)",
    ),
    "bare prefix": ({"onSuccess": {"labels": {"k8s.io/a": ""}}}, "k8s.io/a"),
    "of this system": (
        {"onSuccess": {"labels": {"daemonset.darkowlzz.space/a": ""}}},
        "daemonset.darkowlzz.space/a",
    ),
    "results": (
        {
            "results": [
                {"name": "a", "label": "a.k8s.io/a"},
                {"name": "b", "annotation": "b.k8s.io/b"},
            ]
        },
        "(a.k8s.io/a, b.k8s.io/b)",
    ),
}


@pytest.mark.parametrize(("spec", "named"), RESERVED.values(), ids=RESERVED)
def test_reserved_keys_are_refused_at_apply(kube_env, namespace, spec, named):
    body = json.dumps(job(namespace, IMAGE | spec))
    refusal = kube_env.refusal("apply", "-f", "-", input=body)
    assert "must not use keys that are reserved for Kubernetes or for this system" in refusal
    assert named in refusal
    assert TAINT not in refusal


def test_reserved_keys_are_refused_in_the_template_of_a_scheduled_job(kube_env, namespace):
    template = IMAGE | {"onSuccess": {"labels": {ROLE: "a"}}}
    body = json.dumps(scheduled(namespace, template))
    refusal = kube_env.refusal("apply", "-f", "-", input=body)
    assert f"reserved for Kubernetes or for this system ({ROLE})" in refusal
    kube_env.apply(scheduled(namespace, IMAGE | CHANGING["onSuccess"]))


def test_a_key_that_only_looks_reserved_is_taken(kube_env, namespace):
    labels = {"notkubernetes.io/a": "", "kubernetes.io.example.com/a": "", "kubernetes.io": ""}
    kube_env.apply(job(namespace, IMAGE | {"onSuccess": {"labels": labels}}))


def test_an_administrator_can_choose_reserved_keys(kube_env: KubeEnv, tmp_path):
    patch = f"- {{op: replace, path: /spec/variables/0/expression, value: \"['{ROLE}']\"}}"
    overlay = tmp_path / "overlay"
    overlay.mkdir()
    target = {"kind": "ValidatingAdmissionPolicy", "name": "daemonset-job-node-(changes|keys)"}
    content = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "components": [os.path.relpath(COMPONENT, overlay)],
        "patches": [{"target": target, "patch": patch}],
    }
    (overlay / "kustomization.yaml").write_text(json.dumps(content))
    spec = IMAGE | {"onSuccess": {"labels": {ROLE: "a", "kubernetes.io/os": "a"}}}
    body = json.dumps(job("default", spec))
    try:
        kube_env.kubectl("apply", "--server-side", "-k", str(overlay))
        deadline = time.monotonic() + 30
        while patch_node(kube_env, "probe", {"metadata": {"labels": {ROLE: ""}}}):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        refusal = patch_node(kube_env, "probe", {"metadata": {"labels": {"kubernetes.io/os": "a"}}})
        assert "unless an administrator chose them: kubernetes.io/os" in refusal
        while "(kubernetes.io/os)" not in kube_env.refusal(
            "create", "--dry-run=server", "-f", "-", input=body
        ):
            assert time.monotonic() < deadline
            time.sleep(0.1)
    finally:
        kube_env.kubectl("apply", "--server-side", "--force-conflicts", "-k", str(COMPONENT))
        kube_env.kubectl("label", "node", "probe", f"{ROLE}-")
        _wait_refused(kube_env, {"metadata": {"labels": {ROLE: ""}}})


# --- the account of the controller -------------------------------------------------------


def test_the_account_changes_labels_annotations_and_taints_of_a_node(kube_env: KubeEnv):
    taints = [{"key": TAINT, "effect": "NoSchedule"}, {"key": "other", "effect": "NoExecute"}]
    make_node(kube_env, "free", taints=taints)
    # Every new node gets this one as well, which the patch would remove.
    kube_env.kubectl("taint", "node", "free", "node.kubernetes.io/not-ready-")
    body = {
        "metadata": {"labels": {KEY: "true", "team": "b"}, "annotations": {KEY: "yes"}},
        "spec": {"taints": taints[1:]},
    }
    assert patch_node(kube_env, "free", body) == ""
    assert patch_node(kube_env, "free", {"spec": {"taints": None}}) == ""


CONFINED = {
    "cordon": ({"spec": {"unschedulable": True}}, "labels, annotations and taints"),
    "pod range": ({"spec": {"podCIDR": "10.0.0.0/24"}}, "labels, annotations and taints"),
    "provider": ({"spec": {"providerID": "a://b"}}, "labels, annotations and taints"),
    "finalizer": ({"metadata": {"finalizers": ["example.com/a"]}}, "no owner or finalizer"),
    "owner": (
        {
            "metadata": {
                "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "y"}]
            }
        },
        "no owner or finalizer",
    ),
    "new taint": (
        {
            "spec": {
                "taints": [
                    {"key": TAINT, "effect": "NoSchedule"},
                    {"key": "more", "effect": "NoSchedule"},
                ]
            }
        },
        "may only remove taints",
    ),
    "other effect": (
        {"spec": {"taints": [{"key": TAINT, "effect": "NoExecute"}]}},
        "may only remove taints",
    ),
    "removed label": ({"metadata": {"labels": {"team": None}}}, "may remove no label"),
    "removed annotation": ({"metadata": {"annotations": {"note": None}}}, "no annotation"),
    "reserved label": (
        {"metadata": {"labels": {ROLE: ""}}},
        f"unless an administrator chose them: {ROLE}",
    ),
    "reserved label, another value": (
        {"metadata": {"labels": {"kubernetes.io/hostname": "other"}}},
        "unless an administrator chose them: kubernetes.io/hostname",
    ),
    "reserved annotation": ({"metadata": {"annotations": {"k8s.io/a": ""}}}, "them: k8s.io/a"),
    "reserved taint": (
        {"spec": {"taints": [{"key": TAINT, "effect": "NoSchedule"}]}},
        "them: node.kubernetes.io/network-unavailable",
    ),
}


@pytest.fixture(scope="module")
def confined(kube_env: KubeEnv) -> str:
    """A node with a taint of a user, and one of Kubernetes."""
    make_node(
        kube_env,
        "confined",
        taints=[
            {"key": TAINT, "effect": "NoSchedule"},
            {"key": "node.kubernetes.io/network-unavailable", "effect": "NoSchedule"},
        ],
    )
    kube_env.kubectl("taint", "node", "confined", "node.kubernetes.io/not-ready-")
    return "confined"


@pytest.mark.parametrize(("body", "words"), CONFINED.values(), ids=CONFINED)
def test_the_account_changes_nothing_else_of_a_node(kube_env: KubeEnv, confined, body, words):
    assert words in patch_node(kube_env, confined, body)


def test_the_account_neither_creates_nor_deletes_nor_reports_nodes(kube_env: KubeEnv, confined):
    for method, path, body in (
        ("DELETE", f"/api/v1/nodes/{confined}", None),
        ("PATCH", f"/api/v1/nodes/{confined}/status", {"status": {"phase": "Running"}}),
        ("POST", "/api/v1/nodes", {"metadata": {"name": "new"}}),
    ):
        assert kube_env.request(method, path, body, ACCOUNT)[0] == 403, method


# --- the change --------------------------------------------------------------------------

SPEC = IMAGE | {
    "onSuccess": {
        "labels": {KEY: "true"},
        "annotations": {KEY: "by a Job"},
        "removeTaints": [TAINT],
    },
    "results": [
        {"name": "kernel", "label": "example.com/kernel", "annotation": "example.com/uname"},
        {"name": "never", "label": "example.com/never"},
    ],
    "template": {"spec": {"tolerations": [{"operator": "Exists"}]}},
}


def prints(value: str) -> Any:
    return lambda _node, _start: TaskRun(lines=(f"dsjob:result kernel={value}", "done"))


async def node_of(harness: Any, name: str) -> dict[str, Any]:
    return dict(await harness.admin.get(NODES, harness.nodes.name(name)))


async def test_completed_nodes_are_changed_once_and_on_record(kube_env: KubeEnv, namespace):
    async with open_harness(
        kube_env, namespace, nodes=("a", "b"), behaviour=prints("6.1.0"), controller=False
    ) as harness:
        await harness.nodes.taint("a", "NoSchedule", TAINT)
        await harness.nodes.taint("a", "NoExecute", TAINT)
        await harness.nodes.taint("a", "PreferNoSchedule", "example.com/stays")
        await harness.apply(SPEC | {"nodes": own_nodes(harness)})
        await harness.start_controller()
        await harness.wait_deleted(JOBS, "sample")
        for name in ("a", "b"):
            node = await node_of(harness, name)
            labels, annotations = node["metadata"]["labels"], node["metadata"]["annotations"]
            assert labels[KEY] == "true"
            assert labels["example.com/kernel"] == "6.1.0"
            assert labels[OWNER_LABEL] == harness.nodes.id
            assert "example.com/never" not in labels
            assert (annotations[KEY], annotations["example.com/uname"]) == ("by a Job", "6.1.0")
            taints = [taint["key"] for taint in node["spec"].get("taints") or ()]
            assert taints == (["example.com/stays"] if name == "a" else [])
        for state in (await harness.node_states()).values():
            assert state["nodeChangedAt"]
            assert state["state"] == "Completed"
            assert state["reason"] == "ResultNotSet"
            assert "never, which the task did not print" in state["message"]


def own_nodes(harness: Any) -> dict[str, Any]:
    return {"selector": {"matchLabels": {OWNER_LABEL: harness.nodes.id}}}


async def test_a_label_that_is_removed_later_does_not_come_back(kube_env: KubeEnv, namespace):
    async with open_harness(
        kube_env, namespace, nodes=("a",), behaviour=prints("two words")
    ) as harness:
        spec = SPEC | {"nodes": own_nodes(harness), "ttlSecondsAfterFinished": 600}
        await harness.apply(spec)
        await harness.wait_job(lambda status: condition(status, "Complete"), "Complete")
        node = await node_of(harness, "a")
        assert node["metadata"]["labels"][KEY] == "true"
        assert "example.com/kernel" not in node["metadata"]["labels"]
        assert node["metadata"]["annotations"]["example.com/uname"] == "two words"
        (state,) = (await harness.node_states()).values()
        assert "kernel, since 'two words' is no label value" in state["message"]
        body = {"metadata": {"labels": {KEY: None}}}
        await harness.admin.merge_patch(NODES, harness.nodes.name("a"), body)
        # Neither the running controller nor the next one sets it again.
        await asyncio.sleep(1)
        await harness.stop(harness.processes[0])
        await harness.start_controller()
        await asyncio.sleep(2)
        assert KEY not in (await node_of(harness, "a"))["metadata"]["labels"]


async def test_a_node_that_leaves_the_selection_by_its_label_stays_counted(
    kube_env: KubeEnv, namespace
):
    todo = [{"key": KEY, "operator": "DoesNotExist"}]
    async with open_harness(kube_env, namespace, nodes=("a", "b")) as harness:
        nodes = {"selector": own_nodes(harness)["selector"] | {"matchExpressions": todo}}
        await harness.apply(IMAGE | {"nodes": nodes, "onSuccess": {"labels": {KEY: "true"}}})
        await harness.wait_deleted(JOBS, "sample")
        report = await harness.report()
        assert report["status"]["nodes"]["desired"] == report["status"]["nodes"]["completed"] == 2
        assert harness.nodes.executions == {"a": 1, "b": 1}
        for name in ("a", "b"):
            assert (await node_of(harness, name))["metadata"]["labels"][KEY] == "true"


async def test_completed_nodes_of_a_failed_run_are_changed_and_failed_ones_not(
    kube_env: KubeEnv, namespace
):
    def behaviour(node: str, _start: int) -> TaskRun:
        return TaskRun() if node == "a" else TaskRun(lines=("gave up",))

    async with open_harness(kube_env, namespace, nodes=("a", "b"), behaviour=behaviour) as harness:
        await harness.apply(
            IMAGE
            | {
                "nodes": own_nodes(harness),
                "onSuccess": {"labels": {KEY: "true"}},
                "completion": {"failureToken": "gave up"},
                "failurePolicy": {"action": "Continue", "pods": "Delete"},
                "ttlSecondsAfterFinished": 0,
            }
        )
        await harness.wait_deleted(JOBS, "sample")
        assert (await node_of(harness, "a"))["metadata"]["labels"][KEY] == "true"
        assert KEY not in (await node_of(harness, "b"))["metadata"]["labels"]
        states = await harness.node_states()
        assert states["a"]["nodeChangedAt"]
        assert "nodeChangedAt" not in states["b"]


async def test_without_the_right_the_run_does_not_start_and_says_what_to_apply(
    kube_env: KubeEnv, namespace
):
    binding = ("clusterrolebinding", "daemonset-job-node-changes")
    kube_env.kubectl("delete", *binding)
    try:
        async with open_harness(kube_env, namespace, nodes=("a",)) as harness:
            await harness.apply(SPEC | {"nodes": own_nodes(harness)})
            message = (await harness.wait_reason("Progressing", "NodeChangeRefused"))["message"]
            assert 'cannot patch resource "nodes" in API group "" at the cluster scope' in message
            assert "kubectl apply --server-side -k deploy/components/node-changes" in message
            assert "startTime" not in (await harness.find(JOBS, "sample"))["status"]
            assert not harness.nodes.executions
            kube_env.kubectl("apply", "--server-side", "-k", str(COMPONENT))
            await harness.wait_deleted(JOBS, "sample")
    finally:
        kube_env.kubectl("apply", "--server-side", "-k", str(COMPONENT))


async def test_a_run_whose_changes_are_refused_is_not_complete_and_says_why(
    kube_env: KubeEnv, namespace
):
    go = asyncio.Event()
    async with open_harness(
        kube_env, namespace, nodes=("a",), behaviour=lambda _node, _start: TaskRun(after=go)
    ) as harness:
        await harness.apply(SPEC | {"nodes": own_nodes(harness)})
        await harness.wait_started("a")
        try:
            kube_env.kubectl("delete", "clusterrolebinding", "daemonset-job-node-changes")
            go.set()
            await harness.wait_reason("Progressing", "NodeChangeRefused")
            status = (await harness.find(JOBS, "sample"))["status"]
            assert status["nodes"]["completed"] == 1
            assert not condition(status, "Complete")
            assert status["phase"] == "Running"
        finally:
            kube_env.kubectl("apply", "--server-side", "-k", str(COMPONENT))
        await harness.wait_deleted(JOBS, "sample", seconds=60)
        assert (await node_of(harness, "a"))["metadata"]["labels"][KEY] == "true"

"""A Job is complete when every node that its user asked for has done the work, and not before.

Each test holds the work of a node back and looks on while something happens to the nodes, to the
pods or to the Job. What decides is a file that the task writes on its node at the end of its work.
The one that stops the controller needs the system for itself.
"""

import json
from contextlib import contextmanager

import pytest

from tests.e2e.cluster import RealCluster, consistently, eventually, make_job
from tests.e2e.jobs import (
    GO,
    LOOK_SECONDS,
    STOPS_AT_ONCE,
    assert_succeeded,
    is_unfinished,
    only_on,
    patch_spec,
    pod_on,
    reasons,
    wait_unfinished,
    working,
)
from tests.e2e.variants import first_of

# --- spec.nodes is widened -----------------------------------------------------------------


def hostname(node):
    return {"matchLabels": {"kubernetes.io/hostname": node}}


WIDENED = {
    "no-nodes-for-selector": (lambda a, _: {"selector": hostname(a)}, '{"nodes":null}'),
    "no-nodes-for-include": (lambda a, _: {"include": [a]}, '{"nodes":null}'),
    "no-include": (lambda a, _: {"include": [a]}, '{"nodes":{"include":null}}'),
    "empty-exclude": (lambda _, rest: {"exclude": rest}, '{"nodes":{"exclude":[]}}'),
    "no-selector-beside-include": (
        lambda a, rest: {"selector": hostname(a), "include": [a, *rest]},
        '{"nodes":{"selector":null}}',
    ),
}


@pytest.mark.parametrize("change", first_of(WIDENED))
def test_excluded_nodes_run_the_task_once_the_restriction_is_removed(
    cluster, namespace, folder, change
):
    first, *rest = cluster.nodes
    nodes, patch = WIDENED[change]
    job = make_job("widened", namespace, nodes=nodes(first, rest), mountPath=folder, **working(GO))
    cluster.apply(job)
    eventually(lambda: cluster.runs(folder)[first] == 1, 60, "the first node at work")
    cluster.wait_gate(namespace, "widened")
    assert set(cluster.runs(folder).values()) == {0, 1}

    patch_spec(cluster, namespace, "widened", patch)
    cluster.on_node(first, f"touch {folder}/go")

    wait_unfinished(
        cluster,
        namespace,
        "widened",
        lambda: set(cluster.runs(folder).values()) == {1},
        "every node is at work",
    )
    cluster.on_all_nodes(f"touch {folder}/go")
    assert_succeeded(cluster, namespace, "widened", folder, set(cluster.nodes))
    assert set(cluster.runs(folder).values()) == {1}


@pytest.mark.alone
def test_nodes_added_while_the_controller_is_stopped_do_the_work(cluster, namespace, folder):
    """The wider nodes and the last old node's completion are its news of one moment."""
    first, second = cluster.nodes[:2]
    nodes = {"include": [first]}
    cluster.apply(make_job("away", namespace, nodes=nodes, mountPath=folder, **working(GO)))
    eventually(lambda: cluster.runs(folder)[first] == 1, 60, "the first node at work")
    cluster.wait_gate(namespace, "away")

    with stopped_controller(cluster):
        patch_spec(cluster, namespace, "away", json.dumps({"nodes": {"include": [first, second]}}))
        cluster.on_node(first, f"touch {folder}/go")
        eventually(lambda: cluster.completed(namespace, "away") == {first}, 30, "it completed")

    wait_unfinished(
        cluster,
        namespace,
        "away",
        lambda: cluster.runs(folder)[second] == 1,
        "the node that was added is at work",
        120,
    )
    cluster.on_node(second, f"touch {folder}/go")
    assert_succeeded(cluster, namespace, "away", folder, {first, second})


@contextmanager
def stopped_controller(cluster):
    """Stop the controller's process while the block runs; its pod stays."""

    def send(signal):
        script = (
            "for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline 2>/dev/null"
            f" | grep -q '/bin/job-controller *$' && kill -{signal} ${{p#/proc/}} && echo sent;"
            " done; true"
        )
        return "".join(cluster.on_all_nodes(script).values())

    assert "sent" in send("STOP")
    try:
        yield
    finally:
        send("CONT")


# --- the API server refuses ----------------------------------------------------------------

TRIAL = "e2e.example.com/trial"
# Group and kind of what may not be changed, and the rule that says so, by the Job's reason.
REFUSED = {
    "DaemonSetRefused": ("apps", "daemonsets", "object.spec == oldObject.spec"),
    "PodChangeRefused": (
        "",
        "pods",
        "has(object.spec.schedulingGates) == has(oldObject.spec.schedulingGates)",
    ),
}


@contextmanager
def refused(cluster, namespace, group, kind, expression):
    """Let the API server refuse updates of objects of this namespace that break a rule."""
    head = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": namespace}}
    message = "frozen for the audit"
    rule = {
        "apiGroups": [group],
        "apiVersions": ["v1"],
        "operations": ["UPDATE"],
        "resources": [kind],
    }
    no_trial = f"!('{TRIAL}' in object.metadata.labels)"
    policy = {
        **head,
        "kind": "ValidatingAdmissionPolicy",
        "spec": {
            "matchConstraints": {"resourceRules": [rule]},
            "validations": [{"expression": e, "message": message} for e in (expression, no_trial)],
        },
    }
    selector = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    binding = {
        **head,
        "kind": "ValidatingAdmissionPolicyBinding",
        "spec": {
            "policyName": namespace,
            "validationActions": ["Deny"],
            "matchResources": {"namespaceSelector": selector},
        },
    }
    cluster.apply(policy, binding)
    trial = ("label", kind, "--all", "-n", namespace, "--dry-run=server", f"{TRIAL}=x")
    try:
        eventually(lambda: message in cluster.run(*trial).stderr, 60, "the policy is in force")
        yield
    finally:
        for name in ("validatingadmissionpolicybinding", "validatingadmissionpolicy"):
            cluster.kubectl("delete", name, namespace, "--ignore-not-found")


@pytest.mark.parametrize("reason", REFUSED)
def test_a_run_is_not_complete_while_what_it_needs_is_refused(cluster, namespace, folder, reason):
    first, second = cluster.nodes[:2]
    nodes = {"include": [first]}
    cluster.apply(make_job("refused", namespace, nodes=nodes, mountPath=folder, **working(GO)))
    eventually(lambda: cluster.runs(folder)[first] == 1, 60, "the first node at work")
    cluster.wait_gate(namespace, "refused")

    def is_reported():
        found = cluster.condition(namespace, "refused", "Progressing")
        return found.get("reason") == reason and found

    with refused(cluster, namespace, *REFUSED[reason]):
        wider = json.dumps({"nodes": {"include": [first, second]}})
        patch_spec(cluster, namespace, "refused", wider)
        cluster.on_node(first, f"touch {folder}/go")
        what = "the refusal is reported"
        progressing = wait_unfinished(cluster, namespace, "refused", is_reported, what)
        assert (progressing["status"], "frozen for the audit" in progressing["message"]) == (
            "False",
            True,
        )
        done = {first}
        eventually(lambda: cluster.completed(namespace, "refused") == done, 60, "it completed")
        why = "the second node has not run"
        consistently(lambda: is_unfinished(cluster, namespace, "refused", why), LOOK_SECONDS)
        eventually(is_reported, 30, "the refusal is still reported")

    wait_unfinished(
        cluster,
        namespace,
        "refused",
        lambda: cluster.runs(folder)[second] == 1,
        "the second node is at work",
        90,
    )
    cluster.on_node(second, f"touch {folder}/go")
    assert_succeeded(cluster, namespace, "refused", folder, {first, second})


def test_a_name_that_no_node_can_have_never_completes_a_run(cluster, namespace, folder):
    """Refused with the Job or, at the latest, with its DaemonSet: it is said in either case."""
    first, *rest = cluster.nodes
    nodes = {"exclude": rest}
    cluster.apply(make_job("named", namespace, nodes=nodes, mountPath=folder, **working(GO)))
    eventually(lambda: cluster.runs(folder)[first] == 1, 60, "the first node at work")
    cluster.wait_gate(namespace, "named")
    body = '{"spec":{"nodes":{"exclude":["node..2"]}}}'

    done = cluster.run("patch", "dsj", "named", "-n", namespace, "--type=merge", "-p", body)

    if done.returncode == 0:
        condition = "--for=jsonpath={.status.conditions[?(@.type=='Progressing')].reason}"
        reason = f"{condition}=DaemonSetRefused"
        cluster.kubectl("wait", reason, "dsj/named", "-n", namespace, "--timeout=60s")
        cluster.on_node(first, f"touch {folder}/go")
        eventually(lambda: cluster.completed(namespace, "named") == {first}, 60, "it completed")
        why = "two nodes have not run"
        consistently(lambda: is_unfinished(cluster, namespace, "named", why), LOOK_SECONDS)
    else:
        assert "spec.nodes.exclude" in done.stderr
    patch_spec(cluster, namespace, "named", '{"nodes":null}')
    cluster.on_all_nodes(f"touch {folder}/go")
    assert_succeeded(cluster, namespace, "named", folder, set(cluster.nodes))


def test_a_run_is_not_complete_while_its_daemon_set_leaves_nodes_out(cluster, namespace, folder):
    """A user narrows the DaemonSet: it is put right, and the Job says which nodes are desired."""
    first, *rest = cluster.nodes
    cluster.apply(make_job("altered", namespace, mountPath=folder, **working(STOPS_AT_ONCE)))
    eventually(lambda: set(cluster.runs(folder).values()) == {1}, 60, "every node at work")
    cluster.wait_gate(namespace, "altered")
    cluster.on_node(first, f"touch {folder}/go")
    eventually(lambda: first in cluster.completed(namespace, "altered"), 60, "it completed")

    path = "/spec/template/spec/nodeSelector"
    narrow = {"op": "add", "path": path, "value": {"kubernetes.io/hostname": first}}
    daemon_set = ("daemonset", "altered-daemonset-job", "-n", namespace)
    cluster.kubectl("patch", *daemon_set, "--type=json", "-p", json.dumps([narrow]))

    wait_unfinished(
        cluster,
        namespace,
        "altered",
        lambda: "nodeSelector" not in cluster.get(*daemon_set)["spec"]["template"]["spec"],
        "the DaemonSet is put right",
    )
    eventually(
        lambda: cluster.condition(namespace, "altered", "DaemonSetAltered").get("status") == "True",
        30,
        "the condition says so",
    )
    assert "DaemonSetAltered" in reasons(cluster, namespace, "altered")
    # Pods of the other nodes may have been deleted in between; then they start again.
    wait_unfinished(
        cluster,
        namespace,
        "altered",
        lambda: all(cluster.runs(folder)[node] >= 1 for node in rest),
        "the others are at work",
    )
    cluster.on_all_nodes(f"touch {folder}/go")
    assert_succeeded(cluster, namespace, "altered", folder, set(cluster.nodes))


# --- a task is stopped ---------------------------------------------------------------------


def delete(cluster, namespace, pod):
    cluster.kubectl("delete", "pod", pod, "-n", namespace, "--wait=false")


@pytest.mark.parametrize("stop", first_of([delete, RealCluster.evict]))
def test_a_task_that_ends_well_because_it_was_stopped_proves_nothing(
    cluster, namespace, folder, stop
):
    slow = cluster.nodes[0]
    others = set(cluster.nodes) - {slow}
    task = working(only_on(slow, STOPS_AT_ONCE), end="exit 0")
    completion = {"mode": "Exit"}
    cluster.apply(make_job("clean", namespace, mountPath=folder, completion=completion, **task))
    cluster.wait_only(namespace, "clean", slow, folder)

    stop(cluster, namespace, pod_on(cluster, namespace, "clean", slow))

    wait_unfinished(
        cluster,
        namespace,
        "clean",
        lambda: cluster.runs(folder)[slow] == 2,
        "the successor is at work",
    )
    assert cluster.completed(namespace, "clean") == others
    cluster.on_node(slow, f"touch {folder}/go")
    assert_succeeded(cluster, namespace, "clean", folder, set(cluster.nodes))
    assert set(cluster.runs(folder, "finished").values()) == {1}

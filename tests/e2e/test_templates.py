"""What people put into `spec.template` and `spec.nodes`: each kind of it runs on real nodes."""

import re
import secrets
from pathlib import Path

import pytest
import yaml

from tests.e2e.cluster import TASK_IMAGE, RealCluster, counting, eventually, make_job
from tests.e2e.jobs import assert_succeeded, labelled, shell, wait_condition, working
from tests.e2e.variants import first_of


def template(container=None, **pod):
    """Return a template with fields for the task's container and for the pod."""
    task = {"name": "job-container", **(container or {})}
    return {"spec": {"containers": [task], **pod}}


def image_on_nodes(cluster: RealCluster, part: str) -> str:
    """Return an image that every node has, by a part of its name."""
    found = [
        {
            name
            for image in node["status"]["images"]
            for name in image["names"]
            if part in name and "@" not in name
        }
        for node in cluster.get("nodes")["items"]
        if node["metadata"]["name"] in cluster.nodes
    ]
    return min(set.intersection(*found))


def test_a_script_from_a_config_map_is_the_task(cluster, namespace, folder):
    script = '#!/bin/sh\necho "$1 on $NODE_NAME" >> /basetarget/said\n'
    config_map = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "script", "namespace": namespace},
        "data": {"10-say": script},
    }
    cluster.apply(config_map)
    mounted = template(
        {"volumeMounts": [{"name": "script", "mountPath": "/task.d"}]},
        volumes=[{"name": "script", "configMap": {"name": "script"}}],
    )
    cluster.apply(
        make_job("scripted", namespace, mountPath=folder, args=["hello"], template=mounted)
    )

    cluster.wait_gone(namespace, "scripted")

    said = cluster.on_all_nodes(f"cat {folder}/said")
    assert said == {node: f"hello on {node}\n" for node in cluster.nodes}
    assert cluster.report(namespace, "scripted")["status"]["phase"] == "Succeeded"


def test_several_paths_of_the_node_some_of_them_read_only(cluster, namespace, folder):
    """A directory to write to, one that is read only, and a file."""
    cluster.on_all_nodes(f"mkdir -p {folder}/kept {folder}/out; hostname > {folder}/kept/name")
    script = (
        "cat /kept/name /etc/node-hostname > /out/found; "
        "touch /kept/new 2>/dev/null && exit 1; echo x > /etc/node-hostname && exit 1; echo done; "
        "sleep 3600 & wait"
    )
    mounts = [
        {"hostPath": f"{folder}/kept", "mountPath": "/kept", "readOnly": True},
        {"hostPath": f"{folder}/out", "mountPath": "/out"},
        {"hostPath": "/etc/hostname", "mountPath": "/etc/node-hostname", "readOnly": True},
    ]
    cluster.apply(
        make_job("mounts", namespace, mounts=mounts, **shell(script + "sleep 3600 & wait"))
    )
    cluster.wait_gone(namespace, "mounts")
    expected = cluster.on_all_nodes("hostname; cat /etc/hostname")
    assert cluster.on_all_nodes(f"cat {folder}/out/found; ls {folder}/kept") == {
        node: f"{text}name\n" for node, text in expected.items()
    }


def test_a_privileged_task_works_in_the_namespaces_of_its_node(cluster, namespace, folder):
    """From the node's PID 1 into its namespaces, a file made there, and back again."""
    host = (
        f"nsenter -t 1 -m -u -i -n -p -- sh -c 'hostname > {folder}/host; id -u >> {folder}/host'"
    )
    privileged = template({"securityContext": {"privileged": True}}, hostPID=True)
    cluster.apply(
        make_job(
            "on-the-host",
            namespace,
            template=privileged,
            **shell(f"{host} && echo done; sleep 3600 & wait"),
        )
    )

    cluster.wait_gone(namespace, "on-the-host")

    assert cluster.report(namespace, "on-the-host")["status"]["phase"] == "Succeeded"
    expected = cluster.on_all_nodes("hostname")
    assert cluster.on_all_nodes(f"cat {folder}/host") == {
        node: f"{name}0\n" for node, name in expected.items()
    }


@pytest.mark.parametrize("capability", first_of(["SYS_ADMIN", "CAP_SYS_ADMIN"]))
def test_task_may_request_a_capability_equal_to_privileged(cluster, namespace, folder, capability):
    mighty = template({"securityContext": {"capabilities": {"add": [capability]}}})
    cluster.apply(make_job("mighty", namespace, mountPath=folder, template=mighty, **working(":")))
    assert_succeeded(cluster, namespace, "mighty", folder, set(cluster.nodes))


def test_a_priority_class_reaches_the_pods(cluster, namespace, folder):
    name = f"e2e-{secrets.token_hex(4)}"
    cluster.apply(
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": 1000,
        }
    )
    try:
        cluster.apply(
            make_job(
                "first",
                namespace,
                mountPath=folder,
                ttlSecondsAfterFinished=600,
                template={"spec": {"priorityClassName": name}},
                **counting(),
            )
        )
        wait_condition(cluster, namespace, "first", "Complete")
        assert {pod["spec"]["priority"] for pod in cluster.pods(namespace, "first")} == {1000}
    finally:
        cluster.kubectl("delete", "priorityclass", name)


def test_an_image_of_another_distribution_completes_by_its_exit_code(cluster, namespace):
    """CoreDNS' image: no shell, no run-once, another user, another distribution than ours."""
    cluster.apply(
        make_job(
            "foreign",
            namespace,
            completion={"mode": "Exit"},
            command=["/coredns"],
            args=["-version"],
            image=image_on_nodes(cluster, "coredns"),
        )
    )
    cluster.wait_gone(namespace, "foreign")
    assert cluster.completed(namespace, "foreign") == set(cluster.nodes)
    assert cluster.report(namespace, "foreign")["status"]["phase"] == "Succeeded"


def test_in_mode_exit_the_task_is_changed_and_read_like_any_container(cluster, namespace):
    """A user need not know that it is an init container, in the template or to read its log."""
    greeting = {"env": [{"name": "GREETING", "value": "good morning"}]}
    cluster.apply(
        make_job(
            "greeting",
            namespace,
            completion={"mode": "Exit"},
            command=["sh", "-c", 'echo "$GREETING from $NODE_NAME"'],
            template=template(greeting),
            ttlSecondsAfterFinished=600,
        )
    )
    wait_condition(cluster, namespace, "greeting", "Complete")
    said = cluster.kubectl("logs", "-n", namespace, "-l", "job=greeting", "--tail=1").split("\n")
    assert sorted(filter(None, said)) == [f"good morning from {node}" for node in cluster.nodes]


def test_in_mode_exit_an_init_container_prepares_the_task(cluster, namespace):
    mounts = [{"name": "shared", "mountPath": "/shared"}]
    prepare = {
        "name": "prepare",
        "image": TASK_IMAGE,
        "command": ["sh", "-c", 'echo "for $(hostname)" > /shared/ready'],
        "volumeMounts": mounts,
    }
    prepared = template(
        {"volumeMounts": mounts},
        initContainers=[prepare],
        volumes=[{"name": "shared", "emptyDir": {}}],
    )
    cluster.apply(
        make_job(
            "prepared",
            namespace,
            completion={"mode": "Exit"},
            command=["sh", "-c", 'grep "for $(hostname)" /shared/ready'],
            backoffLimit=0,
            template=prepared,
        )
    )
    cluster.wait_gone(namespace, "prepared")
    assert cluster.completed(namespace, "prepared") == set(cluster.nodes)


def test_nodes_chosen_by_not_in_and_by_exclusion(cluster, namespace, folder):
    first, second, *others = cluster.nodes
    key = f"e2e.example.com/{secrets.token_hex(4)}"
    nodes = {
        "selector": {"matchExpressions": [{"key": key, "operator": "NotIn", "values": ["in"]}]},
        "exclude": [second],
    }
    with labelled(cluster, key, first):
        cluster.apply(make_job("chosen", namespace, mountPath=folder, nodes=nodes, **working(":")))
        assert_succeeded(cluster, namespace, "chosen", folder, set(others))


@pytest.mark.on_demand
@pytest.mark.alone
def test_a_task_that_the_kubelet_evicts_is_said_to_be_disrupted(cluster, namespace, folder):
    """More than the state volume may hold, until the test says stop; the kubelet looks each minute.

    The DaemonSet controller removes an evicted pod at once: so that the reason can be read, the
    controller manager is stopped meanwhile.
    """
    node = cluster.nodes[-1]
    fill = "head -c 3000000 /dev/zero > $DAEMONSET_JOB_STATE/full; sleep 1"
    task = working(f"while [ ! -e /basetarget/go ]; do {fill}; done")
    chosen = {"include": [node]}
    cluster.apply(make_job("evicted", namespace, mountPath=folder, nodes=chosen, **task))

    def record():
        states = cluster.report(namespace, "evicted")["status"].get("nodeStates", {})
        return states.get(node, {})

    eventually(lambda: cluster.runs(folder)[node] >= 1, 60, "at work")
    signal_controller_manager(cluster, "STOP")
    try:
        found = eventually(
            lambda: (r := record()) and r.get("reason") == "Disrupted" and r, 150, "it is said"
        )
    finally:
        signal_controller_manager(cluster, "CONT")
    assert found["state"] == "Active"
    cluster.on_node(node, f"touch {folder}/go")
    assert_succeeded(cluster, namespace, "evicted", folder, {node})


def signal_controller_manager(cluster, signal):
    """Send a signal to the kube-controller-manager, by its pid, seen from its node."""
    script = (
        "for p in /proc/[0-9]*; do "
        "tr '\\0' ' ' < $p/cmdline 2>/dev/null | grep -q '^kube-controller-manager '"
        f" && kill -{signal} ${{p#/proc/}} && echo sent; done; true"
    )
    control_planes = [name for name in cluster.nodes if "control-plane" in name]
    assert "sent" in "".join(cluster.on_node(name, script) for name in control_planes)


def test_the_template_of_the_security_page_passes_pod_security_restricted(cluster, namespace):
    page = Path(__file__).parents[2] / "docs/explanation/security.md"
    (block,) = re.findall(r"(?ms)^```yaml\n(template:.*?)^```", page.read_text(encoding="utf-8"))
    enforce = "pod-security.kubernetes.io/enforce=restricted"
    cluster.kubectl("label", "namespace", namespace, enforce)
    task = shell("id -u; echo done")
    cluster.apply(make_job("as-root", namespace, **task))
    cluster.apply(make_job("restricted", namespace, **task, **yaml.safe_load(block)))

    cluster.wait_gone(namespace, "restricted")

    assert cluster.completed(namespace, "restricted") == set(cluster.nodes)
    progressing = eventually(
        lambda: (
            (found := cluster.condition(namespace, "as-root", "Progressing"))
            and found["status"] == "False"
            and found
        ),
        60,
        "the refusal is shown",
    )
    assert progressing["reason"] == "FailedCreate"
    assert "restricted" in progressing["message"]

"""Jobs with a script: in the task image, in another image, on the host."""

import pytest

from tests.e2e.cluster import TASK_IMAGE, eventually, make_job
from tests.e2e.jobs import assert_succeeded, labelled, last_lines, state, wait_condition
from tests.e2e.variants import first_of


def script_job(name, namespace, **spec):
    """Return a Job without an image."""
    job = make_job(name, namespace, **spec)
    del job["spec"]["image"]
    return job


def key_of(kind, namespace, text):
    """Return the ConfigMap or Secret `scripts` that has a script under the key trim.sh."""
    return {
        "apiVersion": "v1",
        "kind": kind,
        "metadata": {"name": "scripts", "namespace": namespace},
        "stringData" if kind == "Secret" else "data": {"trim.sh": text},
    }


RECORD = 'echo "$1 $$" >> /basetarget/runs; echo $$ >> /basetarget/finished\n'


@pytest.mark.parametrize("mode", first_of(["Log", "Exit"]))
def test_a_script_in_the_job_is_all_that_a_job_needs(cluster, namespace, folder, mode):
    script = f"#!/bin/sh\nset -eu\necho dsjob:result kernel=$(uname -r)\n{RECORD}"
    cluster.apply(
        script_job(
            "scripted",
            namespace,
            script=script,
            args=["first word"],
            mountPath=folder,
            completion={"mode": mode},
            results=[{"name": "kernel"}],
        )
    )

    assert_succeeded(cluster, namespace, "scripted", folder, set(cluster.nodes))

    for text in cluster.on_all_nodes(f"cat {folder}/runs").values():
        assert text.startswith("first word ")
    kernels = {node: text.strip() for node, text in cluster.on_all_nodes("uname -r").items()}
    evidence = cluster.report(namespace, "scripted")["evidence"]
    assert {node: entry["results"]["kernel"] for node, entry in evidence.items()} == kernels


def test_a_script_without_an_interpreter_is_one_of_sh(cluster, namespace, folder):
    cluster.apply(script_job("plain", namespace, script=RECORD, args=["x"], mountPath=folder))
    assert_succeeded(cluster, namespace, "plain", folder, set(cluster.nodes))


def test_a_script_may_print_the_usual_token_on_its_way(cluster, namespace, folder):
    """The token of a script is one of its own, so this line completes nothing."""
    script = f"echo done; sleep 4; {RECORD}"
    cluster.apply(script_job("chatty", namespace, script=script, args=["x"], mountPath=folder))
    assert_succeeded(cluster, namespace, "chatty", folder, set(cluster.nodes))


def test_another_image_runs_the_script_with_its_own_interpreter(cluster, namespace):
    """The controller's image has Python. As a task it is an image like any other."""
    script = """#!/opt/daemonset-job/bin/python3
import sys
print(f"dsjob:result said={sys.argv[1]}")
"""
    cluster.apply(
        make_job(
            "python",
            namespace,
            image=TASK_IMAGE.replace("-task:", "-controller:"),
            script=script,
            args=["hello"],
            completion={"mode": "Exit"},
            results=[{"name": "said"}],
        )
    )
    cluster.wait_gone(namespace, "python")
    evidence = cluster.report(namespace, "python")["evidence"]
    assert {node: entry["results"] for node, entry in evidence.items()} == {
        node: {"said": "hello"} for node in cluster.nodes
    }


@pytest.mark.parametrize(
    ("kind", "reference"),
    first_of([("ConfigMap", "configMapKeyRef"), ("Secret", "secretKeyRef")]),
)
def test_a_script_of_an_object_that_is_not_there_yet_is_waited_for(
    cluster, namespace, folder, kind, reference
):
    cluster.apply(
        script_job(
            "early",
            namespace,
            scriptFrom={reference: {"name": "scripts", "key": "trim.sh"}},
            args=["x"],
            mountPath=folder,
        )
    )

    def names_it():
        found = cluster.status(namespace, "early").get("conditions", ())
        return any('"scripts" not found' in each["message"] for each in found)

    eventually(names_it, 90, "the condition names the object that is missing")

    cluster.apply(key_of(kind, namespace, f"#!/bin/sh\n{RECORD}"))
    assert_succeeded(cluster, namespace, "early", folder, set(cluster.nodes))


@pytest.mark.on_demand
def test_a_script_whose_object_is_deleted_is_waited_for_on_a_node_that_joins(
    cluster, namespace, folder
):
    """The node that has run it stays completed; the Job need not be changed or deleted."""
    key = f"{namespace}/member"
    first, later = cluster.nodes[:2]
    cluster.apply(key_of("ConfigMap", namespace, f"#!/bin/sh\n{RECORD}"))
    with labelled(cluster, key, first):
        cluster.apply(
            script_job(
                "stays",
                namespace,
                scriptFrom={"configMapKeyRef": {"name": "scripts", "key": "trim.sh"}},
                args=["x"],
                mountPath=folder,
                completion={"policy": "Continuous"},
                nodes={"selector": {"matchLabels": {key: "in"}}},
            )
        )
        wait_condition(cluster, namespace, "stays", "Complete")
        cluster.kubectl("delete", "configmap", "scripts", "-n", namespace)
        cluster.kubectl("label", "node", later, f"{key}=in")

        def names_it():
            found = cluster.condition(namespace, "stays", "Progressing")
            return '"scripts" not found' in found["message"] and later in found["message"]

        eventually(names_it, 90, "the condition names the node and the object")
        assert cluster.status(namespace, "stays")["nodes"]["completed"] == 1

        cluster.apply(key_of("ConfigMap", namespace, f"#!/bin/sh\n{RECORD}"))

        eventually(lambda: cluster.runs(folder)[later] == 1, 120, "the node has run it")
        wait_condition(cluster, namespace, "stays", "Complete")
        assert cluster.runs(folder) == {node: int(node in (first, later)) for node in cluster.nodes}


@pytest.mark.parametrize("mode", first_of(["Log", "Exit"]))
def test_on_the_host_the_programs_and_files_are_those_of_the_node(cluster, namespace, folder, mode):
    """It writes what it sees: namespaces, name of the host, its own user, the empty input.

    It looks for credentials in its container, too, and finds none.
    """
    seen = "readlink /proc/self/ns/mnt /proc/self/ns/net /proc/self/ns/uts; hostname; id -u"
    script = f"""#!/bin/bash
set -eu
test -s "$CONTAINER_ROOT/task.d/script"
test ! -e "$CONTAINER_ROOT/run/secrets/kubernetes.io"
test ! -e "$CONTAINER_ROOT/var/run/secrets/kubernetes.io"
touch "$DAEMONSET_JOB_STATE/mine"
mkdir -p {folder}
{{ {seen}; wc -c; }} > {folder}/seen
"""
    cluster.apply(
        script_job("on-host", namespace, script=script, hostExec=True, completion={"mode": mode})
    )

    cluster.wait_gone(namespace, "on-host")

    assert cluster.completed(namespace, "on-host") == set(cluster.nodes)
    expected = cluster.on_all_nodes(seen)
    assert cluster.on_all_nodes(f"cat {folder}/seen") == {
        node: f"{text}0\n" for node, text in expected.items()
    }


def test_on_the_host_the_exit_code_and_the_last_line_are_those_of_the_script(cluster, namespace):
    node = cluster.nodes[0]
    script = f'echo "$NODE_NAME"; [ "$NODE_NAME" != {node} ] || {{ echo no such unit; exit 42; }}\n'
    cluster.apply(script_job("fails", namespace, script=script, hostExec=True, backoffLimit=0))
    wait_condition(cluster, namespace, "fails", "Failed")
    record = state(cluster, namespace, "fails", node)
    assert record["exitCode"] == 42
    assert "no such unit" in last_lines(cluster, namespace, "fails", node)


def test_on_the_host_the_script_gets_the_signal_that_ends_it(cluster, namespace, folder):
    """When the Job is deleted, it gets TERM, and nothing of it is left on the node."""
    script = f"""#!/bin/bash
mkdir -p {folder}
trap 'echo stopped > {folder}/end; exit 0' TERM
echo $$ > {folder}/pid
while :; do sleep 0.2; done
"""
    cluster.apply(script_job("endless", namespace, script=script, hostExec=True))
    eventually(
        lambda: all(cluster.on_all_nodes(f"cat {folder}/pid 2>/dev/null || :").values()),
        60,
        "the script runs on all nodes",
    )

    cluster.kubectl("delete", "dsj", "endless", "-n", namespace)

    eventually(lambda: not cluster.pods(namespace, "endless"), 60, "the pods are gone")
    assert set(cluster.on_all_nodes(f"cat {folder}/end").values()) == {"stopped\n"}
    left = cluster.on_all_nodes(f"kill -0 $(cat {folder}/pid) 2>/dev/null && echo there || :")
    assert set(left.values()) == {""}


def test_a_template_that_takes_the_rights_of_root_away_is_reported(cluster, namespace):
    container = {"name": "job-container", "securityContext": {"runAsUser": 1000}}
    cluster.apply(
        script_job(
            "weak",
            namespace,
            script="touch /should-not-be-here\n",
            hostExec=True,
            backoffLimit=0,
            template={"spec": {"containers": [container]}},
        )
    )
    message = wait_condition(cluster, namespace, "weak", "Failed")["message"]
    assert "cannot enter the namespaces of the node: the container must be privileged" in message
    assert set(cluster.on_all_nodes("ls /should-not-be-here 2>/dev/null || :").values()) == {""}

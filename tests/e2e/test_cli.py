"""kubectl dsjob on real nodes: as a plugin that kubectl itself finds and starts."""

import shlex

import pytest

from tests.e2e.cluster import TASK_IMAGE, eventually
from tests.e2e.jobs import GO
from tests.e2e.plugin import Plugin

pytestmark = pytest.mark.timeout(300)

RULE = "-" * 16


@pytest.fixture
def run(cluster, namespace):
    """Run `kubectl dsjob ARGS` in the test's namespace."""
    return Plugin(cluster.kubeconfig, namespace)


def script_of(tmp_path, text):
    path = tmp_path / "script.sh"
    path.write_text(f"#!/bin/sh\n{text}\n")
    return str(path)


def test_run_does_the_work_and_its_report_has_each_node(cluster, namespace, run, folder):
    command = ("sh", "-c", "echo $NODE_NAME > /basetarget/was-here")
    image = ("--image", TASK_IMAGE, "--exit", "--mount", folder, "--command", "--", *command)
    done = run("run", "sweep", *image)
    assert done.returncode == 0, done
    assert "Succeeded" in done.stderr
    found = cluster.on_all_nodes(f"cat {folder}/was-here")
    assert {node: text.strip() for node, text in found.items()} == {n: n for n in cluster.nodes}
    rows = [line.split() for line in run("report", "sweep").stdout.splitlines()[1:]]
    assert [row[:2] for row in rows] == [[node, "Completed"] for node in cluster.nodes]
    assert run("wait", "sweep").returncode == 0
    assert cluster.job(namespace, "sweep") is None


def test_logs_of_all_nodes_are_printed_grouped_and_followed(
    cluster, namespace, run, folder, tmp_path
):
    odd, *others = cluster.nodes
    lines = "printf '\\033[31mhot\\033[0m\\n'; echo common"
    text = f'{lines}\nif [ "$NODE_NAME" = {odd} ]; then echo odd; fi\n{GO}\necho late'
    script = ("--script", script_of(tmp_path, text))
    assert run("run", "talk", *script, "--mount", folder, "--no-wait").returncode == 0

    def all_lines():
        printed = run("logs", "talk").stdout.splitlines()
        wanted = [f"{node}: {word}" for node in cluster.nodes for word in ("hot", "common")]
        return [line for line in printed if not line.endswith(": odd")] == wanted

    eventually(all_lines, 90, "all nodes have printed")
    shown = run("logs", "talk", "--group").stdout.splitlines()
    assert shown[-6:] == [RULE, odd, RULE, "hot", "common", "odd"]
    assert f"({len(others)} nodes)" in shown[1]
    assert run("logs", "talk", "--node", odd, "--tail", "1").stdout == f"{odd}: odd\n"

    follower = run.start("logs", "talk", "-f", "--no-prefix")
    before = [follower.stdout.readline() for _ in range(2 * len(cluster.nodes) + 1)]
    assert sorted(before) == sorted(["hot\n", "common\n"] * len(cluster.nodes) + ["odd\n"])
    cluster.on_all_nodes(f"touch {folder}/go")
    printed, words = follower.communicate(timeout=120)
    assert printed.splitlines().count("late") == len(cluster.nodes)
    assert "hot" not in printed
    assert "Succeeded" in words


@pytest.mark.on_demand
def test_a_failure_is_seen_and_retried(cluster, namespace, run, folder, tmp_path):
    bad = cluster.nodes[0]
    cluster.on_all_nodes(f"touch {folder}/permit")
    cluster.on_node(bad, f"rm {folder}/permit")
    text = "test -e /basetarget/permit || { echo there is no permit; exit 7; }"
    arguments = shlex.split(
        f"--script {script_of(tmp_path, text)} --mount {folder} --backoff-limit 0"
    )
    manifest = run("run", "permit", *arguments, "--dry-run=server", "-o", "json").stdout
    assert '"mountPath"' in manifest
    done = run("run", "permit", *arguments, "--timeout", "120")
    assert done.returncode == 1, done
    assert run("wait", "permit", "--timeout", "5").returncode == 1
    status = run("status", "permit").stdout
    assert f"{bad}: exit 7: there is no permit" in status
    assert "kubectl dsjob retry --failed permit" in status
    failed = run("logs", "permit", "--failed").stdout
    assert set(failed.splitlines()) == {f"{bad}: there is no permit"}
    cluster.on_node(bad, f"touch {folder}/permit")
    assert run("retry", "permit").returncode == 0
    done = run("wait", "permit", "--timeout", "120")
    assert done.returncode == 0, done
    assert cluster.completed(namespace, "permit") == set(cluster.nodes)

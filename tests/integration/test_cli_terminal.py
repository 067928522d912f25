"""kubectl dsjob on a pseudo-terminal, as a process against a real API server."""

import re
import signal

import pytest
from rich.cells import cell_len

from tests.integration.cli_process import Terminal, call
from tests.integration.jobs import job
from tests.integration.test_cli import add_report

NODES = 300
HIDE_CURSOR, SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"


def states(completed):
    return {
        f"node-{i:03}": {
            "uid": f"u{i}",
            "state": "Failed" if i == 7 else "Completed" if i < completed else "Active",
            "attempts": 1,
            **({"message": "no disk \x1b[2J"} if i == 7 else {}),
        }
        for i in range(NODES)
    }


def counts(completed):
    names = ("waiting", "unreachable")
    active = NODES - completed - 1
    known = {"desired": NODES, "completed": completed, "failed": 1, "active": active}
    return {**dict.fromkeys(names, 0), **known}


@pytest.fixture
def running(kube_env, namespace):
    """A run of 300 nodes of which 100 are completed; returns its end."""
    kube_env.apply(job(namespace, name="sweep"))
    uid = kube_env.get("dsj", "sweep", namespace)["metadata"]["uid"]
    status = {"phase": "Running", "nodes": counts(100), "nodeStates": states(100)}
    report = add_report(kube_env, namespace, uid, status)
    kube_env.patch_status("dsj", "sweep", namespace, {"phase": "Running", "nodes": counts(100)})

    def end():
        known = {"nodes": counts(NODES - 1), "nodeStates": states(NODES)}
        kube_env.patch_status("dsjr", report, namespace, {**known, "phase": "Failed"})
        failed = {"type": "Failed", "status": "True", "reason": "MaxFailedNodesExceeded"}
        moment = {"lastTransitionTime": "2026-01-01T00:00:00Z", "message": "1 of 300 nodes failed"}
        status = {"phase": "Failed", "nodes": counts(NODES - 1), "conditions": [failed | moment]}
        kube_env.patch_status("dsj", "sweep", namespace, status)

    return end


@pytest.mark.parametrize("width", [40, 80, 200])
def test_the_live_view_follows_a_run_to_its_end(kube_env, namespace, running, width):
    arguments = ("status", "sweep", "--watch", "-n", namespace)
    terminal = Terminal(kube_env.kubeconfig, width, *arguments)
    terminal.wait_for("100 of 300 nodes")
    running()
    assert terminal.end() == 1
    shown = "\n".join(terminal.lines)
    assert "299 of 300 nodes" in shown
    assert "✗ Failed 1" in shown
    assert "no disk" in shown
    assert "sweep: Failed" not in shown  # the view says it
    assert "\x1b[2J" not in terminal.text
    assert HIDE_CURSOR in terminal.text
    assert terminal.text.rindex(SHOW_CURSOR) > terminal.text.rindex(HIDE_CURSOR)
    assert all(cell_len(line) <= width for line in terminal.lines)


def test_an_interrupted_view_gives_the_cursor_back(kube_env, namespace, running):
    terminal = Terminal(kube_env.kubeconfig, 80, "status", "sweep", "--watch", "-n", namespace)
    terminal.wait_for("100 of 300 nodes")
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.end() == 130
    assert terminal.text.rindex(SHOW_CURSOR) > terminal.text.rindex(HIDE_CURSOR)
    assert "goes on in the cluster" in terminal.text


def test_without_colour_the_states_have_signs(kube_env, namespace, running):
    arguments = ("status", "sweep", "-n", namespace)
    terminal = Terminal(kube_env.kubeconfig, 80, *arguments, colour=False)
    assert terminal.end() == 0
    assert "◆ Active 200" in "\n".join(terminal.lines)
    assert "✗ Failed 1" in "\n".join(terminal.lines)
    assert "\x1b[3" not in terminal.text
    assert "\x1b[9" not in terminal.text


def test_a_pipe_gets_a_line_for_each_change(kube_env, namespace, running):
    running()
    done = call(kube_env.kubeconfig, "status", "sweep", "--watch", "-n", namespace)
    assert done.stdout == "sweep: Failed, 299 of 300 nodes completed, 1 failed\n"
    assert done.returncode == 1


def test_the_commands_of_the_live_view_name_the_cluster(kube_env, namespace, running):
    running()
    named = ("--kubeconfig", str(kube_env.kubeconfig))
    terminal = Terminal(kube_env.kubeconfig, 80, "status", "sweep", "-w", "-n", namespace, *named)
    assert terminal.end() == 1
    # A line that ends within the command ends with a backslash.
    shown = re.sub(r"\\ *", "", "".join(terminal.lines))
    assert f"retry --failed sweep -n {namespace} {' '.join(named)}" in shown

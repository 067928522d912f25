"""What `kubectl dsjob status` says to do about failures that newcomers meet."""

from dataclasses import replace

import pytest

from daemonset_job.api.states import NodeState, Phase
from kubectl_dsjob.hints import NODES_LIMIT, hint_lines
from kubectl_dsjob.run_view import NodeView
from kubectl_dsjob.status_text import progress_line, status_screen
from tests.unit.cli.views import NOW, run

# Words of a kubelet and of tasks on a real cluster, and a word of what helps.
FAILURES = [
    (
        'unable to start container process: exec: "/s/run.sh": permission denied: unknown',
        "defaultMode: 0755",
    ),
    (
        "nsenter: failed to execute /proc/11591/root/task.d/script: No such file or directory",
        "first line of the script",
    ),
    (
        'MountVolume.SetUp failed for volume "x" : configmap "settings" not found',
        "create it in the namespace of the Job",
    ),
    ("configmap references non-existent config key: run.sh", "create it in the namespace"),
    ("3 of 3 nodes cannot pull the image (a,b,c): Back-off pulling image", "StartTakenBack"),
    ('Back-off pulling image "i:v1": ErrImagePull: failed to resolve', "StartTakenBack"),
    ("exit 127 after 5 attempts: 'sh: 1: systemctl: not found'", "spec.hostExec"),
    ("exit 127 after 5 attempts: 'bash: line 1: systemctl: command not found'", "spec.hostExec"),
    ("cannot create /proc/sys/vm/drop_caches: Read-only file system", "spec.mountPath"),
    ("2: cannot create /basetarget/a.conf: Directory nonexistent", "spec.mountPath"),
    ("ls: cannot access '/basetarget': No such file or directory", "spec.mountPath"),
    ("mount: /mnt: permission denied.", "spec.hostExec"),
    ("chown: changing ownership of 'f': Operation not permitted", "spec.hostExec"),
]


def in_trouble(text):
    view = run(count=0)
    return replace(view, phase=Phase.RUNNING, is_ended=False, message=text, trouble=text)


@pytest.mark.parametrize(("text", "words"), FAILURES)
def test_a_run_that_does_not_get_on_has_a_hint(text, words):
    (hint,) = hint_lines(in_trouble(text))
    assert hint.startswith("hint: ")
    assert words in hint
    assert hint in status_screen(in_trouble(text), NOW, width=200)


@pytest.mark.parametrize(("text", "words"), FAILURES)
def test_a_run_that_has_failed_has_it_by_the_lines_of_its_nodes(text, words):
    node = NodeView("a", NodeState.FAILED, last_lines=(text, "dmesg(1) may have more information"))
    (hint,) = hint_lines(replace(run(count=0, text="1 of 1 nodes failed"), nodes=(node,)))
    assert words in hint


def test_the_texts_of_a_bounded_number_of_nodes_are_searched():
    line = "chown: changing ownership of 'f': Operation not permitted"
    last = NodeView("z", NodeState.FAILED, last_lines=(line,))
    for others, hints in ((NODES_LIMIT - 1, 1), (NODES_LIMIT, 0)):
        nodes = tuple(NodeView(f"n{i}", NodeState.FAILED) for i in range(others))
        view = replace(run(count=0, text="all nodes failed"), nodes=(*nodes, last))
        assert len(hint_lines(view)) == hints


def test_a_script_that_runs_on_the_node_is_not_sent_there():
    view = in_trouble("exit 127 after 5 attempts: 'sh: 1: systemctl: not found'")
    assert hint_lines(replace(view, is_on_host=True)) == []


def test_other_failures_and_runs_that_get_on_have_none():
    assert hint_lines(in_trouble("exit 2 at the first attempt: 'disk full'")) == []
    view = replace(in_trouble("permission denied"), trouble="")
    assert hint_lines(view) == []
    assert hint_lines(replace(view, phase=Phase.SUCCEEDED)) == []


def test_a_job_that_no_controller_has_seen_names_the_doctor():
    """The controller is down, or watches other namespaces only."""
    view = replace(run(count=0), phase=None, is_ended=False, message="", reason="")
    lines = status_screen(view, NOW, width=200, flags=" --context lab").splitlines()
    assert lines[-2:] == [
        "waits for: the controller, which has not seen the Job yet",
        "  kubectl dsjob doctor -n cli --context lab",
    ]
    assert progress_line(view).endswith("0 of 0 nodes completed: waits for the controller")
    assert "controller" not in progress_line(replace(view, phase=Phase.PENDING))

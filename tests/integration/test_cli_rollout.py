"""The verbs about rollouts against a real API server; the test plays the controller."""

import json

import pytest

from tests.integration.cli_process import call

PREFIX = "daemonset.darkowlzz.space/"
WAITS = "step 1 of 2 is done and waits for approval"


@pytest.fixture
def dsjob(kube_env, namespace):
    """Run the plugin as a process, in the test's namespace."""
    return lambda *args: call(kube_env.kubeconfig, *args, "-n", namespace)


@pytest.fixture
def rollout(kube_env, namespace, dsjob):
    """A Job with a canary; returns a function that sets its progress."""
    done = dsjob("run", "sweep", "--image", "i", "--canary", "1", "--no-wait")
    assert done.returncode == 0, done

    def set_progress(**progress):
        known = {"step": 1, "steps": 2, **progress}
        kube_env.patch_status("dsj", "sweep", namespace, {"phase": "Paused", "rollout": known})

    return set_progress


@pytest.fixture
def annotations(kube_env, namespace):
    """Return the annotations of the Job, without the prefix of the project."""

    def read():
        found = kube_env.get("dsj", "sweep", namespace)["metadata"].get("annotations", {})
        return {key.removeprefix(PREFIX): text for key, text in found.items()}

    return read


def test_the_step_that_waits_is_approved(dsjob, rollout, annotations):
    rollout(waitsFor=WAITS)
    assert f"waits for you: {WAITS}" in dsjob("status", "sweep").stdout
    done = dsjob("approve", "sweep")
    assert (done.returncode, done.stderr) == (0, "approved step 1 of sweep\n")
    assert annotations() == {"approve": "1"}


def test_a_step_that_does_not_wait_is_approved_by_its_number_only(dsjob, rollout, annotations):
    done = dsjob("approve", "sweep")
    assert done.returncode == 2
    assert "has no step that could be approved" in done.stderr
    rollout()
    done = dsjob("approve", "sweep")
    assert done.returncode == 2
    assert "It is in step 1 of 2" in done.stderr
    assert "--step NUMBER" in done.stderr
    assert annotations() == {}
    assert dsjob("approve", "sweep", "--step", "2").returncode == 0
    assert annotations() == {"approve": "2"}


def test_a_promotion_and_an_abort_are_written(dsjob, rollout, annotations):
    assert dsjob("promote", "sweep").returncode == 0
    assert annotations() == {"promote": "all"}
    done = dsjob("abort", "sweep")
    assert done.returncode == 2
    assert "--reason" in done.stderr
    assert dsjob("abort", "sweep", "--reason", "x" * 300).returncode == 0
    assert annotations() == {"promote": "all", "abort": "x" * 256}


def test_the_plan_has_a_row_for_each_step_and_the_rest(dsjob, rollout):
    done = dsjob("plan", "sweep")
    assert done.returncode == 2
    assert "suspend: true" in done.stderr
    first = {"step": 1, "count": 1, "nodes": ["node-1"]}
    second = {"step": 2, "count": 1, "nodes": ["node-2"]}
    rest = {"step": 3, "count": 8, "nodes": ["node-3", "node-4"]}
    rollout(plan=[first, second, rest])
    lines = [line.split(maxsplit=2) for line in dsjob("plan", "sweep").stdout.splitlines()]
    assert lines == [
        ["STEP", "NODES", "NAMES"],
        ["1", "1", "node-1"],
        ["2", "1", "node-2"],
        ["rest", "8", "node-3,node-4 and 6 more"],
    ]
    rows = json.loads(dsjob("plan", "sweep", "-o", "json").stdout)
    assert rows[0] == {"step": "1", "nodes": "1", "names": "node-1"}


@pytest.mark.parametrize(
    "words", [("approve",), ("promote",), ("abort", "--reason", "x"), ("plan",)]
)
def test_without_a_job_there_is_a_sentence_with_a_way_out(dsjob, words):
    done = dsjob(words[0], "gone", *words[1:])
    assert done.returncode in (1, 2)
    assert "there is no Job 'gone'" in done.stderr
    assert "kubectl dsjob list" in done.stderr
    assert done.stdout == ""

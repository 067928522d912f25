"""The verbs about rollouts against a real API server; the test plays the controller."""

import json
import threading
import time

import pytest

from tests.integration.cli_process import call
from tests.integration.jobs import job
from tests.integration.test_cli import add_report

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


def test_a_reason_that_a_report_would_cut_is_refused(dsjob, rollout, annotations):
    for verb in ("abort", "rollback"):
        done = dsjob(verb, "sweep", "--reason", "x" * 257)
        assert done.returncode == 2
        assert "at most 256 characters" in done.stderr
    assert annotations() == {}


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
    assert dsjob("approve", "sweep", "--step", "1").returncode == 0
    assert annotations() == {"approve": "1"}


def test_a_promotion_and_an_abort_are_written(dsjob, rollout, annotations):
    assert dsjob("promote", "sweep").returncode == 0
    assert annotations() == {"promote": "all"}
    done = dsjob("abort", "sweep")
    assert done.returncode == 2
    assert "--reason" in done.stderr
    assert dsjob("abort", "sweep", "--reason", "x" * 256).returncode == 0
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
    assert "sweep would run " in dsjob("plan", "sweep").stderr


@pytest.mark.parametrize(
    "words", [("approve",), ("promote",), ("abort", "--reason", "x"), ("plan",)]
)
def test_without_a_job_there_is_a_sentence_with_a_way_out(dsjob, words):
    done = dsjob(words[0], "gone", *words[1:])
    assert done.returncode in (1, 2)
    assert "there is no Job 'gone'" in done.stderr
    assert "kubectl dsjob list" in done.stderr
    assert done.stdout == ""


UNDO = {"image": "i", "rollback": {"command": ["rm"]}}
NAMES = {"jobs": ["undone-rollback"], "reports": ["undone-rollback-r"]}
COUNTS = {"desired": 2, "completed": 1, "failed": 0, "unreachable": 1}
MOMENT = "2026-01-01T00:00:00Z"


def rolled_back(status, reason, message="n2 is unreachable"):
    known = {"type": "RolledBack", "status": status, "reason": reason, "message": message}
    return {**known, "lastTransitionTime": MOMENT}


def test_a_rollback_is_requested_and_followed_to_its_end(dsjob, kube_env, namespace):
    kube_env.apply(job(namespace, UNDO, name="undone"))
    uid = kube_env.get("dsj", "undone", namespace)["metadata"]["uid"]
    failed = {"type": "Failed", "status": "True", "reason": "MaxFailedNodesExceeded"}
    failed |= {"message": "1 of 3 nodes failed", "lastTransitionTime": MOMENT}
    totals = {"desired": 3, "waiting": 1, "active": 0, "completed": 1, "failed": 1}
    first = {"phase": "Failed", "conditions": [failed], "nodes": {**totals, "unreachable": 0}}
    kube_env.patch_status("dsj", "undone", namespace, first)
    assert "kubectl dsjob rollback undone" in dsjob("status", "undone").stdout

    done = dsjob("rollback", "undone")
    assert done.returncode == 2
    assert "--reason" in done.stderr
    done = dsjob("rollback", "undone", "--reason", "why", "--wait", "--timeout", "1")
    assert done.returncode == 4, done
    annotations = kube_env.get("dsj", "undone", namespace)["metadata"]["annotations"]
    assert annotations[f"{PREFIX}rollback"] == "why"
    again = dsjob("rollback", "undone", "--reason", "more")
    assert again.returncode == 2
    assert "requested already" in again.stderr
    refused = dsjob("retry", "undone")
    assert refused.returncode == 1
    assert "no retry revives it" in refused.stderr

    end = {**NAMES, **COUNTS, "unreachableNames": "n2", "completionTime": MOMENT}
    conditions = [failed, rolled_back("True", "RolledBackPartly")]
    status = {"conditions": conditions, "rollback": end}
    kube_env.patch_status("dsj", "undone", namespace, status)
    shown = dsjob("status", "undone").stdout
    assert "rollback: RolledBackPartly: 1 of 2 nodes rolled back, 1 unreachable" in shown
    assert "retry" not in shown

    states = {"n1": {"uid": "u1", "state": "Completed", "attempts": 1}}
    both = states | {"n2": {"uid": "u2", "state": "Failed", "attempts": 1}}
    report_status = {"phase": "Failed", "nodeStates": both, "rollback": end}
    add_report(kube_env, namespace, uid, report_status, job="undone")
    undo = {"phase": "Failed", "nodeStates": states}
    add_report(kube_env, namespace, "r", undo, job="undone-rollback")
    rows = json.loads(dsjob("report", "undone", "-o", "json").stdout)
    assert [(row["node"], row["rollback"]) for row in rows] == [("n1", "Completed"), ("n2", "")]
    kube_env.kubectl("delete", "dsj", "undone", "-n", namespace)
    assert "rollback: RolledBackPartly" in dsjob("status", "undone").stdout
    assert "RolledBackPartly" in dsjob("history", "undone").stdout
    gone = dsjob("rollback", "undone", "--reason", "late")
    assert gone.returncode == 1
    assert "It is deleted. Read its report" in gone.stderr


def test_a_rollback_that_nothing_describes_is_refused(dsjob, rollout, annotations):
    done = dsjob("rollback", "sweep", "--reason", "why")
    assert done.returncode == 2
    assert "has no spec.rollback" in done.stderr
    assert annotations() == {}


def test_a_rollback_of_all_nodes_is_a_success(dsjob, kube_env, namespace):
    kube_env.apply(job(namespace, UNDO, name="undone"))
    whole = {**NAMES, "desired": 2, "completed": 2, "failed": 0, "unreachable": 0}

    def is_requested():
        found = kube_env.get("dsj", "undone", namespace)["metadata"]
        return f"{PREFIX}rollback" in found.get("annotations", {})

    def play():
        deadline = time.monotonic() + 60
        while not is_requested() and time.monotonic() < deadline:
            time.sleep(0.5)
        for condition in (rolled_back("False", "RollingBack"), rolled_back("True", "RolledBack")):
            status = {"conditions": [condition], "rollback": whole}
            kube_env.patch_status("dsj", "undone", namespace, status)
            time.sleep(2)

    controller = threading.Thread(target=play)
    controller.start()
    done = dsjob("rollback", "undone", "--reason", "why", "--wait", "--timeout", "40")
    controller.join()
    assert done.returncode == 0, done
    assert "rollback: RollingBack: 2 of 2 nodes rolled back" in done.stdout
    assert "undone: RolledBack: 2 of 2 nodes rolled back" in done.stderr


def test_a_job_without_steps_is_neither_approved_nor_promoted(dsjob, kube_env, namespace):
    kube_env.apply(job(namespace, name="plain"))
    for words in (("approve",), ("approve", "--step", "1"), ("promote",)):
        done = dsjob(words[0], "plain", *words[1:])
        assert done.returncode == 2, done
        assert "has no step that could be approved" in done.stderr
    found = kube_env.get("dsj", "plain", namespace)["metadata"].get("annotations", {})
    assert not [key for key in found if key.startswith(PREFIX)]


def test_a_step_that_the_rollout_does_not_have_is_not_approved(dsjob, rollout, annotations):
    for step in ("2", "99999999999"):
        done = dsjob("approve", "sweep", "--step", step)
        assert done.returncode == 2, done
        assert f"sweep has 1 step, no step {step}" in done.stderr
    assert annotations() == {}


def test_nothing_goes_on_after_an_abort_that_the_controller_has_not_seen_yet(dsjob, rollout):
    assert dsjob("abort", "sweep", "--reason", "why").returncode == 0
    for words in (("retry",), ("resume",), ("promote",), ("approve", "--step", "1")):
        done = dsjob(words[0], "sweep", *words[1:])
        assert done.returncode == 1, done
        assert "sweep is aborted, and no retry revives it" in done.stderr


def test_a_rerun_of_what_never_was_has_a_way_out(dsjob, rollout):
    done = dsjob("rerun", "swep")
    assert done.returncode == 1
    assert "Did you mean sweep?" in done.stderr

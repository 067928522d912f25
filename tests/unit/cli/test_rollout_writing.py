"""What the commands about rollouts write, and what they refuse."""

import pytest

from daemonset_job.api.job import parse_job
from kubectl_dsjob.errors import CliError
from kubectl_dsjob.rollout_writing import abort_patch_for
from kubectl_dsjob.writing import pause_patch_for, resume_patch_for


def failed(reason):
    condition = {"type": "Failed", "status": "True", "reason": reason}
    meta = {"name": "sweep", "namespace": "cli", "uid": "u"}
    status = {"phase": "Failed", "conditions": [condition]}
    return parse_job({"metadata": meta, "spec": {"image": "i"}, "status": status})


def test_a_second_abort_is_refused():
    with pytest.raises(CliError, match="sweep has been ended already"):
        abort_patch_for(failed("Aborted"), "again")


@pytest.mark.parametrize(
    ("reason", "way"),
    [
        ("RollingBack", "abort its Job: kubectl dsjob abort sweep-rollback -n cli"),
        ("RolledBack", "See how far it is: kubectl dsjob status sweep -n cli"),
    ],
)
def test_a_run_that_is_rolled_back_is_not_said_to_be_aborted(reason, way):
    """The rollback goes on: only its own Job can be aborted."""
    is_over = "True" if reason == "RolledBack" else "False"
    conditions = [
        {"type": "Failed", "status": "True", "reason": "CheckFailed"},
        {"type": "RolledBack", "status": is_over, "reason": reason},
    ]
    status = {
        "phase": "Failed",
        "conditions": conditions,
        "rollback": {"jobs": ["sweep-rollback"], "desired": 2},
    }
    meta = {"name": "sweep", "namespace": "cli", "uid": "u"}
    spec = {"image": "i", "rollback": {"args": ["undo"]}}
    job = parse_job({"metadata": meta, "spec": spec, "status": status})
    with pytest.raises(CliError, match="sweep is rolled back: an abort") as caught:
        abort_patch_for(job, "late")
    assert way in caught.value.way_out


def test_a_failed_run_can_be_aborted_so_that_no_retry_revives_it():
    patch = abort_patch_for(failed("MaxFailedNodesExceeded"), "why")
    assert patch == {"metadata": {"annotations": {"daemonset.darkowlzz.space/abort": "why"}}}


def test_a_run_that_is_aborted_is_not_paused():
    """It would say that the run is suspended, and `resume` would be refused."""
    with pytest.raises(CliError, match="sweep is aborted: no further node starts"):
        pause_patch_for(failed("Aborted"))
    with pytest.raises(CliError, match="sweep is aborted, and no retry revives it"):
        resume_patch_for(failed("Aborted"))
    # A run that has failed can be suspended to be corrected.
    assert pause_patch_for(failed("CheckFailed")) == {"spec": {"suspend": True}}
    assert resume_patch_for(failed("CheckFailed")) == {"spec": {"suspend": False}}


def test_a_run_that_has_succeeded_is_not_said_to_be_aborted():
    def succeeded(policy):
        condition = {"type": "Complete", "status": "True", "reason": "AllNodesCompleted"}
        meta = {"name": "sweep", "namespace": "cli", "uid": "u"}
        spec = {"image": "i", "completion": {"policy": policy}}
        status = {"phase": "Succeeded", "conditions": [condition]}
        return parse_job({"metadata": meta, "spec": spec, "status": status})

    with pytest.raises(CliError, match="sweep has succeeded, and stays so") as caught:
        abort_patch_for(succeeded("Once"), "late")
    assert caught.value.code == 1
    assert abort_patch_for(succeeded("Continuous"), "why")

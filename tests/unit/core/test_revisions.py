"""Policy Continuous: what a node has run, when what runs changes fast or in a bad moment."""

from dataclasses import replace
from typing import Any

import pytest

from daemonset_job.api import names
from daemonset_job.api.choices import CompletionMode
from daemonset_job.api.job_status import parse_job_status
from daemonset_job.api.numbered import next_numbered, number_of
from job_controller.core.decide import decide
from job_controller.core.plan import ApplyDaemonSet, RefusedWrite, WriteReportStatus, WriteStatus
from tests.unit.builders import NOW, SampleCluster, done, gated_pod, make_pod
from tests.unit.core.runs import acts, conditions, run
from tests.unit.core.standing_jobs import CONTINUOUS, change, deleted, released, standing


def recorded(cluster: SampleCluster, node: str = "a") -> dict[str, Any]:
    found: dict[str, Any] = (cluster.report_status or {})["nodeStates"].get(node, {})
    return found


def test_a_revision_has_a_number_before_anything_is_created_for_it() -> None:
    cluster = standing("a", completed=("a",))
    run(cluster)
    change(cluster, image="example/task:2")
    # An older revision is in the DaemonSet.
    old = replace(cluster.daemon_set(), annotations={})
    plan = decide(cluster.snapshot(daemon_set=old), NOW)
    assert acts(plan, ApplyDaemonSet) == []
    (written,) = acts(plan, WriteStatus)
    assert written.status.revision == cluster.job.revision
    assert number_of(written.status.revision) == 2
    cluster.job = replace(cluster.job, status=written.status)
    assert acts(decide(cluster.snapshot(daemon_set=old), NOW), ApplyDaemonSet)


def test_a_revision_gets_its_number_while_a_pod_of_a_complete_job_is_refused() -> None:
    cluster = standing("a", "b", completed=("a", "b"))
    run(cluster)
    cluster.pods = []
    change(cluster, image="example/task:2")
    run(cluster)
    assert number_of(cluster.job.status.revision) == 2
    assert cluster.job.status.completion_token == "done"


def test_a_change_back_before_a_record_was_written_runs_the_first_text_again() -> None:
    """The report says that the node ran the first one. By now the second has begun there."""
    cluster = standing("a", completed=("a",))
    run(cluster)
    first, known = cluster.job.revision, cluster.report_status
    change(cluster, image="example/task:2")
    run(cluster)
    second = cluster.job.revision
    cluster.pods = [make_pod("a", serial=2, revision=second)]
    cluster.report_status = known
    change(cluster, image="example/task:1")
    assert cluster.job.revision not in {first, second}
    run(cluster)
    assert conditions(cluster)["Complete"] == ("False", "NodesDue")
    assert deleted(run(cluster)) == ["a"]


def test_a_pod_from_before_two_changes_never_starts() -> None:
    cluster = standing("a", completed=("a",))
    run(cluster)
    held = gated_pod("a", revision=cluster.job.revision)
    for image in ("example/task:2", "example/task:1"):
        change(cluster, image=image)
        run(cluster)
    cluster.pods = [held]
    plan = run(cluster)
    assert (released(plan), deleted(plan)) == ([], ["a"])


def test_a_completion_of_the_newest_revision_counts_after_a_crash() -> None:
    """The gate was removed, then the controller ended, and the task completed meanwhile."""
    cluster = standing("a", completed=("a",))
    run(cluster)
    known = cluster.report_status
    change(cluster, image="example/task:2")
    run(cluster)
    cluster.report_status = known
    revision = cluster.job.revision
    cluster.pods = [make_pod("a", serial=2, revision=revision)]
    cluster.evidence["a"] = replace(done("a"), pod_uid="pod-a-2", revision=revision)
    assert deleted(run(cluster)) == []
    assert conditions(cluster)["Complete"][0] == "True"
    assert recorded(cluster)["podUID"] == "pod-a-2"


def test_a_revision_runs_once_while_the_report_cannot_be_written() -> None:
    cluster = standing("a", completed=("a",))
    run(cluster)
    known = cluster.report_status
    change(cluster, image="example/task:2")
    run(cluster)
    cluster.report_status = known
    revision = cluster.job.revision
    cluster.pods = [make_pod("a", serial=2, revision=revision)]
    cluster.evidence["a"] = replace(done("a"), pod_uid="pod-a-2", revision=revision)
    plan = decide(cluster.snapshot().with_refusal(RefusedWrite.REPORT, "quota"), NOW)
    assert acts(plan, WriteReportStatus) == []
    assert deleted(plan) == []


@pytest.mark.parametrize("mode", [CompletionMode.LOG, CompletionMode.EXIT])
def test_a_job_that_changes_to_a_script_gets_a_token_that_no_script_prints(
    mode: CompletionMode,
) -> None:
    cluster = standing("a", completed=("a",))
    change(cluster, completion=replace(CONTINUOUS, mode=mode))
    run(cluster)
    change(cluster, image="", script="echo done", completion=CONTINUOUS)
    run(cluster)
    token = cluster.job.completion_token
    assert token == f"completed-{cluster.job.uid}"
    template = cluster.daemon_set().spec["template"]
    env = template["spec"]["containers"][0]["env"]
    assert {"name": names.ENV_TOKEN, "value": token} in env
    # And back: an image of the user's prints the word that it is given.
    change(cluster, image="example/task:1", script=None)
    run(cluster)
    assert cluster.job.completion_token == "done"


def test_the_token_of_a_script_is_found_again_if_the_status_has_lost_it() -> None:
    cluster = change(standing("a", completed=("a",)), image="", script="echo done")
    run(cluster)
    token = cluster.job.completion_token
    assert token == f"completed-{cluster.job.uid}"
    cluster.job = replace(cluster.job, status=replace(cluster.job.status, completion_token=""))
    run(cluster)
    assert cluster.job.completion_token == token


def test_a_token_of_the_jobs_own_stays_in_force_when_it_gets_a_script() -> None:
    cluster = standing("a", completed=("a",))
    completion = replace(CONTINUOUS, token="mine")
    change(cluster, image="", script="true", completion=completion)
    run(cluster)
    assert (cluster.job.completion_token, cluster.job.status.completion_token) == ("mine", "")


@pytest.mark.parametrize(
    ("recorded", "digest", "found"),
    [
        ("", "", ""),
        ("", "aa", "1-aa"),
        ("1-aa", "aa", "1-aa"),
        ("1-aa", "bb", "2-bb"),
        ("2-bb", "aa", "3-aa"),
        ("3-aa", "", "3"),
        ("3", "aa", "4-aa"),
        ("odd", "aa", "1-aa"),
        ("-5-aa", "bb", "1-bb"),
        ("9" * 60, "aa", "1-aa"),
    ],
)
def test_what_is_asked_for_again_has_another_number(recorded: str, digest: str, found: str) -> None:
    assert next_numbered(recorded, digest) == found


def test_a_number_of_another_type_is_refused() -> None:
    for field in ("revision", "observedRerun"):
        with pytest.raises(ValueError, match="instead of a text"):
            parse_job_status({field: 3})

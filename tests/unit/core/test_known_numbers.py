"""Numbers of revisions and requests go on where the reports are, if the status has lost them."""

from dataclasses import replace
from typing import Any

import pytest

from daemonset_job.api import names
from daemonset_job.api.job import Job
from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.numbered import newest_numbered
from daemonset_job.api.report_status import ReportStatus
from daemonset_job.api.states import NodeState
from job_controller.core.state.known_numbers import with_known_numbers
from tests.unit.builders import SampleCluster, done, make_cluster
from tests.unit.core.standing_jobs import change, request, standing


@pytest.mark.parametrize(
    ("found", "newest"),
    [
        ((), ""),
        (("",), ""),
        (("1-aa", "3-cc", "2-bb", ""), "3-cc"),
        (("10-aa", "9-bb"), "10-aa"),
        (("3-aa", "3-bb"), "3"),
        (("3", "3-bb"), "3"),
        (("odd", "9" * 60), ""),
    ],
)
def test_the_newest_is_that_with_the_highest_number(found: tuple[str, ...], newest: str) -> None:
    assert newest_numbered(found) == newest


def known(cluster: SampleCluster, *records: NodeRecord) -> Job:
    """Return the Job with what its report has, which has these records of nodes."""
    status = ReportStatus(node_states={f"n{n}": record for n, record in enumerate(records)})
    return with_known_numbers(cluster.job, [replace(cluster.report(), status=status)], None)


def recorded(state: NodeState, revision: str = "", **more: Any) -> NodeRecord:
    return NodeRecord("uid", state, revision=revision, **more)


def test_a_revision_that_the_status_has_lost_is_found_in_the_ledger() -> None:
    cluster = standing("a")
    digest = cluster.job.revision_hash
    cluster.evidence = {
        "a": replace(done("a"), revision="6-other"),
        "b": replace(done("b"), revision=f"7-{digest}"),
    }
    job = known(cluster)
    assert (job.revision, job.has_new_revision) == (f"7-{digest}", True)
    changed = known(change(cluster, image="example/task:2"))
    assert changed.revision == f"8-{changed.revision_hash}"


def test_two_revisions_with_one_number_are_followed_by_the_next_number() -> None:
    cluster = standing("a")
    cluster.evidence = {"a": replace(done("a"), revision="1-other")}
    job = known(cluster)
    assert job.revision == f"2-{job.revision_hash}"


@pytest.mark.parametrize(
    ("record", "number"),
    [
        (recorded(NodeState.FAILED, "5-other"), 6),
        (recorded(NodeState.COMPLETED, "5-other"), 6),
        (recorded(NodeState.ACTIVE, "5-other", attempts=1), 6),
        # It is written before the status, and may be of a change that was undone.
        (recorded(NodeState.WAITING, "5-other"), 1),
        (recorded(NodeState.UNREACHABLE, "5-other"), 1),
    ],
)
def test_only_a_record_of_a_node_that_has_begun_counts(record: NodeRecord, number: int) -> None:
    cluster = standing("a")
    assert known(cluster, record).revision == f"{number}-{cluster.job.revision_hash}"


def test_a_rerun_that_the_status_has_lost_is_no_new_one() -> None:
    cluster = request(standing("a"), "a@1")
    asked = cluster.job.rerun.id
    digest = asked.partition("-")[2]
    job = known(cluster, recorded(NodeState.COMPLETED, rerun=f"4-{digest}"))
    assert job.rerun.id == f"4-{digest}"
    job = known(request(cluster, "a@2"), recorded(NodeState.COMPLETED, rerun=f"4-{digest}"))
    assert job.rerun.id.startswith("5-")
    job = known(request(cluster, ""), recorded(NodeState.COMPLETED, rerun=f"4-{digest}"))
    assert job.rerun.id == "4"


def test_the_daemon_set_has_the_revision_that_no_node_has_begun() -> None:
    cluster = standing("a")
    applied = replace(cluster.daemon_set(), annotations={names.ANNOTATION_REVISION: "8-other"})
    job = with_known_numbers(cluster.job, [], applied)
    assert job.revision == f"9-{job.revision_hash}"


def test_other_jobs_and_jobs_without_a_report_stay_as_they_are() -> None:
    once, without = make_cluster("a"), standing("a")
    assert known(once) is once.job
    assert with_known_numbers(without.job, [], None) == without.job

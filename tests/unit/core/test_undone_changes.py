"""What a Job of policy Continuous runs is changed and changed back: the status never had it."""

from dataclasses import replace

import pytest

from tests.unit.builders import SampleCluster
from tests.unit.core.runs import run
from tests.unit.core.standing_jobs import change, deleted, request, standing, totals_of


def run_refused(cluster: SampleCluster) -> None:
    """Run while the API server refuses the status of the Job."""
    status = cluster.job.status
    run(cluster)
    cluster.job = replace(cluster.job, status=status)


@pytest.mark.parametrize("is_seen_first", [True, False])
@pytest.mark.parametrize("completed", [(), ("a",)])
def test_a_request_between_them_is_not_lost(
    completed: tuple[str, ...], is_seen_first: bool
) -> None:
    cluster = standing("a", completed=completed)
    run(cluster)
    change(cluster, image="example/task:2")
    if is_seen_first:
        run_refused(cluster)
    request(cluster, "a")
    run_refused(cluster)
    change(cluster, image="example/task:1")
    run_refused(cluster)
    assert deleted(run(cluster)) == ["a"]


def test_without_a_request_no_node_runs_again() -> None:
    cluster = standing("a", completed=("a",))
    run(cluster)
    change(cluster, image="example/task:2")
    run_refused(cluster)
    change(cluster, image="example/task:1")
    assert deleted(run(cluster)) == []
    totals = totals_of(cluster)
    assert (totals.desired, totals.completed) == (1, 1)

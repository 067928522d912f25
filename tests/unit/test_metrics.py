"""What the controller counts: there from the start, bounded, and true."""

from dataclasses import replace
from datetime import timedelta

import pytest

from daemonset_job.api.job_status import JobStatus, parse_job_status
from job_controller.metrics import JOBS_LIMIT, Metrics
from job_controller.progress_metrics import REASONS, UNKNOWN_REASON
from tests.unit.builders import START, make_job

ENDS = [
    ("Succeeded", "AllNodesCompleted"),
    ("Succeeded", "CompletedWithinFailureLimit"),
    ("Failed", "MaxFailedNodesExceeded"),
    ("Failed", "DeadlineExceeded"),
    ("Cancelled", "JobDeleted"),
]
NODES = {"waiting": 1, "active": 2, "completed": 3, "failed": 4, "unreachable": 5}


def value(metrics, name, **labels):
    return metrics.registry.get_sample_value(f"dsj_{name}", labels)


def watching(*jobs):
    metrics = Metrics()
    metrics.watch_jobs(lambda: jobs, lambda: 0.0)
    return metrics


def job(number=0, phase="Running", nodes=NODES):
    return replace(
        make_job(f"job-{number:03}"),
        created_at=START + timedelta(seconds=number),
        status=parse_job_status({"phase": phase, "nodes": nodes}),
    )


def test_everything_is_there_before_anything_has_happened():
    metrics = watching()
    for result in ("done", "retried", "forbidden", "failed"):
        assert value(metrics, "reconciles_total", component="controller", result=result) == 0
    for phase in ("Pending", "Running", "Paused", "Succeeded", "Failed"):
        assert value(metrics, "jobs", phase=phase) == 0
    for state in NODES:
        assert value(metrics, "nodes", state=state) == 0
    for phase in ("Succeeded", "Failed"):
        assert value(metrics, "run_duration_seconds_count", phase=phase) == 0
    for phase, reason in ENDS:
        assert value(metrics, "runs_ended_total", phase=phase, reason=reason) == 0
    for reason in REASONS:
        assert value(metrics, "unfinished_jobs", reason=reason) == 0
        assert value(metrics, "unfinished_jobs_idle_seconds", reason=reason) == 0
    assert value(metrics, "nodes_failed_total", reason="BackoffLimitExceeded") == 0
    assert value(metrics, "is_leader", component="controller") == 0
    assert value(metrics, "reconcile_duration_seconds_count") == 0


def test_jobs_are_counted_by_phase_and_a_new_one_is_pending():
    metrics = watching(job(1), job(2), job(3, "Failed"), make_job("new"))
    assert value(metrics, "jobs", phase="Running") == 2
    assert value(metrics, "jobs", phase="Failed") == 1
    assert value(metrics, "jobs", phase="Pending") == 1


def test_nodes_are_counted_for_all_jobs_and_for_each():
    metrics = watching(job(1), job(2))
    for state, count in NODES.items():
        assert value(metrics, "nodes", state=state) == 2 * count
        labels = {"namespace": "default", "job": "job-001", "state": state}
        assert value(metrics, "job_nodes", **labels) == count


def single_jobs(metrics):
    (family,) = [f for f in metrics.registry.collect() if f.name == "dsj_job_nodes"]
    return {(sample.labels["namespace"], sample.labels["job"]) for sample in family.samples}


def test_old_or_many_jobs_do_not_hide_those_of_others():
    def many(namespace, phase, begin):
        return [
            replace(job(number, phase), namespace=namespace) for number in range(begin, begin + 200)
        ]

    crowd = many("crowd", "Paused", 0) + many("crowd", "Succeeded", 200)
    crowd += many("crowd", "Running", 400)
    others = [replace(job(900, "Running"), namespace=f"other-{number}") for number in range(20)]
    labelled = single_jobs(watching(*crowd, *others))
    assert len(labelled) == JOBS_LIMIT
    assert {(each.namespace, each.name) for each in others} <= labelled
    assert labelled - {(each.namespace, each.name) for each in others} == {
        ("crowd", f"job-{number}") for number in range(400, 480)
    }
    # Those that do not run have what is left.
    ended = replace(job(901, "Failed"), namespace="other")
    labelled = single_jobs(watching(*many("crowd", "Paused", 0)[:99], ended, *others[:1]))
    assert ("other-0", "job-900") in labelled
    assert ("other", "job-901") not in labelled


def test_single_jobs_are_shown_up_to_a_limit_and_sums_include_all():
    jobs = [job(number) for number in reversed(range(JOBS_LIMIT + 10))]
    metrics = watching(*jobs)
    (family,) = [f for f in metrics.registry.collect() if f.name == "dsj_job_nodes"]
    labelled = {sample.labels["job"] for sample in family.samples}
    assert labelled == {f"job-{number:03}" for number in range(JOBS_LIMIT)}
    assert value(metrics, "nodes", state="waiting") == JOBS_LIMIT + 10


def test_jobs_are_read_again_each_time():
    jobs = []
    metrics = Metrics()
    metrics.watch_jobs(lambda: jobs, lambda: 0.0)
    assert value(metrics, "jobs", phase="Running") == 0
    jobs.append(job(1))
    assert value(metrics, "jobs", phase="Running") == 1


def test_a_job_that_is_gone_leaves_no_series_behind():
    jobs = [job(1)]
    metrics = Metrics()
    metrics.watch_jobs(lambda: jobs, lambda: 0.0)
    labels = {"namespace": "default", "job": "job-001", "state": "active"}
    assert value(metrics, "job_nodes", **labels) == 2
    jobs.clear()
    assert value(metrics, "job_nodes", **labels) is None


def test_requests_are_counted_by_verb_resource_and_code():
    metrics = Metrics()
    metrics.count_request("patch", "jobs/status", 409, 0.1)
    metrics.count_request("patch", "jobs/status", 409, 0.1)
    metrics.count_request("patch", "jobs/status", 0, 0.1)
    labels = {"component": "controller", "verb": "patch", "resource": "jobs/status"}
    assert value(metrics, "api_requests_total", **labels, code="409") == 2
    assert value(metrics, "api_requests_total", **labels, code="0") == 1


RUNNING = JobStatus(phase="Running")
ENDED = {
    "phase": "Succeeded",
    "startTime": "2026-01-01T00:00:00Z",
    "completionTime": "2026-01-01T00:02:00Z",
}


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_the_end_of_a_run_is_counted_once_with_its_duration(phase):
    metrics = Metrics()
    after = parse_job_status({**ENDED, "phase": phase})
    metrics.count_end(RUNNING, after)
    metrics.count_end(after, replace(after, observed_generation=2))
    assert value(metrics, "run_duration_seconds_count", phase=phase) == 1
    assert value(metrics, "run_duration_seconds_sum", phase=phase) == 120


@pytest.mark.parametrize(
    "after",
    [
        {"phase": "Running"},
        {},
        {**ENDED, "completionTime": ""},
        {key: text for key, text in ENDED.items() if key != "startTime"},
    ],
)
def test_what_is_no_end_or_has_no_duration_is_not_counted(after):
    metrics = Metrics()
    metrics.count_end(RUNNING, parse_job_status(after))
    assert value(metrics, "run_duration_seconds_count", phase="Succeeded") == 0


def test_clocks_that_disagree_give_no_negative_duration():
    metrics = Metrics()
    metrics.count_end(JobStatus(), parse_job_status({**ENDED, "startTime": "2026-01-01T01:00:00Z"}))
    assert value(metrics, "run_duration_seconds_sum", phase="Succeeded") == 0


def ended(phase, reason):
    type_ = "Complete" if phase == "Succeeded" else "Failed"
    condition = {"type": type_, "status": "True", "reason": reason}
    return parse_job_status({"phase": phase, "conditions": [condition]})


@pytest.mark.parametrize(("phase", "reason"), ENDS[:-1])
def test_the_end_of_a_run_is_counted_by_its_reason(phase, reason):
    metrics = Metrics()
    metrics.count_end(RUNNING, ended(phase, reason))
    metrics.count_end(ended(phase, reason), ended(phase, reason))
    assert value(metrics, "runs_ended_total", phase=phase, reason=reason) == 1


def test_a_reason_that_is_not_listed_makes_one_series_only():
    metrics = Metrics()
    for number in range(9):
        metrics.count_end(RUNNING, ended("Failed", f"Reason{number}"))
        metrics.count_failed_nodes([f"Reason{number}", "BackoffLimitExceeded"])
    assert value(metrics, "runs_ended_total", phase="Failed", reason="Other") == 9
    assert value(metrics, "nodes_failed_total", reason="Other") == 9
    assert value(metrics, "nodes_failed_total", reason="BackoffLimitExceeded") == 9


def test_a_cancelled_run_is_counted():
    metrics = Metrics()
    metrics.count_cancelled()
    assert value(metrics, "runs_ended_total", phase="Cancelled", reason="JobDeleted") == 1


# --- Jobs that have not ended ------------------------------------------------------------


def blocked(number, reason, **totals):
    condition = {"type": "Progressing", "status": "False", "reason": reason}
    status = {"phase": "Pending", "conditions": [condition], "nodes": totals}
    found = job(number)
    return replace(found, uid=f"uid-{number}", status=parse_job_status(status))


class Scrapes:
    """Metrics of Jobs and a clock that a test sets."""

    def __init__(self):
        self.jobs, self.now, self.metrics = [], 0.0, Metrics()
        self.metrics.watch_jobs(lambda: self.jobs, lambda: self.now)

    def scrape(self, now, *jobs):
        """Return the idle seconds and the number of Jobs by reason, those of 0 aside."""
        self.jobs[:], self.now = jobs, now
        samples = {
            family.name: {s.labels["reason"]: s.value for s in family.samples if s.value}
            for family in self.metrics.registry.collect()
            if family.name.startswith("dsj_unfinished")
        }
        return samples["dsj_unfinished_jobs_idle_seconds"], samples["dsj_unfinished_jobs"]


def test_unfinished_jobs_are_counted_by_reason_and_others_are_not():
    ended_job = replace(blocked(4, "Completed"), status=ended("Succeeded", "AllNodesCompleted"))
    jobs = [blocked(1, "FailedCreate"), blocked(2, "FailedCreate"), make_job("new"), ended_job]
    jobs.append(blocked(3, "OfAnotherVersion"))
    _, counts = Scrapes().scrape(0.0, *jobs)
    assert counts == {"FailedCreate": 2, UNKNOWN_REASON: 2}


def test_idle_is_the_time_since_the_reason_or_the_counts_changed():
    scrapes = Scrapes()
    assert scrapes.scrape(10.0, blocked(1, "ImagePullFailed"))[0] == {}
    assert scrapes.scrape(70.0, blocked(1, "ImagePullFailed"))[0] == {"ImagePullFailed": 60.0}
    # The oldest of those with one reason counts.
    both = blocked(1, "ImagePullFailed"), blocked(2, "ImagePullFailed")
    assert scrapes.scrape(80.0, *both)[0] == {"ImagePullFailed": 70.0}
    assert scrapes.scrape(90.0, both[1])[0] == {"ImagePullFailed": 10.0}
    assert scrapes.scrape(95.0, blocked(2, "TaskFailing"))[0] == {}
    assert scrapes.scrape(99.0, blocked(2, "TaskFailing"))[0] == {"TaskFailing": 4.0}


@pytest.mark.parametrize(
    ("totals", "idle"),
    [
        ({"completed": 1, "active": 1}, {}),
        ({"failed": 1, "active": 1}, {}),
        # A task that is started again and again brings the run no further.
        ({"waiting": 2}, {"NodesActive": 30.0}),
        ({"active": 1, "unreachable": 1}, {"NodesActive": 30.0}),
    ],
)
def test_a_run_gets_further_by_nodes_that_end(totals, idle):
    scrapes = Scrapes()
    scrapes.scrape(0.0, blocked(1, "NodesActive", active=2))
    assert scrapes.scrape(30.0, blocked(1, "NodesActive", **totals))[0] == idle


def test_a_changed_spec_and_a_job_created_again_begin_anew():
    scrapes = Scrapes()
    old = blocked(1, "NoMatchingNodes")
    scrapes.scrape(0.0, old)
    changed = replace(old, generation=old.generation + 1)
    assert scrapes.scrape(30.0, changed)[0] == {}
    assert scrapes.scrape(60.0, replace(changed, uid="another"))[0] == {}


def test_nothing_is_kept_of_a_job_that_is_gone():
    scrapes = Scrapes()
    scrapes.scrape(0.0, blocked(1, "NoMatchingNodes"))
    assert scrapes.scrape(10.0) == ({}, {})
    assert scrapes.scrape(20.0, blocked(1, "NoMatchingNodes"))[0] == {}

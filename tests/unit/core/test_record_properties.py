"""What a report has recorded of the past stays, in any life of a Job."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.mutation.job_histories import JobHistory
from tests.simulation.oracle.record_history import (
    forgotten_events,
    forgotten_failures,
    records_of,
)

PASSES = 25
SPEC = {"image": "example/task:v1", "backoffLimit": 0}


@settings(max_examples=70, suppress_health_check=[HealthCheck.too_slow])
@given(st.randoms(use_true_random=False))
def test_no_life_of_a_job_makes_its_report_forget(random):
    life = JobHistory(random, dict(SPEC))
    for _ in range(PASSES):
        before = [{"status": report.get("status")} for report in life.reports]
        list(life.step())
        found = forgotten_failures(records_of(before), records_of(life.reports))
        assert list(found) == []
        for old, new in zip(before, life.reports, strict=False):
            assert list(forgotten_events(old["status"] or {}, new.get("status") or {})) == []

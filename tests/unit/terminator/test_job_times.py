"""Times by Job: another Job of the same name has none."""

from terminator.job_times import JobTimes
from tests.unit.terminator.builders import make_job


def test_a_time_is_that_of_one_job():
    times, job = JobTimes(), make_job()
    assert times.get(job) is None
    times.set(job, 0.0)
    assert times.get(job) == 0.0
    assert times.get(make_job(uid="another")) is None
    assert times.get(make_job(namespace="elsewhere")) is None


def test_a_forgotten_job_has_no_time():
    times, job = JobTimes(), make_job()
    times.set(job, 1.0)
    times.forget((job.namespace, job.name))
    times.forget((job.namespace, job.name))
    assert times.get(job) is None

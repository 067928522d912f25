"""Which matcher a Job's logs are read with."""

from job_controller.api.job import Completion
from terminator.reconciler import Matchers
from terminator.token import Completed
from tests.unit.terminator.builders import make_job


def make_matchers(word="done"):
    return Matchers(lambda: word)


def test_the_word_that_the_job_was_started_with_is_looked_for():
    matcher = make_matchers("fini").of(make_job(status={"completionToken": "done"}))
    assert matcher.classify(b"done") == Completed()
    assert matcher.classify(b"fini") is None


def test_a_job_without_a_recorded_word_has_the_configured_one():
    assert make_matchers("fini").of(make_job()).classify(b"fini") == Completed()


def test_a_token_of_the_jobs_own_comes_first():
    job = make_job(
        spec={"completion": Completion(token="own")},  # noqa: S106 - a word in a log
        status={"completionToken": "done"},
    )
    matcher = make_matchers().of(job)
    assert matcher.classify(b"own") == Completed()
    assert matcher.classify(b"done") is None

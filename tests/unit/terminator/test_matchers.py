"""Which matcher a Job's logs are read with."""

from daemonset_job.api.job_spec import Completion
from terminator.logs import matchers as module
from terminator.logs.matcher import Completed
from terminator.logs.matchers import Matchers
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
        spec={"completion": Completion(token="own")},
        status={"completionToken": "done"},
    )
    matcher = make_matchers().of(job)
    assert matcher.classify(b"own") == Completed()
    assert matcher.classify(b"done") is None


def with_token(token, **spec):
    return make_job(spec={"completion": Completion(token=token), **spec})


def test_evicted_matcher_is_rebuilt_as_an_equal_one():
    matchers = make_matchers()
    jobs = [with_token(f"token-{number}") for number in range(300)]
    first = [matchers.of(job) for job in jobs]
    assert [matchers.of(job) for job in jobs] == first
    assert len(set(first)) == 300


def test_matchers_of_other_tokens_or_results_differ():
    matchers = make_matchers()
    jobs = [
        with_token("a"),
        with_token("b"),
        with_token("a", results=("ip",)),
        make_job(spec={"completion": Completion(token="a", failure_token="b")}),
        make_job(spec={"completion": Completion(token="a", match="Contains")}),
    ]
    assert len({matchers.of(job) for job in jobs}) == len(jobs)
    assert matchers.of(jobs[0]) != "a"


def test_one_matcher_makes_room_for_another(monkeypatch):
    monkeypatch.setattr(module, "_MATCHERS_LIMIT", 2)
    matchers = make_matchers()
    kept = matchers.of(with_token("a"))
    matchers.of(with_token("b"))
    assert matchers.of(with_token("a")) is kept
    matchers.of(with_token("c"))
    assert matchers.of(with_token("a")) is kept


def test_a_token_that_makes_no_sense_gives_no_matcher_each_time():
    matchers, job = make_matchers(), with_token("\x1b[0m \n x")
    assert matchers.of(job) is None
    assert matchers.of(job) is None

"""How a reconcile ends: its result in the metric, its log line, and the time of the next try."""

import pytest
from loguru import logger

from daemonset_job.kube.client.errors import (
    Conflict,
    Forbidden,
    Invalid,
    KubeError,
    NotFound,
    Throttled,
    Unauthorized,
    Unavailable,
)
from daemonset_job.process.program_metrics import ProgramMetrics
from daemonset_job.process.reconcile_results import ReconcileResults

KEY = ("default", "sample")
ENDING = Forbidden("no", details={"causes": [{"reason": "NamespaceTerminating"}]})
REQUEST_FAILED = "API request failed, retrying"


class Program:
    """The results of a program, and what it counts."""

    def __init__(self):
        self.metrics = ProgramMetrics("controller")
        self.results = ReconcileResults(self.metrics.reconciles)

    def counts(self):
        """Return the results with their counts, those of 0 aside."""
        samples = next(f for f in self.metrics.registry.collect() if f.name == "dsj_reconciles")
        return {
            each.labels["result"]: each.value
            for each in samples.samples
            if each.name.endswith("_total") and each.value
        }


@pytest.fixture
def program():
    return Program()


@pytest.fixture
def records():
    found = []
    sink = logger.add(lambda message: found.append(message.record), level="DEBUG")
    yield found
    logger.remove(sink)


@pytest.mark.parametrize(
    ("error", "level", "message"),
    [
        (Unavailable("no answer"), "WARNING", REQUEST_FAILED),
        (Throttled("slower"), "WARNING", REQUEST_FAILED),
        (Invalid("status.nodes"), "WARNING", REQUEST_FAILED),
        (NotFound("the CRD"), "WARNING", REQUEST_FAILED),
        (KubeError("teapot", status=418), "WARNING", REQUEST_FAILED),
        (Conflict("changed"), "DEBUG", "conflict, reconciling again"),
        (ENDING, "DEBUG", "the namespace is being deleted"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_error_of_the_api_server_is_retried_without_a_traceback(
    program, records, error, level, message
):
    assert program.results.on_error(KEY, error) is None
    assert program.counts() == {"retried": 1}
    (record,) = records
    assert (record["level"].name, record["message"]) == (level, message)
    assert record["exception"] is None
    assert record["extra"] == {"namespace": "default", "job": "sample", "error": str(error)}


@pytest.mark.parametrize("error", [Unauthorized("who"), Forbidden("RBAC")])
def test_a_missing_right_has_a_result_of_its_own_and_is_retried(program, records, error):
    assert program.results.on_error(KEY, error) is None
    assert program.counts() == {"forbidden": 1}
    (record,) = records
    assert record["level"].name == "WARNING"
    assert record["message"] == "the API server forbids a request, retrying"
    assert record["extra"] == {"namespace": "default", "job": "sample", "error": str(error)}


@pytest.mark.parametrize(
    "error", [ValueError("{x}"), TimeoutError(), ExceptionGroup("g", [ENDING])]
)
def test_any_other_exception_is_a_defect_with_a_traceback(program, records, error):
    assert program.results.on_error(KEY, error) is None
    assert program.counts() == {"failed": 1}
    (record,) = records
    assert (record["level"].name, record["message"]) == ("ERROR", "reconcile failed, retrying")
    assert record["exception"].value is error
    assert (record["extra"]["namespace"], record["extra"]["job"]) == KEY


@pytest.mark.parametrize("kind", [Throttled, Unavailable, Forbidden])
def test_the_next_try_is_when_the_api_server_asks_for_it(program, kind):
    assert program.results.on_error(KEY, kind("later", retry_after_seconds=7.0)) == 7.0


async def test_a_reconcile_is_done_and_has_its_job_in_the_log(program, records):
    async def reconcile(key):
        logger.info("acts", key=key)
        return 3.0

    reconcile = program.results.counted(reconcile)
    assert [await reconcile(KEY), await reconcile(KEY)] == [3.0, 3.0]
    assert program.counts() == {"done": 2}
    extras = [record["extra"] for record in records]
    assert [(each["namespace"], each["job"], each["key"]) for each in extras] == [(*KEY, KEY)] * 2
    assert extras[0]["reconcile_id"] != extras[1]["reconcile_id"]


async def test_an_exception_passes_through_and_is_not_counted_as_done(program):
    async def reconcile(_key):
        raise Unavailable("no answer")

    with pytest.raises(Unavailable):
        await program.results.counted(reconcile)(KEY)
    assert program.counts() == {}

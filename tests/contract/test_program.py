"""How a program runs: what ends it, what it raises, and its exit codes."""

import asyncio
from types import SimpleNamespace

import pytest
from loguru import logger

from daemonset_job.kube.client.errors import ConfigurationError
from daemonset_job.process.program import Parts, run_program, start
from daemonset_job.process.program_metrics import ProgramMetrics

pytestmark = pytest.mark.timeout(30)


@pytest.fixture
def options(kubeconfig):
    return SimpleNamespace(
        kubeconfig=str(kubeconfig), context=None, probe_host="127.0.0.1", probe_port=0
    )


class Endless:
    """A task that ends only by cancellation, and that takes note of its end."""

    def __init__(self):
        self.is_over = False

    async def run(self):
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            self.is_over = True


async def fail(text="boom"):
    raise RuntimeError(text)


def run(options, work, *others):
    def create(_client):
        return Parts(work, is_ready=lambda: True, others=others)

    return run_program(options, ProgramMetrics("it"), create, user_agent="it")


async def test_a_failure_of_the_work_ends_the_other_tasks_and_is_raised(options):
    other = Endless()
    with pytest.raises(RuntimeError, match="boom"):
        await run(options, fail(), other.run())
    assert other.is_over


async def test_a_failure_of_another_task_ends_the_work_and_is_raised(options):
    work = Endless()
    with pytest.raises(RuntimeError, match="boom"):
        await run(options, work.run(), fail())
    assert work.is_over


async def test_of_two_failures_one_is_raised_and_the_other_logged(options):
    lines = []
    sink = logger.add(lines.append, format="{message} {exception}")
    with pytest.raises(RuntimeError, match="first"):
        await run(options, fail("first"), fail("second"))
    logger.remove(sink)
    assert any("another task failed" in line and "second" in line for line in lines)


async def test_a_cancelled_program_ends_its_tasks(options):
    work, other = Endless(), Endless()
    program = asyncio.create_task(run(options, work.run(), other.run()))
    await asyncio.sleep(0.2)
    program.cancel()
    with pytest.raises(asyncio.CancelledError):
        await program
    assert work.is_over
    assert other.is_over


async def test_probes_that_cannot_be_served_end_the_tasks_too(options):
    options.probe_host = "192.0.2.1"
    work = Endless()
    with pytest.raises(ConfigurationError, match="cannot serve probes"):
        await run(options, work.run())


class TwoProblemsError(ValueError):
    problems = ("a: wrong", "b: wrong")


@pytest.mark.parametrize(
    ("error", "lines"),
    [
        (ConfigurationError("no cluster"), "it: no cluster\n"),
        (PermissionError("not yours"), "it: not yours\n"),
        (TwoProblemsError(), "it: configuration: a: wrong\nit: configuration: b: wrong\n"),
    ],
)
def test_a_configuration_that_cannot_be_used_is_exit_code_2(error, lines, capsys):
    def prepare():
        raise error

    with pytest.raises(SystemExit) as raised:
        start("it", prepare)
    assert raised.value.code == 2
    assert capsys.readouterr().err == lines


def test_what_is_prepared_runs_to_its_end():
    done = []

    async def task():
        done.append(True)

    start("it", task)
    assert done == [True]


def test_a_mistake_of_the_program_has_its_traceback():
    with pytest.raises(RuntimeError, match="boom"):
        start("it", fail)

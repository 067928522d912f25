"""kubectl dsjob and an API server that refuses, is another one, or does not answer."""

import asyncio

import pytest

from daemonset_job.kube.client.errors import KubeError, Unavailable
from daemonset_job.kube.client.resource import JOBS
from kubectl_dsjob import patience, reading, writing
from kubectl_dsjob.edge import as_cli_error
from kubectl_dsjob.errors import CliError
from kubectl_dsjob.outputs import Output
from kubectl_dsjob.target import Target


@pytest.fixture
def target(server, kubeconfig):
    return Target(kubeconfig=str(kubeconfig), namespace="default")


async def failure(verb):
    with pytest.raises((KubeError, CliError)) as caught:
        await verb
    return as_cli_error(caught.value)


async def test_a_cluster_without_the_project_is_said_to_be_one(server, target):
    server.resources = [each for each in server.resources if each.group != JOBS.group]
    verbs = (
        reading.list_runs(target, "", Output.TABLE, is_everywhere=False),
        reading.status(target, "sweep"),
        writing.suspend(target, "sweep", is_suspended=True),
    )
    for verb in verbs:
        error = await failure(verb)
        assert error.message == "the cluster has no CRD of daemonset-job"
        assert "Install" in error.way_out


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (401, "refuses your credentials"),
        (403, "you may not do this"),
        (503, "does not answer"),
        (500, "does not answer"),
    ],
)
async def test_each_refusal_has_a_sentence(server, target, status, words):
    server.fail_next("GET", "/jobs", status, times=9)
    error = await failure(reading.status(target, "sweep"))
    assert words in error.message
    assert error.way_out


@pytest.fixture
async def running(server, monkeypatch):
    """A Job that runs; `end` ends it."""
    monkeypatch.setattr(reading, "POLL_SECONDS", 0.05)
    meta = {"name": "sweep", "uid": "u"}
    job = {"metadata": meta, "spec": {"image": "i"}, "status": {"phase": "Running"}}
    server.put(JOBS, job)
    return lambda: server.patch(JOBS, "sweep", {"status": {"phase": "Succeeded"}})


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_wait_goes_on_when_the_server_is_back(server, target, running, capsys, status):
    shown = asyncio.Event()
    command = asyncio.create_task(reading.follow(target, "sweep", 30, lambda _view: shown.set()))
    await shown.wait()
    server.fail_next("GET", "/jobs/sweep", status, times=3)
    running()
    assert (await command).code == 0
    assert capsys.readouterr().err.count("trying again") == 1


async def test_wait_gives_up_when_the_server_stays_away(server, target, running, monkeypatch):
    monkeypatch.setattr(patience, "LIMIT_SECONDS", 0.2)
    shown = asyncio.Event()
    command = asyncio.create_task(reading.follow(target, "sweep", 30, lambda _view: shown.set()))
    await shown.wait()
    server.fail_next("GET", "/jobs/sweep", 503, times=1000)
    with pytest.raises(Unavailable):
        await command

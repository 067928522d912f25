"""The controller's configuration: what it does at start, and a changed file while it runs."""

import asyncio
import contextlib
import os
import signal
from pathlib import Path

import pytest
from loguru import logger

from daemonset_job.api.names import CONTAINER_NAME, DEFAULT_PAUSE_IMAGE, PAUSE_CONTAINER_NAME
from daemonset_job.kube.client.resource import DAEMON_SETS
from job_controller.config import find_file, parse_config
from job_controller.main import _prepare
from tests.contract.controller_cluster import FakeCluster, until
from tests.contract.fake_receiver import listening

pytestmark = pytest.mark.timeout(30)


@pytest.fixture
def file(kubeconfig, tmp_path, monkeypatch):
    """Return the configuration file of a controller that is started by its command line."""
    monkeypatch.setattr("job_controller.main.configure_logging", lambda *_: None)
    monkeypatch.setattr("daemonset_job.process.reload.configure_logging", lambda *_: None)
    path = tmp_path / "config.yaml"
    arguments = ["--kubeconfig", str(kubeconfig), "--config", str(path), "--probe-port", "0"]
    monkeypatch.setattr("sys.argv", ["job-controller", *arguments])
    return path


@contextlib.asynccontextmanager
async def controller():
    """Run the controller, which watches the directory of its file; yields the lines of its log."""
    said = []
    sink = logger.add(lambda message: said.append(message.record))
    process = asyncio.create_task(_prepare())
    await until(lambda: any(line["message"] == "started" for line in said), 10)
    yield said
    os.kill(os.getpid(), signal.SIGTERM)
    async with asyncio.timeout(5):
        await process
    logger.remove(sink)


def containers(server):
    (daemon_set,) = server.list(DAEMON_SETS)
    return {each["name"]: each for each in daemon_set["spec"]["template"]["spec"]["containers"]}


def token(server):
    given = containers(server)[CONTAINER_NAME]["env"]
    return {each["name"]: each.get("value") for each in given}["COMPLETION_TOKEN"]


async def test_a_changed_file_is_for_the_next_run_and_one_with_a_mistake_changes_nothing(
    server, file
):
    file.write_text("completionToken: first\n")
    cluster = FakeCluster(server, "a")
    async with controller() as said:
        file.write_text("completionToken: second\n")
        await until(lambda: any(line["message"].startswith("applied") for line in said), 10)
        file.write_text("completionToken: ' '\nworkers: 3\n")
        await until(lambda: sum("problem" in line["extra"] for line in said) == 2, 10)
        file.write_text("clusterName: 2026-99-99\n")
        await until(lambda: sum("problem" in line["extra"] for line in said) == 3, 10)
        cluster.apply()
        await until(lambda: server.list(DAEMON_SETS), 10)
        assert token(server) == "second"
    problems = " ".join(line["extra"].get("problem", "") for line in said)
    assert "completionToken: ' ' is not valid; write a word without blanks" in problems
    assert "workers: there is no such setting; use one of completionToken" in problems


async def test_a_change_reaches_jobs_that_nothing_else_happens_to(server, file):
    cluster = FakeCluster(server, "a")
    async with controller():
        cluster.apply(completion={"mode": "Exit"})
        await until(cluster.is_settled, 10)
        file.write_text("pauseImage: example/pause:2\n")
        await until(
            lambda: containers(server)[PAUSE_CONTAINER_NAME]["image"] == "example/pause:2", 10
        )


async def test_a_variable_with_a_name_of_before_is_ignored_with_a_warning(
    server, file, monkeypatch
):
    monkeypatch.setenv("HOLD_IMAGE", "example/pause:1")
    cluster = FakeCluster(server, "a")
    async with controller() as said:
        cluster.apply(completion={"mode": "Exit"})
        await until(lambda: server.list(DAEMON_SETS), 10)
        assert containers(server)[PAUSE_CONTAINER_NAME]["image"] == DEFAULT_PAUSE_IMAGE
    (warning,) = [line for line in said if line["message"] == "ignored an environment variable"]
    assert warning["level"].name == "WARNING"
    assert warning["extra"]["problem"] == "HOLD_IMAGE is not read any more: use PAUSE_IMAGE"


def test_an_argument_wins_over_the_file_and_the_file_over_the_environment():
    environ = {"HISTORY_LIMIT": "1", "PAUSE_IMAGE": "e", "LOG_LEVEL": "ERROR"}
    text = "historyLimit: 2\npauseImage: f\nhistoryMaxAge: 0\npodStartTimeout: 10\n"
    config = parse_config(["--pause-image", "a"], environ, "host", text)
    assert (config.history_limit, config.pause_image, config.log_level) == (2, "a", "ERROR")
    assert (config.history_max_age_seconds, config.pod_start_timeout_seconds) == (None, 10.0)


def test_there_is_no_file_unless_it_is_named():
    assert find_file([], {}) is None
    assert find_file([], {"CONTROLLER_CONFIG": "/e"}) == Path("/e")
    assert find_file(["--config", "/a"], {"CONTROLLER_CONFIG": "/e"}) == Path("/a")
    assert find_file(["--config", ""], {"CONTROLLER_CONFIG": "/e"}) is None


async def test_a_receiver_that_is_added_to_the_file_is_notified_without_a_restart(
    server, file, tmp_path
):
    file.write_text("receivers: []\n")
    cluster = FakeCluster(server, "a")
    async with listening() as receiver, controller() as said:
        (tmp_path / "ops.url").write_text(receiver.url)
        file.write_text(
            f"receivers: [{{name: ops, namespaces: ['*'], urlFile: {tmp_path}/ops.url}}]\n"
        )
        await until(lambda: any(line["message"].startswith("applied") for line in said), 10)
        cluster.apply(notify=[{"receiver": "ops"}])
        await until(lambda: receiver.events == ["default/sample Started"], 10)


async def test_a_receiver_that_has_nothing_to_take_is_notified_after_another_setting_changed(
    server, file, tmp_path
):
    receivers = f"receivers: [{{name: ops, namespaces: ['*'], urlFile: {tmp_path}/ops.url}}]\n"
    cluster = FakeCluster(server, "a")
    async with listening() as receiver:
        (tmp_path / "ops.url").write_text(receiver.url)
        file.write_text(receivers)
        async with controller() as said:
            cluster.apply(notify=[{"receiver": "ops"}])
            await until(lambda: receiver.events == ["default/sample Started"], 10)
            file.write_text(f"clusterName: prod\n{receivers}")
            await until(lambda: any(line["message"].startswith("applied") for line in said), 10)
            await until(cluster.is_settled, 10)
            cluster.complete("a")
            await until(lambda: len(receiver.events) == 2, 10)
    assert receiver.events[1] == "default/sample Succeeded"
    assert receiver.taken[1]["cluster"] == "prod"

"""The process as a whole: arguments, start, signals, exit codes."""

import asyncio
import contextlib
import os
import signal
import sys
import time

import pytest
import yaml

from terminator.config import DEFAULT_PATH, Options, parse_options
from tests.contract.terminator.cluster import eventually


def kubeconfig(tmp_path, url):
    path = tmp_path / "kubeconfig"
    path.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "it",
                "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
                "clusters": [{"name": "it", "cluster": {"server": url}}],
                "users": [{"name": "it", "user": {}}],
            }
        )
    )
    return str(path)


@contextlib.asynccontextmanager
async def process(*arguments, **environ):
    started = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "terminator",
        "--probe-host",
        "127.0.0.1",
        "--probe-port",
        "0",
        *arguments,
        env={"PATH": os.environ["PATH"], **environ},
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield started
    finally:
        if started.returncode is None:
            started.kill()
        await started.wait()
        # Its transport is closed a step later.
        await asyncio.sleep(0)


def test_options_have_their_defaults():
    options = parse_options([], {}, "host")
    assert options == Options(identity="host")
    assert str(options.path) == DEFAULT_PATH
    assert options.probe_port == 8081


def test_options_from_the_environment_and_from_arguments():
    environ = {
        "KUBECONFIG": "k",
        "TERMINATOR_CONFIG": "/x/c.yaml",
        "POD_NAMESPACE": "system",
        "POD_NAME": "pod-1",
        "PROBE_PORT": "9",
    }
    options = parse_options(["--probe-port", "7", "--lease-namespace", ""], environ, "host")
    assert (options.kubeconfig, str(options.path), options.identity) == ("k", "/x/c.yaml", "pod-1")
    assert (options.probe_port, options.lease_namespace) == (7, "")


@pytest.mark.parametrize("arguments", [["--probe-port", "x"], ["--probe-port", "65536"], ["--y"]])
def test_options_that_make_no_sense(arguments, capsys):
    with pytest.raises(SystemExit) as raised:
        parse_options(arguments, {}, "host")
    assert raised.value.code == 2
    assert "usage: terminator" in capsys.readouterr().err


async def test_it_runs_deletes_and_stops_on_a_signal(cluster, server, tmp_path):
    run = cluster.add_job()
    config = tmp_path / "config.yaml"
    config.write_text("logFormat: json\nflushInterval: 50ms\n")
    async with process(
        "--kubeconfig", kubeconfig(tmp_path, server.url), TERMINATOR_CONFIG=str(config)
    ) as started:
        run.print_tokens()
        await eventually(lambda: run.completed() == set(run.nodes))
        run.agree()
        await eventually(lambda: not run.exists)
        began = time.monotonic()
        started.send_signal(signal.SIGTERM)
        _, err = await started.communicate()
        assert started.returncode == 0
        assert time.monotonic() - began < 5  # two, with room for a busy machine
    assert b'"message": "stopped"' in err
    assert b"Traceback" not in err


async def test_a_bad_configuration_is_refused_at_start(tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text("maxStreams: many\nlogLevel: loud\n")
    async with process(TERMINATOR_CONFIG=str(config)) as started:
        _, err = await started.communicate()
    assert started.returncode == 2
    lines = err.decode().splitlines()
    assert lines[0].startswith("terminator: configuration: maxStreams: 'many' is not valid;")
    assert len(lines) == 2


async def test_without_a_cluster_it_says_so(tmp_path):
    async with process("--kubeconfig", str(tmp_path / "none")) as started:
        _, err = await started.communicate()
    assert started.returncode == 2
    assert err.decode().startswith("terminator: ")
    assert b"Traceback" not in err

"""The controller's configuration: arguments over environment over defaults, and clear refusals."""

import pytest

from daemonset_job.process.settings import ConfigError
from job_controller.config import Config, parse_config


def parse(*arguments, **environ):
    return parse_config(arguments, environ, "host")


def test_nothing_given_is_a_controller_of_everything_without_election():
    assert parse() == Config(identity="host")


def test_the_environment_is_that_of_the_deployment():
    config = parse(
        KUBECONFIG="/k",
        WATCH_NAMESPACES="b, a,,b",
        TERMINATION_WORD="finished",
        POD_NAME="pod-1",
        POD_NAMESPACE="system",
        WORKERS="8",
        PROBE_PORT="0",
        PAUSE_IMAGE="pause:1",
        POD_START_TIMEOUT="1m30s",
        NODE_UNREACHABLE_GRACE_PERIOD="0",
        HISTORY_LIMIT="3",
        HISTORY_MAX_AGE="1h",
        HISTORY_NAMESPACE_LIMIT="7",
        LOG_LEVEL="DEBUG",
        LOG_FORMAT="json",
    )
    assert config == Config(
        namespaces=("a", "b"),
        kubeconfig="/k",
        token="finished",
        identity="pod-1",
        lease_namespace="system",
        workers=8,
        probe_port=0,
        pause_image="pause:1",
        pod_start_timeout_seconds=90,
        node_unreachable_grace_period_seconds=0,
        history_limit=3,
        history_max_age_seconds=3600,
        history_namespace_limit=7,
        log_level="DEBUG",
        log_json=True,
    )


def test_probes_are_served_on_all_addresses_unless_one_is_given():
    assert parse().probe_host is None
    assert parse("--probe-host", "127.0.0.1").probe_host == "127.0.0.1"


def test_arguments_speak_louder_than_the_environment():
    environ = {
        "KUBECONFIG": "/env", "WATCH_NAMESPACES": "env", "TERMINATION_WORD": "env",
        "POD_NAMESPACE": "env", "WORKERS": "1", "PROBE_PORT": "1", "PAUSE_IMAGE": "env",
        "POD_START_TIMEOUT": "1", "NODE_UNREACHABLE_GRACE_PERIOD": "1", "HISTORY_LIMIT": "1",
        "HISTORY_MAX_AGE": "1", "HISTORY_NAMESPACE_LIMIT": "1",
        "LOG_LEVEL": "ERROR", "LOG_FORMAT": "json",
    }  # fmt: skip
    config = parse(
        "--kubeconfig", "/arg", "--context", "c", "--namespaces", "arg",
        "--completion-token", "arg", "--lease-namespace", "arg", "--workers", "2",
        "--probe-port", "2", "--pause-image", "arg",
        "--pod-start-timeout", "2", "--node-unreachable-grace-period", "2s", "--history-limit", "2",
        "--history-max-age", "2", "--history-namespace-limit", "2", "--log-level", "INFO",
        "--log-format", "human", **environ,
    )  # fmt: skip
    assert config == Config(
        namespaces=("arg",), kubeconfig="/arg", context="c", token="arg", identity="host",
        lease_namespace="arg", workers=2, probe_port=2, pause_image="arg",
        pod_start_timeout_seconds=2, node_unreachable_grace_period_seconds=2, history_limit=2,
        history_max_age_seconds=2, history_namespace_limit=2, log_level="INFO", log_json=False,
    )  # fmt: skip


def test_empty_variables_are_as_if_they_were_not_there():
    names = ("KUBECONFIG", "WATCH_NAMESPACES", "TERMINATION_WORD", "POD_NAME", "POD_NAMESPACE",
             "WORKERS", "PROBE_PORT", "PAUSE_IMAGE", "POD_START_TIMEOUT", "HISTORY_LIMIT",
             "HISTORY_MAX_AGE", "HISTORY_NAMESPACE_LIMIT")  # fmt: skip
    assert parse(**dict.fromkeys(names, "")) == Config(identity="host")


def test_keys_that_hold_over_all_namespaces_are_read():
    expected = ("disk-*", "kernel")
    assert parse(CLUSTER_EXCLUSIVE_KEYS="kernel,disk-*").cluster_keys == expected
    assert parse("--cluster-exclusive-keys", "kernel,disk-*").cluster_keys == expected
    assert parse().cluster_keys == ()


def test_history_without_a_maximum_age_is_kept():
    assert parse("--history-max-age", "0").history_max_age_seconds is None
    assert parse("--history-namespace-limit", "0").history_namespace_limit is None


def test_history_has_limits_by_default():
    assert parse().history_max_age_seconds == 30 * 24 * 3600
    assert parse().history_namespace_limit == 500


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("WORKERS", "many"),
        ("WORKERS", "0"),
        ("WORKERS", "-1"),
        ("PROBE_PORT", "http"),
        ("PROBE_PORT", "65536"),
        ("POD_START_TIMEOUT", "5 minutes"),
        ("NODE_UNREACHABLE_GRACE_PERIOD", "-1s"),
        ("HISTORY_LIMIT", "all"),
        ("HISTORY_MAX_AGE", "100000h"),
        ("LOG_FORMAT", "xml"),
        ("TERMINATION_WORD", " done "),
        ("TERMINATION_WORD", "  "),
        ("TERMINATION_WORD", "done\nnever"),
        ("TASK_IMAGE", "example/task v1"),
        ("PAUSE_IMAGE", "example/pause:v1\n"),
        ("WATCH_NAMESPACES", "fine,not/fine"),
        ("CLUSTER_EXCLUSIVE_KEYS", "kernel,*"),
    ],
)
def test_a_variable_that_makes_no_sense_is_named_with_the_fix(name, value):
    with pytest.raises(ValueError, match=name):
        parse(**{name: value})


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--workers", "0"], "from 1 up"),
        (["--workers", "x"], "from 1 up"),
        (["--probe-port", "65536"], "0 to 65535"),
        (["--pod-start-timeout", "-1"], "--pod-start-timeout"),
        (["--history-limit", "x"], "whole number"),
        (["--log-format", "xml"], "human"),
        (["--nonsense"], "--nonsense"),
        (["stray"], "stray"),
    ],
)
def test_an_argument_that_makes_no_sense_ends_in_usage(arguments, words, capsys):
    with pytest.raises(SystemExit) as end:
        parse(*arguments)
    assert end.value.code == 2
    assert words in capsys.readouterr().err


def test_all_problems_of_the_environment_are_named_at_once():
    with pytest.raises(ConfigError) as raised:
        parse("--probe-port", "1", WORKERS="many", PROBE_PORT="http", LOG_LEVEL="loud")
    level, port, workers = sorted(raised.value.problems)
    assert level.startswith("environment variable LOG_LEVEL: 'loud' is not valid; write one of T")
    assert port.startswith("environment variable PROBE_PORT: 'http' is not valid; write a whole")
    assert workers.endswith("WORKERS: 'many' is not valid; write a whole number from 1 up")


def test_all_problems_of_the_arguments_are_named_at_once(capsys):
    with pytest.raises(SystemExit):
        parse("--workers", "0", "--log-format", "xml")
    said = capsys.readouterr().err
    assert "argument --workers: '0' is not valid; write a whole number from 1 up" in said
    assert "argument --log-format: 'xml' is not valid; write one of human, json" in said


@pytest.mark.parametrize("workers", ["9" * 5000, "1" + "0" * 12])
def test_a_number_that_is_far_too_large_is_named_with_its_fix(workers):
    with pytest.raises(ConfigError, match="write a whole number from 1 up"):
        parse(WORKERS=workers)


# Ten times ten times ten, and so on: a list of ten thousand million items in half a kilobyte.
TENFOLD = "".join(
    f"a{level}: &a{level} [{', '.join([f'*a{level - 1}' if level else 'x'] * 10)}]\n"
    for level in range(10)
)


@pytest.mark.parametrize(
    "text",
    [
        f"historyLimit: 0x{'f' * 5000}",
        f"historyMaxAge: -0x{'f' * 5000}",
        f"? 0x{'f' * 5000}\n: 1",
        f"{TENFOLD}historyLimit: *a9",
    ],
    ids=["number", "negative", "name", "list"],
)
def test_a_value_that_cannot_be_repeated_is_named_all_the_same(text):
    with pytest.raises(ConfigError, match=r"the value|no such setting"):
        parse_config([], {}, "host", text)

"""The configuration: who wins, and what is said about mistakes."""

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from daemonset_job.process.durations import parse_duration
from daemonset_job.process.settings import ConfigError
from terminator.config import Config, load_config

WHOLE = """
namespaces: [b, a, b]
podLabelSelector: daemonset-job=true,team in (x, y)
terminationWord: "yes"
resyncPeriod: 1m30s
maxStreams: 10
shortReads: 4
flushInterval: 250ms
logLevel: debug
logFormat: JSON
"""


def test_defaults():
    config = load_config({}, None)
    assert config == Config()
    assert (config.namespaces, config.termination_word) == ((), "done")
    assert config.pod_label_selector == "daemonset-job=true"


@pytest.mark.parametrize("text", ["", "# nothing\n", "{}", "namespaces:\n"])
def test_an_empty_file_changes_nothing(text):
    assert load_config({}, text) == Config()


def test_the_whole_file():
    assert load_config({}, WHOLE) == Config(
        namespaces=("a", "b"),
        pod_label_selector="daemonset-job=true,team in (x, y)",
        termination_word="yes",
        resync_period=90.0,
        max_streams=10,
        short_reads=4,
        flush_interval=0.25,
        log_level="DEBUG",
        log_format="json",
    )


def test_the_environment_of_the_seed():
    environ = {
        "NAMESPACE": "b, a,",
        "POD_LABEL_SELECTOR": "x=y",
        "TERMINATION_WORD": "fini",
        "TICKER_DURATION": "10s",
        "LOG_LEVEL": "",
        "OTHER": "1",
    }
    assert load_config(environ, None) == Config(("a", "b"), "x=y", "fini", 10.0)


@pytest.mark.parametrize("text", ["resyncPeriod: 10", "resyncPeriod: '10'", "resyncPeriod: 10.0"])
def test_a_number_without_a_unit_is_seconds(text):
    # The manifests of the first version have TICKER_DURATION: "10".
    from_environment = load_config({"TICKER_DURATION": "10"}, None)
    assert load_config({}, text) == from_environment == Config(resync_period=10.0)
    assert isinstance(load_config({}, text).resync_period, float)


def test_the_file_overrides_the_environment():
    environ = {"TERMINATION_WORD": "fini", "NAMESPACE": "a"}
    config = load_config(environ, "terminationWord: ready\n")
    assert (config.termination_word, config.namespaces) == ("ready", ("a",))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [", "the file is not YAML"),
        ("- a", "the file must hold settings"),
        ("maxStream: 1", "maxStream: there is no such setting; use one of namespaces, podLabel"),
        ("namespaces: 3", "namespaces: 3 is not valid; write a list of namespaces"),
        ("namespaces: [1]", "write a list of namespaces"),
        ("namespaces: A_B", "'A_B' is not the name of a namespace"),
        ("podLabelSelector: ''", "write a label selector such as daemonset-job=true"),
        ("podLabelSelector: a in (b", "write a label selector such as daemonset-job=true"),
        ("podLabelSelector: a b", "write a label selector"),
        ("podLabelSelector: a=b,", "write a label selector"),
        ("podLabelSelector: {a: b}", "write a label selector"),
        ("terminationWord: yes", "terminationWord: True is not valid; write a word, in quotes"),
        ('terminationWord: "a\\nb"', "write a word"),
        ("terminationWord: ' '", "write a word"),
        ("resyncPeriod: true", "resyncPeriod: True is not valid; write a duration such as 10s"),
        ("resyncPeriod: [10]", "write a duration such as 10s"),
        ("resyncPeriod: -10", "write a duration between 1s and 24h"),
        ("resyncPeriod: .nan", "write a duration between 1s and 24h"),
        ("resyncPeriod: '-10'", "write a duration such as 10s"),
        ("resyncPeriod: 0.5", "write a duration between 1s and 24h"),
        ("resyncPeriod: soon", "write a duration such as 10s"),
        ("resyncPeriod: 10s later", "write a duration such as 10s"),
        ("resyncPeriod: 10ms", "write a duration between 1s and 24h"),
        ("flushInterval: 25h", "write a duration between 0s and 24h"),
        ("maxStreams: -1", "write a whole number from 0 to 4000"),
        ("maxStreams: many", "write a whole number"),
        ("shortReads: true", "write a whole number from 1 to 64"),
        ("logLevel: loud", "write one of TRACE, DEBUG"),
        ("logLevel: 3", "write one of TRACE, DEBUG"),
        ("logFormat: xml", "write one of human, json"),
    ],
)
def test_a_mistake_is_named_with_its_fix(text, words):
    with pytest.raises(ConfigError) as raised:
        load_config({}, text)
    assert words in str(raised.value)


def test_all_mistakes_are_named():
    with pytest.raises(ConfigError) as raised:
        load_config({"TICKER_DURATION": "often"}, "maxStreams: x\nlogLevel: loud\n")
    assert len(raised.value.problems) == 3
    assert raised.value.problems[0].startswith("environment variable TICKER_DURATION: 'often'")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("10s", 10),
        ("1m30s", 90),
        ("1h", 3600),
        ("500ms", 0.5),
        ("1.5s", 1.5),
        (".5s", 0.5),
        ("10", 10),
        ("1.5", 1.5),
    ],
)
def test_durations(text, seconds):
    assert parse_duration(text) == pytest.approx(seconds)


@given(st.text())
def test_any_text_is_a_configuration_or_a_clear_error(text):
    try:
        config = load_config({}, text)
    except ConfigError:
        event("refused")
    else:
        assert isinstance(config, Config)


@pytest.mark.parametrize(
    "selector",
    ["a", "!a", "a=", "a==b,c!=d", "x.io/a in (b, c),d notin (e)", "a>1,b < 2", "! a , b"],
)
def test_label_selectors_are_those_of_kubectl(selector):
    assert load_config({}, f"podLabelSelector: '{selector}'").pod_label_selector == selector

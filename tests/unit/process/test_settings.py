"""Variables that were renamed, and files that are no YAML of this program."""

import pytest

from daemonset_job.process.settings import ConfigError, renamed_variables
from job_controller import config as controller
from terminator import config as terminator

TABLES = {
    "controller": controller.SETTINGS,
    "terminator": (*terminator.OPTIONS, *terminator.SETTINGS),
}
RENAMED = {
    "HOLD_IMAGE": "PAUSE_IMAGE",
    "START_PATIENCE_SECONDS": "POD_START_TIMEOUT",
    "UNREACHABLE_PATIENCE_SECONDS": "NODE_UNREACHABLE_GRACE_PERIOD",
    "HISTORY_SECONDS": "HISTORY_MAX_AGE",
}


def test_every_variable_of_before_that_is_set_is_named_with_the_new_one():
    found = renamed_variables(controller.SETTINGS, dict.fromkeys(RENAMED, "1"))
    assert found == [f"{old} is not read any more: use {new}" for old, new in RENAMED.items()]


def test_nothing_is_said_about_a_blank_variable_or_one_of_another_program():
    environ = {"HOLD_IMAGE": " ", "HISTORY_SECONDS": "", "PAUSE_IMAGE": "a", "OTHER": "b"}
    assert renamed_variables(controller.SETTINGS, environ) == []


def test_the_value_of_before_is_not_used():
    environ = dict.fromkeys(RENAMED, "not valid for any setting")
    assert controller.parse_config([], environ, "host") == controller.Config(identity="host")


def test_the_new_variable_beside_the_old_one_is_used_and_the_old_one_still_named():
    environ = {"HOLD_IMAGE": "old", "PAUSE_IMAGE": "new"}
    assert controller.parse_config([], environ, "host").pause_image == "new"
    assert len(renamed_variables(controller.SETTINGS, environ)) == 1


@pytest.mark.parametrize("program", TABLES)
def test_no_variable_of_before_is_read_and_each_has_one_of_now(program):
    old = {each.old_variable: each.variable for each in TABLES[program] if each.old_variable}
    assert not old.keys() & {each.variable for each in TABLES[program]}
    assert all(old.values())


@pytest.mark.parametrize("flag", ["--hold-image", "--start-patience", "--history-seconds"])
def test_an_argument_of_before_is_refused(flag, capsys):
    with pytest.raises(SystemExit) as raised:
        controller.parse_config([flag, "1"], {}, "host")
    assert raised.value.code == 2
    assert f"unrecognized arguments: {flag} 1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: 1\nclusterName: 2026-99-99", "line 2, column 14: this value looks like"),
        ("clusterName: 2001-12-14t21:59:43.10-99:00", "line 1, column 14: this value"),
        ("historyLimit: " + "9" * 5000, "line 1, column 15: this value"),
        ("historyLimit: !!int x", "this value looks like a number or a time, and is none"),
        ("historyLimit: !!bool x", "this value looks like"),
        ("receivers: !!timestamp x", "this value looks like"),
        ("[" * 3000, "it is nested too deep"),
        ("receivers: []\nlogLevel: INFO\nreceivers: []", "line 3, column 1: this name"),
        ("a: [", "line 1, column 5: expected the node content"),
        ("\0", "unacceptable character #x0000"),
    ],
    ids=lambda text: text[:20],
)
def test_a_file_that_yaml_cannot_read_is_a_problem_of_the_configuration(text, problem):
    """And not an error of this program, which would end it when the file is changed."""
    with pytest.raises(ConfigError, match="the file is not YAML: ") as raised:
        controller.parse_config([], {}, "host", text)
    assert problem in str(raised.value)


def test_a_name_that_is_merged_is_not_there_twice():
    text = "sources:\n- &a {name: a, namespaces: [x]}\n- {<<: *a, name: b}\n"
    found = controller.parse_config([], {}, "host", text)
    assert [each.name for each in found.sources] == ["a", "b"]
    assert {each.namespaces for each in found.sources} == {("x",)}

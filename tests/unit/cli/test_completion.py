"""Completion: what kubectl gets for the words of a command line."""

import subprocess

import pytest

from kubectl_dsjob import completion
from kubectl_dsjob.completion import FILES, NO_FILES, complete
from kubectl_dsjob.main import app

TABLE = """\
job.daemonset.darkowlzz.space/sweep        Running   3   1   0               5s
jobreport.daemonset.darkowlzz.space/sweep-2026-a    sweep   Running     3   1   0   5s
jobreport.daemonset.darkowlzz.space/fix-2026-b      fix     Succeeded   3   3   0   5s
jobreport.daemonset.darkowlzz.space/evil-2026-c     \x1b[31m
"""
REPORTS = "fix-2026-b      fix     Succeeded   3   3   0   5s"
NODES = "node/rack1-a\nnode/rack1-b\nnode/rack2-a\n"


@pytest.fixture
def kubectl(monkeypatch):
    """Answer calls of kubectl, and return their arguments."""
    calls = []

    def run(command, **_options):
        calls.append(command)
        texts = {"nodes": NODES, "dsj": TABLE.splitlines()[0], "dsj,dsjr": TABLE, "dsjr": REPORTS}
        text = texts[command[2]]
        return subprocess.CompletedProcess(command, 0, text.encode(), b"")

    monkeypatch.setattr(subprocess, "run", run)
    return calls


def words(*typed):
    return [word for word, _ in complete(typed).words]


def test_commands_are_completed_with_what_they_do():
    verbs = {command.name or command.callback.__name__ for command in app.registered_commands}
    assert set(words("")) == verbs
    assert words("sta") == ["status"]
    assert "status\tShow a run" in complete(["sta"]).text()
    assert complete(["sta"]).text().endswith(f"\n:{NO_FILES}\n")


def test_the_cluster_may_be_named_before_the_command(kubectl):
    assert words("-n", "ours", "sta") == ["status"]
    assert "--watch" in words("-n", "ours", "status", "--")
    assert words("--context=lab", "-n", "ours", "pause", "s") == ["sweep"]
    assert {"--namespace", "ours", "--context", "lab"} <= {
        part for word in kubectl[-1] for part in word.split("=")
    }
    assert complete(["--kubeconfig", ""]).directive == FILES


def test_options_are_those_of_the_command_and_come_once():
    assert "--watch" in words("status", "--")
    assert "--watch" not in words("list", "--")
    assert "--watch" not in words("status", "--watch", "--")
    assert "--node" in words("logs", "sweep", "--node", "a", "--")


def test_choices_are_completed():
    assert words("run", "x", "--dry-run=c") == ["--dry-run=client"]
    assert words("list", "-o", "") == ["csv", "json", "table", "wide", "yaml"]


@pytest.mark.parametrize(
    "typed", [("run", "x", "--script", ""), ("report", "x", "--html=p"), ("run", "x", "--", "a")]
)
def test_files_are_left_to_the_shell(typed):
    assert complete(typed).directive == FILES


def test_names_are_those_of_jobs_and_of_reports(kubectl):
    assert words("status", "") == ["fix", "sweep"]
    assert words("status", "--watch", "s") == ["sweep"]
    assert words("run", "") == []


def test_what_needs_a_job_is_not_offered_deleted_ones(kubectl):
    assert words("pause", "") == ["sweep"]


def test_names_come_from_the_cluster_that_the_options_name(kubectl):
    words("status", "-n", "team", "--context=prod", "--kubeconfig", "f", "")
    flags = {"--namespace=team", "--context=prod", "--kubeconfig=f"}
    assert flags <= set(kubectl[0])


def test_nodes_and_reports_are_completed(kubectl):
    assert words("logs", "sweep", "--node", "rack1") == ["rack1-a", "rack1-b"]
    assert complete(["diff", "f"]).words == (("fix-2026-b", "fix Succeeded"),)


@pytest.mark.parametrize(
    "error", [FileNotFoundError("kubectl"), subprocess.TimeoutExpired("kubectl", 5)]
)
def test_without_an_answer_nothing_is_offered(monkeypatch, error):
    def fail(*_args, **_options):
        raise error

    monkeypatch.setattr(subprocess, "run", fail)
    assert complete(["status", ""]).text() == f":{NO_FILES}\n"


def test_a_name_that_controls_the_terminal_is_not_offered(kubectl):
    assert "evil" not in complete(["status", ""]).text()


def test_thousands_of_names_have_a_bound(monkeypatch):
    text = "".join(f"node/n{number}\n" for number in range(completion._NAMES_LIMIT + 1))
    done = subprocess.CompletedProcess([], 0, text.encode(), b"")
    monkeypatch.setattr(subprocess, "run", lambda *_args, **_options: done)
    assert len(words("logs", "x", "--node", "")) == completion._NAMES_LIMIT


@pytest.mark.parametrize("typed", [(), ("nonsense", ""), ("status", "a", ""), ("--odd", "", "")])
def test_nonsense_has_an_answer(kubectl, typed):
    assert complete(typed).text().rstrip("\n").rsplit("\n", 1)[-1].startswith(":")

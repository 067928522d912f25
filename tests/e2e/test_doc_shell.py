"""The shell that runs the commands of pages: what lasts between them, and what is a failure."""

import os
import time

import pytest

from tests.e2e import doc_shell
from tests.e2e.doc_shell import Shell, Watch


@pytest.fixture
def environment():
    return {"PATH": os.environ["PATH"], "KUBECONFIG": "/the/kubeconfig"}


@pytest.fixture
def shell(tmp_path, environment):
    with Shell(tmp_path, environment) as found:
        yield found


def test_directory_and_variables_last_and_output_belongs_to_its_command(shell, tmp_path):
    assert shell.run("mkdir a; cd a; x=1; printf out; echo err >&2") == (0, "outerr\n")
    assert shell.run('echo "$x $PWD"') == (0, f"1 {tmp_path}/a\n")
    assert shell.run("(exit 3)") == (3, "")


def test_a_command_may_have_a_document_and_reads_no_other_command(shell):
    assert shell.run("cat <<'EOF'\na $x\nEOF") == (0, "a $x\n")
    assert shell.run("cat") == (0, "")
    assert shell.run("echo next") == (0, "next\n")


def test_the_kubeconfig_stays_that_of_the_test(shell):
    shell.run("export KUBECONFIG=/another")
    assert shell.run("echo $KUBECONFIG") == (0, "/the/kubeconfig\n")


def test_a_block_with_a_variable_that_is_not_set_writes_nowhere(shell, tmp_path):
    code, printed = shell.run(f'mkdir {tmp_path}"$MISSING/made"', stops_at_error=True)
    assert code != 0
    assert "MISSING" in printed
    assert not (tmp_path / "made").exists()


def test_a_block_ends_at_its_first_failure(shell):
    assert shell.run("echo a; false; echo b", stops_at_error=True) == (1, "a\n")


def test_without_a_failure_the_shell_goes_on(shell):
    assert shell.run("echo a; x=2", stops_at_error=True) == (0, "a\n")
    assert shell.run("false; echo $x") == (0, "2\n")


def test_a_command_that_does_not_end_is_a_failure(shell, monkeypatch):
    monkeypatch.setattr(doc_shell, "LIMIT_SECONDS", 0.5)
    with pytest.raises(AssertionError, match=r"not within 0\.5 s: sleep 60"):
        shell.run("sleep 60")


def test_endless_output_is_a_failure(shell):
    with pytest.raises(AssertionError, match="too much output"):
        shell.run("yes")


def test_a_watch_shows_what_it_printed_so_far_and_can_be_ended_twice(tmp_path, environment):
    watch = Watch("sh -c 'echo a; exec sleep 60'", tmp_path, environment)
    deadline = time.monotonic() + 10
    while watch.output() != "a\n":
        assert time.monotonic() < deadline
        time.sleep(0.05)
    watch.end()
    watch.end()

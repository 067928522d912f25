"""The edge of the plugin: what is printed where, and how a command ends."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from daemonset_job.kube.client.errors import Forbidden
from kubectl_dsjob import edge
from kubectl_dsjob.errors import CliError
from kubectl_dsjob.exit_codes import ExitCode
from kubectl_dsjob.proposals import CLUSTER
from kubectl_dsjob.target import Target

ROOT = Path(__file__).parents[3]
WRITE = """
import typer
from kubectl_dsjob import edge
async def verb():
    for _ in range(1000):
        edge.write("x" * 1000 + "\\n")
    return edge.Answer()
typer.run(lambda: edge.run(verb))
"""


def end_of(answer_or_error, *target):
    async def verb():
        if isinstance(answer_or_error, Exception):
            raise answer_or_error
        return answer_or_error

    with pytest.raises(typer.Exit) as caught:
        edge.run(verb, *target)
    return caught.value.exit_code


def test_data_is_for_stdout_and_words_are_for_stderr(capsys):
    assert end_of(edge.Answer("data", "words", ExitCode.PARTIAL)) == 3
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("data\n", "words\n")


def test_an_error_is_a_sentence_and_a_way_out_on_one_line_each(capsys):
    error = CliError("no \x1b[2J Job\nhere", "see \x1b[2J kubectl dsjob list", ExitCode.USAGE)
    assert end_of(error) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == "error: no [2J Job here\nsee [2J kubectl dsjob list\n"


@pytest.mark.parametrize(
    ("target", "flags"),
    [
        ((), ""),
        ((Target(),), ""),
        ((Target("east", "team", "/etc/k"),), " --context east --kubeconfig /etc/k"),
    ],
)
def test_commands_that_are_proposed_name_the_cluster_of_the_command(target, flags, capsys):
    words = f"kubectl delete dsj sweep -n team{CLUSTER}"
    for ended in (CliError("it exists", words), edge.Answer(words=words)):
        end_of(ended, *target)
        assert capsys.readouterr().err.endswith(f"kubectl delete dsj sweep -n team{flags}\n")


def test_a_timeout_without_waiting_is_refused(capsys):
    edge.need_wait(None)
    with pytest.raises(typer.Exit) as caught:
        edge.need_wait(3)
    assert caught.value.exit_code == ExitCode.USAGE
    assert "--wait" in capsys.readouterr().err


def test_of_many_equal_errors_one_is_shown(capsys):
    errors = [Forbidden("no logs"), Forbidden("no logs")]
    assert end_of(ExceptionGroup("", [ExceptionGroup("", errors)])) == 1
    assert capsys.readouterr().err.count("you may not do this: no logs") == 1


def test_a_defect_in_a_group_is_not_hidden():
    async def verb():
        raise ExceptionGroup("", [KeyError("defect")])

    with pytest.raises(KeyError):
        edge.run(verb)


def test_a_reader_that_has_seen_enough_gets_no_traceback():
    process = subprocess.Popen(
        [sys.executable, "-c", WRITE],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    process.stdout.read(1)
    process.stdout.close()
    said = process.stderr.read()
    process.stderr.close()
    assert process.wait(30) == 1
    assert b"Traceback" not in said
    assert b"Exception" not in said


@pytest.mark.parametrize("where", ["> /dev/full", ">&-"])
def test_a_stdout_that_takes_no_data_is_a_sentence(where):
    command = f"exec {sys.executable} -c '{WRITE}' {where}"
    done = subprocess.run(
        command,
        shell=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("error: cannot write the output: ")
    assert done.stderr.count("\n") == 1


FAIL = """
import typer
from kubectl_dsjob import edge
from kubectl_dsjob.errors import CliError
async def verb():
    raise CliError("no", "go", edge.ExitCode.TIMEOUT)
typer.run(lambda: edge.run(verb))
"""


@pytest.mark.parametrize(
    "where", ["2> /dev/full", "2>&-", "2>&1 1>&2 | true; exit ${PIPESTATUS[0]}"]
)
def test_a_command_whose_words_nobody_reads_keeps_its_exit_code(where):
    command = ["bash", "-c", f"{sys.executable} -c '{FAIL}' {where}"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 4, done
    assert "Traceback" not in done.stderr + done.stdout


def test_the_options_of_a_proposed_command_can_be_copied_to_a_shell():
    target = Target("my context", "team", "/home/a b/k; id")
    assert target.flags() == " --context 'my context' -n team --kubeconfig '/home/a b/k; id'"


PRINT = """
import sys, typer
from kubectl_dsjob import edge
async def verb():
    return edge.Answer(sys.argv[1])
edge.run(verb)
"""


def test_a_stdout_of_another_encoding_gets_what_it_can_show():
    done = subprocess.run(
        [sys.executable, "-c", PRINT, "caf\u00e9 \u2717"],
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "latin-1"},
        check=False,
    )
    assert done.stdout == b"caf\xe9 ?\n", done.stderr


LIVE = """
import os
from kubectl_dsjob.live_view import shown_live
from tests.unit.cli.views import run
with shown_live() as show:
    show(run())
os._exit(0)
"""


@pytest.mark.parametrize("is_dumb", [False, True])
def test_a_live_view_is_only_for_a_terminal_that_can_show_it(is_dumb):
    """FORCE_COLOR, which CI systems set, makes no terminal of a file. A dumb one gets lines."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "FORCE_COLOR": "1", "TERM": "xterm"}
    ours, theirs = os.pipe()
    if is_dumb:
        del env["FORCE_COLOR"]
        env["TERM"] = "dumb"
        ours, theirs = pty.openpty()
    with subprocess.Popen([sys.executable, "-c", LIVE], stdout=theirs, env=env) as process:
        assert process.wait(30) == 0
    shown = os.read(ours, 65536)
    os.close(ours)
    os.close(theirs)
    assert shown.startswith(b"sweep: Failed, 1 of 5 nodes completed")
    assert b"\x1b" not in shown

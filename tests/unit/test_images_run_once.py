"""images/task/run-once, run for real under every POSIX shell that is here."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

RUN_ONCE = Path(__file__).resolve().parents[2] / "images" / "task" / "run-once"
# dash is the image's sh; busybox is what people put it into otherwise.
_SHELLS = {"dash": ["dash"], "busybox": ["busybox", "sh"], "bash": ["bash", "--posix"]}
SHELLS = {name: command for name, command in _SHELLS.items() if shutil.which(command[0])}
PATIENCE_SECONDS = 30.0
# busybox sh runs its own programs, whatever PATH says.
HAS_PATH = pytest.mark.parametrize(
    "task", [name for name in SHELLS if name != "busybox"], indirect=True
)


@dataclass
class Task:
    """A folder of scripts, a state folder, and run-once as their container."""

    shell: list[str]
    folder: Path
    running: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def output(self) -> str:
        return (self.folder / "stdout").read_text()

    @property
    def errors(self) -> str:
        return (self.folder / "stderr").read_text()

    @property
    def lines(self) -> list[str]:
        return self.output.splitlines()

    def script(self, name: str, text: str, mode: int = 0o755) -> None:
        path = self.folder / "task.d" / name
        path.write_text(text if text.startswith("#!") else f"#!/bin/sh\n{text}\n")
        path.chmod(mode)

    def start(self, *args: str, **env: str) -> subprocess.Popen[str]:
        with (self.folder / "stdout").open("w") as out, (self.folder / "stderr").open("w") as err:
            process = subprocess.Popen(
                [*self.shell, RUN_ONCE, *args],
                stdout=out,
                stderr=err,
                stdin=subprocess.DEVNULL,
                text=True,
                start_new_session=True,
                # A test run in the background ignores SIGINT, and a shell that starts so cannot
                # trap it: containers start with the default.
                preexec_fn=_default_signals,  # noqa: PLW1509 - no threads here
                env={
                    "PATH": os.environ["PATH"],
                    "TASK_DIR": str(self.folder / "task.d"),
                    "DAEMONSET_JOB_STATE": str(self.folder / "state"),
                    "OUT": str(self.folder),
                    "LIMIT_PAUSE_SECONDS": "0",
                    **env,
                },
            )
        self.running.append(process)
        return process

    def run(self, *args: str, **env: str) -> int:
        """Run to the end; for tasks that fail."""
        return self.start(*args, **env).wait(PATIENCE_SECONDS)

    def complete(self, *args: str, **env: str) -> int:
        """Run until the token is out, stop, and return the exit code."""
        process = self.start(*args, **env)
        self.wait_for(lambda: env.get("COMPLETION_TOKEN", "done") in self.lines)
        return stop(process)

    def wait_for(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"stdout: {self.output!r}, stderr: {self.errors!r}")
            time.sleep(0.01)


def _default_signals() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def stop(process: subprocess.Popen[str], number: int = signal.SIGTERM) -> int:
    process.send_signal(number)
    return process.wait(PATIENCE_SECONDS)


def is_asleep(process: subprocess.Popen[str]) -> bool:
    """Return whether the shell waits for a `sleep` (proc_pid_task(5): children)."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    with suppress(FileNotFoundError, ProcessLookupError):
        return any(Path(f"/proc/{pid}/comm").read_text() == "sleep\n" for pid in children)
    return False


@pytest.fixture(params=SHELLS)
def task(request, tmp_path: Path) -> Iterator[Task]:
    shell = SHELLS[request.param]
    (tmp_path / "task.d").mkdir()
    (tmp_path / "state").mkdir()
    task = Task(shell, tmp_path)
    yield task
    for process in task.running:
        # The whole session: what a pod's end does to what is left in it.
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
        process.wait(PATIENCE_SECONDS)


def test_scripts_run_in_order_with_the_containers_arguments(task):
    task.script("20-second", 'echo "second $#"')
    task.script("10-first", 'printf "%s|" "$@"; echo')
    task.script("9-last", "echo last")
    assert task.complete("/basetarget/a b", "", "*") == 0
    assert [line for line in task.lines if line] == [
        "/basetarget/a b||*|",
        "second 3",
        "last",
        "done",
    ]
    assert task.errors == ""


@pytest.mark.parametrize("locale", [{}, {"LC_ALL": "C.UTF-8"}, {"LC_ALL": ""}])
def test_scripts_have_the_locale_of_the_image_and_run_in_the_order_of_bytes(task, locale):
    """All of them had `LC_ALL=C`, whatever the image or the template set."""
    for name in ("b", "B", "a"):
        task.script(name, 'echo "${0##*/} ${LC_ALL-none}"')
    task.complete(**locale)
    expected = locale.get("LC_ALL", "none")
    assert list(filter(None, task.lines)) == [*(f"{x} {expected}" for x in "Bab"), "done"]


def test_both_outputs_pass_through_in_their_order(task):
    task.script("a", "echo out; echo err >&2; echo more")
    task.complete()
    assert list(filter(None, task.lines)) == ["out", "err", "more", "done"]


def test_the_token_has_a_line_of_its_own_after_an_unfinished_one(task):
    task.script("a", "printf 'almost '")
    task.complete()
    assert task.lines == ["almost ", "done"]


def test_the_token_is_what_the_environment_says(task):
    task.script("a", "true")
    task.complete(COMPLETION_TOKEN=r"all \n done %s $(x)")
    assert task.lines[-1] == r"all \n done %s $(x)"


def test_an_empty_token_is_the_default_one(task):
    task.script("a", "true")
    task.complete(COMPLETION_TOKEN="")
    assert task.lines[-1] == "done"


def test_a_failing_script_ends_it_with_its_code_and_its_name(task):
    task.script("10-ok", "echo ok")
    task.script("20-fails", "exit 7")
    task.script("30-never", "echo never")
    assert task.run() == 7
    assert task.lines == ["ok"]
    assert task.errors == f"run-once: {task.folder}/task.d/20-fails failed with exit code 7\n"


def test_a_script_that_is_killed_is_a_failure(task):
    task.script("a", "kill -KILL $$")
    assert task.run() == 128 + 9
    assert "done" not in task.lines


def test_after_a_failure_all_of_it_runs_again(task):
    task.script("a", "echo a")
    task.script("b", '[ -e "$OUT/repaired" ]')
    assert task.run() == 1
    (task.folder / "repaired").touch()
    task.complete()
    assert task.lines[0] == "a"


def test_nothing_to_do_is_an_error(task):
    assert task.run() == 64
    assert f"nothing to do: there is no script in {task.folder}/task.d" in task.errors
    assert task.output == ""


def test_a_command_as_arguments_is_told_where_commands_go(task):
    assert task.run("sh", "-c", "echo hello") == 64
    assert f"the arguments are for scripts in {task.folder}/task.d" in task.errors
    assert "spec.command (kubectl dsjob run: --command)" in task.errors
    assert task.output == ""


def test_a_missing_directory_is_nothing_to_do(task):
    assert task.run(TASK_DIR="/nonexistent") == 64


def test_a_file_that_is_not_executable_runs_by_its_first_line(task):
    # The files of a mounted ConfigMap have no x bit, and are links beside a hidden directory.
    task.script("a", "#!/usr/bin/env python3\nimport sys\nprint(sys.argv[1:])\n", 0o644)
    hidden = task.folder / "task.d" / "..data"
    hidden.mkdir()
    (hidden / "b").write_text("#!/bin/sh\necho b\n")
    (task.folder / "task.d" / "b").symlink_to(hidden / "b")
    task.complete("x y")
    assert task.lines[:2] == ["['x y']", "b"]


def test_a_file_that_cannot_run_is_found_before_any_runs(task):
    task.script("a", "echo a")
    (task.folder / "task.d" / "b").write_text("echo b\n")
    assert task.run() == 126
    assert f"cannot run {task.folder}/task.d/b" in task.errors
    assert task.output == ""


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_what_is_no_file_is_not_passed_over(task, kind):
    """A link that leads nowhere was left out, and the node completed without that script."""
    task.script("a", 'echo x >> "$OUT/runs"')
    if kind == "link":
        (task.folder / "task.d" / "b").symlink_to("nowhere")
    else:
        os.mkfifo(task.folder / "task.d" / "b")
    assert task.run() == 126
    assert f"cannot run {task.folder}/task.d/b: it is no file" in task.errors
    assert not (task.folder / "runs").exists()


@pytest.mark.parametrize("mode", [0o755, 0o644])
def test_a_byte_order_mark_is_named_before_anything_runs(task, mode):
    """With it the kernel sees no #! line: a shell ran the script, whatever its language."""
    task.script("a", 'echo x >> "$OUT/runs"')
    path = task.folder / "task.d" / "b"
    path.write_text("\ufeff#!/usr/bin/env python3\nimport os\ntrue\n")
    path.chmod(mode)
    assert task.run() == 126
    assert "task.d/b: a byte order mark is before its first character" in task.errors
    assert not (task.folder / "runs").exists()


def test_subdirectories_are_not_scripts(task):
    task.script("a", "echo a")
    (task.folder / "task.d" / "lib").mkdir()
    assert task.complete() == 0


def test_the_work_is_not_done_twice_in_a_pod(task):
    task.script("a", "echo worked")
    task.complete("x")
    assert "worked" in task.lines
    for _ in range(2):
        assert task.complete("x") == 0
        assert [line for line in task.lines if line] == ["done"]
        assert "done already" in task.errors


def test_the_work_is_not_done_twice_after_sigkill(task):
    task.script("a", "echo worked")
    process = task.start()
    task.wait_for(lambda: "done" in task.lines)
    process.kill()
    process.wait(PATIENCE_SECONDS)
    task.complete()
    assert "worked" not in task.lines


def test_other_work_is_done_in_the_same_pod(task):
    # The image of a running pod can be changed; its container then starts with other scripts.
    task.script("a", "echo one")
    task.complete("x")
    task.complete("y")
    assert "one" in task.lines
    task.script("a", "echo two")
    task.complete("y")
    assert "two" in task.lines


def test_a_failure_leaves_no_marker(task):
    task.script("a", "exit 1")
    task.run()
    assert list((task.folder / "state").iterdir()) == []


def test_it_works_without_a_state_directory(task):
    task.script("a", "echo worked")
    for _ in range(2):
        assert task.complete(DAEMONSET_JOB_STATE="/nonexistent") == 0
        assert "worked" in task.lines
        assert task.errors == ""


def test_unwritable_state_directory_is_reported_and_survived(task):
    task.script("a", "echo worked")
    # A file system that even root cannot write to.
    assert task.complete(DAEMONSET_JOB_STATE="/proc/self") == 0
    assert "the work would be done again after a restart" in task.errors


def test_the_token_is_printed_again(task):
    task.script("a", "true")
    process = task.start(REPRINT_SECONDS="1")
    task.wait_for(lambda: task.lines.count("done") == 2)
    assert stop(process) == 0


@pytest.mark.parametrize("seconds", ["", "0", "300"])
def test_the_token_is_printed_once_until_then(task, seconds):
    task.script("a", "true")
    process = task.start(REPRINT_SECONDS=seconds)
    task.wait_for(lambda: "done" in task.lines)
    time.sleep(0.3)
    assert task.lines.count("done") == 1
    assert stop(process) == 0


@pytest.mark.parametrize("seconds", ["5m", "-1", "1.5"])
def test_a_wrong_setting_is_refused_before_the_work(task, seconds):
    task.script("a", "echo worked")
    assert task.run(REPRINT_SECONDS=seconds) == 64
    assert f"REPRINT_SECONDS must be a number of seconds, not '{seconds}'" in task.errors
    assert task.output == ""


def test_waiting_costs_nothing(task):
    task.script("a", "true")
    process = task.start()
    task.wait_for(lambda: "done" in task.lines and is_asleep(process))

    def ticks() -> int:
        # utime and stime of the process and of its waited-for children (proc(5)).
        return sum(map(int, Path(f"/proc/{process.pid}/stat").read_text().split()[13:17]))

    before = ticks()
    time.sleep(0.5)
    assert ticks() == before


def test_it_never_loops_when_sleep_does_not_sleep(task):
    task.script("a", "true")
    programs = task.folder / "bin"
    programs.mkdir()
    (programs / "sleep").write_text("#!/bin/sh\nexit 1\n")
    (programs / "sleep").chmod(0o755)
    if task.shell[0] == "busybox":
        return  # Its sh runs its own sleep, whatever PATH says.
    assert task.run(PATH=f"{programs}:{os.environ['PATH']}") == 70
    assert task.lines.count("done") == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_promptly_after_the_work(task, number):
    task.script("a", "true")
    process = task.start()
    task.wait_for(lambda: "done" in task.lines)
    began = time.monotonic()
    assert stop(process, number) == 0
    assert time.monotonic() - began < 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_during_the_work_it_passes_the_signal_on_and_waits(task, number):
    task.script(
        "a", "trap 'echo cleaning; sleep 0.2; echo clean; exit 0' TERM\necho up\nsleep 30 & wait"
    )
    task.script("b", "echo never")
    process = task.start()
    task.wait_for(lambda: "up" in task.lines)
    assert stop(process, number) == 143
    assert task.lines == ["up", "cleaning", "clean"]
    assert list((task.folder / "state").iterdir()) == []


def test_work_that_was_stopped_is_done_by_the_next_container(task):
    task.script("a", 'echo up; [ -e "$OUT/quick" ] || exec sleep 30')
    process = task.start()
    task.wait_for(lambda: "up" in task.lines)
    assert stop(process) == 143
    (task.folder / "quick").touch()
    task.complete()
    assert task.lines == ["up", "", "done"]


def test_as_pid_1_it_handles_signals_and_reaps_orphans(task):
    unshare = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    if (
        shutil.which("unshare") is None
        or subprocess.run([*unshare, "true"], check=False).returncode
    ):
        pytest.skip("needs the right to make a pid namespace")
    # The orphan ends while run-once waits for the next script.
    task.script("a", "(sleep 0.1; exit 3) & echo orphaned")
    task.script("b", "sleep 0.5; ps -A -o stat= | grep -c Z; true")
    task.shell = [*unshare, *task.shell]
    process = task.start()
    task.wait_for(lambda: "done" in task.lines)
    assert task.lines[:2] == ["orphaned", "0"]
    inner = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert len(inner) == 1
    os.kill(int(inner[0]), signal.SIGTERM)
    assert process.wait(PATIENCE_SECONDS) == 0


def test_in_mode_exit_it_ends_after_the_work_and_prints_no_token(task):
    task.script("10-work", 'echo x >> "$OUT/runs"; echo worked')
    assert task.run(COMPLETION_MODE="Exit") == 0
    assert task.lines == ["worked"]
    # Started again in the same pod, as after a reboot of the node, it does not work again.
    assert task.run(COMPLETION_MODE="Exit") == 0
    assert (task.folder / "runs").read_text() == "x\n"


def test_in_mode_exit_a_failure_is_the_exit_code(task):
    task.script("10-fail", "exit 7")
    assert task.run(COMPLETION_MODE="Exit") == 7


def test_a_mode_that_does_not_exist_is_refused(task):
    task.script("10-work", 'echo x >> "$OUT/runs"')
    assert task.run(COMPLETION_MODE="exit") == 64
    assert "COMPLETION_MODE must be Log or Exit, not 'exit'" in task.errors
    assert not (task.folder / "runs").exists()


def test_without_the_rights_that_it_needs_nothing_runs_on_the_host(task):
    """The test has neither the processes of a node nor the right to look at them."""
    task.script("10-work", 'echo x >> "$OUT/runs"')
    assert task.run(HOST_EXEC="true") == 64
    assert "cannot enter the namespaces of the node" in task.errors
    assert not (task.folder / "runs").exists()


def test_the_work_is_tried_no_more_often_than_allowed_in_a_pod(task):
    task.script("10-fail", 'echo x >> "$OUT/runs"; exit 7')
    assert [task.run(ATTEMPTS_LIMIT="2") for _ in range(4)] == [7, 7, 7, 7]
    assert (task.folder / "runs").read_text() == "x\nx\n"
    assert "not started again: 2 is the limit of starts in this pod" in task.errors


def test_beyond_the_limit_it_waits_before_it_ends(task):
    """Meanwhile the log of the failure can be read: the kubelet keeps that of one former start."""
    task.script("10-fail", "exit 7")
    assert task.run(ATTEMPTS_LIMIT="1") == 7
    process = task.start(ATTEMPTS_LIMIT="1", LIMIT_PAUSE_SECONDS="2")
    task.wait_for(lambda: is_asleep(process))
    assert (process.poll(), task.output, task.errors) == (None, "", "")
    assert process.wait(PATIENCE_SECONDS) == 7
    assert "not started again" in task.errors
    process = task.start(ATTEMPTS_LIMIT="1", LIMIT_PAUSE_SECONDS="600")
    task.wait_for(lambda: is_asleep(process))
    assert stop(process) == 143


def test_an_empty_file_is_no_work(task):
    (task.folder / "task.d" / "10-empty").touch()
    assert task.run() == 126
    assert "10-empty: it is empty" in task.errors


@pytest.mark.parametrize("line", ["#!/bin/sh\t-e", "#! \t/bin/sh\t"])
def test_the_interpreter_ends_at_a_tab_too(task, line):
    task.script("10-work", f"{line}\necho worked\n")
    task.complete()
    assert list(filter(None, task.lines)) == ["worked", "done"]


def test_lines_that_end_with_cr_lf_are_named(task):
    path = task.folder / "task.d" / "10-work"
    path.write_bytes(b"#!/bin/sh\r\necho worked\r\n")
    path.chmod(0o755)
    assert task.run() == 126
    assert "its lines end with CR LF, save it with LF" in task.errors


@pytest.mark.parametrize("mode", [0o755, 0o644], ids=["executable", "of a ConfigMap"])
def test_of_env_lines_that_end_with_cr_lf_are_named(task, mode):
    path = task.folder / "task.d" / "10-work"
    path.write_bytes(b"#!/usr/bin/env sh\r\necho worked\r\n")
    path.chmod(mode)
    assert task.run() == 126
    assert "its lines end with CR LF, save it with LF" in task.errors


@HAS_PATH
@pytest.mark.parametrize("line", ["#!/bin/sh", "#!/usr/bin/env bash"])
def test_on_the_host_lines_that_end_with_cr_lf_are_named(task, line):
    """There the words of nsenter are that the script was not found."""
    shims = task.folder / "shims"
    shims.mkdir()
    # Process 1 has other namespaces than this one, as on a node.
    (shims / "readlink").write_text('#!/bin/sh\necho "$1"\n')
    (shims / "readlink").chmod(0o755)
    path = task.folder / "task.d" / "10-work"
    path.write_bytes(f"{line}\r\necho worked\r\n".encode())
    path.chmod(0o755)
    assert task.run(HOST_EXEC="true", PATH=f"{shims}:{os.environ['PATH']}") == 126
    assert "its lines end with CR LF, save it with LF" in task.errors


def test_an_interpreter_that_is_not_there_is_named_before_anything_runs(task):
    task.script("10-work", 'echo x >> "$OUT/runs"')
    task.script("20-odd", "#! /usr/bin/nonesuch -x\ntrue\n")
    assert task.run() == 126
    assert "task.d/20-odd: there is no /usr/bin/nonesuch, which its first line" in task.errors
    assert not (task.folder / "runs").exists()


def test_of_one_file_the_last_line_is_its_own(task):
    task.script("10-fail", "echo no such unit >&2; exit 7")
    assert task.run() == 7
    assert (task.output, task.errors) == ("no such unit\n", "")


def test_a_try_that_was_killed_counts(task):
    task.script("10-die", 'echo x >> "$OUT/runs"; kill -9 $PPID')
    assert task.run(ATTEMPTS_LIMIT="1") == -signal.SIGKILL
    assert task.run(ATTEMPTS_LIMIT="1") == 1
    assert (task.folder / "runs").read_text() == "x\n"


@pytest.mark.parametrize(("text", "tries", "code"), [("", 2, 7), ("2 \n", 1, 1), ("x y\n", 2, 7)])
def test_a_damaged_count_of_tries_is_no_way_around_the_limit(task, text, tries, code):
    """A node that loses its power while it writes the file may leave it empty."""
    task.script("10-fail", 'echo x >> "$OUT/runs"; exit 7')
    assert task.run(ATTEMPTS_LIMIT="2") == 7
    (file,) = (task.folder / "state").iterdir()
    file.write_text(text)
    assert [task.run(ATTEMPTS_LIMIT="2") for _ in range(2)] == [code if tries == 1 else 7, code]
    assert (task.folder / "runs").read_text() == "x\n" * tries
    assert task.errors == "run-once: not started again: 2 is the limit of starts in this pod\n"


@HAS_PATH
def test_the_count_of_tries_is_on_the_disk_before_the_work_begins(task):
    """Else work that takes its node down is tried without end."""
    programs = task.folder / "bin"
    programs.mkdir()
    (programs / "sync").write_text('#!/bin/sh\necho sync "$@"; cat "$@"\n')
    (programs / "sync").chmod(0o755)
    task.script("10-work", "echo works; exit 7")
    assert task.run(ATTEMPTS_LIMIT="2", PATH=f"{programs}:{os.environ['PATH']}") == 7
    assert task.lines[0].startswith(f"sync {task.folder}/state/attempts-")
    assert task.lines[1:3] == ["1 1", "works"]


@HAS_PATH
def test_work_does_not_begin_after_a_signal(task):
    """The first process of a container ignores signals for which it has no trap."""
    programs = task.folder / "bin"
    programs.mkdir()
    (programs / "sync").write_text("#!/bin/sh\necho writing; sleep 0.5\n")
    (programs / "sync").chmod(0o755)
    task.script("10-work", "echo works")
    process = task.start(ATTEMPTS_LIMIT="2", PATH=f"{programs}:{os.environ['PATH']}")
    task.wait_for(lambda: "writing" in task.lines)
    assert stop(process) == 143
    assert task.lines == ["writing"]


def test_without_a_limit_it_is_tried_each_time(task):
    task.script("10-fail", 'echo x >> "$OUT/runs"; exit 7')
    assert [task.run() for _ in range(3)] == [7, 7, 7]
    assert (task.folder / "runs").read_text() == "x\nx\nx\n"


def test_work_that_succeeds_within_the_limit_is_done(task):
    task.script("10-once", 'echo x >> "$OUT/runs"; [ "$(wc -l < "$OUT/runs")" -gt 1 ]')
    assert task.run(ATTEMPTS_LIMIT="2") == 1
    assert task.complete(ATTEMPTS_LIMIT="2") == 0
    assert task.complete(ATTEMPTS_LIMIT="2") == 0
    assert (task.folder / "runs").read_text() == "x\nx\n"

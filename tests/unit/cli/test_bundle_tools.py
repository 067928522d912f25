"""The programs that bundle runs: shells and shellcheck, and builders. Fakes of them on PATH."""

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kubectl_dsjob.bundle import builders, folder_watch, linters
from kubectl_dsjob.bundle.builders import Builder, BuildError
from kubectl_dsjob.bundle.context import write_context
from kubectl_dsjob.bundle.folder import read_folder
from kubectl_dsjob.bundle.folder_watch import FolderWatch
from kubectl_dsjob.bundle.image import ImageWish, build_image, write_only
from kubectl_dsjob.errors import CliError

ROOT = Path(__file__).resolve().parents[3]
MV = shutil.which("mv")


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """Return a function that makes a fake program; no others are there but the usual shells."""
    path = tmp_path / "bin"
    path.mkdir()
    for shell in ("sh", "bash", "cat", "echo", "touch", "sleep"):
        (path / shell).symlink_to(shutil.which(shell))
    monkeypatch.setenv("PATH", str(path))

    def make(name, body):
        program = path / name
        program.write_text(f"#!/bin/sh\n{body}\n")
        program.chmod(0o755)

    return make


@pytest.fixture
def folder(tmp_path):
    found = tmp_path / "fix"
    found.mkdir()
    return found


def script(folder, name, text):
    (folder / name).write_text(text)
    (folder / name).chmod(0o755)


async def lint(folder, tmp_path):
    context = tmp_path / "context"
    context.mkdir()
    found = read_folder(folder)
    write_context(found, "base:v1", context)
    return [
        (each.file, each.line, each.message.partition(":")[0], each.is_warning)
        for each in await linters.lint(found, context / "task.d")
    ]


@pytest.mark.usefixtures("programs")
async def test_a_script_is_parsed_by_its_own_shell(folder, tmp_path):
    script(folder, "10-sh", "#!/bin/sh\necho a\nif true; then\n")
    script(folder, "20-bash", "#!/usr/bin/env bash\necho $(\n")
    script(folder, "30-good", "#!/bin/bash\nx=(1 2)\n")
    script(folder, "40-perl", "#!/usr/bin/perl\nif (\n")
    found = await lint(folder, tmp_path)
    assert [(file, message) for file, _, message, _ in found] == [
        ("10-sh", "sh -n"),
        ("20-bash", "bash -n"),
    ]
    assert all(line >= 2 for _, line, _, _ in found)


@pytest.mark.usefixtures("programs")
async def test_what_a_shell_runs_and_cannot_parse_as_a_whole_is_accepted(folder, tmp_path):
    script(folder, "10-patterns", "#!/bin/bash\nshopt -s extglob\nrm -f /x/!(kept|new)\n")
    (folder / "20-archive").write_bytes(b"#!/bin/sh\ntail -n +4 $0 | tar x\nexit\n)if \0)\n")
    (folder / "20-archive").chmod(0o755)
    assert await lint(folder, tmp_path) == []


@pytest.mark.usefixtures("programs")
async def test_no_script_is_run_and_neither_is_what_bash_reads_at_its_start(
    folder, tmp_path, monkeypatch
):
    ran = tmp_path / "ran"
    (tmp_path / "env").write_text(f"touch {ran}\n")
    monkeypatch.setenv("BASH_ENV", str(tmp_path / "env"))
    monkeypatch.setenv("ENV", str(tmp_path / "env"))
    for shell in ("sh", "bash"):
        script(folder, f"10-{shell}", f"#!/bin/{shell}\ntouch {ran}\n$(touch {ran})\n")
    assert await lint(folder, tmp_path) == []
    assert not ran.exists()


async def test_findings_of_shellcheck_are_warnings_unless_they_are_errors(
    folder, tmp_path, programs
):
    found = [
        {"line": 2, "level": "warning", "code": 2086, "message": "Quote this."},
        {"line": 3, "level": "error", "code": 1000, "message": "No."},
        "no finding",
        {"line": "x", "code": "\x1b[2J", "level": 3},
    ]
    programs("shellcheck", f"cat <<'END'\n{json.dumps(found)}\nEND\nexit 1")
    script(folder, "10-x", "#!/bin/sh\necho $1\n")
    assert await lint(folder, tmp_path) == [
        ("10-x", 2, "shellcheck SC2086", True),
        ("10-x", 3, "shellcheck SC1000", False),
        ("10-x", 0, "shellcheck SC\x1b[2J", True),
    ]


@pytest.mark.parametrize("body", ["exit 3", "echo no JSON", "echo '{}'"])
async def test_a_shellcheck_that_fails_keeps_nothing_from_being_built(
    folder, tmp_path, programs, body
):
    programs("shellcheck", body)
    script(folder, "10-x", "#!/bin/sh\n")
    assert await lint(folder, tmp_path) == []


async def test_the_first_builder_that_works_is_used(programs):
    with pytest.raises(CliError, match="neither docker, podman nor buildah") as caught:
        await builders.choose_builder(Builder.AUTO)
    assert "--write" in caught.value.way_out
    programs("docker", "exit 1")  # a client without a daemon
    programs("buildah", "exit 0")
    assert await builders.choose_builder(Builder.AUTO) == Builder.BUILDAH
    programs("podman", "exit 0")
    assert await builders.choose_builder(Builder.AUTO) == Builder.PODMAN
    programs("docker", "exit 0")
    assert await builders.choose_builder(Builder.AUTO) == Builder.DOCKER
    assert await builders.choose_builder(Builder.BUILDAH) == Builder.BUILDAH


async def test_a_builder_that_is_named_and_not_there_is_a_usage_error(programs):
    with pytest.raises(CliError) as caught:
        await builders.choose_builder(Builder.PODMAN)
    assert caught.value.code == 2


# Records its arguments, and writes the archive that it is asked for.
RECORD = """echo "$*" >>"$0.log"
for word; do case $word in */image.tar*) file=${word#docker-archive:}; file=${file%%.tar*}.tar
echo archive >"$file";; esac; done"""


@pytest.mark.parametrize(
    ("builder", "build", "save"),
    [
        (Builder.DOCKER, "build --quiet --pull=false", "save -o"),
        (Builder.PODMAN, "build --quiet --pull=false", "save --quiet --format=docker-archive -o"),
        (
            Builder.BUILDAH,
            "bud --quiet --layers --format=docker --pull=false",
            "push --quiet r.example/fix:",
        ),
    ],
)
async def test_an_image_is_built_saved_pushed_and_loaded(
    folder, tmp_path, programs, builder, build, save
):
    script(folder, "10-x", "#!/bin/sh\n")
    programs(builder, RECORD)
    programs("load", f'cat "$2" >{tmp_path}/loaded; echo "$1" >>{tmp_path}/loaded')
    archive = tmp_path / "out.tar"
    archive.write_text("an earlier one")
    wish = ImageWish(folder, "", "r.example/fix", builder, True, archive, "load 'a b'")
    built = await build_image(wish)
    lines = (tmp_path / "bin" / f"{builder}.log").read_text().splitlines()
    assert lines[0].startswith(f"{build} -t {built.image} -f ")
    assert lines[1].startswith(save)
    assert lines[2] == f"push {built.image}"
    assert archive.read_text() == "archive\n"
    assert (tmp_path / "loaded").read_text() == "archive\na b\n"
    assert [each.name for each in tmp_path.glob(".dsjob*")] == []


@pytest.mark.parametrize("name", ["nowhere/out.tar", "folder"])
async def test_an_archive_that_cannot_be_written_is_named(tmp_path, programs, name):
    programs("docker", RECORD)
    (tmp_path / "folder").mkdir()
    with pytest.raises(CliError, match=f"cannot write {tmp_path / name}: ") as caught:
        await builders.save(Builder.DOCKER, "r.example/fix:v1", tmp_path / name)
    assert caught.value.way_out


async def test_a_failed_build_shows_the_end_of_its_output(folder, programs, capsys):
    script(folder, "10-x", "#!/bin/sh\n")
    programs("docker", "echo first; for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14; do echo; done\n"
             "printf 'no base \\033[2J\\n'; exit 7")  # fmt: skip
    with pytest.raises(BuildError, match="exit code 7"):
        await build_image(ImageWish(folder, builder=Builder.DOCKER))
    assert "no base ?[2J\n" in capsys.readouterr().err


async def test_nothing_is_built_while_a_script_has_an_error(folder, tmp_path, programs, capsys):
    script(folder, "10-x", "echo\n")
    programs("docker", RECORD)
    with pytest.raises(CliError, match="1 error, nothing was built"):
        await build_image(ImageWish(folder, builder=Builder.DOCKER))
    assert "10-x:1: " in capsys.readouterr().err
    assert not (tmp_path / "bin" / "docker.log").exists()


@pytest.mark.usefixtures("programs")
async def test_a_context_is_written_only_to_a_new_folder(folder, tmp_path):
    script(folder, "10-x", "#!/bin/sh\n")
    await write_only(ImageWish(folder), tmp_path / "new" / "context")
    assert (tmp_path / "new" / "context" / "task.d" / "10-x").exists()
    with pytest.raises(CliError, match="exists"):
        await write_only(ImageWish(folder), folder)
    assert sorted(each.name for each in folder.iterdir()) == ["10-x"]


async def test_a_load_command_that_is_no_command_is_a_usage_error(folder):
    with pytest.raises(CliError) as caught:
        await build_image(ImageWish(folder, load="kind 'load"))
    assert caught.value.code == 2


async def test_a_burst_of_changes_is_one_and_a_read_is_none(folder, monkeypatch):
    monkeypatch.setattr(folder_watch, "POLL_SECONDS", 0.3)
    monkeypatch.setattr(folder_watch, "DEBOUNCE_SECONDS", 0.1)
    script(folder, "10-x", "#!/bin/sh\n")
    (folder / "lib").mkdir()
    async with FolderWatch(folder) as watch:
        for number in range(5):
            (folder / "lib" / str(number)).write_text("x")
        assert await watch.wait() is True
        read_folder(folder)
        assert await watch.wait() is False
    assert not watch._observer.is_alive()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_builder_and_its_processes(folder, tmp_path, programs, number):
    script(folder, "10-x", "#!/bin/sh\n")
    pid = tmp_path / "pid"
    programs("docker", f"sleep 600 & echo $! >{pid}.new; mv {pid}.new {pid}; wait")
    (tmp_path / "bin" / "mv").symlink_to(MV)
    process = subprocess.Popen(
        [sys.executable, "-m", "kubectl_dsjob.main", "bundle", str(folder), "--builder", "docker"],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=_default_signals,  # noqa: PLW1509 - no threads here
    )
    deadline = time.monotonic() + 30
    while not pid.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(number)
    try:
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    state = Path(f"/proc/{int(pid.read_text())}/stat")
    assert not state.exists() or state.read_text().split()[2] == "Z"


def _default_signals():
    """Tests that run in the background ignore SIGINT, and so would the verb."""
    signal.signal(signal.SIGINT, signal.default_int_handler)

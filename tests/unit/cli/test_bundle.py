"""`kubectl dsjob bundle` without a builder: folders, checks, the build context and the Job."""

import os
import shutil
import time
from pathlib import Path

import pytest
import yaml

from kubectl_dsjob.bundle import context, folder
from kubectl_dsjob.bundle.checks import check_folder
from kubectl_dsjob.bundle.folder import read_folder
from kubectl_dsjob.bundle.image import ImageWish, fingerprint
from kubectl_dsjob.bundle.job import JobWish, bundle_job, format_manifest
from kubectl_dsjob.bundle.problems import SHOWN_LIMIT, Problem, errors, format_problems
from kubectl_dsjob.bundle.processes import run_program
from kubectl_dsjob.errors import CliError
from kubectl_dsjob.outputs import Output

GOLDEN = Path(__file__).with_name("golden") / "bundle"


def script(path, text="#!/bin/sh\n:\n", mode=0o755):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    path.chmod(mode)
    return path


def problems(path, *, is_base_ours=True):
    return check_folder(read_folder(path), is_base_ours=is_base_ours)


def messages(path, **how):
    return [(each.file, each.line, each.message) for each in errors(problems(path, **how))]


def test_scripts_are_in_the_order_in_which_run_once_runs_them(tmp_path):
    for name in ("b", "20-x", "B", "10-x", "_a", "lib/data"):
        script(tmp_path / name)
    found = read_folder(tmp_path)
    assert [each.path for each in found.scripts] == ["10-x", "20-x", "B", "_a", "b"]
    assert [each.path for each in found.files if not each.is_script] == ["lib/data"]
    assert problems(tmp_path) == []


def test_files_about_the_scripts_are_left_out_unless_they_are_scripts(tmp_path):
    for name in ("README.md", "job.yaml", "Dockerfile", ".git/config"):
        script(tmp_path / name, "no script\n")
    script(tmp_path / "notes.txt", "#!/bin/sh\n")
    found = read_folder(tmp_path)
    assert [each.path for each in found.files] == ["notes.txt"]
    assert found.left_out == (".git", "Dockerfile", "README.md", "job.yaml")


@pytest.mark.parametrize(
    ("text", "line", "word"),
    [
        (b"", 0, "empty"),
        (b"echo hi\n", 1, "does not name an interpreter"),
        (b"#!python3\n", 1, "by its full path"),
        (b"#!/bin/sh\necho a\necho b\r\n", 3, "CR LF"),
        (b"\xef\xbb\xbf#!/bin/sh\n", 1, "byte order mark"),
        (b"#!/usr/bin/env -S python3 -u\n", 1, "no python3"),
        (b"#!/usr/bin/python3\n", 1, "no /usr/bin/python3"),
        (b"#!/opt/bin/sh\n", 1, "no /opt/bin/sh"),
    ],
)
def test_an_error_has_its_line_and_a_fix(tmp_path, text, line, word):
    script(tmp_path / "x", text)
    (found,) = errors(problems(tmp_path))
    assert (found.file, found.line) == ("x", line)
    assert word in found.message
    assert found.fix


@pytest.mark.parametrize(
    "text",
    [
        b"#!/bin/sh\n",
        b"#! /bin/bash -e\n",
        b"#!/usr/bin/env bash\n",
        b"#!/usr/bin/env -S bash -e\n",
        b"#!/bin/busybox sh\n",
        b"\x7fELF\x02\r\n",
        b"#!/bin/sh",
    ],
)
def test_what_run_once_can_run_is_accepted(tmp_path, text):
    script(tmp_path / "x", text)
    assert problems(tmp_path) == []


def test_options_for_a_program_that_env_looks_for_need_a_word_of_their_own(tmp_path):
    """The kernel gives `env` all of them as one word: exit code 127 on each node."""
    script(tmp_path / "x", "#!/usr/bin/env bash -e\n:\n")
    (found,) = problems(tmp_path, is_base_ours=False)
    assert found.message == "env looks for a program named 'bash -e'"
    assert found.fix == "make #!/usr/bin/env -S bash -e its first line"


def test_an_interpreter_of_another_base_is_not_judged(tmp_path):
    script(tmp_path / "x", "#!/usr/bin/python3\n")
    assert messages(tmp_path, is_base_ours=False) == []


def test_a_file_that_is_not_executable_is_a_warning(tmp_path):
    script(tmp_path / "x", mode=0o644)
    (found,) = problems(tmp_path)
    assert found.is_warning
    assert found.fix == "chmod +x x"


def test_links_stay_in_the_folder_and_special_files_are_never_opened(tmp_path):
    task = tmp_path / "task"
    script(task / "lib" / "real")
    (task / "10-in").symlink_to("lib/real")
    (task / "20-out").symlink_to("/etc/passwd")
    (task / "30-gone").symlink_to("nothing")
    (task / "40-loop").symlink_to("40-loop")
    (task / "50-folder").symlink_to(task / "lib")
    os.mkfifo(task / "60-pipe")
    (tmp_path / "task-other").mkdir()
    script(tmp_path / "task-other" / "x")
    (task / "70-sibling").symlink_to(tmp_path / "task-other" / "x")
    found = read_folder(task)
    assert [each.path for each in found.files] == ["10-in", "lib/real"]
    assert {each.file: each.message.split(",")[0] for each in found.problems} == {
        "20-out": "is a link out of the folder",
        "30-gone": "is a link to a file that does not exist",
        "40-loop": "is a link to a file that does not exist",
        "50-folder": "is no regular file",
        "60-pipe": "is no regular file",
        "70-sibling": "is a link out of the folder",
    }


@pytest.mark.parametrize("name", ["a b", "$(id)", "a\nRUN x", "x" * 129, "é", "-rf", "a'b"])
def test_a_name_with_a_meaning_elsewhere_is_refused(tmp_path, name):
    script(tmp_path / name)
    ((file, _, message),) = messages(tmp_path)
    assert (file, message) == (name, "the name has other characters")
    assert "\n" not in format_problems(problems(tmp_path))


def test_a_folder_has_a_number_of_files_a_size_and_a_depth(tmp_path, monkeypatch):
    monkeypatch.setattr(folder, "FILES_LIMIT", 3)
    for number in range(3):
        script(tmp_path / "lib" / str(number))
    with pytest.raises(CliError, match="more than 3 files"):
        read_folder(tmp_path)
    monkeypatch.setattr(folder, "FILES_LIMIT", 4)
    assert len(read_folder(tmp_path).files) == 3
    monkeypatch.setattr(folder, "SIZE_LIMIT_BYTES", 3 * 12)
    assert len(read_folder(tmp_path).files) == 3
    monkeypatch.setattr(folder, "SIZE_LIMIT_BYTES", 3 * 12 - 1)
    with pytest.raises(CliError, match="MiB"):
        read_folder(tmp_path)


def test_a_deep_folder_and_many_scripts_are_refused(tmp_path, monkeypatch):
    deep = Path(*["d"] * folder.DEPTH_LIMIT)
    script(tmp_path / deep / "x")
    assert len(read_folder(tmp_path).files) == 1
    script(tmp_path / deep / "d" / "x")
    with pytest.raises(CliError, match="deep"):
        read_folder(tmp_path)
    shutil.rmtree(tmp_path / "d")
    monkeypatch.setattr(folder, "SCRIPTS_LIMIT", 1)
    script(tmp_path / "a")
    assert len(read_folder(tmp_path).scripts) == 1
    script(tmp_path / "b")
    with pytest.raises(CliError, match="more than 1 scripts"):
        read_folder(tmp_path)


@pytest.mark.parametrize("name", ["none", "file"])
def test_what_is_no_folder_is_refused_with_a_way_out(tmp_path, name):
    script(tmp_path / "file")
    with pytest.raises(CliError) as caught:
        read_folder(tmp_path / name)
    assert caught.value.way_out


def test_an_empty_folder_says_what_to_do(tmp_path):
    (found,) = problems(tmp_path)
    assert "no script" in found.message


def test_problems_are_bounded_and_errors_come_first():
    many = [Problem(f"{n:02}", "w", "", is_warning=True) for n in range(SHOWN_LIMIT)]
    lines = format_problems([*many, Problem("z\x1b[2J", "e" * 1000, "fix", 7)]).splitlines()
    assert lines[0].startswith("z?[2J:7: eee")
    assert lines[-1] == "and 1 more"
    assert len(lines) == SHOWN_LIMIT + 1
    assert len(lines[0]) < 400


def test_the_context_has_the_checked_files_and_a_dockerfile(tmp_path):
    script(tmp_path / "in" / "10-x", mode=0o600)
    script(tmp_path / "in" / "lib" / "data", "data")
    out = tmp_path / "out"
    out.mkdir()
    context.write_context(read_folder(tmp_path / "in"), "base:v1", out)
    assert (out / "Dockerfile").read_text() == (GOLDEN / "Dockerfile").read_text()
    found = {str(p.relative_to(out)): p.stat().st_mode & 0o777 for p in out.rglob("*x")}
    assert found == {"task.d/10-x": 0o755}
    assert (out / "task.d" / "lib" / "data").read_text() == "data"


def test_the_context_can_be_read_by_all_whatever_the_users_umask_is(tmp_path):
    """The task may have any user, and Docker keeps the modes of folders."""
    script(tmp_path / "in" / "10-x")
    script(tmp_path / "in" / "lib" / "more" / "data", "data")
    (tmp_path / "out").mkdir()
    umask = os.umask(0o077)
    try:
        context.write_context(read_folder(tmp_path / "in"), "base:v1", tmp_path / "out")
    finally:
        os.umask(umask)
    tasks = tmp_path / "out" / "task.d"
    modes = {each.stat().st_mode & 0o777 for each in (tasks, *tasks.rglob("*"))}
    assert modes == {0o755}


def test_the_tag_is_that_of_the_content(tmp_path):
    script(tmp_path / "10-x")

    def name(base="b:v1"):
        return context.image_name("", "My Fix", context.digest(read_folder(tmp_path), base))

    first = name()
    assert first.startswith("dsjob.local/my-fix:")
    assert name() == first
    (tmp_path / "10-x").chmod(0o700)
    assert name() == first
    assert name("b:v2") != first
    script(tmp_path / "lib" / "x", "y")
    assert name() != first
    assert context.image_name("r.example:5000/x", "f", "0123456789abcdef") == (
        "r.example:5000/x:0123456789ab"
    )
    assert context.image_name("r.example:5000/x:v1", "f", "0") == "r.example:5000/x:v1"


@pytest.mark.parametrize("tag", ["-v", "a b", "a\nRUN x", "A/B", "x" * 300, "a:b:c", "a/../b:"])
def test_what_is_no_name_of_an_image_is_refused(tag):
    with pytest.raises(CliError, match="no name of an image"):
        context.check_image(tag)


@pytest.mark.parametrize(
    ("name", "expected"), [("My Fix!", "my-fix"), ("---", "scripts"), ("a" * 80, "a" * 63)]
)
def test_the_job_has_the_name_of_the_folder(name, expected):
    assert context.job_name(name) == expected


@pytest.mark.parametrize("count", [1, 2])
def test_the_manifest_says_what_runs_and_in_which_order(tmp_path, count):
    for number in range(count):
        script(tmp_path / f"{2 - number}0-x")
    job = bundle_job(JobWish("fix", "/tmp", "role=edge", ("a",)), "r/fix:1", "fix", "")
    text = format_manifest(job, read_folder(tmp_path), Output.YAML)
    assert text == (GOLDEN / f"{count}.yaml").read_text()
    assert yaml.safe_load(text) == job
    assert yaml.safe_load(format_manifest(job, read_folder(tmp_path), Output.JSON)) == job


def test_a_script_that_prints_the_default_token_completes_nothing(tmp_path):
    """It completed the node before the scripts after it had run."""
    tokens = {
        bundle_job(JobWish("fix"), image, "fix", "")["spec"]["completion"]["token"]
        for image in ("r/fix:1", "r/fix:2")
    }
    assert len(tokens) == 2
    assert all(token.startswith("completed-") and len(token) == 22 for token in tokens)


def test_of_a_manifest_only_the_image_is_replaced():
    mine = {
        "apiVersion": "daemonset.darkowlzz.space/v1beta1",
        "kind": "Job",
        "metadata": {"name": "mine", "namespace": "team", "labels": {"a": "b"}},
        "spec": {"image": "old:v1", "args": ["x"], "completion": {"policy": "Continuous"}},
    }
    job = bundle_job(JobWish("other", template=yaml.safe_dump(mine)), "new:v2", "fix", "cli")
    assert job["spec"] == {**mine["spec"], "image": "new:v2"}
    assert job["metadata"]["namespace"] == "team"
    assert job["metadata"]["labels"] == {"a": "b", "daemonset.darkowlzz.space/bundle": "fix"}


def test_a_manifest_is_read_as_kubectl_reads_it():
    """A date ended `-o json` and `--watch` with a traceback; 22:30 was 1350."""
    text = """
        apiVersion: daemonset.darkowlzz.space/v1beta1
        kind: Job
        metadata: {name: mine, annotations: {reviewed: 2026-11-01}}
        spec: {args: [22:30, "1", 2026-11-01T10:00:00Z, 1:2:3.5], backoffLimit: 3, cordon: yes}
    """
    job = bundle_job(JobWish("other", template=text), "new:v2", "fix", "")
    assert job["metadata"]["annotations"] == {"reviewed": "2026-11-01"}
    assert job["spec"] == {
        "args": ["22:30", "1", "2026-11-01T10:00:00Z", "1:2:3.5"],
        "backoffLimit": 3,
        "cordon": True,
        "image": "new:v2",
    }


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        "[",
        "a",
        "kind: Job\napiVersion: batch/v1\n",
        "a: b\n---\nc: d\n",
        "x" * (1024 * 1024 + 1),
    ],
)
def test_a_manifest_that_is_no_job_is_refused(text):
    with pytest.raises(CliError):
        bundle_job(JobWish("x", template=text), "i:v1", "x", "")


def test_a_manifest_excludes_options_scripts_and_bad_names():
    head = "apiVersion: daemonset.darkowlzz.space/v1beta1\nkind: Job\n"
    for wish in (
        JobWish("x", mount="/tmp", template=head),
        JobWish("x", template=head + "spec: {script: 'echo'}\n"),
        JobWish("x", template=head + "spec: []\n" + "metadata: 3\n"),
        JobWish("UPPER"),
    ):
        with pytest.raises(CliError) as caught:
            bundle_job(wish, "i:v1", "x", "")
        assert caught.value.way_out


def test_the_fingerprint_changes_with_the_folder_also_if_it_is_wrong(tmp_path):
    wish = ImageWish(tmp_path)
    seen = [fingerprint(wish)]
    script(tmp_path / "10-x")
    seen.append(fingerprint(wish))
    script(tmp_path / "a b")
    seen.append(fingerprint(wish))
    shutil.rmtree(tmp_path)
    seen.append(fingerprint(wish))
    assert len(set(seen)) == 4


def has_ended(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().split()[2] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def ends(process):
    """Return whether a process that was killed ends: it needs a processor for that."""
    until = time.monotonic() + 30
    while not has_ended(process) and time.monotonic() < until:
        time.sleep(0.01)
    return has_ended(process)


async def test_a_program_that_takes_too_long_leaves_no_process(tmp_path):
    pid = tmp_path / "pid"
    command = ["sh", "-c", f"sleep 600 & echo $! > {pid}; wait"]
    with pytest.raises(TimeoutError):
        await run_program(command, timeout_seconds=0.5)
    assert ends(int(pid.read_text()))


async def test_of_a_programs_output_the_end_is_kept(monkeypatch):
    monkeypatch.setattr("kubectl_dsjob.bundle.processes.OUTPUT_LIMIT_BYTES", 4)
    ended = await run_program(["sh", "-c", "echo abcdef; exit 3"], timeout_seconds=10)
    assert (ended.code, ended.output) == (3, "def\n")

"""Files are whole or absent, and failures are sentences."""

import os
from pathlib import Path

import pytest

from hack.devcluster import cli, cluster, files, shell
from hack.devcluster.errors import MissingError, StepFailedError


def test_a_build_that_fails_leaves_nothing(tmp_path):
    def build() -> None:
        with files.unfinished(tmp_path / "thing") as work:
            work.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build()
    assert list(tmp_path.iterdir()) == []


def test_a_build_that_ends_well_takes_the_place_of_the_old_one(tmp_path):
    (tmp_path / "thing").mkdir()
    (tmp_path / "thing/old").touch()
    with files.unfinished(tmp_path / "thing") as work:
        work.mkdir()
        (work / "new").touch()
    assert [file.name for file in (tmp_path / "thing").iterdir()] == ["new"]


def test_what_a_killed_run_left_is_removed_by_the_next(tmp_path):
    left = tmp_path / f"{files.UNFINISHED}thing-1"
    left.mkdir()
    with files.unfinished(tmp_path / "thing") as work:
        work.write_text("whole")
    assert [file.name for file in tmp_path.iterdir()] == ["thing"]


def test_the_digest_changes_with_names_contents_and_modes(tmp_path):
    file = tmp_path / "a"
    file.write_text("1")
    seen = {files.digest([tmp_path])}
    file.write_text("2")
    seen.add(files.digest([tmp_path]))
    file.chmod(0o755)
    seen.add(files.digest([tmp_path]))
    file.rename(tmp_path / "b")
    seen.add(files.digest([tmp_path]))
    assert len(seen) == 4
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__/b.pyc").touch()
    assert files.digest([tmp_path]) in seen


def test_mounts_below_a_folder_come_deepest_first(tmp_path):
    table = tmp_path / "mounts"
    table.write_text("a /x/y ext4 rw 0 0\nb /x/y/z ext4 rw 0 0\nc /x/yy ext4 rw 0 0\n")
    assert files.mounts_below(table, Path("/x/y")) == ["/x/y/z", "/x/y"]


def test_a_pid_counts_only_with_the_right_command_line(tmp_path):
    assert files.is_running(os.getpid(), "py")
    assert not files.is_running(os.getpid(), "/no/such/mark")
    assert not files.is_running(None, "py")
    (tmp_path / "pid").write_text("not a number")
    assert files.read_pid(tmp_path / "pid") is None
    assert files.read_pid(tmp_path / "absent") is None


def test_a_failed_command_shows_the_end_of_its_log(tmp_path):
    log = tmp_path / "step.log"
    with pytest.raises(StepFailedError) as caught:
        shell.logged(["sh", "-c", "seq 100; exit 3"], log)
    text = str(caught.value)
    assert "exit code 3" in text
    assert "| 100" in text
    assert "| 80\n" not in text
    assert str(log) in text


def test_something_missing_is_a_sentence_and_exit_code_2(monkeypatch, capsys):
    def fail(*_args: object, **_kwargs: object) -> None:
        raise MissingError("docker", why="nodes are containers", fix="install docker")

    monkeypatch.setattr(cluster, "up", fail)
    assert cli.main(["up"]) == 2
    words = capsys.readouterr().err
    assert "missing: docker" in words
    assert "install docker" in words
    assert "Traceback" not in words


def test_a_folder_of_another_user_is_an_error_message_too(monkeypatch, capsys):
    def fail(*_args: object, **_kwargs: object) -> None:
        raise PermissionError(13, "Permission denied", "/cache")

    monkeypatch.setattr(cluster, "up", fail)
    assert cli.main(["up"]) == 2
    assert "/cache" in capsys.readouterr().err


@pytest.mark.parametrize("nodes", ["0", "-1", "99"])
def test_a_wrong_number_of_nodes_is_refused_at_once(nodes, capsys):
    assert cli.main(["up", "--nodes", nodes]) == 1
    assert "must be between" in capsys.readouterr().err

"""images/cleanup/remove: what it removes, and what it refuses to."""

import subprocess
from pathlib import Path

import pytest

REMOVE = Path(__file__).resolve().parents[2] / "images" / "cleanup" / "remove"


@pytest.fixture
def target(tmp_path: Path) -> Path:
    root = tmp_path / "basetarget"
    (root / "foo" / "inner").mkdir(parents=True)
    (root / "bar").touch()
    return root


def remove(target: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/sh", REMOVE, *args],
        env={"PATH": "/usr/bin:/bin", "TARGET_ROOT": str(target)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("end", ["", "/", "//"])
def test_it_removes_a_directory_and_nothing_beside_it(target, end):
    done = remove(target, f"{target}/foo{end}")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert [path.name for path in target.iterdir()] == ["bar"]


def test_it_removes_what_is_deeper_down(target):
    assert remove(target, f"{target}/foo/inner").returncode == 0
    assert (target / "foo").is_dir()


def test_what_is_not_there_is_removed_already(target):
    assert remove(target, f"{target}/other").returncode == 0


@pytest.mark.parametrize("name", ["a b", "-rf", "*", "$(touch x)", "a\nb", "..."])
def test_names_are_taken_as_they_are(target, name):
    (target / name).mkdir()
    assert remove(target, f"{target}/{name}").returncode == 0
    assert sorted(path.name for path in target.iterdir()) == ["bar", "foo"]


def test_a_link_is_removed_and_not_followed(target, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "file").touch()
    (target / "link").symlink_to(other)
    assert remove(target, f"{target}/link/").returncode == 0
    assert (other / "file").exists()
    assert not (target / "link").is_symlink()


@pytest.mark.parametrize("place", ["inside", "outside"])
@pytest.mark.parametrize("path", ["link/precious", "foo/link/precious", "link/deep/precious"])
def test_a_link_on_the_way_is_not_followed(target, tmp_path, place, path):
    """Who may write to the directory put it there, and the script is root."""
    other = target / "lib" if place == "inside" else tmp_path / "lib"
    (other / "precious").mkdir(parents=True)
    (other / "deep" / "precious").mkdir(parents=True)
    link = target / path.partition("link")[0] / "link"
    link.symlink_to(other)
    done = remove(target, f"{target}/{path}")
    assert done.returncode == 64
    assert f"leads through a symbolic link: {link}\n" in done.stderr
    assert (other / "precious").is_dir()
    assert (other / "deep" / "precious").is_dir()


@pytest.mark.parametrize("path", ["none/x", "bar/x", "foo/none/deeper/x"])
def test_path_below_a_file_counts_as_removed(target, path):
    assert remove(target, f"{target}/{path}").returncode == 0
    assert sorted(p.name for p in target.iterdir()) == ["bar", "foo"]


@pytest.mark.parametrize("name", ["a b", "-x", "*", "a\n", "\n", "...", "$(touch x)"])
def test_names_on_the_way_are_taken_as_they_are(target, name):
    (target / name / "deep" / "gone").mkdir(parents=True)
    assert remove(target, f"{target}/{name}/deep/gone").returncode == 0
    assert (target / name / "deep").is_dir()
    assert not (target / name / "deep" / "gone").exists()


def test_the_target_itself_may_be_a_link(target, tmp_path):
    alias = tmp_path / "alias"
    alias.symlink_to(target)
    assert remove(alias, f"{alias}/foo/inner").returncode == 0
    assert not (target / "foo" / "inner").exists()


@pytest.mark.parametrize(
    "path",
    [
        *("", "/", "//", "/etc", "foo", "{0}", "{0}/", "{0}//", "{0}x", " {0}/foo", "{0}//foo"),
        *("{0}/.", "{0}/..", "{0}/../x", "{0}/foo/..", "{0}/foo/../..", "{0}/./foo"),
    ],
)
def test_what_is_not_clearly_below_the_target_is_refused(target, path):
    done = remove(target, path.format(target))
    assert done.returncode == 64
    assert done.stderr.startswith("cleanup: ")
    assert sorted(p.name for p in target.iterdir()) == ["bar", "foo"]
    assert (target / "foo" / "inner").is_dir()


@pytest.mark.parametrize("count", [0, 2])
def test_it_wants_exactly_one_path(target, count):
    done = remove(target, *[f"{target}/foo"] * count)
    assert done.returncode == 64
    assert f"not {count}" in done.stderr


def test_without_a_mount_it_says_so(tmp_path):
    done = remove(tmp_path / "none", f"{tmp_path}/none/foo")
    assert done.returncode == 64
    assert "set spec.mountPath" in done.stderr

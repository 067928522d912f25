"""The wheels our images install: this project and everything it needs, for Linux and Python 3.11.

The images install them with `--no-index`, so an image build needs no package index. Everything but
this project is pinned by hash, in images/requirements.txt, which lies in the wheelhouse as well.
"""

import platform
import shutil
import sys
import tomllib
from pathlib import Path
from typing import Any

from hack.devcluster import shell
from hack.devcluster.errors import DevclusterError
from hack.devcluster.files import digest, locked, unfinished
from hack.devcluster.host import DEBIAN_TRIPLETS
from hack.devcluster.progress import step
from hack.devcluster.settings import Paths

IMAGE_PYTHON = (3, 11)
REQUIREMENTS = "images/requirements.txt"


def ensure(paths: Paths) -> str:
    """Make build/wheelhouse hold the wheels of the tree as it is; return a hash of its inputs."""
    project = tomllib.loads((paths.root / "pyproject.toml").read_text())
    requirements = paths.root / REQUIREMENTS
    needs = digest([requirements, platform.machine()])
    own = digest([needs, *_own_sources(paths, project)])
    target = paths.build / "wheelhouse"
    mark = target / ".inputs"
    if mark.exists() and mark.read_text() == own:
        return own
    with locked(paths.build, "wheelhouse"):
        wheels = _dependency_wheels(paths, requirements, needs)
        log = paths.logs / "wheel.log"
        log.unlink(missing_ok=True)
        with step("building this project's wheel"), unfinished(target) as work:
            work.mkdir()
            shell.logged(
                [*_pip(paths), "wheel", "--no-deps", "-w", str(work), str(paths.root)], log
            )
            for wheel in wheels.glob("*.whl"):
                shutil.copy2(wheel, work / wheel.name)
            shutil.copy2(requirements, work / requirements.name)
            (work / mark.name).write_text(own)
    return own


def is_native() -> bool:
    """Say whether wheels for this Python are wheels for the image's."""
    return sys.platform == "linux" and sys.version_info[:2] == IMAGE_PYTHON


def _dependency_wheels(paths: Paths, requirements: Path, key: str) -> Path:
    target = paths.cache / "wheels" / key
    if target.exists():
        return target
    log = paths.logs / "wheels.log"
    log.unlink(missing_ok=True)
    title = "fetching the wheels this project needs"
    with locked(paths.cache, "wheels"), step(title), unfinished(target) as work:
        work.mkdir()
        shell.logged([*_pip(paths), *_fetch_words(), "-d", str(work), "-r", str(requirements)], log)
    return target


def _fetch_words() -> list[str]:
    """Return the words of a download in which nothing is built and every file has a known hash."""
    arguments = ["download", "--no-deps", "--require-hashes", "--only-binary=:all:"]
    if is_native():
        return arguments
    machine = {"arm64": "aarch64"}.get(platform.machine(), platform.machine())
    if machine not in DEBIAN_TRIPLETS:
        message = f"no wheels are published for {machine}"
        raise DevclusterError(message)
    platforms = [f"manylinux{version}_{machine}" for version in ("2014", "_2_17", "_2_28")]
    arguments += ["--implementation=cp", f"--python-version={IMAGE_PYTHON[0]}.{IMAGE_PYTHON[1]}"]
    return [*arguments, *(f"--platform={name}" for name in platforms)]


def _pip(paths: Paths) -> list[str]:
    own = paths.root / ".venv/bin/python"
    python = str(own) if own.exists() else sys.executable
    return [python, "-m", "pip", "-q", "--disable-pip-version-check", "--no-input"]


def _own_sources(paths: Paths, project: dict[str, Any]) -> list[Path]:
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    names = ["pyproject.toml", "README.md", *wheel["packages"], *wheel["force-include"]]
    return [path for path in (paths.root / name for name in names) if path.exists()]

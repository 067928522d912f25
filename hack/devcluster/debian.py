"""What comes from Debian: packages for this machine, and root trees made by debootstrap."""

import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from hack.devcluster import shell
from hack.devcluster.errors import MissingError, StepFailedError
from hack.devcluster.files import digest, locked, unfinished
from hack.devcluster.host import read_host
from hack.devcluster.progress import step
from hack.devcluster.settings import DEBIAN_SUITE, Paths

PUBLIC_MIRROR = "http://deb.debian.org/debian"
UNWANTED = (
    *("var/cache/apt", "var/cache/debconf", "var/lib/apt/lists", "var/log"),
    *("usr/share/doc", "usr/share/info", "usr/share/locale", "usr/share/man"),
)


def find_program(name: str) -> str | None:
    """Return a program's path; a user's PATH often lacks the sbin folders."""
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/local/sbin", "/usr/sbin", "/sbin"])
    return shutil.which(name, path=path)


def require(paths: Paths, programs: dict[str, str], *, why: str) -> None:
    """See to it that programs are there, installing their Debian packages if that is allowed."""
    absent = {name: package for name, package in programs.items() if not find_program(name)}
    if not absent:
        return
    packages = sorted(set(absent.values()))
    host = read_host()
    if not (host.is_root and host.is_debian and shutil.which("apt-get")):
        where = "apt-get install" if host.is_debian else "your system's packages:"
        raise MissingError(", ".join(absent), why=why, fix=f"{where} {' '.join(packages)}")
    with locked(paths.cache, "apt"), step(f"installing {', '.join(packages)} for {why}"):
        _install(paths, packages)


def _install(paths: Paths, packages: Sequence[str]) -> None:
    log = paths.logs / "apt.log"
    log.unlink(missing_ok=True)
    quiet = {"DEBIAN_FRONTEND": "noninteractive"}
    options = ["-q", "-y", "-o", "DPkg::Lock::Timeout=300", "--no-install-recommends"]
    command = ["apt-get", "install", *options, *packages]
    try:
        shell.logged(command, log, env=quiet)
    except StepFailedError:  # a machine whose package lists are absent or out of date
        shell.logged(["apt-get", "update", "-q"], log, env=quiet)
        shell.logged(command, log, env=quiet)


def find_mirror(sources: str) -> str:
    """Return the first archive named in apt's sources (either format), else Debian's own."""
    found = re.search(r"^(?:URIs:|deb(?:\s+\[[^]]*\])?)\s+(https?://\S+)", sources, re.MULTILINE)
    return found.group(1) if found else PUBLIC_MIRROR


def tree(paths: Paths, name: str, packages: Sequence[str]) -> Path:
    """Return a Debian root tree with these packages, from the cache if it is there.

    Do not change the tree: copy it.
    """
    target = paths.cache / "trees" / f"{name}-{digest([DEBIAN_SUITE, *packages])}"
    if target.exists():
        return target
    require_root("making a Debian root tree (debootstrap)")
    with locked(paths.cache, f"tree-{name}"):
        if target.exists():
            return target
        require(paths, {"debootstrap": "debootstrap"}, why="making a Debian root tree")
        _bootstrap(paths, target, packages)
    return target


def require_root(why: str) -> None:
    """Raise MissingError unless we are root."""
    if not read_host().is_root:
        raise MissingError(
            "root", why=why, fix="run as root, or use a machine with docker and network"
        )


def _bootstrap(paths: Paths, target: Path, packages: Sequence[str]) -> None:
    log = paths.logs / f"debootstrap-{target.name}.log"
    log.unlink(missing_ok=True)
    debs = paths.cache / "debs"
    debs.mkdir(parents=True, exist_ok=True)
    title = f"Debian tree “{target.name}” (first time only, about 1 min)"
    with step(title), unfinished(target) as work:
        command: list[str | Path] = [find_program("debootstrap") or "debootstrap"]
        command += ["--variant=minbase", f"--include={','.join(packages)}", f"--cache-dir={debs}"]
        shell.logged([*command, DEBIAN_SUITE, work, find_mirror(_sources())], log)
        for unwanted in UNWANTED:
            _empty(work / unwanted)


def _empty(folder: Path) -> None:
    for child in folder.iterdir() if folder.is_dir() else ():
        if child.is_dir() and not child.is_symlink():
            shutil.rmtree(child)
        else:
            child.unlink()


def _sources() -> str:
    folder = Path("/etc/apt")
    files = [folder / "sources.list", *sorted((folder / "sources.list.d").glob("*"))]
    if not read_host().is_debian or "ubuntu" in Path("/etc/os-release").read_text().lower():
        return ""
    return "\n".join(file.read_text() for file in files if file.is_file())

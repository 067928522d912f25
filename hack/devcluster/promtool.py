"""promtool, which checks and tests the alerts: that of PATH, else from Debian's package.

The package is unpacked into the cache and not installed, since that would start a Prometheus.
"""

import shutil
from pathlib import Path

from hack.devcluster import shell
from hack.devcluster.debian import find_program
from hack.devcluster.errors import MissingError, StepFailedError
from hack.devcluster.files import digest, locked, scratch, unfinished
from hack.devcluster.host import read_host
from hack.devcluster.progress import step
from hack.devcluster.settings import DEBIAN_SUITE, Paths

FIX = "put promtool of https://prometheus.io/download on PATH"


def ensure(paths: Paths) -> Path:
    """Return the program's file, after a download of 19 MB if it is not in the cache yet."""
    if own := find_program("promtool"):
        return Path(own)
    target = paths.cache / "bin" / f"promtool-{digest([DEBIAN_SUITE])}" / "promtool"
    if target.exists():
        return target
    if not (read_host().is_debian and shutil.which("apt-get")):
        raise MissingError("promtool", why="it checks the alerts", fix=FIX)
    with locked(paths.cache, "promtool"):
        if not target.exists():
            _unpack(paths, target)
    return target


def _unpack(paths: Paths, target: Path) -> None:
    log = paths.logs / "promtool.log"
    log.unlink(missing_ok=True)
    with (
        step("unpacking promtool of Debian's package (first time only)"),
        scratch(paths.cache, "promtool-package") as work,
        unfinished(target.parent) as folder,
    ):
        download = ["apt-get", "download", "-q", "prometheus"]
        try:
            shell.logged(download, log, cwd=work)
        except StepFailedError:  # package lists that are absent or out of date
            shell.logged(["apt-get", "update", "-q"], log)
            shell.logged(download, log, cwd=work)
        (package,) = work.glob("*.deb")
        shell.logged(["dpkg-deb", "--extract", package, work / "tree"], log)
        folder.mkdir()
        shutil.move(work / "tree" / "usr" / "bin" / "promtool", folder / "promtool")

"""Programs built from Go modules, each kept in the cache under a hash of what it is built from."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

from hack.devcluster import shell
from hack.devcluster.errors import MissingError, StepFailedError
from hack.devcluster.files import digest, locked, unfinished
from hack.devcluster.host import go_version
from hack.devcluster.progress import step
from hack.devcluster.settings import (
    KIND_VERSION,
    KUBERNETES_VERSION,
    KWOK_VERSION,
    MINIMUM_GO,
    SOURCES,
    Paths,
)

GO_FIX = "https://go.dev/doc/install (Debian 12's own package is too old), then put go on PATH"


@dataclass(frozen=True, slots=True)
class Program:
    """A program: from a module of ours (source) or from a published one (module)."""

    name: str
    source: str = ""
    module: str = ""
    ldflags: str = ""
    note: str = ""


_VERSION_FLAGS = " ".join(
    f"-X {variable}"
    for variable in (
        f"k8s.io/component-base/version.gitVersion={KUBERNETES_VERSION}",
        f"k8s.io/component-base/version.gitMajor={KUBERNETES_VERSION[1:].split('.')[0]}",
        f"k8s.io/component-base/version.gitMinor={KUBERNETES_VERSION.split('.')[1]}",
        "k8s.io/component-base/version.gitTreeState=clean",
        f"k8s.io/client-go/pkg/version.gitVersion={KUBERNETES_VERSION}",
    )
)

KIND = Program("kind", module=f"sigs.k8s.io/kind@{KIND_VERSION}")
KWOK = Program("kwok", module=f"sigs.k8s.io/kwok/cmd/kwok@{KWOK_VERSION}")
RUNCWRAP = Program("runcwrap", source="runcwrap")
PAUSE = Program("pause", source="pause")
COREDNS = Program("coredns", source="coredns")
HYPERKUBE = Program(
    "hyperkube",
    source="components",
    ldflags=_VERSION_FLAGS,
    note=f" (Kubernetes {KUBERNETES_VERSION[1:]} from Go modules; first time only, 6 to 10 min)",
)


def has_go() -> bool:
    """Say whether a Go that is new enough is on PATH."""
    try:
        found = go_version(shell.output(["go", "version"]))
    except StepFailedError:
        return False
    return found is not None and found >= MINIMUM_GO


def require_go(why: str) -> None:
    """Raise MissingError unless a Go that is new enough is on PATH."""
    if not has_go():
        wanted = ".".join(map(str, MINIMUM_GO))
        raise MissingError(f"Go {wanted} or newer", why=why, fix=GO_FIX)


def location(paths: Paths, program: Program) -> Path:
    """Return where a program is or will be; a change of its inputs changes the place."""
    inputs: list[str | Path] = [program.module, program.ldflags, "1"]
    if program.source:
        inputs.append(SOURCES / program.source)
    return paths.cache / "bin" / f"{program.name}-{digest(inputs)}" / program.name


def ensure(paths: Paths, program: Program) -> Path:
    """Return the program's file, after building it if it is not in the cache yet."""
    target = location(paths, program)
    if target.exists():
        return target
    with locked(paths.cache, f"go-{program.name}"):
        if target.exists():
            return target
        require_go(f"building {program.name}")
        _build(paths, program, target)
    return target


def module_folder(module: str) -> Path:
    """Return the folder of a published module's source in Go's module cache."""
    require_go(f"fetching the source of {module}")
    text = shell.output(
        ["go", "mod", "download", "-json", module], timeout_seconds=300, env={"GOFLAGS": ""}
    )
    return Path(json.loads(text)["Dir"])


def _build(paths: Paths, program: Program, target: Path) -> None:
    log = paths.logs / f"go-{program.name}.log"
    log.unlink(missing_ok=True)
    environment = {"CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false", "GOWORK": "off"}
    with step(f"building {program.name}{program.note}"), unfinished(target.parent) as work:
        work.mkdir()
        # A gentle priority: the desktop, or a cluster beside it, goes on working meanwhile.
        nice = ["nice", "-n", "10"] if shutil.which("nice") else []
        if program.module:
            command = [*nice, "go", "install", "-ldflags", "-s -w", program.module]
            shell.logged(command, log, env={**environment, "GOBIN": str(work)})
            return
        flags = f"-s -w {program.ldflags}".strip()
        shell.logged(
            [*nice, "go", "build", "-trimpath", "-ldflags", flags, "-o", work / program.name, "."],
            log,
            cwd=SOURCES / program.source,
            env=environment,
        )

"""The command line: parses, calls, and turns every expected failure into a sentence."""

import argparse
import importlib
import shlex
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType

from hack.devcluster import (
    binaries,
    cluster,
    deploy,
    dockerd,
    doctor,
    fakenodes,
    images,
    load,
    state,
)
from hack.devcluster.errors import DevclusterError, MissingError
from hack.devcluster.progress import say, show
from hack.devcluster.settings import SCALE_FROM_FAKE_NODES, Paths, find_paths

INTERRUPTED = 130
CACHE_FIX = "be its owner, or set DAEMONSET_JOB_CACHE to a folder of yours"


def main(argv: Sequence[str]) -> int:
    """Run one verb; return the exit code: 0 done, 1 failed, 2 something is missing."""
    options = _parser().parse_args(argv)
    signal.signal(signal.SIGTERM, _interrupt)
    run: Callable[[Paths, argparse.Namespace], int | None] = options.run
    try:
        return run(find_paths(), options) or 0
    except DevclusterError as error:
        say(f"devcluster {options.verb}: {error}")
        return error.exit_code
    except PermissionError as error:
        say(f"devcluster {options.verb}: may not write {error.filename}; {CACHE_FIX}")
        return MissingError.exit_code
    except OSError as error:  # a full disk, a file in the place of a folder
        say(f"devcluster {options.verb}: {error}")
        return 1
    except KeyboardInterrupt:
        say(f"devcluster {options.verb}: interrupted; run it again, or `down`: it starts clean")
        return INTERRUPTED


def _up(paths: Paths, options: argparse.Namespace) -> None:
    if options.context:
        cluster.adopt(paths, options.context)
        return
    wanted = fakenodes.Wanted(options.fake_nodes, options.fake_log)
    scale = options.config == "scale" or options.fake_nodes >= SCALE_FROM_FAKE_NODES
    cluster.up(paths, nodes=options.nodes, fake=wanted, scale=scale)


def _down(paths: Paths, options: argparse.Namespace) -> None:
    cluster.down(paths, purge=options.purge, everyone=options.all)


def _load(paths: Paths, options: argparse.Namespace) -> None:
    load.load(paths, options.archives)


def _images(paths: Paths, options: argparse.Namespace) -> None:
    for archive in images.build(paths, options.names):
        show(str(archive))


def _build(paths: Paths, options: argparse.Namespace) -> None:
    show(str(images.build_folder(paths, options.folder, options.image)))


def _deploy(paths: Paths, _: argparse.Namespace) -> None:
    deploy.deploy(paths)


def _undeploy(paths: Paths, _: argparse.Namespace) -> None:
    deploy.undeploy(paths)


def _demo(paths: Paths, _: argparse.Namespace) -> int:
    # Late and by name: the demo is a program of its own, which other verbs need not load.
    try:
        demo = importlib.import_module("hack.devcluster.demo")
    except ModuleNotFoundError as error:
        raise DevclusterError(f"the demo cannot be loaded: {error}") from error
    return int(demo.run(paths) or 0)


def _binaries(paths: Paths, _: argparse.Namespace) -> None:
    show(str(binaries.ensure(paths)))


def _doctor(paths: Paths, _: argparse.Namespace) -> int:
    return doctor.report(paths)


def _exec(paths: Paths, options: argparse.Namespace) -> None:
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        message = "exec NODE -- COMMAND: no command given"
        raise DevclusterError(message)
    load.enter(paths, options.node, command)


def _nodes(paths: Paths, _: argparse.Namespace) -> None:
    for name in cluster.containers(load.kind_name(paths)):
        show(name)


def _env(paths: Paths, _: argparse.Namespace) -> None:
    known = state.read(paths)
    if known is not None and known.engine == "private":
        show(f"export DOCKER_HOST={shlex.quote(dockerd.socket(paths))}")
    show(f"export KUBECONFIG={shlex.quote(str(paths.kubeconfig))}")
    ready = binaries.find_ready(paths)
    if ready is not None:
        show(f'export PATH={shlex.quote(str(ready))}:"$PATH"')
    if known is None:
        # With the variables set, kubectl finds no other cluster by mistake.
        raise DevclusterError(load.NO_CLUSTER)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="devcluster",
        description="A real Kubernetes cluster on this machine, with or without an image registry.",
    )
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")

    up = _verb(verbs, "up", _up, "make the cluster (nothing to do if it is there and healthy)")
    up.add_argument("--nodes", type=int, default=3, help="real nodes, control plane included")
    up.add_argument("--fake-nodes", type=int, default=0, help="simulated nodes (KWOK)")
    up.add_argument("--fake-log", type=Path, help="what pods on simulated nodes log (CRI format)")
    up.add_argument("--context", default="", help="use this context of your kubeconfig instead")
    up.add_argument(
        "--config",
        choices=("default", "scale"),
        default="default",
        help=f"client limits raised (by itself from {SCALE_FROM_FAKE_NODES} simulated nodes)",
    )
    down = _verb(verbs, "down", _down, "take away every trace of it; the cache stays")
    down.add_argument(
        "--all",
        action="store_true",
        help="other clones' clusters in the private dockerd too (dsj-*, left by killed runs)",
    )
    down.add_argument("--purge", action="store_true", help="remove the cache too")
    loader = _verb(verbs, "load", _load, "put docker-archives on every node")
    loader.add_argument("archives", nargs="+", type=Path, metavar="ARCHIVE")
    builder = _verb(verbs, "images", _images, "build the project's images into build/NAME.tar")
    builder.add_argument("names", nargs="*", metavar="NAME")
    folder = _verb(verbs, "build", _build, "build the Dockerfile of a folder, as an example has it")
    folder.add_argument("folder", type=Path)
    folder.add_argument("image", help="the image's name, with its tag")
    _verb(verbs, "deploy", _deploy, "build and load the images, install deploy/ and wait for it")
    _verb(verbs, "undeploy", _undeploy, "delete what deploy/ made, Jobs included")
    _verb(verbs, "demo", _demo, "show the whole system at work")
    _verb(verbs, "binaries", _binaries, "print a folder with kube-apiserver, etcd and kubectl")
    _verb(verbs, "doctor", _doctor, "say what is there and what is missing")
    enter = _verb(verbs, "exec", _exec, "run a command in a node's container")
    enter.add_argument("node")
    enter.add_argument("command", nargs=argparse.REMAINDER)
    _verb(verbs, "nodes", _nodes, "list the names of the real nodes")
    _verb(verbs, "env", _env, "print export lines for a shell")
    return parser


def _verb(
    verbs: "argparse._SubParsersAction[argparse.ArgumentParser]",
    name: str,
    run: Callable[[Paths, argparse.Namespace], int | None],
    summary: str,
) -> argparse.ArgumentParser:
    parser = verbs.add_parser(name, help=summary, description=summary)
    parser.set_defaults(run=run)
    return parser


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    """Let SIGTERM unwind like Ctrl-C, so that children end and half-done work goes."""
    raise KeyboardInterrupt

"""Runs the steps of a page on a real cluster, and compares what is printed."""

import os
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.e2e.cluster import TASK_IMAGE, RealCluster
from tests.e2e.doc_blocks import Command, File, Step
from tests.e2e.doc_output import is_same, normalise
from tests.e2e.doc_shell import Shell, Watch

# Images of others, which nodes without a registry cannot pull. The task image has what they have.
STAND_INS = {"busybox:1.37": TASK_IMAGE}
PRINTED_CLUSTER = "dsj-f2af6c"
READ_SECONDS = 30
# Each start of kubectl takes 0.1 s of CPU, which other tests wait for.
LONGEST_PAUSE_SECONDS = 2.0
WATCH_SECONDS = 60
# How long a watch takes to begin; a later one sees the Job too, unless that is over by then.
WATCH_HEAD_START_SECONDS = 1


class PageRunner:
    """Runs the steps of one page in a namespace and in a copy of the clone."""

    def __init__(self, cluster: RealCluster, namespace: str, folder: Path) -> None:
        self._prefix = cluster.nodes[0].removesuffix("-control-plane")
        self._clone = _clone(cluster.root, folder / "clone", self._prefix)
        scratch = folder / "scratch"
        scratch.mkdir()
        self._environment = {
            **os.environ,
            # kubectl finds the plugin there.
            "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])),
            "KUBECONFIG": str(_kubeconfig(cluster, namespace, folder / "kubeconfig")),
            "TMPDIR": str(scratch),
        }

    def run(self, steps: Sequence[Step]) -> None:
        """Run all steps; fails the test at the first one that does not do what the page says."""
        with Shell(self._clone, self._environment) as shell:
            watch: Watch | None = None
            try:
                for step, following in zip(steps, [*steps[1:], None], strict=True):
                    if isinstance(following, Command) and following.is_watch:
                        watch = self._watch(following)
                    match step:
                        case File(name=name, text=text):
                            (self._clone / name).write_text(self._real(text), encoding="utf-8")
                        case Command() if step.is_watch:
                            self._follow(step, watch or self._watch(step))
                        case Command():
                            self._run(shell, step)
            finally:
                if watch is not None:
                    watch.end()

    def _run(self, shell: Shell, step: Command) -> None:
        text = self._real(step.text)
        deadline, pause = time.monotonic() + READ_SECONDS, 0.5
        while True:
            code, printed = shell.run(text, stops_at_error=step.output is None)
            if step.must_succeed:
                assert code == 0, f"line {step.line}: exit code {code}\n{step.text}\n{printed}"
            if step.output is None or is_same("\n".join(step.output), printed, self._prefix):
                return
            if not step.is_read or time.monotonic() > deadline:
                raise AssertionError(self._difference(step, printed))
            time.sleep(pause)
            pause = min(1.5 * pause, LONGEST_PAUSE_SECONDS)

    def _watch(self, step: Command) -> Watch:
        watch = Watch(self._real(step.text), self._clone, self._environment)
        time.sleep(WATCH_HEAD_START_SECONDS)
        return watch

    def _follow(self, step: Command, watch: Watch) -> None:
        deadline = time.monotonic() + WATCH_SECONDS
        try:
            while not is_same("\n".join(step.output or ()), watch.output(), self._prefix):
                assert time.monotonic() < deadline, self._difference(step, watch.output())
                time.sleep(0.25)
        finally:
            watch.end()

    def _real(self, text: str) -> str:
        return real_names(text, self._prefix)

    def _difference(self, step: Command, printed: str) -> str:
        page = "\n  ".join(normalise("\n".join(step.output or ())))
        real = "\n  ".join(normalise(printed, self._prefix))
        return f"line {step.line}: $ {step.text}\npage:\n  {page}\nreal:\n  {real}\nraw:\n{printed}"


def real_names(text: str, prefix: str) -> str:
    """Return a text with the nodes of this cluster, and images that can be pulled everywhere."""
    for image, instead in STAND_INS.items():
        text = text.replace(image, instead)
    return text.replace(PRINTED_CLUSTER, prefix)


def _clone(root: Path, clone: Path, prefix: str) -> Path:
    """Return a directory that looks like the clone; what a page writes there is thrown away."""
    clone.mkdir()
    for entry in root.iterdir():
        if entry.name != "examples":
            (clone / entry.name).symlink_to(entry)
    shutil.copytree(root / "examples", clone / "examples")
    for manifest in (clone / "examples").rglob("*.yaml"):
        text = manifest.read_text(encoding="utf-8")
        manifest.write_text(real_names(text, prefix), encoding="utf-8")
    return clone


def _kubeconfig(cluster: RealCluster, namespace: str, path: Path) -> Path:
    """Write a kubeconfig whose namespace is that of the test."""
    path.write_text(cluster.kubectl("config", "view", "--raw", "--flatten", "--minify"))
    path.chmod(0o600)
    command = ("config", "set-context", "--current", f"--namespace={namespace}")
    cluster.kubectl(f"--kubeconfig={path}", *command)
    return path

"""Records a run on the current cluster and draws it: docs/run.cast and docs/run.svg.

`python -m hack.recording` needs KUBECONFIG; `--image` names an image that the nodes have, if they
cannot pull that of the example. `--draw` draws the recording again, without a cluster.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from hack.recording.cast import Line, read, write
from hack.recording.svg import PROMPT, draw

ROOT = Path(__file__).resolve().parents[2]
CAST = ROOT / "docs" / "run.cast"
PICTURE = ROOT / "docs" / "run.svg"
TITLE = "A Job is applied, runs on three nodes, and leaves a JobReport"
NAMESPACE = "recording"
EXAMPLE = "examples/04-remove-directory/job.yaml"
IMAGE = "busybox:1.37"
COMMANDS = (
    f"kubectl apply -f {EXAMPLE}",
    "kubectl get dsj -w",
    "kubectl get dsjr",
    "kubectl get dsjr -o jsonpath='{range .items[0].status.timeline[*]}{@}{\"\\n\"}{end}'",
)
PAUSE_SECONDS = 0.7
LIMIT_SECONDS = 60
LAST_PHASE = "Succeeded"


class Recorder:
    """Runs commands in a namespace, and notes each line with its time."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._started = time.monotonic()
        self.lines = list[Line]()

    def run(self, command: str) -> None:
        """Run a command; a watch is ended when the Job has succeeded."""
        self._note(PROMPT + command)
        in_namespace = command.replace("kubectl", f"kubectl --namespace {NAMESPACE}", 1)
        process = subprocess.Popen(
            ["timeout", str(LIMIT_SECONDS), "bash", "-c", f"exec {in_namespace}"],
            cwd=self._directory,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        for line in process.stdout:
            self._note(line.rstrip("\n"))
            if command.endswith(" -w") and LAST_PHASE in line:
                process.terminate()
        process.wait()
        time.sleep(PAUSE_SECONDS)

    def _note(self, text: str) -> None:
        self.lines.append(Line(time.monotonic() - self._started, text))


def record(image: str) -> list[Line]:
    """Return the recording of the example, run in a namespace that is deleted afterwards."""
    subprocess.run(["kubectl", "create", "namespace", NAMESPACE], check=True)
    try:
        with tempfile.TemporaryDirectory() as directory:
            manifest = Path(directory, EXAMPLE)
            manifest.parent.mkdir(parents=True)
            text = (ROOT / EXAMPLE).read_text(encoding="utf-8")
            manifest.write_text(text.replace(IMAGE, image), encoding="utf-8")
            recorder = Recorder(Path(directory))
            for command in COMMANDS:
                recorder.run(command)
        return recorder.lines
    finally:
        subprocess.run(["kubectl", "delete", "namespace", NAMESPACE], check=True)


def main(arguments: list[str]) -> int:
    """Return 0 when both files are written."""
    parser = argparse.ArgumentParser(prog="python -m hack.recording", description=__doc__)
    parser.add_argument("--image", default=IMAGE, help="run this image instead")
    parser.add_argument("--draw", action="store_true", help="draw docs/run.cast again")
    options = parser.parse_args(arguments)
    if not options.draw:
        CAST.write_text(write(record(options.image)), encoding="utf-8")
    lines = read(CAST.read_text(encoding="utf-8"))
    PICTURE.write_text(draw(lines, TITLE), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

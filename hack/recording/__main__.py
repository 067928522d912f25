"""Records runs on the current cluster and draws them: docs/run.cast and docs/run.svg.

`python -m hack.recording` needs KUBECONFIG, and `kubectl dsjob` on PATH; `--image` names an image
that the nodes have, if they cannot pull that of README. `--draw` draws the recording again, without
a cluster.
"""

import argparse
import fcntl
import os
import pty
import struct
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path

from hack.recording.cast import COLUMNS, ROWS, Output, read, write
from hack.recording.svg import PROMPT, draw

ROOT = Path(__file__).resolve().parents[2]
CAST = ROOT / "docs" / "run.cast"
PICTURE = ROOT / "docs" / "run.svg"
TITLE = "kubectl dsjob runs a command on three nodes, shows its report, and a failure"
NAMESPACE = "recording"
IMAGE = "busybox:1.37"
SCRIPT = "disk-check.sh"
SCRIPT_TEXT = """\
sleep $((RANDOM % 3 + 1))
case $NODE_NAME in *worker2) echo disk full; exit 2 ;; esac
"""
FIRST = (
    f"kubectl dsjob run remove-cache --exit --image {IMAGE} --mount /var/tmp \\",
    "    --command -- rm -rf /basetarget/old-cache",
)
COMMANDS = (
    "\n".join(FIRST),
    "kubectl dsjob report remove-cache",
    f"kubectl dsjob run disk-check --script {SCRIPT} --backoff-limit 0",
)
PAUSE_SECONDS = 1.2
LIMIT_SECONDS = 90


class Recorder:
    """Runs commands on a terminal, in a directory, and notes what they print, and when."""

    def __init__(self, directory: Path, image: str) -> None:
        self._directory = directory
        self._image = image
        self._started = time.monotonic()
        self.outputs = list[Output]()

    def run(self, command: str) -> None:
        """Run a command to its end."""
        shown = command.replace("\n", "\r\n")
        self._note(f"{PROMPT}{shown}\r\n")
        real = command.replace(IMAGE, self._image)
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        process = subprocess.Popen(
            ["timeout", str(LIMIT_SECONDS), "bash", "-c", real],
            cwd=self._directory,
            stdin=subprocess.DEVNULL,
            stdout=slave,
            stderr=slave,
            env={**os.environ, "TERM": "xterm"},
        )
        os.close(slave)
        self._read(master)
        os.close(master)
        process.wait()
        time.sleep(PAUSE_SECONDS)

    def _read(self, master: int) -> None:
        rest = b""
        while True:
            try:
                chunk = os.read(master, 65536)
            except OSError:  # the other side is closed
                return
            if not chunk:
                return
            # A character of several bytes may be cut between two reads.
            text = (rest + chunk).decode("utf-8", "ignore")
            rest = (rest + chunk)[len(text.encode()) :]
            self._note(text)

    def _note(self, text: str) -> None:
        self.outputs.append(Output(time.monotonic() - self._started, text))


def record(image: str) -> list[Output]:
    """Return the recording, made in a namespace that is deleted afterwards."""
    config = os.environ["KUBECONFIG"]
    subprocess.run(["kubectl", "create", "namespace", NAMESPACE], check=True)
    try:
        with tempfile.TemporaryDirectory() as directory:
            _use_namespace(Path(directory, "kubeconfig"))
            Path(directory, SCRIPT).write_text(SCRIPT_TEXT, encoding="utf-8")
            recorder = Recorder(Path(directory), image)
            for each in COMMANDS:
                recorder.run(each)
            return recorder.outputs
    finally:
        delete = ["kubectl", f"--kubeconfig={config}", "delete", "namespace", NAMESPACE]
        subprocess.run([*delete, "--wait=false"], check=True)


def _use_namespace(kubeconfig: Path) -> None:
    """Have the commands use a kubeconfig with the namespace, so that they need not name it."""
    view = ["kubectl", "config", "view", "--raw", "--flatten", "--minify"]
    text = subprocess.run(view, check=True, capture_output=True, text=True).stdout
    kubeconfig.write_text(text, encoding="utf-8")
    os.environ["KUBECONFIG"] = str(kubeconfig)
    command = ("config", "set-context", "--current", f"--namespace={NAMESPACE}")
    subprocess.run(["kubectl", *command], check=True)


def main(arguments: list[str]) -> int:
    """Return 0 when both files are written."""
    parser = argparse.ArgumentParser(prog="python -m hack.recording", description=__doc__)
    parser.add_argument("--image", default=IMAGE, help="run this image instead")
    parser.add_argument("--draw", action="store_true", help="draw docs/run.cast again")
    options = parser.parse_args(arguments)
    if not options.draw:
        CAST.write_text(write(record(options.image)), encoding="utf-8")
    outputs = read(CAST.read_text(encoding="utf-8"))
    PICTURE.write_text(draw(outputs, TITLE), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

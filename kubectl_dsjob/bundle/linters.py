"""Has the shells of this machine parse the scripts, and shellcheck if it is there.

`sh -n` parses a script and runs nothing of it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Final

from kubectl_dsjob.bundle.checks import shell_of
from kubectl_dsjob.bundle.folder import BundleFile, Folder
from kubectl_dsjob.bundle.problems import Problem, clean
from kubectl_dsjob.bundle.processes import run_program

_TIMEOUT_SECONDS: Final = 20.0
_FINDINGS_LIMIT: Final = 200
# dash writes `FILE: 3: Syntax error`, bash writes `FILE: line 3: syntax error`.
_PLACE: Final = re.compile(r": (?:line )?(\d+): (.*)")


async def lint(folder: Folder, tasks: Path) -> list[Problem]:
    """Return what the linters of this machine find in the copies of the scripts in `tasks`."""
    problems: list[Problem] = []
    for file in folder.scripts:
        shell = shell_of(file.content)
        # What follows an archive's own script is no text: the shell ends before it.
        if not shell or b"\r\n" in file.content or b"\0" in file.content:
            continue
        found = await _parse(file, tasks / file.path, shell)
        problems += found
        if not found:
            problems += await _shellcheck(file, tasks / file.path)
    return problems


async def _parse(file: BundleFile, path: Path, shell: str) -> list[Problem]:
    program = shutil.which(shell)
    if program is None:
        return []
    # bash parses these patterns only with the option. With -n it does not run the script's `shopt`.
    options = ["-O", "extglob"] if shell == "bash" and b"extglob" in file.content else []
    # Without BASH_ENV and ENV: bash reads the file that they name, even with -n.
    environment = {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C"}
    try:
        ended = await run_program(
            [program, *options, "-n", str(path)],
            timeout_seconds=_TIMEOUT_SECONDS,
            environment=environment,
        )
    except (OSError, TimeoutError):
        return []
    if ended.code == 0:
        return []
    place = _PLACE.search(ended.output)
    line, message = (int(place[1]), place[2]) if place else (0, ended.output.strip())
    fix = f"correct this line, or one before it; check again with: {shell} -n {file.path}"
    return [Problem(file.path, f"{shell} -n: {clean(message).rstrip('.')}", fix, line)]


async def _shellcheck(file: BundleFile, path: Path) -> list[Problem]:
    program = shutil.which("shellcheck")
    if program is None:
        return []
    command = [program, "--format=json", "--severity=warning", "--color=never", str(path)]
    try:
        ended = await run_program(command, timeout_seconds=_TIMEOUT_SECONDS)
        found = json.loads(ended.output)
    except (OSError, TimeoutError, ValueError):
        return []
    if not isinstance(found, list):
        return []
    return [_finding(file, each) for each in found[:_FINDINGS_LIMIT] if isinstance(each, dict)]


def _finding(file: BundleFile, found: dict[str, object]) -> Problem:
    code, line = found.get("code"), found.get("line")
    message = clean(str(found.get("message") or "")).rstrip(".")
    return Problem(
        file.path,
        f"shellcheck SC{code}: {message}",
        f"https://www.shellcheck.net/wiki/SC{code}" if isinstance(code, int) else "",
        line if isinstance(line, int) else 0,
        is_warning=found.get("level") != "error",
    )

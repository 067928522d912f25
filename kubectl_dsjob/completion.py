"""Completes a command line: `kubectl_complete-dsjob`, which kubectl runs for all its shells.

kubectl passes the words after `dsjob`, the last of which is being typed. It reads a candidate from
each line, with a description after a tab, and at last a directive (kubernetes pkg/cmd/plugin,
SetupPluginCompletion). Names of the cluster come from kubectl itself: it starts faster than a
client of our own, and has the user's credentials. An error is no candidate, and no text.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import typer

from kubectl_dsjob.main import app
from kubectl_dsjob.options import count_before_command, with_command_first
from kubectl_dsjob.outputs import DryRun, Output

# Directives of cobra: the shell completes file names, or only what is printed.
FILES: Final = 0
NO_FILES: Final = 4
_REQUEST_SECONDS: Final = 2
_PROCESS_SECONDS: Final = 5
_NAMES_LIMIT: Final = 5000
_FILE_OPTIONS: Final = frozenset({"--kubeconfig", "--script", "--html"})
_CHOICES: Final = {"--output": tuple(Output), "--dry-run": tuple(DryRun)}
_TARGET_OPTIONS: Final = ("--namespace", "--context", "--kubeconfig")
# Verbs for which a deleted Job is of use, because its report answers.
_NEEDS_A_JOB: Final = frozenset(
    {"pause", "resume", "plan", "approve", "promote", "abort", "retry", "rollback"}
)
_CREATES: Final = frozenset({"run"})


@dataclass(frozen=True, slots=True)
class Candidates:
    """What may be typed: each word with its description, and the directive for the shell."""

    words: tuple[tuple[str, str], ...] = ()
    directive: int = NO_FILES

    def text(self) -> str:
        """Return them as kubectl reads them."""
        lines = [f"{word}\t{about}" if about else word for word, about in self.words]
        return "\n".join([*lines, f":{self.directive}"]) + "\n"


def main() -> None:
    """Print the candidates for the words of the command line."""
    sys.stdout.write(complete(sys.argv[1:]).text())


def complete(words: Sequence[str]) -> Candidates:
    """Return what may follow; the last word is the one that is being typed, "" for a new one."""
    *done, typed = words or [""]
    root: Any = typer.main.get_command(app)
    at = count_before_command(done)
    # Each command that reads has the options that may come before it.
    before = ["status", *done] if at == len(done) else with_command_first(done)
    verb, typed_options, position, pending = _parse(root, before)
    if at == len(done) and not pending:
        verb = ""
    command = root.commands.get(verb) if verb else root
    if "--" in done or command is None:
        return Candidates(directive=FILES)
    if pending:
        return _values(pending, typed, typed_options)
    if typed.startswith("-"):
        return _option(command, done, typed, typed_options)
    if not verb:
        names = ((name, _about(each)) for name, each in root.commands.items() if not each.hidden)
        return _matching(names, typed)
    return _positional(verb, command, position, typed, typed_options)


def _option(command: Any, done: Sequence[str], typed: str, options: dict[str, str]) -> Candidates:
    option, has_value, value = typed.partition("=")
    if not has_value:
        return _matching(_options(command, done), typed)
    found = _values(_long_name(command, option), value, options)
    return Candidates(tuple((f"{option}={w}", a) for w, a in found.words), found.directive)


def _parse(root: Any, done: Sequence[str]) -> tuple[str, dict[str, str], int, str]:
    """Return the verb, the options so far, the number of arguments, and an option without value."""
    verb, position, pending = "", 0, ""
    options: dict[str, str] = {}
    command = root
    for word in done:
        if pending:
            options[pending], pending = word, ""
        elif word.startswith("-") and word != "--":
            option, is_given, value = word.partition("=")
            name = _long_name(command, option)
            if is_given:
                options[name] = value
            elif name and not _is_flag(command, name):
                pending = name
        elif not verb:
            verb = word
            command = root.commands.get(verb, root)
        else:
            position += 1
    return verb, options, position, pending


def _params(command: Any) -> Iterable[Any]:
    return (each for each in command.params if each.opts and each.opts[0].startswith("-"))


def _long_name(command: Any, option: str) -> str:
    """Return the first name of an option, "" if the command does not have it."""
    for param in _params(command):
        if option in (*param.opts, *param.secondary_opts):
            return str(param.opts[0])
    return ""


def _is_flag(command: Any, name: str) -> bool:
    return any(param.is_flag for param in _params(command) if name in param.opts)


def _options(command: Any, done: Sequence[str]) -> Iterable[tuple[str, str]]:
    for param in _params(command):
        names = (*param.opts, *param.secondary_opts)
        if param.multiple or not set(names) & set(done):
            yield from ((name, param.help or "") for name in names if name.startswith("--"))
    yield "--help", "Show the help and exit."


def _about(command: Any) -> str:
    return str(command.help or "").split("\n", 1)[0]


def _matching(words: Iterable[tuple[str, str]], typed: str) -> Candidates:
    return Candidates(tuple(sorted(each for each in words if each[0].startswith(typed))))


def _values(option: str, typed: str, options: dict[str, str]) -> Candidates:
    if option in _FILE_OPTIONS:
        return Candidates(directive=FILES)
    if option in _CHOICES:
        return _matching(((str(choice), "") for choice in _CHOICES[option]), typed)
    asked = {
        "--namespace": ("get", "namespaces", "-o", "name"),
        "--context": ("config", "get-contexts", "-o", "name"),
        "--node": ("get", "nodes", "-o", "name"),
    }.get(option)
    if asked is None:
        return Candidates()
    return _matching(((_bare(line), "") for line in _kubectl(asked, options)), typed)


def _positional(
    verb: str, command: Any, position: int, typed: str, options: dict[str, str]
) -> Candidates:
    arguments = [each.name for each in command.params if not each.opts[0].startswith("-")]
    if position >= len(arguments) or verb in _CREATES:
        return Candidates()
    match arguments[position]:
        case "name" if verb in _NEEDS_A_JOB:
            return _matching(_jobs(("get", "dsj", "-o", "name"), options), typed)
        case "name":
            return _matching(_jobs(("get", "dsj,dsjr", "--no-headers"), options), typed)
        case "before" | "after":
            return _matching(_reports(options), typed)
        case "directory" | "folder":
            return Candidates(directive=FILES)
        case _:
            return Candidates()


def _jobs(asked: Sequence[str], options: dict[str, str]) -> Iterable[tuple[str, str]]:
    """Yield the names of Jobs, and of those that only a report is left of."""
    known: set[str] = set()
    lines = [line.split() for line in _kubectl(asked, options)]
    for columns in lines:
        if columns[0].startswith("job."):
            known.add(_bare(columns[0]))
    yield from ((name, "") for name in known)
    deleted = {
        columns[1] for columns in lines if columns[0].startswith("jobreport.") and columns[1:]
    }
    yield from ((name, "deleted, its report answers") for name in deleted - known)


def _reports(options: dict[str, str]) -> Iterable[tuple[str, str]]:
    for line in _kubectl(("get", "dsjr", "--no-headers"), options):
        name, *more = line.split()
        yield name, " ".join(more[:2])


def _bare(name: str) -> str:
    return name.rpartition("/")[2]


def _kubectl(arguments: Sequence[str], options: dict[str, str]) -> list[str]:
    """Return the lines that kubectl prints, none if it fails."""
    import subprocess  # noqa: PLC0415 - most completions need no process

    flags = [f"{name}={options[name]}" for name in _TARGET_OPTIONS if options.get(name)]
    try:
        done = subprocess.run(  # noqa: S603 - arguments are a list, never a shell
            ["kubectl", *arguments, *flags, f"--request-timeout={_REQUEST_SECONDS}s"],  # noqa: S607
            capture_output=True,
            timeout=_PROCESS_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    lines = done.stdout.decode("utf-8", "replace").splitlines()[:_NAMES_LIMIT]
    return [line for line in lines if line.strip() and line.isprintable()]


if __name__ == "__main__":
    main()

"""Writes the manual pages docs/man/*.1 from the help texts: `make man`."""

import re
from pathlib import Path
from typing import Any

import typer.main

from kubectl_dsjob.main import app

FOLDER = Path(__file__).parents[3] / "docs" / "man"
PROGRAM = "kubectl-dsjob"
EXIT_CODES = """\
.SH EXIT STATUS
.TP
.B 0
Success.
.TP
.B 1
Failure: the run has failed, or the command could not do its work.
.TP
.B 2
Usage: options are wrong, or no cluster is named.
.TP
.B 3
Partial: the run has succeeded, and some nodes have failed.
.TP
.B 4
Timeout.
.TP
.B 130
Interrupted. What has begun goes on in the cluster.
.SH ENVIRONMENT
.TP
.B KUBECONFIG
The kubeconfig files, as for
.BR kubectl (1).
.TP
.B NO_COLOR
If it is set, nothing is coloured.
"""


def pages() -> dict[str, str]:
    """Return the text of each page, by its file name."""
    root: Any = typer.main.get_command(app)
    commands = {name: each for name, each in root.commands.items() if not each.hidden}
    found = {f"{PROGRAM}.1": _page(PROGRAM, root, sorted(commands))}
    for name, command in commands.items():
        found[f"{PROGRAM}-{name}.1"] = _page(f"{PROGRAM}-{name}", command, [])
    return found


def _page(title: str, command: Any, verbs: list[str]) -> str:
    first, _, rest = command.help.strip().partition("\n\n")
    called = title.replace(PROGRAM, "kubectl dsjob").replace("dsjob-", "dsjob ")
    parts = [
        f'.TH "{title.upper()}" 1 "" "daemonset-job" "kubectl dsjob"\n',
        f".SH NAME\n{_text(title)} \\- {_text(_one_line(first).rstrip('.'))}\n",
        f".SH SYNOPSIS\n.B {_text(called)}\n{_synopsis(command, verbs)}\n",
        ".SH DESCRIPTION\n" + "".join(f".PP\n{_text(_one_line(p))}\n" for p in _paragraphs(rest)),
    ]
    arguments = [each for each in command.params if not each.opts[0].startswith("-")]
    options = [each for each in command.params if each.opts[0].startswith("-")]
    if verbs:
        root: Any = command
        lines = (_verb(name, root.commands[name]) for name in verbs)
        parts.append(".SH COMMANDS\n" + "".join(lines))
    if arguments:
        lines = (f".TP\n.I {_text(_metavar(each))}\n{_text(each.help)}\n" for each in arguments)
        parts.append(".SH ARGUMENTS\n" + "".join(lines))
    parts.append(".SH OPTIONS\n" + "".join(map(_option, options)))
    parts.append('.TP\n.BR \\-h ", " \\-\\-help\nShow the help and exit.\n')
    if command.epilog and "Example" in command.epilog:
        parts.append(_examples(command.epilog))
    parts.append(EXIT_CODES)
    see = [f"{PROGRAM}-{name}" for name in verbs] if verbs else [PROGRAM]
    also = ["kubectl", *see]
    parts.append(".SH SEE ALSO\n" + ",\n".join(f".BR {_text(name)} (1)" for name in also) + "\n")
    return "".join(parts)


def _verb(name: str, command: Any) -> str:
    return f".TP\n.BR {_text(f'{PROGRAM}-{name}')} (1)\n{_text(_one_line(command.help))}\n"


def _synopsis(command: Any, verbs: list[str]) -> str:
    if verbs:
        return ".I COMMAND\n[options]"
    words = [_metavar(each) for each in command.params if not each.opts[0].startswith("-")]
    return "\n".join([*(f".I {_text(word)}" for word in words), "[options]"])


def _option(option: Any) -> str:
    names = sorted((*option.opts, *option.secondary_opts), key=lambda name: name.startswith("--"))
    bold = ' ", " '.join(_text(name) for name in names)
    value = "" if option.is_flag else f' " " {_text(_metavar(option))}'
    return f".TP\n.BR {bold}{value}\n{_text(option.help or '')}\n"


def _metavar(parameter: Any) -> str:
    return str(parameter.metavar or parameter.name.upper())


def _examples(epilog: str) -> str:
    lines = [line.strip() for line in epilog.replace("\b", "").splitlines() if line.strip()]
    text = []
    for line in (re.sub(r"^Examples?:\s*", "", each) for each in lines):
        if line.startswith("# "):
            text.append(f".PP\n{_text(line[2:])}:\n")
        elif line:
            text.append(f".PP\n.RS 4\n.nf\n{_text(line)}\n.fi\n.RE\n")
    return ".SH EXAMPLES\n" + "".join(text)


def _paragraphs(text: str) -> list[str]:
    return [part for part in text.split("\n\n") if part.strip()]


def _one_line(text: str) -> str:
    return " ".join(text.split("\n\n", 1)[0].split())


def _text(text: str) -> str:
    """Return text of which roff takes nothing for a request or an escape."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace("`", "")
    return re.sub(r"(?m)^([.'])", r"\\&\1", escaped)


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for old in FOLDER.glob("*.1"):
        old.unlink()
    for name, text in pages().items():
        (FOLDER / name).write_text(text, "utf-8")


if __name__ == "__main__":
    main()

"""Writes docs/reference/cli.md from the help texts: `python -m tests.unit.cli.reference`."""

from pathlib import Path

from typer.testing import CliRunner

# Importing the entry point registers the commands.
from kubectl_dsjob.main import app

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "cli.md"
HEAD = """# kubectl dsjob

The plugin `kubectl-dsjob`. Install it with `pipx install '.[cli]'`;
`kubectl` finds it by its name. It reads and writes with your own rights.
Data goes to stdout, everything else to stderr.

| Exit code | Meaning |
|---|---|
| 0 | success |
| 1 | failure: the run failed, or the command could not do its work |
| 2 | usage: options are wrong, or no cluster is named |
| 3 | partial: the run succeeded, and some nodes failed or are unreachable |
| 4 | timeout |
| 130 | interrupted; what has begun goes on |

This page is made from `--help`.
"""


def reference() -> str:
    """Return the page."""
    parts = [HEAD, _section("kubectl dsjob", [])]
    names = [command.name or command.callback.__name__ for command in app.registered_commands]  # type: ignore[union-attr]
    parts += [_section(f"kubectl dsjob {name}", [name]) for name in sorted(names)]
    return "\n".join(parts)


def _section(title: str, arguments: list[str]) -> str:
    settings = {"COLUMNS": "100", "TERMINAL_WIDTH": "100", "NO_COLOR": "1"}
    done = CliRunner(env=settings).invoke(app, [*arguments, "--help"], prog_name="kubectl dsjob")
    lines = "\n".join(line.rstrip() for line in done.stdout.strip().splitlines())
    return f"## {title}\n\n```text\n{lines}\n```\n"


if __name__ == "__main__":
    PAGE.write_text(reference(), "utf-8")

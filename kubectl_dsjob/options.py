"""The options that commands share, as kubectl has them. It imports nothing but typer."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from kubectl_dsjob.outputs import Output

# The commands in the order in which a newcomer needs them; others follow.
_ORDER = (
    *("run", "status", "logs", "wait", "list", "report", "results", "history", "diff"),
    *("pause", "resume", "plan", "approve", "promote", "abort", "retry", "rollback", "rerun"),
)


# The options that name the cluster, each with a value.
_TARGET_OPTIONS = ("-n", "--namespace", "--context", "--kubeconfig")


def with_command_first(words: list[str]) -> list[str]:
    """Return the words of a command line with the options before the command behind it."""
    at = count_before_command(words)
    return [*words[at : at + 1], *words[:at], *words[at + 1 :]]


def count_before_command(words: list[str]) -> int:
    """Return how many words of options that name the cluster a command line begins with."""
    at = 0
    while at < len(words):
        name, equals, _ = words[at].partition("=")
        if name in _TARGET_OPTIONS:
            at += 1 if equals else 2
        elif name.startswith("-n"):
            at += 1
        else:
            break
    return min(at, len(words))


class _Group(TyperGroup):
    """Lists the commands in their order."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the commands."""
        names = super().list_commands(ctx)
        return sorted(names, key=lambda name: _ORDER.index(name) if name in _ORDER else len(_ORDER))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take the options that name the cluster also before the command, as kubectl does."""
        return super().parse_args(ctx, with_command_first(args))

    def get_help_option(self, ctx: Any) -> Any:
        """Return the option --help with a default that is a bool.

        typer imports pydantic, some 100 ms, to convert any other default: also before the help of
        a command.
        """
        option = super().get_help_option(ctx)
        if option is not None:
            option.default = False
        return option


app = typer.Typer(
    name="kubectl dsjob",
    cls=_Group,
    help="Run something once on every node, and read what came of it.",
    epilog="Exit codes: 0 success, 1 failure, 2 usage, 3 succeeded with failed nodes, 4 timeout, "
    "130 interrupted.",
    no_args_is_help=True,
    # kubectl completes for all shells: kubectl_dsjob.completion.
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def examples(*pairs: tuple[str, str]) -> str:
    """Return the end of a help text: commands, each under a line that says what it does."""
    lines = [f"  # {about}\n  {command}" for about, command in pairs]
    # click keeps the line breaks of a paragraph that begins with \b.
    return "\b\nExamples:\n" + "\n\n\b\n".join(lines)


def check_name(name: str) -> str:
    """Return a name that an object can have; else it is a usage error, as `dsj/NAME` is.

    The client has the same rule; it is too slow to import here.
    """
    if "/" in name or "%" in name or name in ("", ".", ".."):
        last = name.rpartition("/")[2]
        hint = f": write {last}" if "/" in name and last else ""
        raise typer.BadParameter(f"no object can be called {name!r}{hint}")
    return name


Name = Annotated[
    str, typer.Argument(help="The name of the Job.", metavar="NAME", callback=check_name)
]
Context = Annotated[str, typer.Option(help="The context of the kubeconfig.", metavar="NAME")]
Namespace = Annotated[str, typer.Option("--namespace", "-n", help="The namespace.", metavar="NAME")]
Kubeconfig = Annotated[str, typer.Option(help="The kubeconfig file.", metavar="FILE")]
AllNamespaces = Annotated[bool, typer.Option("--all-namespaces", "-A", help="All namespaces.")]
Selector = Annotated[
    str, typer.Option("--selector", "-l", help="Labels of the Jobs.", metavar="LABELS")
]
OutputOption = Annotated[Output, typer.Option("--output", "-o", help="The form of the output.")]
Timeout = Annotated[
    float | None, typer.Option(help="Seconds until the command gives up.", metavar="SECONDS", min=0)
]

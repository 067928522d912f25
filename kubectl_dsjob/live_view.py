"""The live view of a run: a bar, the nodes as a coloured grid, and failures with their last line.

`render` is pure. Texts are rich `Text`, never markup: a name with brackets is only a name.
"""

from __future__ import annotations

import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from rich.cells import cell_len
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from daemonset_job.api.states import NodeState, Phase
from kubectl_dsjob.command_lines import wrap_command
from kubectl_dsjob.edge import is_terminal, write
from kubectl_dsjob.rollback_view import rollback_lines
from kubectl_dsjob.run_view import WORST_FIRST, NodeView, RunView
from kubectl_dsjob.status_text import (
    counts_text,
    failure_lines,
    next_step,
    progress_line,
    set_aside_lines,
    time_text,
)
from kubectl_dsjob.tables import shorten

_COLOURS: Final = {
    NodeState.WAITING: "bright_black",
    NodeState.ACTIVE: "bright_blue",
    NodeState.COMPLETED: "green",
    NodeState.FAILED: "bold bright_red",
    NodeState.UNREACHABLE: "yellow",
    NodeState.REMOVED: "bright_black",
}
_PHASES: Final = {
    Phase.RUNNING: "bold bright_blue",
    Phase.SUCCEEDED: "bold green",
    Phase.FAILED: "bold bright_red",
    Phase.PAUSED: "bold yellow",
}
# Up to so many nodes are shown with their names.
_NAMED_NODES: Final = 30
_NAME_COLUMNS: Final = 40
_GRID_LINES: Final = 12
_LEAST_WIDTH: Final = 20
_BAR_LIMIT: Final = 60
_MESSAGE_LIMIT: Final = 300
# A shell has the number of a signal in this form, as the exit code of what it has ended.
_SIGNALLED: Final = 128


@dataclass(frozen=True, slots=True)
class Glyphs:
    """The characters of the view. Each state has its own: without colours it is as readable."""

    cells: dict[NodeState, str]
    full: str
    rest: str


_UNICODE: Final = Glyphs(
    {
        NodeState.WAITING: "·",
        NodeState.ACTIVE: "◆",
        NodeState.COMPLETED: "■",
        NodeState.FAILED: "✗",
        NodeState.UNREACHABLE: "?",
        NodeState.REMOVED: "-",
    },
    "━",
    "─",
)
_ASCII: Final = Glyphs(
    {
        NodeState.WAITING: ".",
        NodeState.ACTIVE: "o",
        NodeState.COMPLETED: "#",
        NodeState.FAILED: "X",
        NodeState.UNREACHABLE: "?",
        NodeState.REMOVED: "-",
    },
    "=",
    "-",
)


def render(
    view: RunView,
    width: int,
    now: datetime | None = None,
    *,
    is_ascii: bool = False,
    flags: str = "",
    height: int | None = None,
) -> Group:
    """Return the view of a run for a terminal of `width` columns; no line but commands is wider.

    With `height` it has fewer lines than that, and those that say what answers are among them.
    """
    width = max(width, _LEAST_WIDTH)
    glyphs = _ASCII if is_ascii else _UNICODE
    head = Text(shorten(view.name, width - 12), style="bold", no_wrap=True)
    head.append(" ")
    head.append(view.phase_text, _PHASES.get(view.phase or Phase.PENDING, "bold"))
    if now is not None:
        head.append(time_text(view, now), "bright_black")
    head.truncate(width)
    lines = [head, _bar(view, min(width, _BAR_LIMIT), glyphs), _text(counts_text(view), width)]
    lines += [_text(view.batch, width)] if view.batch else []
    lines += _nodes(view, width, glyphs)
    if view.message:
        lines.append(_text(view.message[:_MESSAGE_LIMIT], width))
    lines += [_text(line, width, "bright_red") for line in failure_lines(view.failed, width)]
    lines += [_text(line, width, "yellow") for line in set_aside_lines(view.set_aside, width)]
    lines += [_text(line, width, "yellow") for line in rollback_lines(view.rollback, width)]
    asked = next_step(view, flags)
    steps = [Text(line, style="bold") for step in asked for line in wrap_command(step, width)]
    lines = [*_cut(lines, steps, width, height), *steps]
    for line in lines if is_ascii else ():
        line.plain = line.plain.encode("ascii", "replace").decode()
    return Group(*lines)


def _cut(lines: list[Text], steps: list[Text], width: int, height: int | None) -> list[Text]:
    """Return the lines that leave room for the steps, which may take several lines each."""
    if height is None:
        return lines
    room = height - 1 - sum(max(-(-cell_len(step.plain) // width), 1) for step in steps)
    return lines if len(lines) <= room else [*lines[: max(room - 1, 1)], Text("…")]


def _text(text: str, width: int, style: str = "") -> Text:
    return Text(shorten(text, width), style=style, no_wrap=True)


def _bar(view: RunView, width: int, glyphs: Glyphs) -> Text:
    """Return the share of the nodes in each state, the completed ones first, and the percentage."""
    totals = view.totals
    percent = f" {100 * totals.completed // max(totals.desired, 1):3}%"
    room = width - len(percent)
    shares = (
        (totals.completed, NodeState.COMPLETED),
        (totals.failed, NodeState.FAILED),
        (totals.unreachable, NodeState.UNREACHABLE),
        (totals.active, NodeState.ACTIVE),
    )
    line = Text(no_wrap=True)
    for count, state in shares:
        columns = room * count // max(totals.desired, 1)
        # One node of thousands is seen, too.
        columns = min(max(columns, min(count, 1)), room - len(line))
        glyph = glyphs.full if state != NodeState.ACTIVE else glyphs.rest
        line.append(glyph * columns, _COLOURS[state])
    line.append(glyphs.rest * (room - len(line)), _COLOURS[NodeState.WAITING])
    return line.append(percent)


def _nodes(view: RunView, width: int, glyphs: Glyphs) -> list[Text]:
    """Return the nodes: with their names if there are few, else as a grid with its legend."""
    states = view.states
    if len(states) <= _NAMED_NODES and len(view.nodes) == len(states):
        return named_nodes(view.nodes, width, glyphs)
    lines, per_cell = node_grid(states, width, glyphs)
    legend = Text(no_wrap=True)
    counts = Counter(states)
    for state in (state for state in NodeState if counts[state]):
        legend.append(glyphs.cells[state], _COLOURS[state])
        legend.append(f" {state.value} {counts[state]}  ")
    legend.truncate(width)
    scale = f"{per_cell} nodes a cell, the worst counts"
    return [*lines, legend, *([_text(scale, width, "bright_black")] if per_cell > 1 else [])]


def named_nodes(nodes: Sequence[NodeView], width: int, glyphs: Glyphs = _UNICODE) -> list[Text]:
    """Return the nodes with their names, in as many columns as there is room for."""
    longest = max((cell_len(node.name) for node in nodes), default=0)
    column = min(longest, _NAME_COLUMNS, width - 2)
    per_line = max((width + 2) // (column + 4), 1)
    lines = []
    for start in range(0, len(nodes), per_line):
        line = Text(no_wrap=True)
        for node in nodes[start : start + per_line]:
            line.append("  " if line else "")
            line.append(f"{glyphs.cells[node.state]} ", _COLOURS[node.state])
            name = shorten(node.name, column)
            line.append(name + " " * (column - cell_len(name)))
        line.rstrip()
        lines.append(line)
    return lines


def node_grid(
    states: Sequence[NodeState], width: int, glyphs: Glyphs = _UNICODE
) -> tuple[list[Text], int]:
    """Return the nodes as lines of cells, and the number of nodes in each cell."""
    # Cells with a blank between them are easier to tell apart, if there is room.
    gap = " " if len(states) <= (width // 2) * _GRID_LINES else ""
    columns = width // 2 if gap else width
    per_cell = max(-(-len(states) // (columns * _GRID_LINES)), 1)
    cells = [
        min(states[start : start + per_cell], key=WORST_FIRST.index)
        for start in range(0, len(states), per_cell)
    ]
    lines = []
    for start in range(0, len(cells), columns):
        line = Text(no_wrap=True)
        for state in cells[start : start + columns]:
            line.append(glyphs.cells[state] + gap, _COLOURS[state])
        lines.append(line)
    return lines, per_cell


def is_ascii(console: Console) -> bool:
    """Return whether a terminal may not have other characters than those of ASCII."""
    return not console.encoding.startswith("utf")


class LiveShow:
    """Shows a run on a terminal, in place of what it showed before, its end included."""

    shows_the_end = True

    def __init__(self, live: Live, flags: str = "") -> None:
        self._live = live
        self._flags = flags

    def __call__(self, view: RunView) -> None:
        """Show the run as it is now."""
        console = self._live.console
        shown = render(
            view,
            console.width,
            datetime.now(UTC),
            is_ascii=is_ascii(console),
            flags=self._flags,
            # What is shown at the end stays, in its whole length.
            height=None if view.is_ended else console.height,
        )
        self._live.update(shown, refresh=True)


@contextmanager
def shown_live(flags: str = "") -> Iterator[Callable[[RunView], None]]:
    """Yield a function that shows a run: live on a terminal, else a line for each change.

    `flags` are the options of the commands that it proposes.
    """
    console = Console(file=sys.stdout)
    # FORCE_COLOR makes rich take a file for a terminal. One that is dumb shows no live view.
    if not is_terminal() or console.is_dumb_terminal:
        yield lines_to(write)
        return
    with _ended_by_term(), Live(console=console, auto_refresh=False, transient=False) as live:
        yield LiveShow(live, flags)


@contextmanager
def _ended_by_term() -> Iterator[None]:
    """End the block on TERM, as `timeout` sends it: the terminal gets its cursor back."""
    before = signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(_SIGNALLED + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def screen(view: RunView, now: datetime, flags: str) -> str:
    """Return the view once, with colours, for the terminal at stdout; "" if it is none."""
    console = Console(file=sys.stdout)
    if not console.is_terminal:
        return ""
    with console.capture() as capture:
        shown = render(view, console.width, now, is_ascii=is_ascii(console), flags=flags)
        console.print(shown)
    return capture.get()


def lines_to(write: Callable[[str], object]) -> Callable[[RunView], None]:
    """Return a function that writes the progress of a run as a line, once for each change."""
    last = ""

    def show(view: RunView) -> None:
        nonlocal last
        line = progress_line(view)
        if line != last:
            write(line + "\n")
            last = line

    return show

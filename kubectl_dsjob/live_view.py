"""The live view of a run: a bar, the nodes as a coloured grid, and failures with their last line.

`render` is pure. Texts are rich `Text`, never markup: a name with brackets is only a name.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.text import Text

from daemonset_job.api.states import NodeState
from kubectl_dsjob.run_view import WORST_FIRST, RunView
from kubectl_dsjob.status_text import failure_lines, next_step, progress_line
from kubectl_dsjob.tables import shorten

# A state has a character of its own, too: a grid without colours is as readable.
_CELLS: Final = {
    NodeState.WAITING: (".", "bright_black"),
    NodeState.ACTIVE: ("o", "blue"),
    NodeState.COMPLETED: ("#", "green"),
    NodeState.FAILED: ("X", "bold red"),
    NodeState.UNREACHABLE: ("?", "yellow"),
    NodeState.REMOVED: ("-", "bright_black"),
}
_GRID_LINES: Final = 12
_LEAST_WIDTH: Final = 20
_BAR_LIMIT: Final = 60


def render(view: RunView, width: int) -> Group:
    """Return the view of a run for a terminal of `width` columns; no line is wider."""
    width = max(width, _LEAST_WIDTH)
    totals = view.totals
    head = Text(shorten(progress_line(view), width), no_wrap=True)
    bar = ProgressBar(
        total=max(totals.desired, 1), completed=totals.completed, width=min(width, _BAR_LIMIT)
    )
    grid, per_cell = node_grid(view, width)
    legend = Counter(view.states)
    words = " ".join(f"{_CELLS[s][0]} {s.value} {legend[s]}" for s in NodeState if legend[s])
    lines = [Text(shorten(words, width), no_wrap=True)] if words else []
    if per_cell > 1:
        scale = f"{per_cell} nodes a cell, the worst counts"
        lines.append(Text(shorten(scale, width), no_wrap=True))
    if view.message:
        lines.append(Text(shorten(view.message, width), no_wrap=True))
    lines += [Text(line, style="red", no_wrap=True) for line in failure_lines(view.failed, width)]
    lines += [Text(line) for line in next_step(view)]
    return Group(head, bar, *grid, *lines)


def node_grid(view: RunView, width: int) -> tuple[list[Text], int]:
    """Return the nodes as lines of cells, and the number of nodes in each cell."""
    states = view.states
    per_cell = max(-(-len(states) // (width * _GRID_LINES)), 1)
    cells = [
        min(states[start : start + per_cell], key=WORST_FIRST.index)
        for start in range(0, len(states), per_cell)
    ]
    lines = []
    for start in range(0, len(cells), width):
        line = Text(no_wrap=True)
        for state in cells[start : start + width]:
            line.append(*_CELLS[state])
        lines.append(line)
    return lines, per_cell


@contextmanager
def shown_live() -> Iterator[Callable[[RunView], None]]:
    """Yield a function that shows a run: live on a terminal, else a line for each change."""
    console = Console(file=sys.stdout)
    if not console.is_terminal:
        yield lines_to(sys.stdout.write)
        return
    with Live(console=console, auto_refresh=False, transient=False) as live:

        def show(view: RunView) -> None:
            live.update(render(view, console.width), refresh=True)

        yield show


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

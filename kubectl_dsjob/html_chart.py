"""Pictures of the page of a run as SVG: the bar of states, and completions over time. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from html import escape
from typing import Final

from daemonset_job.api.states import NodeState
from kubectl_dsjob.run_view import WORST_FIRST, RunView
from kubectl_dsjob.tables import duration

_WIDTH: Final = 1000
_HEIGHT: Final = 100
# More points than the picture has columns change nothing.
_POINTS: Final = 500


def bar(states: Sequence[NodeState]) -> str:
    """Return the shares of the states as one bar, the completed ones first."""
    counts = Counter(states)
    parts, left = [], 0.0
    for state in reversed(WORST_FIRST):
        if counts[state]:
            width = counts[state] * _WIDTH / len(states)
            parts.append(
                f'<rect class="{state.value}" x="{left:.2f}" y="0" width="{width:.2f}" '
                f'height="10"><title>{state.value} {counts[state]}</title></rect>'
            )
            left += width
    if not parts:
        return ""
    inner = "".join(parts)
    return (
        f'<svg class="bar" viewBox="0 0 {_WIDTH} 10" preserveAspectRatio="none" '
        f'aria-hidden="true">{inner}</svg>'
    )


def completions(view: RunView) -> str:
    """Return how many nodes were completed at each moment, "" if it would show nothing."""
    moments = sorted(
        node.finished_at
        for node in view.nodes
        if node.state == NodeState.COMPLETED and node.finished_at is not None
    )
    start = view.started_at
    if start is None or not moments:
        return ""
    end = max(moments[-1], view.completed_at or moments[-1])
    span = (end - start).total_seconds()
    if span <= 0:
        return ""
    most = max(view.totals.desired, len(moments))
    points = _steps(moments, start, span, most)
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    label = f"{len(moments)} of {most} nodes completed within {duration(span)}"
    return (
        f'<div class="axis"><span>{most} nodes</span></div>'
        f'<svg class="chart" viewBox="0 0 {_WIDTH} {_HEIGHT}" preserveAspectRatio="none" '
        f'role="img" aria-label="{escape(label)}">'
        f'<line class="frame" x1="0" y1="0" x2="{_WIDTH}" y2="0"/>'
        f'<line class="frame" x1="0" y1="{_HEIGHT}" x2="{_WIDTH}" y2="{_HEIGHT}"/>'
        f'<polygon class="area" points="0,{_HEIGHT} {line} {_WIDTH},{_HEIGHT}"/>'
        f'<polyline class="curve" points="{line}"/></svg>'
        f'<div class="axis"><span>start</span><span>{escape(duration(span))}</span></div>'
    )


def _steps(
    moments: Sequence[datetime], start: datetime, span: float, most: int
) -> list[tuple[float, float]]:
    """Return the corners of the curve: it rises when a node is completed."""
    every = max(len(moments) // _POINTS, 1)
    points = [(0.0, float(_HEIGHT))]
    for number, moment in enumerate(moments, 1):
        if number % every and number != len(moments):
            continue
        x = min(max((moment - start).total_seconds() / span, 0), 1) * _WIDTH
        points += [(x, points[-1][1]), (x, _HEIGHT - number * _HEIGHT / most)]
    return [*points, (float(_WIDTH), points[-1][1])]

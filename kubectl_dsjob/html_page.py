"""A run as one page of HTML: grid, failures, timeline and results, in one file. Pure.

It has no script and loads nothing. Each text of the cluster is escaped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from html import escape
from typing import Final

from daemonset_job.api.fold_names import fold
from daemonset_job.api.states import NodeState
from daemonset_job.api.times import format_time
from kubectl_dsjob.html_chart import bar, completions
from kubectl_dsjob.html_style import STYLE
from kubectl_dsjob.node_tables import former_results, node_rows, result_rows
from kubectl_dsjob.rollback_view import RollbackView
from kubectl_dsjob.run_view import NodeView, RunView
from kubectl_dsjob.tables import duration

_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"
# Up to so many nodes, a cell has room for the name, or is large enough to point at.
_NAMED_CELLS: Final = 60
_MEDIUM_CELLS: Final = 1000
# Different failures that are shown with their last lines; the table has all nodes.
FAILURES_SHOWN: Final = 50


def html_page(view: RunView) -> str:
    """Return the page."""
    title = f"{escape(view.name)}: {escape(view.phase_text)}"
    phase = escape(view.phase_text)
    place = " · ".join(filter(None, (f"namespace {view.namespace}", view.report)))
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        '<meta name="viewport" content="width=device-width,initial-scale=1">',
        f"<title>{title}</title><style>{STYLE}</style></head><body><main>",
        f'<header><h1>{escape(view.name)}</h1><span class="phase {phase}">{phase}</span></header>',
        f'<p class="where">{escape(place)}</p>',
        _facts(view),
        *_message(view),
        _nodes(view),
        *_failures(view.failed),
        *_rollback(view.rollback),
        *_timeline(view),
        *_results(view),
        _section("All nodes", _node_table(view)),
        "<footer>Made by kubectl dsjob report --html</footer>",
        "</main></body></html>",
    ]
    return "\n".join(parts) + "\n"


def _facts(view: RunView) -> str:
    totals = view.totals
    facts = [
        ("nodes", str(totals.desired), ""),
        ("completed", str(totals.completed), ""),
        ("failed", str(totals.failed), "bad" if totals.failed else ""),
        *([("unreachable", str(totals.unreachable), "bad")] if totals.unreachable else []),
    ]
    if view.started_at is not None:
        facts.append(("started", view.started_at.strftime("%H:%M:%S"), ""))
        if view.completed_at is not None:
            seconds = (view.completed_at - view.started_at).total_seconds()
            facts.append(("took", duration(seconds), ""))
    cells = "".join(
        f'<div class="{kind}"><dt>{name}</dt><dd>{escape(value)}</dd></div>'
        for name, value, kind in facts
    )
    return f'<dl class="facts">{cells}</dl>'


def _message(view: RunView) -> list[str]:
    text = view.message or view.reason
    when = f" Started {format_time(view.started_at)}." if view.started_at else ""
    kind = escape(view.phase_text)
    if not text:
        return []
    return [f'<section class="message {kind}">{escape(text)}<br><small>{when}</small></section>']


def _nodes(view: RunView) -> str:
    states = view.states
    counts = Counter(states)
    totals = view.totals
    label = f"{totals.completed} of {totals.desired} nodes completed, {totals.failed} failed"
    size = "large" if len(states) <= _NAMED_CELLS else "medium"
    size = size if len(states) <= _MEDIUM_CELLS else "small"
    cells = [_cell(node, is_named=size == "large") for node in view.nodes]
    cells += ['<i class="Waiting"></i>'] * (len(states) - len(cells))
    legend = "".join(
        f'<li><i class="{state.value}"></i>{state.value} {counts[state]}</li>'
        for state in NodeState
        if counts[state]
    )
    grid = f'<div class="grid {size}" role="img" aria-label="{label}">{"".join(cells)}</div>'
    return _section("Nodes", f'{bar(states)}{grid}<ul class="legend">{legend}</ul>')


def _cell(node: NodeView, *, is_named: bool) -> str:
    # The class is one of our own words, never a text of the cluster.
    name = escape(node.name)
    about = escape(": ".join(filter(None, (f"{node.name} {node.state}", node.reason))))
    text = name if is_named else ""
    return f'<i class="{NodeState(node.state).value}" title="{about}">{text}</i>'


def _failures(failed: Sequence[NodeView]) -> list[str]:
    """Return the failures; those with the same last lines are shown once, with their nodes."""
    groups: dict[tuple[str, str], list[str]] = {}
    for node in failed:
        code = "" if node.exit_code is None else f"exit {node.exit_code}"
        attempts = f"{node.attempts} attempts" if node.attempts > 1 else ""
        about = ", ".join(filter(None, (code, node.reason, attempts)))
        lines = "\n".join(node.last_lines) or node.message or "no reason is known"
        groups.setdefault((about, lines), []).append(node.name)
    ordered = sorted(groups.items(), key=lambda item: (-len(item[1]), item[1][0]))
    shown = [
        f'<div class="failure"><p><b>{escape(fold(names))}</b> '
        f"<span>{escape(_count(names) + about)}</span></p><pre>{escape(lines)}</pre></div>"
        for (about, lines), names in ordered[:FAILURES_SHOWN]
    ]
    left = sum(len(names) for _, names in ordered[FAILURES_SHOWN:])
    more = f"<p>and {left} more nodes, see all nodes</p>" if left else ""
    return [_section("Failures", "".join(shown) + more)] if shown else []


def _count(names: Sequence[str]) -> str:
    return f"{len(names)} nodes, " if len(names) > 1 else ""


def _rollback(rollback: RollbackView | None) -> list[str]:
    """Return how far the rollback is, and the nodes that are not rolled back."""
    if rollback is None:
        return []
    facts = [
        ("rolled back", f"{rollback.completed} of {rollback.desired} nodes"),
        ("failed", rollback.failed_names),
        ("unreachable", rollback.unreachable_names),
        ("requested by", rollback.requested_by),
        ("done by", ", ".join(rollback.jobs)),
    ]
    rows = [[name, text] for name, text in facts if text]
    message = f"<p>{escape(rollback.message)}</p>" if rollback.message else ""
    return [_section("Rollback", message + _table(["Rollback", rollback.reason], rows))]


def _timeline(view: RunView) -> list[str]:
    chart = completions(view)
    if not chart and not view.timeline:
        return []
    lines = []
    for line in view.timeline:
        moment, _, text = line.partition(" ")
        lines.append(f"<li><b>{escape(moment)}</b>{escape(text)}</li>")
    return [_section("Timeline", chart + (f"<ol>{''.join(lines)}</ol>" if lines else ""))]


def _results(view: RunView) -> list[str]:
    header, rows = result_rows(view)
    notes = "".join(f"<p>{escape(words)}</p>" for words in former_results(view))
    return [_section("Results", notes + _table(header, rows))] if len(header) > 1 else []


def _node_table(view: RunView) -> str:
    header, rows = node_rows(view, is_wide=True)
    # The results have a table of their own.
    header, rows = header[:-1], [row[:-1] for row in rows]
    marked = [[escape(cell) for cell in row] for row in rows]
    for node, row in zip(view.nodes, marked, strict=True):
        row[1] = f'<i class="{NodeState(node.state).value}"></i>{row[1]}'
    return _rows([name.capitalize() for name in header], marked)


def _section(title: str, inner: str) -> str:
    return f"<section><h2>{title}</h2>{inner}</section>"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return _rows(header, [[escape(cell) for cell in row] for row in rows])


def _rows(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table of cells that are HTML already, under a header that is not."""
    head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
    body = "\n".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    inner = f"<thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody>"
    return f'<div class="scroll"><table>{inner}</table></div>'

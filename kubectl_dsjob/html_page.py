"""A run as one page of HTML: grid, timeline and results, in one file without scripts. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

from daemonset_job.api.states import NodeState
from kubectl_dsjob.node_tables import node_rows, result_rows
from kubectl_dsjob.run_view import RunView

_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"
_STYLE: Final = """
:root{color-scheme:light dark;font:16px/1.5 system-ui,sans-serif}
body{max-width:72rem;margin:2rem auto;padding:0 1rem}
h1 small{font-weight:400;opacity:.7}
.grid{display:flex;flex-wrap:wrap;gap:2px;margin:1rem 0}
.grid i{width:12px;height:12px;border-radius:2px;background:#9aa0a6}
.Completed{background:#2e9e5b!important}.Failed{background:#d93025!important}
.Active{background:#1a73e8!important}.Unreachable{background:#e8a317!important}
.scroll{overflow-x:auto}table{border-collapse:collapse;width:100%}
th,td{text-align:left;padding:.25rem .75rem;border-bottom:1px solid #8884;vertical-align:top}
th{white-space:nowrap}td{overflow-wrap:anywhere}
"""


def html_page(view: RunView) -> str:
    """Return the page. Each text of the cluster is escaped, and no browser runs anything in it."""
    title = f"{escape(view.name)}: {escape(view.phase_text)}"
    totals = view.totals
    counts = f"{totals.completed} of {totals.desired} nodes completed, {totals.failed} failed"
    header, rows = result_rows(view)
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        '<meta name="viewport" content="width=device-width,initial-scale=1">',
        f"<title>{title}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{title} <small>{escape(view.namespace)}</small></h1>",
        f"<p>{counts}</p><p>{escape(view.message)}</p>",
        f'<div class="grid" role="img" aria-label="{counts}">{_grid(view)}</div>',
        "<h2>Timeline</h2><ol>",
        *(f"<li>{escape(line)}</li>" for line in view.timeline),
        "</ol><h2>Nodes</h2>",
        _table(*node_rows(view, is_wide=True)),
        *(["<h2>Results</h2>", _table(header, rows)] if len(header) > 1 else []),
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"


def _grid(view: RunView) -> str:
    # The class is one of our own words, never a text of the cluster.
    return "".join(
        f'<i class="{NodeState(node.state).value}" title="{escape(node.name)}"></i>'
        for node in view.nodes
    )


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
    body = "\n".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    inner = f"<thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody>"
    return f'<div class="scroll"><table>{inner}</table></div>'

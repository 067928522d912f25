"""The nodes and runs of reports in the forms of `-o`. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import yaml

from daemonset_job.api.fold_names import fold
from daemonset_job.api.times import format_time
from kubectl_dsjob.outputs import Output
from kubectl_dsjob.run_view import NodeView, RunView
from kubectl_dsjob.tables import age, counted, csv_text, duration, table

# Bytes of node names in a sentence.
_NAMES_LIMIT: Final = 200


def format_rows(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    output: Output,
    *,
    keys: Sequence[str] | None = None,
) -> str:
    """Return rows as a table, as CSV, or as a list of objects with these keys.

    Without `keys` they are those of the header, in small letters.
    """
    if output in (Output.TABLE, Output.WIDE):
        return table(header, rows)
    if keys is None:
        keys = [name.lower() for name in header]
    if output == Output.CSV:
        return csv_text(keys, rows)
    return format_objects([dict(zip(keys, row, strict=True)) for row in rows], output)


def format_objects(objects: Any, output: Output) -> str:
    """Return raw values as JSON or YAML. JSON escapes all control characters, YAML too."""
    if output == Output.YAML:
        return str(yaml.safe_dump(objects, sort_keys=False, allow_unicode=False))
    return json.dumps(objects, indent=2)


def node_rows(view: RunView, *, is_wide: bool) -> tuple[list[str], list[list[str]]]:
    """Return the header and the rows of a report, one for each node."""
    header = ["NODE", "STATE", "ATTEMPTS", "EXIT", "SECONDS", "REASON"]
    undo = ["ROLLBACK"] if view.rollback else []
    wide = ["FINISHED", "MESSAGE", "RESULTS"] if is_wide else []
    rows = [
        [*_node_row(node), *([node.rollback] if undo else []), *(_wide_row(node) if wide else [])]
        for node in view.nodes
    ]
    return [*header, *undo, *wide], rows


def _node_row(node: NodeView) -> list[str]:
    seconds = (
        str(max(int((node.finished_at - node.started_at).total_seconds()), 0))
        if node.finished_at and node.started_at
        else ""
    )
    code = "" if node.exit_code is None else str(node.exit_code)
    return [node.name, str(node.state), str(node.attempts), code, seconds, node.reason]


def _wide_row(node: NodeView) -> list[str]:
    results = " ".join(f"{key}={value}" for key, value in sorted(node.results.items()))
    return [
        format_time(node.finished_at) if node.finished_at else "",
        node.last_line,
        results,
    ]


def result_rows(view: RunView) -> tuple[list[str], list[list[str]]]:
    """Return the results of a run: a row for each node, a column for each name.

    While some are of an earlier revision, each row has its own. A result that has the name of
    another column is `result NAME`: objects with a key for each column have both.
    """
    is_numbered = any(node.revision for node in view.nodes)
    own = {"node", "revision"} if is_numbered else {"node"}
    names = sorted({name for node in view.nodes for name in node.results})
    has_revisions = bool(older_results(view))
    rows = [
        [
            node.name,
            *([node.revision if node.results else ""] if has_revisions else []),
            *(node.results.get(name, "") for name in names),
        ]
        for node in view.nodes
    ]
    shown = [f"result {name}" if name in own else name for name in names]
    return ["node", *(["revision"] if has_revisions else []), *shown], rows


def older_results(view: RunView) -> list[str]:
    """Return the nodes whose results are not of the revision that the Job runs now."""
    return [
        node.name
        for node in view.nodes
        if view.revision and node.results and node.revision not in {"", view.revision}
    ]


def outdated_results(view: RunView) -> list[str]:
    """Return the nodes that a rerun request names, and whose results are older than it."""
    older = set(older_results(view))
    return [
        node.name
        for node in view.nodes
        if node.is_due_again and node.results and node.name not in older
    ]


def former_results(view: RunView) -> list[str]:
    """Return sentences about results that are of an earlier revision, or of an earlier try."""
    older, outdated = older_results(view), outdated_results(view)
    words = []
    if older:
        words.append(of_nodes(older, f"are of an earlier revision than {view.revision}"))
    if outdated:
        words.append(of_nodes(outdated, "are older than the newest rerun request"))
    return words


def of_nodes(names: list[str], what: str) -> str:
    """Return a sentence about the results of these nodes."""
    return f"The results of {counted(len(names), 'node')} {what}: {fold(names, limit=_NAMES_LIMIT)}"


def omitted_results(view: RunView) -> tuple[list[str], list[str]]:
    """Return the nodes whose tasks have printed results that the report lacks, and their names."""
    nodes = [node for node in view.nodes if node.omitted_results]
    names = {name for node in nodes for name in node.omitted_results}
    return [node.name for node in nodes], sorted(names)


def run_rows(
    views: Sequence[RunView], now: datetime, *, has_namespace: bool
) -> tuple[list[str], list[list[str]]]:
    """Return Jobs or past runs, one row each."""
    first = ["NAMESPACE"] if has_namespace else []
    header = [*first, "NAME", "PHASE", "DESIRED", "COMPLETED", "FAILED", "REASON", "AGE"]
    return header, [
        [
            *([view.namespace] if has_namespace else []),
            view.name,
            view.phase_text,
            str(view.totals.desired),
            str(view.totals.completed),
            str(view.totals.failed),
            view.reason,
            age(view.created_at, now),
        ]
        for view in views
    ]


def history_rows(views: Sequence[RunView], now: datetime) -> tuple[list[str], list[list[str]]]:
    """Return the runs of a name, one row each, the oldest first.

    There is a column for rollbacks if one of the runs has one.
    """
    undo = ["ROLLBACK"] if any(view.rollback for view in views) else []
    header = ["RUN", "PHASE", *undo, "DESIRED", "COMPLETED", "FAILED", "TOOK", "AGE"]
    rows = []
    for view in views:
        is_timed = view.started_at and view.completed_at
        took = (view.completed_at - view.started_at) if is_timed else None  # type: ignore[operator]
        totals = view.totals
        counts = [str(totals.desired), str(totals.completed), str(totals.failed)]
        text = duration(took.total_seconds()) if took is not None else ""
        undone = [view.rollback.reason if view.rollback else ""] if undo else []
        rows.append(
            [view.report, view.phase_text, *undone, *counts, text, age(view.created_at, now)]
        )
    return header, rows


def diff_rows(before: RunView, after: RunView) -> tuple[list[str], list[list[str]]]:
    """Return what changed from one run to another: nodes, states and results."""
    old = {node.name: _facts(node) for node in before.nodes}
    new = {node.name: _facts(node) for node in after.nodes}
    rows = []
    for name in sorted({*old, *new}):
        left, right = old.get(name, {}), new.get(name, {})
        rows += [
            [name, fact, left.get(fact, "-"), right.get(fact, "-")]
            for fact in sorted({*left, *right}, key=lambda fact: (fact != "state", fact))
            if left.get(fact) != right.get(fact)
        ]
    return ["NODE", "WHAT", "BEFORE", "AFTER"], rows


def _facts(node: NodeView) -> dict[str, str]:
    code = {} if node.exit_code is None else {"exit code": str(node.exit_code)}
    results = {f"result {name}": value for name, value in node.results.items()}
    return {"state": str(node.state), **code, **results}

"""The commands that read, as typer shows them: options, help texts and examples."""

from __future__ import annotations

from typing import Annotated

import typer

from kubectl_dsjob.options import (
    AllNamespaces,
    Context,
    Kubeconfig,
    Name,
    Namespace,
    OutputOption,
    Selector,
    Timeout,
    app,
    check_name,
    examples,
)
from kubectl_dsjob.outputs import Output


@app.command(
    "list",
    epilog=examples(
        ("The Jobs of all namespaces", "kubectl dsjob list -A"),
        ("The Jobs of one team, as JSON", "kubectl dsjob list -l team=network -o json"),
    ),
)
def list_(
    everywhere: AllNamespaces = False,
    selector: Selector = "",
    output: OutputOption = Output.TABLE,
    namespace: Namespace = "",
    context: Context = "",
    kubeconfig: Kubeconfig = "",
) -> None:
    """List Jobs.

    A Job that has completed deletes itself. `kubectl dsjob history NAME` lists the reports of its
    runs.
    """
    from kubectl_dsjob import edge, reading
    from kubectl_dsjob.target import Target

    target = Target(context, namespace, kubeconfig)
    edge.run(lambda: reading.list_runs(target, selector, output, is_everywhere=everywhere), target)


@app.command(
    epilog=examples(
        ("The state of a run on one screen", "kubectl dsjob status sweep"),
        ("A live view until the end; Ctrl-C leaves it", "kubectl dsjob status sweep --watch"),
    ),
)
def status(
    name: Name,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Show it until the end.")] = False,
    namespace: Namespace = "",
    context: Context = "",
    kubeconfig: Kubeconfig = "",
) -> None:
    """Show a run: its counts, its failures, and what it waits for.

    If a person has to act, it prints the command. Without a terminal, --watch prints a line for
    each change. If the Job is deleted, its report answers.
    """
    from kubectl_dsjob import edge, reading
    from kubectl_dsjob.target import Target

    target = Target(context, namespace, kubeconfig)
    if not watch:
        edge.run(lambda: reading.status(target, name), target)
    from kubectl_dsjob.live_view import shown_live

    with shown_live(target.cluster_flags()) as show:
        edge.run(lambda: reading.follow(target, name, None, show), target)


@app.command(
    epilog=examples(
        ("Give up after ten minutes; the run goes on", "kubectl dsjob wait sweep --timeout 600"),
    ),
)
def wait(
    name: Name,
    timeout: Timeout = None,
    namespace: Namespace = "",
    context: Context = "",
    kubeconfig: Kubeconfig = "",
) -> None:
    """Wait until a run has ended.

    Its Job may be deleted meanwhile. The exit code is 0 if it succeeded, 1 if it failed, 3 if it
    succeeded with failed nodes, and 4 after the timeout.
    """
    from kubectl_dsjob import edge, reading
    from kubectl_dsjob.live_view import lines_to
    from kubectl_dsjob.target import Target

    target = Target(context, namespace, kubeconfig)
    show = lines_to(lambda line: edge.say(line.rstrip()))
    edge.run(lambda: reading.follow(target, name, timeout, show), target)


@app.command(
    epilog=examples(
        ("A row for each node", "kubectl dsjob report sweep"),
        ("With the last line of each failed node", "kubectl dsjob report sweep -o wide"),
        ("One page for a browser, in one file", "kubectl dsjob report sweep --html sweep.html"),
    ),
)
def report(
    name: Name,
    output: OutputOption = Output.TABLE,
    html: Annotated[str, typer.Option(metavar="FILE", help="Write one page of HTML.")] = "",
    namespace: Namespace = "",
    context: Context = "",
    kubeconfig: Kubeconfig = "",
) -> None:
    """Show the nodes of a run, from its reports.

    If the Job is deleted, it is the newest run. The page of --html has a grid of all nodes, the
    failures, the timeline and the results. It has no scripts and loads nothing, so it can be sent
    by mail and opened anywhere.
    """
    from kubectl_dsjob import edge, reading
    from kubectl_dsjob.target import Target

    target = Target(context, namespace, kubeconfig)
    edge.run(lambda: reading.report(target, name, output, html), target)


@app.command(
    epilog=examples(
        ("A table with a column for each result", "kubectl dsjob results facts"),
        ("For a spreadsheet", "kubectl dsjob results facts -o csv > facts.csv"),
    ),
)
def results(
    name: Name,
    output: OutputOption = Output.TABLE,
    namespace: Namespace = "",
    context: Context = "",
    kubeconfig: Kubeconfig = "",
) -> None:
    """Show the results of a run: a row for each node."""
    from kubectl_dsjob import edge, reading
    from kubectl_dsjob.target import Target

    target = Target(context, namespace, kubeconfig)
    edge.run(lambda: reading.results(target, name, output), target)


@app.command(epilog=examples(("The runs of a Job", "kubectl dsjob history sweep")))
def history(
    name: Name,
    output: OutputOption = Output.TABLE,
    namespace: Namespace = "",
    context: Context = "",
    kubeconfig: Kubeconfig = "",
) -> None:
    """List the runs of a Job that have a report, the oldest first."""
    from kubectl_dsjob import edge, reading
    from kubectl_dsjob.target import Target

    target = Target(context, namespace, kubeconfig)
    edge.run(lambda: reading.history(target, name, output), target)


@app.command(
    epilog=examples(
        (
            "Two runs, by the names that `history` shows",
            "kubectl dsjob diff sweep-20261121154003-f2a90 sweep-20261121154023-44b3c",
        ),
    ),
)
def diff(
    before: Annotated[
        str,
        typer.Argument(
            help="The report of a run, see `history`.", metavar="BEFORE", callback=check_name
        ),
    ],
    after: Annotated[
        str,
        typer.Argument(help="The report of a later run.", metavar="AFTER", callback=check_name),
    ],
    output: OutputOption = Output.TABLE,
    namespace: Namespace = "",
    context: Context = "",
    kubeconfig: Kubeconfig = "",
) -> None:
    """Compare two runs: their nodes, states and results."""
    from kubectl_dsjob import edge, reading
    from kubectl_dsjob.target import Target

    target = Target(context, namespace, kubeconfig)
    edge.run(lambda: reading.diff(target, before, after, output), target)

"""The command `logs`, as typer shows it: options, help text and examples."""

from __future__ import annotations

from typing import Annotated

import typer

from kubectl_dsjob.options import Context, Kubeconfig, Name, Namespace, app, examples

# Logs that are read at a time. Followed ones stay open: each costs the API server a connection.
_READ_AT_ONCE = 16
_FOLLOWED_AT_ONCE = 200


@app.command(
    epilog=examples(
        ("All nodes, one after the other", "kubectl dsjob logs sweep"),
        ("Which nodes have printed the same", "kubectl dsjob logs sweep --group"),
        ("Follow two racks", "kubectl dsjob logs sweep -f --node 'rack1-*' --node 'rack2-*'"),
        ("Why nodes have failed", "kubectl dsjob logs sweep --failed --tail 20"),
    ),
)
def logs(
    name: Name,
    node: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NODE", help="A node, or a pattern such as 'rack1-*'; may be repeated."
        ),
    ] = None,
    failed: Annotated[bool, typer.Option("--failed", help="Only failed nodes.")] = False,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Follow it until the end.")
    ] = False,
    group: Annotated[
        bool, typer.Option("--group", help="Print equal outputs once, with their nodes.")
    ] = False,
    tail: Annotated[
        int | None, typer.Option(metavar="LINES", min=0, help="The last lines of each node only.")
    ] = None,
    previous: Annotated[
        bool, typer.Option("--previous", "-p", help="The attempt before the last restart.")
    ] = False,
    timestamps: Annotated[
        bool, typer.Option("--timestamps", help="Begin each line with its time.")
    ] = False,
    prefix: Annotated[
        bool, typer.Option("--prefix/--no-prefix", help="Begin each line with its node.")
    ] = True,
    max_log_requests: Annotated[
        int | None, typer.Option(metavar="NUMBER", min=1, help="Logs that are read at a time.")
    ] = None,
    namespace: Namespace = "",
    context: Context = "",
    kubeconfig: Kubeconfig = "",
) -> None:
    """Print the logs of a run, each line with its node.

    Of nodes whose pods are deleted it prints what the report has kept: the last lines of failed
    nodes. The exit code is 3 if the logs of some nodes cannot be read.
    """
    from kubectl_dsjob import edge
    from kubectl_dsjob.log_sources import LogWish
    from kubectl_dsjob.logs import logs as print_logs
    from kubectl_dsjob.target import Target

    if group and (follow or timestamps):
        raise typer.BadParameter("--group compares whole outputs: not with -f or --timestamps")
    if follow and previous:
        raise typer.BadParameter("--previous has ended: it cannot be followed")
    wish = LogWish(
        nodes=tuple(node or ()),
        only_failed=failed,
        is_followed=follow,
        is_grouped=group,
        is_previous=previous,
        has_times=timestamps,
        has_prefix=prefix,
        tail=tail,
        at_once=max_log_requests or (_FOLLOWED_AT_ONCE if follow else _READ_AT_ONCE),
    )
    target = Target(context, namespace, kubeconfig)
    edge.run(lambda: print_logs(target, name, wish, edge.write), target)

"""The commands that write, as typer shows them: options, help texts and examples."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from kubectl_dsjob.options import (
    Context,
    Kubeconfig,
    Name,
    Namespace,
    OutputOption,
    Timeout,
    app,
    examples,
)
from kubectl_dsjob.outputs import DryRun, Output


class _Run(TyperCommand):
    """Takes `--nodes -l role=edge`, in each form of the option, for `--nodes role=edge`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Return the arguments that are no options, as typer does."""
        end = args.index("--") if "--" in args else len(args)
        kept = [
            word
            for word, following in pairwise([*args[:end], ""])
            if word != "--nodes" or not following.startswith(("-l", "--selector"))
        ]
        return list(super().parse_args(ctx, [*kept, *args[end:]]))


@app.command(
    cls=_Run,
    epilog=examples(
        (
            "Remove a directory of every node, and follow it",
            (
                "kubectl dsjob run sweep --exit --image busybox:1.37 --mount /var/tmp --command -- "
                "rm -rf /basetarget/old-cache"
            ),
        ),
        (
            "Read what each node has printed, also after the end",
            "kubectl dsjob run kernel --exit --image busybox:1.37 --ttl 600 --command -- uname -r",
        ),
        ("Run a script on the nodes themselves", "kubectl dsjob run fix --script fix.sh --host"),
        (
            "One node first, and after its approval a tenth of the nodes at a time",
            "kubectl dsjob run fix --script fix.sh --canary 1 --max-parallel 10%",
        ),
        (
            "Only on some nodes, and see the manifest first",
            "kubectl dsjob run fix --script fix.sh --nodes role=edge --dry-run=server -o yaml",
        ),
    ),
)
def run(
    name: Name,
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            help="The arguments of the image or script, after `--`.", metavar="-- ARGUMENTS"
        ),
    ] = None,
    image: Annotated[str, typer.Option(help="The image of the task.", metavar="IMAGE")] = "",
    script: Annotated[
        Path | None,
        typer.Option(
            help="The file of a script to run.", metavar="FILE", exists=True, dir_okay=False
        ),
    ] = None,
    is_command: Annotated[
        bool,
        typer.Option("--command", help="The arguments are the command, in place of the image's."),
    ] = False,
    host: Annotated[bool, typer.Option("--host", help="Run the script on the node.")] = False,
    mount: Annotated[
        str,
        typer.Option(
            metavar="PATH",
            help="A directory of the node, at /basetarget; made where it is missing.",
        ),
    ] = "",
    nodes: Annotated[
        str,
        typer.Option(
            "--nodes", "--selector", "-l", metavar="LABELS", help="Labels of nodes: role=edge."
        ),
    ] = "",
    canary: Annotated[
        str,
        typer.Option(
            metavar="NODES",
            help="How many nodes run first, 1 or 10%, then wait for approval.",
        ),
    ] = "",
    max_parallel: Annotated[
        str,
        typer.Option(metavar="NODES", help="How many nodes run at a time, 5 or 10%."),
    ] = "",
    backoff_limit: Annotated[
        int | None,
        typer.Option(metavar="NUMBER", min=0, help="Restarts of each node before it has failed."),
    ] = None,
    ttl: Annotated[
        int | None,
        typer.Option(
            metavar="SECONDS",
            min=0,
            help="Keep the Job and its logs for these seconds after its end.",
        ),
    ] = None,
    exit_mode: Annotated[
        bool, typer.Option("--exit", help="A node is completed when the task ends with code 0.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Follow it until the end.")] = True,
    timeout: Timeout = None,
    dry_run: Annotated[
        DryRun, typer.Option(help="Print the manifest and create nothing.")
    ] = DryRun.NONE,
    output: OutputOption = Output.YAML,
    namespace: Namespace = "",
    context: Context = "",
    kubeconfig: Kubeconfig = "",
) -> None:
    """Run something once on every node, and follow it until the end.

    An image or a script does the work. An image prints the completion token, a line with the word
    done, and waits; with --exit, any image whose command ends with code 0 will do. A script needs
    neither. With --host it runs on the node itself, outside of all containers.

    Without a terminal, a line for each change is printed. Ctrl-C ends the command only: the run
    goes on in the cluster.

    The exit code is 0 if the run succeeded, 1 if it failed, 3 if it succeeded with failed nodes,
    and 4 after the timeout.
    """
    from kubectl_dsjob import edge, writing
    from kubectl_dsjob.live_view import shown_live
    from kubectl_dsjob.manifests import Wish
    from kubectl_dsjob.target import Target

    target = Target(context, namespace, kubeconfig)
    wish = Wish(
        name=name,
        image=image,
        script=edge.read_script(script) if script else "",
        mount=mount,
        selector=nodes,
        arguments=tuple(arguments or ()),
        is_command=is_command,
        is_on_host=host,
        has_exit_mode=exit_mode,
        canary=canary,
        max_parallel=max_parallel,
        backoff_limit=backoff_limit,
        kept_seconds=ttl,
    )
    if dry_run != DryRun.NONE:
        is_server = dry_run == DryRun.SERVER
        edge.run(lambda: writing.dry_run(target, wish, output, server=is_server), target)
    if not wait:
        edge.need_wait(timeout)
        edge.run(lambda: writing.run_job(target, wish, None, timeout), target)
    with shown_live(target.cluster_flags()) as show:
        edge.run(lambda: writing.run_job(target, wish, show, timeout), target)


@app.command(epilog=examples(("Stop at once what has not begun", "kubectl dsjob pause sweep")))
def pause(
    name: Name, namespace: Namespace = "", context: Context = "", kubeconfig: Kubeconfig = ""
) -> None:
    """Let no further node start. Running tasks continue."""
    from kubectl_dsjob import edge, writing
    from kubectl_dsjob.target import Target

    target = Target(context, namespace, kubeconfig)
    edge.run(lambda: writing.suspend(target, name, is_suspended=True), target)


@app.command(epilog=examples(("Go on after a pause", "kubectl dsjob resume sweep")))
def resume(
    name: Name, namespace: Namespace = "", context: Context = "", kubeconfig: Kubeconfig = ""
) -> None:
    """Let a suspended run go on."""
    from kubectl_dsjob import edge, writing
    from kubectl_dsjob.target import Target

    target = Target(context, namespace, kubeconfig)
    edge.run(lambda: writing.suspend(target, name, is_suspended=False), target)


@app.command(
    epilog=examples(("Once the cause is gone, on all failed nodes", "kubectl dsjob retry sweep"))
)
def retry(
    name: Name,
    failed: Annotated[
        bool, typer.Option("--failed", help="The failed nodes; a retry concerns no others.")
    ] = True,
    namespace: Namespace = "",
    context: Context = "",
    kubeconfig: Kubeconfig = "",
) -> None:
    """Run the task again on the failed nodes. Completed nodes stay as they are."""
    from kubectl_dsjob import edge, writing
    from kubectl_dsjob.target import Target

    assert failed
    target = Target(context, namespace, kubeconfig)
    edge.run(lambda: writing.retry(target, name), target)


@app.command(
    epilog=examples(
        ("A Job that has completed, once more", "kubectl dsjob rerun sweep"),
        (
            "Two nodes of a Job of policy Continuous",
            "kubectl dsjob rerun agent --node node-1 --node node-2",
        ),
    ),
)
def rerun(
    name: Name,
    node: Annotated[
        list[str] | None,
        typer.Option(help="A node, for policy Continuous; may be repeated.", metavar="NODE"),
    ] = None,
    namespace: Namespace = "",
    context: Context = "",
    kubeconfig: Kubeconfig = "",
) -> None:
    """Run a Job again, from the manifest in its report.

    A Job of policy Continuous that exists is requested to run again.
    """
    from kubectl_dsjob import edge, writing
    from kubectl_dsjob.target import Target

    target = Target(context, namespace, kubeconfig)
    edge.run(lambda: writing.rerun(target, name, tuple(node or ())), target)

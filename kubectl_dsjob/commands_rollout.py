"""The commands about rollouts, as typer shows them: options, help texts and examples."""

from __future__ import annotations

from typing import Annotated

import typer

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
from kubectl_dsjob.outputs import Output


@app.command(
    epilog=examples(
        ("The step that waits", "kubectl dsjob approve sweep"),
        ("Step 2, before it is done", "kubectl dsjob approve sweep --step 2"),
    )
)
def approve(
    name: Name,
    step: Annotated[
        int | None, typer.Option(metavar="NUMBER", help="The step, if it does not wait yet.", min=1)
    ] = None,
    namespace: Namespace = "",
    context: Context = "",
    kubeconfig: Kubeconfig = "",
) -> None:
    """Approve the step of a rollout that waits for a person.

    `kubectl dsjob status NAME` says whether a step waits, and for what. The report keeps who
    approved it.
    """
    from kubectl_dsjob import edge, rollout_writing
    from kubectl_dsjob.target import Target

    target = Target(context, namespace, kubeconfig)
    edge.run(lambda: rollout_writing.approve(target, name, step), target)


@app.command(epilog=examples(("Go on without waiting", "kubectl dsjob promote sweep")))
def promote(
    name: Name, namespace: Namespace = "", context: Context = "", kubeconfig: Kubeconfig = ""
) -> None:
    """Leave out the remaining soaks and approvals of a rollout.

    The order of the nodes, the number at a time and the checks stay in force.
    """
    from kubectl_dsjob import edge, rollout_writing
    from kubectl_dsjob.target import Target

    target = Target(context, namespace, kubeconfig)
    edge.run(lambda: rollout_writing.promote(target, name), target)


@app.command(
    epilog=examples(
        ("End it, and say why", "kubectl dsjob abort sweep --reason 'the disks fill up'")
    )
)
def abort(
    name: Name,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why; the report keeps it.")] = "",
    namespace: Namespace = "",
    context: Context = "",
    kubeconfig: Kubeconfig = "",
) -> None:
    """End a run for good: no further node starts.

    No retry revives it. Tasks at work finish; with failurePolicy.pods Delete they are stopped. The
    run has failed, and its report keeps the reason.
    """
    from kubectl_dsjob import edge, rollout_writing
    from kubectl_dsjob.target import Target

    target = Target(context, namespace, kubeconfig)
    edge.run(lambda: rollout_writing.abort(target, name, reason), target)


@app.command(
    epilog=examples(
        ("Undo a change", "kubectl dsjob rollback sweep --reason 'the disks fill up'"),
        ("And follow it", "kubectl dsjob rollback sweep --reason 'the disks fill up' --wait"),
    )
)
def rollback(
    name: Name,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why; the report keeps it.")] = "",
    wait: Annotated[
        bool, typer.Option("--wait", help="Follow the rollback until its end.")
    ] = False,
    timeout: Timeout = None,
    namespace: Namespace = "",
    context: Context = "",
    kubeconfig: Kubeconfig = "",
) -> None:
    """Undo a run where it ran, as spec.rollback of its Job says.

    No further node starts, and no retry revives the run.

    With --wait, the exit code is 0 if all of these nodes are rolled back, and 1 if the rollback
    failed. It is 3 if it left out some nodes, and 4 after the timeout.
    """
    from kubectl_dsjob import edge, rolling_back
    from kubectl_dsjob.live_view import shown_live
    from kubectl_dsjob.target import Target

    target = Target(context, namespace, kubeconfig)
    if not wait:
        edge.need_wait(timeout)
        edge.run(lambda: rolling_back.roll_back(target, name, reason, None, timeout), target)
    with shown_live(target.cluster_flags()) as show:
        edge.run(lambda: rolling_back.roll_back(target, name, reason, show, timeout), target)


@app.command(
    epilog=examples(
        ("A row for each step, and one for the rest", "kubectl dsjob plan sweep"),
        ("The plan, then the run", "kubectl dsjob plan sweep && kubectl dsjob resume sweep"),
    )
)
def plan(
    name: Name,
    output: OutputOption = Output.TABLE,
    namespace: Namespace = "",
    context: Context = "",
    kubeconfig: Kubeconfig = "",
) -> None:
    """Show where a suspended Job would run, and in which order.

    A Job with spec.rollout that is applied with suspend: true has a plan, and runs nothing until
    it is resumed. A run that has started has none: `status` shows how far it is.
    """
    from kubectl_dsjob import edge, rollout_reading
    from kubectl_dsjob.target import Target

    target = Target(context, namespace, kubeconfig)
    edge.run(lambda: rollout_reading.plan(target, name, output), target)

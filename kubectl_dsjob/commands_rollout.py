"""The commands about rollouts, as typer shows them: options, help texts and examples."""

from __future__ import annotations

from typing import Annotated

import typer

from kubectl_dsjob.options import Context, Kubeconfig, Name, Namespace, OutputOption, app
from kubectl_dsjob.outputs import Output


@app.command(epilog="Example: kubectl dsjob approve sweep")
def approve(
    name: Name,
    step: Annotated[
        int | None, typer.Option(help="The step, if it does not wait yet.", min=1)
    ] = None,
    namespace: Namespace = "",
    context: Context = "",
    kubeconfig: Kubeconfig = "",
) -> None:
    """Approve the step of a rollout that waits for a person."""
    from kubectl_dsjob import edge, rollout_writing
    from kubectl_dsjob.target import Target

    target = Target(context, namespace, kubeconfig)
    edge.run(lambda: rollout_writing.approve(target, name, step))


@app.command(epilog="Example: kubectl dsjob promote sweep")
def promote(
    name: Name, namespace: Namespace = "", context: Context = "", kubeconfig: Kubeconfig = ""
) -> None:
    """Leave out the remaining soaks and approvals of a rollout."""
    from kubectl_dsjob import edge, rollout_writing
    from kubectl_dsjob.target import Target

    target = Target(context, namespace, kubeconfig)
    edge.run(lambda: rollout_writing.promote(target, name))


@app.command(epilog="Example: kubectl dsjob abort sweep --reason 'the disks fill up'")
def abort(
    name: Name,
    reason: Annotated[str, typer.Option(help="Why; the report keeps it.")] = "",
    namespace: Namespace = "",
    context: Context = "",
    kubeconfig: Kubeconfig = "",
) -> None:
    """End a run for good: no further node starts, and no retry revives it."""
    from kubectl_dsjob import edge, rollout_writing
    from kubectl_dsjob.target import Target

    target = Target(context, namespace, kubeconfig)
    edge.run(lambda: rollout_writing.abort(target, name, reason))


@app.command(epilog="Example: kubectl dsjob plan sweep")
def plan(
    name: Name,
    output: OutputOption = Output.TABLE,
    namespace: Namespace = "",
    context: Context = "",
    kubeconfig: Kubeconfig = "",
) -> None:
    """Show which nodes a suspended Job would run on, in which order and batches."""
    from kubectl_dsjob import edge, rollout_reading
    from kubectl_dsjob.target import Target

    target = Target(context, namespace, kubeconfig)
    edge.run(lambda: rollout_reading.plan(target, name, output))

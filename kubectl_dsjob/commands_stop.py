"""The commands that stop all Jobs of a cluster, as typer shows them."""

from __future__ import annotations

from typing import Annotated

import typer

from kubectl_dsjob.options import Context, Kubeconfig, app, examples

SystemNamespace = Annotated[
    str, typer.Option("--system-namespace", metavar="NAME", help="The namespace of the system.")
]
_SYSTEM = "daemonset-job-system"


@app.command(
    "stop-all",
    epilog=examples(
        ("Stop them, and say why", "kubectl dsjob stop-all --reason 'bad kernel, see #421'")
    ),
)
def stop_all(
    reason: Annotated[
        str, typer.Option(metavar="TEXT", help="What the conditions of all Jobs say.")
    ] = "",
    system_namespace: SystemNamespace = _SYSTEM,
    context: Context = "",
    kubeconfig: Kubeconfig = "",
) -> None:
    """Let no further node of any Job start, in the whole cluster. Running tasks continue."""
    from kubectl_dsjob import edge, stopping
    from kubectl_dsjob.target import Target

    target = Target(context, system_namespace, kubeconfig)
    edge.run(lambda: stopping.stop_all(target, system_namespace, reason), target)


@app.command("resume-all", epilog=examples(("Let them go on", "kubectl dsjob resume-all")))
def resume_all(
    system_namespace: SystemNamespace = _SYSTEM, context: Context = "", kubeconfig: Kubeconfig = ""
) -> None:
    """End a stop of all Jobs. Jobs that are suspended by themselves stay so."""
    from kubectl_dsjob import edge, stopping
    from kubectl_dsjob.target import Target

    target = Target(context, system_namespace, kubeconfig)
    edge.run(lambda: stopping.resume_all(target, system_namespace), target)

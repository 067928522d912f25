"""The commands for the system itself, as typer shows them."""

from __future__ import annotations

from typing import Annotated

import typer

from kubectl_dsjob.options import (
    AllNamespaces,
    Context,
    Kubeconfig,
    Namespace,
    OutputOption,
    app,
    examples,
)
from kubectl_dsjob.outputs import Output

SystemNamespace = Annotated[
    str,
    typer.Option(metavar="NAME", help="The namespace of the system, by default where it is found."),
]


@app.command(
    epilog=examples(
        ("With the Jobs of all namespaces", "kubectl dsjob doctor -A"),
        ("For a script", "kubectl dsjob doctor -o json"),
    )
)
def doctor(
    everywhere: AllNamespaces = False,
    stuck_after: Annotated[
        float,
        typer.Option(metavar="SECONDS", min=0, help="A Job without progress for this is stuck."),
    ] = 300,
    system_namespace: SystemNamespace = "",
    output: OutputOption = Output.TABLE,
    namespace: Namespace = "",
    context: Context = "",
    kubeconfig: Kubeconfig = "",
) -> None:
    """Check the system, your rights, and whether Jobs are stuck.

    It says what you may not read, and goes on. The exit code is 1 if there is a problem.
    """
    from kubectl_dsjob import edge
    from kubectl_dsjob.doctor.doctor import examine
    from kubectl_dsjob.target import Target

    target = Target(context, namespace, kubeconfig)
    edge.run(
        lambda: examine(
            target,
            system_namespace,
            output,
            is_everywhere=everywhere,
            stuck_seconds=stuck_after,
        ),
        target,
    )


Components = Annotated[
    str | None,
    typer.Option(metavar="NAMES", help="Components of deploy/, such as split,control-plane."),
]
ImagePrefix = Annotated[
    str, typer.Option(metavar="PREFIX", help="Where the images are: registry.example.com/team.")
]
ImageTag = Annotated[
    str, typer.Option(metavar="TAG", help="The tag of the images, by default the version.")
]
InNamespace = Annotated[
    str, typer.Option("--namespace", "-n", metavar="NAME", help="The namespace of the system.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would change, change nothing.")]
ForceConflicts = Annotated[
    bool, typer.Option("--force-conflicts", help="Overwrite what other clients have changed.")
]
Wait = Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until the programs are ready.")]
Limit = Annotated[float, typer.Option(metavar="SECONDS", min=0, help="How long to wait.")]


@app.command(
    epilog=examples(
        ("With your images", "kubectl dsjob install --image-prefix registry.example.com/team"),
        ("Read the manifests, and apply nothing", "kubectl dsjob install -o yaml"),
    )
)
def install(
    components: Components = None,
    image_prefix: ImagePrefix = "",
    image_tag: ImageTag = "",
    dry_run: DryRun = False,
    force_conflicts: ForceConflicts = False,
    wait: Wait = True,
    timeout: Limit = 180,
    output: OutputOption = Output.TABLE,
    namespace: InNamespace = "",
    context: Context = "",
    kubeconfig: Kubeconfig = "",
) -> None:
    """Install this version of the system.

    These are CRDs, admission policies, roles and programs. With -o yaml or -o json it prints the
    manifests, and needs no cluster.
    """
    from kubectl_dsjob import edge
    from kubectl_dsjob.system import installing
    from kubectl_dsjob.target import Target

    target = Target(context, namespace, kubeconfig)
    limit = timeout if wait else None
    names = _names(components)
    wish = installing.InstallWish(
        names, namespace, image_prefix, image_tag, dry_run, force_conflicts, limit
    )

    async def show() -> edge.Answer:
        return installing.show_manifests(wish, output)

    if output in (Output.YAML, Output.JSON):
        edge.run(show, target)
    edge.run(lambda: installing.install(target, wish), target)


@app.command(
    epilog=examples(
        ("Say what would change", "kubectl dsjob upgrade --dry-run"),
        ("Upgrade, and wait until it is ready", "kubectl dsjob upgrade"),
    )
)
def upgrade(
    components: Components = None,
    image_prefix: ImagePrefix = "",
    image_tag: ImageTag = "",
    dry_run: DryRun = False,
    force_conflicts: ForceConflicts = False,
    wait: Wait = True,
    timeout: Limit = 180,
    namespace: InNamespace = "",
    context: Context = "",
    kubeconfig: Kubeconfig = "",
) -> None:
    """Upgrade the system to this version. Components and the place of the images stay.

    It says which fields of the CRDs change, and refuses a downgrade.
    """
    from kubectl_dsjob import edge
    from kubectl_dsjob.system import installing
    from kubectl_dsjob.target import Target

    target = Target(context, namespace, kubeconfig)
    limit = timeout if wait else None
    names = _names(components)
    wish = installing.InstallWish(
        names, namespace, image_prefix, image_tag, dry_run, force_conflicts, limit
    )
    edge.run(lambda: installing.upgrade(target, wish), target)


@app.command(
    epilog=examples(
        ("Say what would be deleted", "kubectl dsjob uninstall --dry-run"),
        ("Delete it, and leave the reports", "kubectl dsjob uninstall"),
    )
)
def uninstall(
    delete_reports: Annotated[
        bool, typer.Option("--delete-reports", help="Delete the CRDs, and with them all reports.")
    ] = False,
    delete_jobs: Annotated[
        bool,
        typer.Option(
            "--delete-jobs", help="Delete all Jobs and ScheduledJobs first, running Jobs too."
        ),
    ] = False,
    keep_jobs: Annotated[
        bool, typer.Option("--keep-jobs", help="Leave Jobs, and their pods, without a controller.")
    ] = False,
    dry_run: DryRun = False,
    timeout: Limit = 120,
    namespace: InNamespace = "",
    context: Context = "",
    kubeconfig: Kubeconfig = "",
) -> None:
    """Uninstall the system. Reports stay, and so do the CRDs, unless --delete-reports is given."""
    from kubectl_dsjob import edge
    from kubectl_dsjob.system.uninstalling import UninstallWish
    from kubectl_dsjob.system.uninstalling import uninstall as verb
    from kubectl_dsjob.target import Target

    target = Target(context, namespace, kubeconfig)
    wish = UninstallWish(namespace, delete_reports, delete_jobs, keep_jobs, dry_run, timeout)
    edge.run(lambda: verb(target, wish), target)


def _names(text: str | None) -> tuple[str, ...] | None:
    """Return the names in a list with commas; () for "", None if it is not given."""
    if text is None:
        return None
    return tuple(part.strip() for part in text.split(",") if part.strip())


@app.command(
    epilog=examples(("Of the plugin; doctor has that of the system", "kubectl dsjob version"))
)
def version() -> None:
    """Print the version of the plugin."""
    from kubectl_dsjob import edge
    from kubectl_dsjob.system import render

    edge.write(f"v{render.version()}\n")

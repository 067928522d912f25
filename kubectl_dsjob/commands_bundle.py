"""The command that makes an image of scripts, as typer shows it."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from kubectl_dsjob.options import Context, Kubeconfig, Namespace, OutputOption, app, examples
from kubectl_dsjob.outputs import Output


class BuilderName(StrEnum):
    """The builder, as the option names it."""

    AUTO = "auto"
    DOCKER = "docker"
    PODMAN = "podman"
    BUILDAH = "buildah"


@app.command(
    epilog=examples(
        (
            "Build and push an image, and run it",
            (
                "kubectl dsjob bundle ./fix --tag registry.example.com/fix --push > job.yaml && "
                "kubectl apply -f job.yaml"
            ),
        ),
        (
            "Only check the scripts, and write a Dockerfile",
            "kubectl dsjob bundle ./fix --write ./image",
        ),
        (
            "Run it again after each change",
            "kubectl dsjob bundle ./fix --watch --load 'kind load image-archive'",
        ),
    )
)
def bundle(
    folder: Annotated[Path, typer.Argument(help="The folder of the scripts.", metavar="DIR")],
    arguments: Annotated[
        list[str] | None, typer.Argument(help="The arguments of the scripts, after `--`.")
    ] = None,
    tag: Annotated[
        str, typer.Option(help="The image's name; without a tag it gets one of its content.")
    ] = "",
    base: Annotated[
        str, typer.Option(help="The image to build on, by default the task image.")
    ] = "",
    builder: Annotated[
        BuilderName, typer.Option(help="What builds the image: by default what works here.")
    ] = BuilderName.AUTO,
    push: Annotated[bool, typer.Option("--push", help="Push the image to its registry.")] = False,
    save: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the image as an archive.")
    ] = None,
    load: Annotated[
        str,
        typer.Option(
            metavar="COMMAND", help="Put the image onto the nodes: 'kind load image-archive'."
        ),
    ] = "",
    write: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write a Dockerfile there, build nothing.")
    ] = None,
    watch: Annotated[
        bool,
        typer.Option("--watch", "-w", help="Build and run it again after each change."),
    ] = False,
    name: Annotated[str, typer.Option(help="The name of the Job, by default the folder's.")] = "",
    mount: Annotated[str, typer.Option(help="A directory of the node, at /basetarget.")] = "",
    nodes: Annotated[
        str,
        typer.Option(
            "--nodes", "--selector", "-l", metavar="LABELS", help="Labels of nodes: role=edge."
        ),
    ] = "",
    job: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A manifest, whose image is replaced.")
    ] = None,
    output: OutputOption = Output.YAML,
    namespace: Namespace = "",
    context: Context = "",
    kubeconfig: Kubeconfig = "",
) -> None:
    """Make a task image of a folder of scripts, and print its Job.

    Each file directly in the folder is a script. They run in the order of their names, until one
    fails. Files in subfolders are data for them, at /task.d.
    """
    from kubectl_dsjob import edge
    from kubectl_dsjob.bundle import bundling
    from kubectl_dsjob.bundle.builders import Builder
    from kubectl_dsjob.bundle.image import ImageWish
    from kubectl_dsjob.target import Target

    target = Target(context, namespace, kubeconfig)
    image = ImageWish(folder, base, tag, Builder(builder), push, save, load)
    wish = bundling.BundleWish(image, name, mount, nodes, tuple(arguments or ()), job)
    if watch:
        edge.run(lambda: bundling.bundle_watch(wish, target), target)
    edge.run(lambda: bundling.bundle_once(wish, target, output, write), target)

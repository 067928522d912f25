"""Container images without a container engine: writes and reads the docker-archive format.

The format (image specification v1.2, what `docker save` writes): a tar with manifest.json, one
configuration per image and the layers as plain tars, named by their hashes.
"""

import hashlib
import io
import json
import tarfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from hack.devcluster.errors import DevclusterError

GO_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
EPOCH = "1970-01-01T00:00:00Z"


@dataclass(frozen=True, slots=True)
class Image:
    """What an image is made of."""

    tags: tuple[str, ...]
    layers: tuple[Path, ...]
    entrypoint: tuple[str, ...] = ()
    environment: tuple[str, ...] = ("PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",)
    stop_signal: str = ""
    command: tuple[str, ...] = field(default=())


def write_archive(target: Path, images: Sequence[Image], *, machine: str) -> None:
    """Write images, which may share layers, into one archive; the same input, the same bytes."""
    manifest = []
    hashes: dict[Path, str] = {}
    with tarfile.open(target, "w") as archive:
        for image in images:
            for layer in image.layers:
                if layer not in hashes:
                    hashes[layer] = _hash(layer)
                    _add_file(archive, f"{hashes[layer]}.tar", layer)
            config = json.dumps(_config(image, [hashes[x] for x in image.layers], machine))
            name = f"{hashlib.sha256(config.encode()).hexdigest()}.json"
            if name not in archive.getnames():
                _add_bytes(archive, name, config.encode())
            manifest.append(
                {
                    "Config": name,
                    "RepoTags": list(image.tags),
                    "Layers": [f"{hashes[layer]}.tar" for layer in image.layers],
                }
            )
        _add_bytes(archive, "manifest.json", json.dumps(manifest).encode())


def write_layer(target: Path, folder: Path) -> None:
    """Write a folder as a layer: owned by root, without times, in a fixed order."""

    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = entry.mtime = 0
        entry.uname = entry.gname = ""
        return entry

    with tarfile.open(target, "w") as layer:
        for path in sorted(folder.rglob("*")):
            name = str(path.relative_to(folder))
            layer.add(path, arcname=name, recursive=False, filter=plain)


def read_images(archive: Path) -> dict[str, str]:
    """Return {tag: image ID} of a docker-archive; the ID is the configuration's hash."""
    with tarfile.open(archive) as tar:
        manifest = json.load(_member(tar, "manifest.json"))
    found = {}
    for image in manifest:
        identity = image["Config"].removeprefix("blobs/sha256/").removesuffix(".json")
        found.update(dict.fromkeys(image.get("RepoTags") or (), identity))
    return found


def merge(target: Path, archives: Sequence[Path]) -> None:
    """Write one archive with the images of several; a layer that several have is in it once."""
    manifest: list[dict[str, Any]] = []
    with tarfile.open(target, "w") as merged:
        there: set[str] = set()
        for file in archives:
            with tarfile.open(file) as archive:
                images = json.load(_member(archive, "manifest.json"))
                manifest += images
                for name in (n for image in images for n in (image["Config"], *image["Layers"])):
                    if name not in there:
                        there.add(name)
                        entry = tarfile.TarInfo(name)
                        source = _member(archive, name)
                        entry.size = source.seek(0, io.SEEK_END)
                        source.seek(0)
                        merged.addfile(entry, source)
        _add_bytes(merged, "manifest.json", json.dumps(manifest).encode())


def _member(archive: tarfile.TarFile, name: str) -> IO[bytes]:
    with suppress(KeyError):
        found = archive.extractfile(name)
        if found is not None:
            return found
    raise DevclusterError(f"{archive.name!s}: no {name} in it, so it is not a docker-archive")


def _config(image: Image, layers: list[str], machine: str) -> dict[str, object]:
    run: dict[str, object] = {"Env": list(image.environment)}
    if image.entrypoint:
        run["Entrypoint"] = list(image.entrypoint)
    if image.command:
        run["Cmd"] = list(image.command)
    if image.stop_signal:
        run["StopSignal"] = image.stop_signal
    return {
        "created": EPOCH,
        "architecture": GO_ARCHITECTURES.get(machine, machine),
        "os": "linux",
        "config": run,
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer}" for layer in layers]},
        "history": [{"created": EPOCH, "created_by": "devcluster"} for _ in layers],
    }


def _hash(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _add_file(archive: tarfile.TarFile, name: str, file: Path) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = file.stat().st_size
    with file.open("rb") as stream:
        archive.addfile(entry, stream)


def _add_bytes(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(data)
    archive.addfile(entry, io.BytesIO(data))

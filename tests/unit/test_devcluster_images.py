"""Reading Dockerfiles and writing docker-archives."""

import json
import tarfile

import pytest

from hack.devcluster import base_images, dockerfile
from hack.devcluster.archive import Image, merge, read_images, write_archive, write_layer
from hack.devcluster.errors import DevclusterError

TEXT = """# syntax=docker/dockerfile:1
ARG PYTHON=python:3.11-slim@sha256:abc
FROM --platform=linux/amd64 ${PYTHON} AS build
COPY --chown=1:1 build/wheelhouse \\
     /wheels
# COPY nothing /x
COPY ["README.md", "LICENSE", "/doc/"]
FROM debian:bookworm-slim
COPY --from=build /opt /opt
FROM build
"""


def test_bases_and_sources_are_read():
    found = dockerfile.parse(TEXT)
    assert found.bases == ("python:3.11-slim@sha256:abc", "debian:bookworm-slim")
    assert found.sources == ("build/wheelhouse", "README.md", "LICENSE")


def test_short_names_are_completed_and_digests_dropped():
    assert dockerfile.full_name("python:3.11@sha256:1") == "docker.io/library/python:3.11"
    assert dockerfile.full_name("someone/thing") == "docker.io/someone/thing:latest"
    assert dockerfile.full_name("registry.example:5000/a:1") == "registry.example:5000/a:1"
    assert dockerfile.full_name("localhost/a:1") == "localhost/a:1"


def test_bases_are_replaced_in_from_and_arg_lines_only():
    full = "docker.io/library/python:3.11-slim"
    changed = dockerfile.with_bases(
        TEXT, {"python:3.11-slim@sha256:abc": full, "debian:bookworm-slim": "local:1"}
    )
    assert f"ARG PYTHON={full}\n" in changed
    assert "FROM local:1\n" in changed
    assert "COPY --from=build /opt /opt" in changed


def test_bases_of_ours_are_known_by_both_names():
    slim = base_images.find("docker.io/library/python:3.11-slim")
    assert base_images.find("docker.io/library/python:3.11-slim-bookworm") is slim


def test_an_archive_holds_shared_layers_once_and_names_its_images(tmp_path):
    folder = tmp_path / "root"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin/tool").write_text("x")
    layer = tmp_path / "layer.tar"
    write_layer(layer, folder)
    images = [Image(("example.test/a:1", "example.test/b:1"), (layer,))]
    images.append(Image(("example.test/c:1",), (layer,), entrypoint=("/bin/tool",)))
    archive = tmp_path / "images.tar"
    write_archive(archive, images, machine="x86_64")

    found = read_images(archive)
    assert set(found) == {"example.test/a:1", "example.test/b:1", "example.test/c:1"}
    assert found["example.test/a:1"] == found["example.test/b:1"] != found["example.test/c:1"]
    with tarfile.open(archive) as tar:
        names = tar.getnames()
        config = json.load(tar.extractfile(f"{found['example.test/c:1']}.json"))
    assert len([name for name in names if name.endswith(".tar")]) == 1
    assert config["config"]["Entrypoint"] == ["/bin/tool"]
    assert config["architecture"] == "amd64"


def test_merged_archives_share_layers_and_keep_every_image(tmp_path):
    layer = tmp_path / "layer.tar"
    (tmp_path / "root").mkdir()
    write_layer(layer, tmp_path / "root")
    for name in ("a", "b"):
        image = Image((f"example.test/{name}:1",), (layer,), entrypoint=(name,))
        write_archive(tmp_path / f"{name}.tar", [image], machine="x86_64")
    merge(tmp_path / "all.tar", [tmp_path / "a.tar", tmp_path / "b.tar"])

    found = read_images(tmp_path / "all.tar")
    assert found == {**read_images(tmp_path / "a.tar"), **read_images(tmp_path / "b.tar")}
    with tarfile.open(tmp_path / "all.tar") as tar:
        assert len([name for name in tar.getnames() if name.endswith(".tar")]) == 1


def test_something_else_than_an_archive_is_refused_with_a_sentence(tmp_path):
    with tarfile.open(tmp_path / "x.tar", "w"):
        pass
    with pytest.raises(DevclusterError, match="not a docker-archive"):
        read_images(tmp_path / "x.tar")


def test_the_same_input_gives_the_same_archive(tmp_path):
    folder = tmp_path / "root"
    folder.mkdir()
    (folder / "file").write_text("x")
    for number in (1, 2):
        write_layer(tmp_path / "layer.tar", folder)
        image = Image(("example.test/a:1",), (tmp_path / "layer.tar",))
        write_archive(tmp_path / f"{number}.tar", [image], machine="x86_64")
    assert (tmp_path / "1.tar").read_bytes() == (tmp_path / "2.tar").read_bytes()

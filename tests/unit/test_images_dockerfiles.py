"""What can be said of the Dockerfiles without building them."""

import re
import stat
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
VERSION = PROJECT["version"]


def instructions(name: str) -> list[tuple[str, str]]:
    text = (ROOT / "images" / name / "Dockerfile").read_text()
    text = re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE)
    lines = re.sub(r"\\\n", " ", text).splitlines()
    return [
        (verb, rest.strip()) for verb, _, rest in (line.partition(" ") for line in lines) if verb
    ]


@pytest.mark.parametrize("name", ["controller", "terminator"])
def test_the_programs_run_without_root_and_shell(name):
    steps = instructions(name)
    entry = "job-controller" if name == "controller" else name
    assert entry in PROJECT["scripts"]
    assert ("USER", "65532:65532") in steps
    assert steps[-1] == ("ENTRYPOINT", f'["/opt/daemonset-job/bin/{entry}"]')


def test_the_programs_share_all_layers():
    one, other = instructions("controller"), instructions("terminator")
    differing = {verb for a, b in zip(one, other, strict=True) if a != b for verb in (a[0], b[0])}
    assert differing == {"LABEL", "ENTRYPOINT"}


@pytest.mark.parametrize("name", ["controller", "terminator", "task", "cleanup"])
def test_every_base_has_a_tag_and_every_source_is_there(name):
    for verb, rest in instructions(name):
        if verb == "FROM":
            assert ":" in rest
            assert ":latest" not in rest
        if verb == "COPY" and "--from" not in rest:
            *sources, _ = rest.split()
            for source in sources:
                # The wheels are made by `python -m devcluster images`.
                assert source == "build/wheelhouse" or (ROOT / source).exists()


def test_cleanup_is_built_on_the_task_image_of_this_version():
    assert ("FROM", f"darkowlzz/daemonset-job-task:v{VERSION}") in instructions("cleanup")


def test_scripts_are_executable():
    # COPY keeps the mode; `COPY --chmod` would need BuildKit.
    scripts = [
        ROOT / "images" / "task" / "run-once",
        ROOT / "images" / "cleanup" / "remove",
        ROOT / "examples" / "02-script-image" / "10-prepare",
        ROOT / "examples" / "02-script-image" / "20-write-facts",
    ]
    for script in scripts:
        assert script.stat().st_mode & stat.S_IXOTH, script
        assert script.read_text().startswith("#!/bin/sh\n")

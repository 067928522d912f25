"""What can be said of the Dockerfiles without building them."""

import re
import stat
import tomllib
from pathlib import Path

import pytest

from hack.devcluster import dockerfile

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
VERSION = PROJECT["version"]
REQUIREMENTS = (ROOT / "images" / "requirements.txt").read_text()


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
    for base in dockerfile.parse((ROOT / "images" / name / "Dockerfile").read_text()).bases:
        assert ":" in base
        assert ":latest" not in base
    for verb, rest in instructions(name):
        if verb == "COPY" and "--from" not in rest:
            *sources, _ = rest.split()
            for source in sources:
                # The wheels are made by `python -m hack.devcluster images`.
                assert source == "build/wheelhouse" or (ROOT / source).exists()


@pytest.mark.parametrize(("name", "argument"), [("controller", "PYTHON"), ("task", "DEBIAN")])
def test_a_foreign_base_can_be_given_by_digest(name, argument):
    steps = instructions(name)
    assert steps[0][0] == "ARG"
    assert steps[0][1].startswith(f"{argument}=")
    assert {rest.split()[0] for verb, rest in steps if verb == "FROM"} == {f"${{{argument}}}"}


def requirements() -> dict[str, list[str]]:
    """Return name==version of each requirement, with its hashes."""
    found: dict[str, list[str]] = {}
    for line in re.sub(r"\\\n", " ", REQUIREMENTS).splitlines():
        if pin := re.match(r"([\w.-]+==[\w.]+)", line):
            found[normal(pin[1])] = re.findall(r"--hash=sha256:([0-9a-f]{64})\b", line)
    return found


def normal(pin: str) -> str:
    """Return a pin with the one spelling that packages of a name have (PEP 503)."""
    name, _, version = pin.partition("==")
    return re.sub(r"[-_.]+", "-", name).lower() + "==" + version


def test_images_install_the_versions_that_were_tested_by_hash():
    constraints = (ROOT / "constraints.txt").read_text()
    tested = {normal(line) for line in constraints.splitlines() if "==" in line}
    assert set(requirements()) <= tested
    assert all(requirements().values())


def test_images_install_all_that_the_project_needs():
    names = {pin.partition("==")[0] for pin in requirements()}
    expected = {re.match(r"[\w.-]+", each)[0] for each in PROJECT["dependencies"]}
    assert {normal(f"{name}==").removesuffix("==") for name in expected} <= names


@pytest.mark.parametrize("name", ["controller", "terminator"])
def test_nothing_is_installed_without_a_hash_and_no_installer_stays(name):
    commands = " ".join(rest for verb, rest in instructions(name) if verb == "RUN")
    assert "PIP_NO_INDEX=1" in commands
    assert "--require-hashes" in commands
    last_stage = instructions(name)[[verb for verb, _ in instructions(name)].index("FROM", 2) :]
    assert any(verb == "RUN" and "! python3 -c 'import pip'" in rest for verb, rest in last_stage)


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

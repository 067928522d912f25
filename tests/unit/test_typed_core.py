"""Pure code reads parsed objects: no field of raw JSON is looked up by its name.

A lookup in a map of our own, `records.get(node)`, has no literal key, and so is none of these.
"""

import ast
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Manifests are raw JSON by nature: see `core.desired.manifest`.
RAW_BY_NATURE = ("daemonset_job.api", "job_controller.core.desired")


def pure_modules():
    """Return the files of the contract "pure" of import-linter, by their modules' names."""
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (contract,) = (each for each in config["contracts"] if each["name"].startswith("pure:"))
    found = {}
    for name in contract["source_modules"]:
        path = ROOT / name.replace(".", "/")
        files = sorted(path.rglob("*.py")) if path.is_dir() else [path.with_suffix(".py")]
        for file in files:
            module = ".".join(file.relative_to(ROOT).with_suffix("").parts)
            if not module.startswith(RAW_BY_NATURE):
                found[module] = file
    return found


def raw_lookups(text):
    """Return the literal keys that a module looks up with `get`, each with its line."""
    return [
        (node.lineno, node.args[0].value)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "get"
        and node.args
        and isinstance(node.args[0], ast.Constant)
    ]


MODULES = pure_modules()


@pytest.mark.parametrize("module", MODULES)
def test_no_field_of_raw_json_is_looked_up(module):
    assert raw_lookups(MODULES[module].read_text()) == []


def test_a_lookup_is_found():
    assert raw_lookups('a = raw.get("phase") or seen.get(name, "")') == [(1, "phase")]

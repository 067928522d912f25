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
    """Return the literal keys that a module looks up, each with its line.

    A lookup is `raw.get("x")`, or `raw["x"]` that is read. An assignment to `raw["x"]` builds JSON.
    """
    return sorted(
        (node.lineno, key.value)
        for node in ast.walk(ast.parse(text))
        if isinstance(key := key_of_lookup(node), ast.Constant)
        and (isinstance(key.value, str) or isinstance(node, ast.Call))
    )


def key_of_lookup(node):
    """Return the expression of the key that a node of the syntax tree looks up, None if none."""
    match node:
        case ast.Call(func=ast.Attribute(attr="get"), args=[key, *_]):
            return key
        case ast.Subscript(slice=key, ctx=ast.Load()):
            return key
    return None


MODULES = pure_modules()


@pytest.mark.parametrize("module", MODULES)
def test_no_field_of_raw_json_is_looked_up(module):
    assert raw_lookups(MODULES[module].read_text()) == []


def test_a_lookup_is_found():
    assert raw_lookups('a = raw.get("phase") or seen.get(name, "")') == [(1, "phase")]
    assert raw_lookups('a = raw["phase"] or seen[name] or pair[0]') == [(1, "phase")]


def test_what_builds_json_is_no_lookup():
    assert raw_lookups('raw["phase"] = {"nodes": total}') == []

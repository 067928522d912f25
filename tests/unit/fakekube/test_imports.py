"""The modules of the model: what they import, and that the documentation names them."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "explanation" / "simulation.md"
FOLDER = ROOT / "tests" / "fakekube"
ALLOWED = {"collections.abc", "collections", "dataclasses", "datetime", "re", "typing"}
MODULES = sorted(path for path in FOLDER.glob("*.py") if path.stem != "__init__")


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or "."


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_only_itself_and_pure_modules_are_imported(path):
    others = {name for name in imports(path) if not name.startswith("tests.fakekube")}
    assert others <= ALLOWED


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_the_page_names_every_module(path):
    assert f"`{path.name}`" in PAGE.read_text(encoding="utf-8")

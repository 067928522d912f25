"""The model of Kubernetes imports nothing but itself and a few modules without side effects."""

import ast
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "fakekube"
ALLOWED = {"collections.abc", "collections", "dataclasses", "datetime", "re", "typing"}


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or "."


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.stem)
def test_only_itself_and_the_standard_library(path):
    others = {name for name in imports(path) if not name.startswith("tests.fakekube")}
    assert others <= ALLOWED

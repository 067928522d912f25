"""Programs that no test runs can at least be imported: they use names of the product."""

import importlib

import pytest

from tests.unit.language import ROOT

PROGRAMS = sorted(
    path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")
    for folder in ("benchmarks", "tests/mutation", "hack/devcluster")
    for path in (ROOT / folder).glob("*.py")
    if path.stem != "__main__"
)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_can_be_imported(name):
    assert importlib.import_module(name)

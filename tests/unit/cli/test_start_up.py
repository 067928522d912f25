"""The start of the plugin, measured in CPU time beside what it cannot do without."""

import sys

import pytest

from benchmarks.start_up import COMMANDS, measure_rounds

# typer itself, which carries the command line, is nearly two thirds of a start. One more library,
# such as rich or the client of Kubernetes, would be beyond this limit.
LIMIT = 2.5


@pytest.mark.parametrize("name", [name for name in COMMANDS if "kubectl-dsjob" in name])
def test_help_costs_little_more_than_typer(name):
    """The least of several starts: others on the machine only make a start slower."""
    commands = {"typer": (sys.executable, "-c", "import typer.main"), name: COMMANDS[name]}
    found = measure_rounds(commands, 5)
    typer, command = (min(start.cpu_seconds for start in found[each]) for each in commands)
    assert command < LIMIT * typer

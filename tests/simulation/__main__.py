"""`python -m tests.simulation --seeds N`: many schedules, or one with its trace."""

import sys

from tests.simulation.cli import main

sys.exit(main(sys.argv[1:]))

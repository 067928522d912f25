"""`python -m tests.mutation --mutations N --seed S`: every edge, and N mutations of valid Jobs."""

import sys

from tests.mutation.cli import main

sys.exit(main(sys.argv[1:]))

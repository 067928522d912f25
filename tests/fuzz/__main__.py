"""`python -m tests.fuzz --seconds N [TARGET ...]`: bytes guided by coverage, or one file again."""

import sys

from tests.fuzz.cli import main

sys.exit(main(sys.argv[1:]))

"""``python -m terminator``."""

from terminator.main import main

main()

"""`python -m tests.fuzz.engine TARGET ...`: one target under atheris; the rest is libFuzzer's."""

import sys

import atheris
from loguru import logger

from tests.fuzz.find import load_check

PRODUCT = ["daemonset_job", "job_controller", "terminator"]


def main() -> None:
    # Each object that cannot be read is a warning, and here that is nearly every one.
    logger.remove()
    with atheris.instrument_imports(include=PRODUCT):
        check = load_check(sys.argv[1])
    atheris.Setup([sys.argv[0], *sys.argv[2:]], check)
    atheris.Fuzz()


if __name__ == "__main__":
    main()

"""`python -m tests.fuzz.engine TARGET ...`: one target under atheris; the rest is libFuzzer's."""

import sys

import atheris

from tests.fuzz.find import load_check

PRODUCT = ["daemonset_job", "job_controller", "terminator"]


def main() -> None:
    with atheris.instrument_imports(include=PRODUCT):
        check = load_check(sys.argv[1])
    atheris.Setup([sys.argv[0], *sys.argv[2:]], check)
    atheris.Fuzz()


if __name__ == "__main__":
    main()

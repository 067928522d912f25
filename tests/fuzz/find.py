"""Where targets, their regression cases and what is found for them are."""

import importlib
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).parent
CORPUS = HERE / "corpus"
BUILD = Path("build/fuzz")


def target_names() -> list[str]:
    return sorted(path.stem for path in (HERE / "targets").glob("*.py"))


def load_check(target: str) -> Callable[[bytes], None]:
    """Return the function that raises if the product does not keep a promise for some bytes."""
    module = importlib.import_module(f"tests.fuzz.targets.{target}")
    check: Callable[[bytes], None] = module.check
    return check


def cases(target: str) -> list[Path]:
    """Return the inputs that once were findings, or that are worth to begin with."""
    return sorted((CORPUS / target).glob("*"))

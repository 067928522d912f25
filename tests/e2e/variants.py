"""The variants of a test: one runs with `make test`, the others with `make test-e2e-long`."""

from collections.abc import Iterable
from typing import Any

import pytest


def first_of(values: Iterable[Any]) -> list[Any]:
    """Return the values of a parameter, all but the first of them on demand.

    It is for tests whose variants other rings show one by one. On real nodes one of them shows
    that nothing is lost on the way.
    """
    first, *others = values
    return [
        first,
        *(pytest.param(*_arguments(each), marks=pytest.mark.on_demand) for each in others),
    ]


def _arguments(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)

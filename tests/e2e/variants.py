"""The variants of a test: one runs with `make test`, the others with `make test-e2e-long`."""

from collections.abc import Iterable
from typing import Any

import pytest


def first_of(values: Iterable[Any]) -> list[Any]:
    """Return the values of a parameter, all but the first of them on demand.

    It is for tests whose variants other rings show one by one: real nodes show that there is
    nothing between a variant and its effect, which one of them does.
    """
    first, *others = values
    return [
        first,
        *(pytest.param(*_arguments(each), marks=pytest.mark.on_demand) for each in others),
    ]


def _arguments(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)

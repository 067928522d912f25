"""Copies of objects, the fast way: `copy.deepcopy` took a sixth of the time of contract tests."""

import pickle
from typing import TypeVar

T = TypeVar("T")


def copy_object(value: T) -> T:
    """Return a copy of an object of JSON, however deep."""
    copied: T = pickle.loads(pickle.dumps(value, pickle.HIGHEST_PROTOCOL))
    return copied

"""How many completed nodes are enough: `successPolicy.minCompleted`, by the raw spec of a Job."""

import math

from tests.simulation.server import Raw


def required(spec: Raw, desired: int) -> int:
    """Return how many of the desired nodes have to be completed, all of them without the field."""
    least = (spec.get("successPolicy") or {}).get("minCompleted")
    if least is None:
        return desired
    if isinstance(least, str):
        least = math.ceil(int(least.rstrip("%")) * desired / 100)
    return max(min(int(least), desired), 1)

"""Users' changes of a running Job's spec, as text in a disturbance.

`mode` is the field of the spec, `what` its new value: a text for `image`, JSON for `rollout` and
`failurePolicy`, a number for others. For `nodes`, `zone=a slot=1` are labels, `+n0 +n1` names to
include, `-n2` a name to exclude, and "" every node.
"""

import json
from typing import Any

from tests.simulation.server import Raw


def selection(words: str) -> dict[str, Any] | None:
    """Return `spec.nodes` in its raw form, None for every node."""
    found: dict[str, Any] = {}
    for word in words.split():
        if word[0] in "+-":
            found.setdefault("include" if word[0] == "+" else "exclude", []).append(word[1:])
        else:
            key, _, value = word.partition("=")
            selector = found.setdefault("selector", {"matchLabels": {}})
            selector["matchLabels"][key] = value
    return found or None


def edited(spec: Raw, field: str, words: str) -> dict[str, Any]:
    """Return a raw spec with a field set to what the words say; without it for no words."""
    value: Any = words or None
    if field == "nodes":
        value = selection(words)
    elif words and field != "image":
        value = json.loads(words)
    changed = {key: kept for key, kept in spec.items() if key != field}
    return changed if value is None else {**changed, field: value}

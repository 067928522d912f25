"""Values as JSON: the size of a text in an object, and a hash."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any, Final

_HASH_CHARACTERS: Final = 16

_TWO_BYTES: Final = frozenset('"\\\n\r\t\b\f')
_HTML: Final = re.compile(r"[<>&\u2028\u2029]")
# Those of two bytes, and what takes six bytes.
_ESCAPED: Final = re.compile(r'["\\<>&\u2028\u2029\x00-\x1f]')


def json_hash(value: Any) -> str:
    """Return a hash of a JSON value, 16 hexadecimal digits, whatever the order of its keys."""
    text = json.dumps(value, separators=(",", ":"), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:_HASH_CHARACTERS]


def json_bytes(text: str) -> int:
    """Return how many bytes a text takes in JSON as Go writes it, quotes aside.

    The API server writes objects of custom resources with encoding/json. That writes six bytes for
    each character that HTML gives a meaning to, each control character, U+2028 and U+2029.
    """
    size = len(text.encode("utf-8", "replace"))
    for character in _ESCAPED.findall(text):
        size += 1 if character in _TWO_BYTES else 6 - len(character.encode())
    return size


def json_value_bytes(value: Any) -> int:
    """Return how many bytes a JSON value takes as Go writes it, see `json_bytes`."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    size = len(text.encode("utf-8", "replace"))
    return size + sum(6 - len(found.encode()) for found in _HTML.findall(text))

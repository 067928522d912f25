"""Inputs made of bytes: numbers, choices, JSON values, and objects that are changed here and there.

A fuzzer that is guided by coverage learns which byte is which choice, and hypothesis makes the
bytes small. When they are used up, every choice is the first one.
"""

import json
from collections.abc import Sequence
from typing import Any, TypeVar

T = TypeVar("T")

# What is odd about texts, numbers and times; the rest is left to the bytes.
_TEXTS = (
    "",
    "x",
    "True",
    "False",
    "9999-12-31T23:59:59Z",
    "0001-01-01T00:00:00Z",
    "9999-12-31T23:59:59-14:00",
    "2026-01-02T03:04:05Z",
    "2026-01-02",
    "-1",
    "50%",
    "1000000%",
    "\N{LOBSTER}" * 300,
    "<&>\u2028\x00\x1b[31m" * 100,
    "x" * 3000,
)
_NUMBERS = (0, 1, -1, 2, 255, 2**31 - 1, 2**31, -(2**31), 2**63 - 1, -(2**63), 2**64 - 1)
_FLOATS = (0.5, -0.0, 1e308, 1e-320)
_DEEP = 200


class Source:
    """Choices, read from bytes one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1] if self._at <= len(self._data) else 0

    def below(self, limit: int) -> int:
        """Return a number from 0, below `limit`."""
        value = self.byte()
        if limit > 256:
            value = value << 8 | self.byte()
        return value % limit

    def pick(self, options: Sequence[T]) -> T:
        return options[self.below(len(options))]

    def take(self, count: int) -> bytes:
        taken = self._data[self._at : self._at + count]
        self._at += count
        return taken

    def rest(self) -> bytes:
        return self.take(len(self._data))

    def cuts(self, data: bytes, count: int) -> list[bytes]:
        """Return `data` in pieces, at most `count`, some of them perhaps empty."""
        places = sorted(self.below(len(data) + 1) for _ in range(self.below(count)))
        return [
            data[start:end] for start, end in zip([0, *places], [*places, len(data)], strict=True)
        ]

    def value(self, depth: int = 3) -> Any:  # noqa: PLR0911 - one for each kind
        """Return any JSON value."""
        match self.below(12 if depth else 8):
            case 0:
                return None
            case 1:
                return self.byte() % 2 == 0
            case 2 | 3:
                return self.pick(_NUMBERS)
            case 4:
                return self.pick(_FLOATS)
            case 5 | 6:
                return self.pick(_TEXTS)
            case 7:
                return self.take(self.below(20)).decode("utf-8", "replace")
            case 8 | 9:
                return [self.value(depth - 1) for _ in range(self.below(4))]
            case 10:
                return {self._key(): self.value(depth - 1)}
            case _:
                value: Any = 0
                for _ in range(_DEEP):
                    value = [value]
                return value

    def _key(self) -> str:
        return self.pick(("name", "x", "", "type", "f:spec", "running")) or self.take(3).hex()

    def change(self, raw: Any) -> Any:
        """Return a copy of a JSON value with some of its parts replaced, taken away or doubled."""
        changed = json.loads(json.dumps(raw))
        for _ in range(1 + self.below(3)):
            places = list(_places(changed))
            if not places:
                break
            holder, key = places[self.below(len(places))]
            match self.below(8):
                case 0:
                    del holder[key]
                case 1 if isinstance(holder, list):
                    holder.insert(key, self.value())
                case 1:
                    holder[self._key()] = self.value()
                case 2 if isinstance(holder, list):
                    holder.append(holder[key])
                case _:
                    holder[key] = self.value()
        return changed


def _places(value: Any) -> Any:
    """Yield where the values inside of a JSON value are: what holds them, and the key."""
    keys: Any = value if isinstance(value, dict) else range(len(value))
    for key in list(keys) if isinstance(value, dict | list) else ():
        yield value, key
        if isinstance(value[key], dict | list):
            yield from _places(value[key])

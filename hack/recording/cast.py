"""A recorded terminal as text: asciicast v2, of which lines of output are used. Pure."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

COLUMNS = 100


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the terminal, and when it was printed, in seconds from the beginning."""

    seconds: float
    text: str


def write(lines: Sequence[Line]) -> str:
    """Return the recording as a file of asciicast v2."""
    header = {"version": 2, "width": COLUMNS, "height": len(lines)}
    events = [[round(line.seconds, 2), "o", f"{line.text}\r\n"] for line in lines]
    return "".join(f"{json.dumps(part, ensure_ascii=False)}\n" for part in (header, *events))


def read(text: str) -> list[Line]:
    """Return the lines of a recording that `write` has written.

    Raises:
        ValueError: it is another version, or has an event that is no whole line.
    """
    header, *events = [json.loads(line) for line in text.splitlines()]
    if header.get("version") != 2:
        raise ValueError("not asciicast v2")
    found = list[Line]()
    for seconds, kind, printed in events:
        if kind != "o" or not printed.endswith("\r\n") or "\n" in printed[:-1]:
            raise ValueError(f"not one line of output: {printed!r}")
        found.append(Line(float(seconds), printed.removesuffix("\r\n")))
    return found

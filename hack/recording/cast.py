"""A recorded terminal as text: asciicast v2, of which events of output are used. Pure."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

COLUMNS = 100
ROWS = 40


@dataclass(frozen=True, slots=True)
class Output:
    """What was printed at once, and when, in seconds from the beginning."""

    seconds: float
    text: str


def write(outputs: Sequence[Output]) -> str:
    """Return the recording as a file of asciicast v2."""
    header = {"version": 2, "width": COLUMNS, "height": ROWS}
    events = [[round(each.seconds, 2), "o", each.text] for each in outputs]
    return "".join(f"{json.dumps(part, ensure_ascii=False)}\n" for part in (header, *events))


def read(text: str) -> list[Output]:
    """Return the outputs of a recording that `write` has written.

    Raises:
        ValueError: it is another version, or has another event than output.
    """
    header, *events = [json.loads(line) for line in text.splitlines()]
    if header.get("version") != 2:
        raise ValueError("not asciicast v2")
    if odd := [event for event in events if event[1] != "o"]:
        raise ValueError(f"not output: {odd[0]!r}")
    return [Output(float(seconds), printed) for seconds, _, printed in events]

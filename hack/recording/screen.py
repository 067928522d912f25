"""A terminal that is as large as need be, and knows the control sequences that rich uses. Pure."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from hack.recording.cast import Output

_TOKENS = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])|([\r\n])|([^\x1b\r\n]+)")


@dataclass(frozen=True, slots=True)
class Span:
    """Characters of one style: the codes of SGR that are set, such as ("1", "32")."""

    text: str
    style: tuple[str, ...] = ()


Row = tuple[Span, ...]
_EMPTY: Row = ()


@dataclass(frozen=True, slots=True)
class Version:
    """What a row showed from one moment to another, None for the end of the recording."""

    row: int
    spans: Row
    start: float
    end: float | None


@dataclass
class Screen:
    """Rows of characters with a style each, and where the next one is written."""

    rows: list[list[tuple[str, tuple[str, ...]]]] = field(default_factory=lambda: [[]])
    row: int = 0
    column: int = 0
    style: tuple[str, ...] = ()

    def feed(self, text: str) -> None:
        """Show what is printed.

        Raises:
            ValueError: it has a control sequence that this terminal does not know.
        """
        position = 0
        while position < len(text):
            found = _TOKENS.match(text, position)
            if found is None:
                raise ValueError(f"unknown: {text[position : position + 10]!r}")
            position = found.end()
            numbers, command, line_end, characters = found.groups()
            if characters:
                self._write(characters)
            elif line_end == "\r":
                self.column = 0
            elif line_end == "\n":
                self._go_down()
            else:
                self._control(numbers, command)

    def _write(self, characters: str) -> None:
        line = self.rows[self.row]
        line += [(" ", ())] * (self.column - len(line))
        cells = [(character, self.style) for character in characters]
        line[self.column : self.column + len(cells)] = cells
        self.column += len(cells)

    def _go_down(self) -> None:
        self.row += 1
        if self.row == len(self.rows):
            self.rows.append([])

    def _control(self, numbers: str, command: str) -> None:
        match command:
            case "m":
                self._set_style(numbers.split(";"))
            case "A":
                self.row = max(self.row - int(numbers or 1), 0)
            case "K":
                self.rows[self.row] = [] if numbers == "2" else self.rows[self.row][: self.column]
            case "h" | "l":
                pass  # the cursor is not drawn
            case _:
                raise ValueError(f"unknown: ESC [ {numbers} {command}")

    def _set_style(self, codes: Sequence[str]) -> None:
        for code in codes:
            self.style = () if code in ("", "0") else (*self.style, code)

    def shown(self) -> list[Row]:
        """Return the rows, without blanks at their ends."""
        return [tuple(_spans(row)) for row in self.rows]


def _spans(row: Sequence[tuple[str, tuple[str, ...]]]) -> Iterator[Span]:
    text = ""
    style: tuple[str, ...] = ()
    end = len("".join(character for character, _ in row).rstrip())
    for character, next_style in row[:end]:
        if next_style != style and text:
            yield Span(text, style)
            text = ""
        text, style = text + character, next_style
    if text:
        yield Span(text, style)


def versions(outputs: Sequence[Output]) -> list[Version]:
    """Return what each row showed, and for how long."""
    screen = Screen()
    since: dict[int, tuple[Row, float]] = {}
    found = list[Version]()
    for output in outputs:
        screen.feed(output.text)
        for number, spans in enumerate(screen.shown()):
            old, start = since.get(number, (_EMPTY, 0.0))
            if spans == old:
                continue
            if old and start < output.seconds:
                found.append(Version(number, old, start, output.seconds))
            since[number] = spans, output.seconds
    found += [Version(row, spans, start, None) for row, (spans, start) in since.items() if spans]
    return sorted(found, key=lambda version: (version.row, version.start))

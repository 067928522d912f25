"""Draws a recording as SVG: each line appears when it was printed. Pure.

Where animations are not supported or not desired, the picture shows all lines.
"""

from collections.abc import Sequence
from xml.sax.saxutils import escape

from hack.recording.cast import COLUMNS, Line

CHARACTER_WIDTH = 7.7
LINE_HEIGHT = 19
MARGIN = 16
PROMPT = "$ "

_STYLE = """\
  text { font: 12.8px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace;
    fill: #d6dbe1; white-space: pre; animation: appear 1ms both }
  .command { fill: #ffffff; font-weight: bold }
  @keyframes appear { from { opacity: 0 } to { opacity: 1 } }
  @media (prefers-reduced-motion) { text { animation: none } }"""


def draw(lines: Sequence[Line], title: str) -> str:
    """Return the picture of a recording."""
    width = round(2 * MARGIN + COLUMNS * CHARACTER_WIDTH)
    height = 2 * MARGIN + len(lines) * LINE_HEIGHT
    drawn = [_draw_line(number, line) for number, line in enumerate(lines, 1)]
    # xml:space is for programs that do not know `white-space`.
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" xml:space="preserve">',
            f"<title>{escape(title)}</title>",
            f"<style>\n{_STYLE}\n</style>",
            f'<rect width="{width}" height="{height}" rx="8" fill="#1b1f24"/>',
            *drawn,
            "</svg>\n",
        ]
    )


def _draw_line(number: int, line: Line) -> str:
    kind = ' class="command"' if line.text.startswith(PROMPT) else ""
    y = MARGIN + number * LINE_HEIGHT - 5
    delay = f'style="animation-delay: {line.seconds:.2f}s"'
    return f'<text x="{MARGIN}" y="{y}"{kind} {delay}>{escape(line.text)}</text>'

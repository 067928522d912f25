"""Draws a recording as SVG: each row shows what the terminal showed at that time. Pure.

Where animations are not supported or not desired, the picture shows the end of the recording.
"""

from collections.abc import Sequence
from xml.sax.saxutils import escape

from hack.recording.cast import COLUMNS, Output
from hack.recording.screen import Span, Version, versions

CHARACTER_WIDTH = 7.7
LINE_HEIGHT = 19
MARGIN = 16
PROMPT = "$ "
# By the codes of SGR (ECMA-48).
_COLOURS = {
    "1": "bold",
    "2": "soft",
    "31": "red",
    "32": "green",
    "33": "yellow",
    "34": "blue",
    "90": "soft",
    "91": "red",
    "92": "green",
    "94": "blue",
}

_STYLE = """\
  text { font: 12.8px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace;
    fill: #d6dbe1; white-space: pre }
  .past { opacity: 0 }
  .bold, .command { font-weight: bold } .command { fill: #ffffff }
  .red { fill: #ff7b72 } .green { fill: #56d364 } .yellow { fill: #e3b341 }
  .blue { fill: #79c0ff } .soft { fill: #7d8590 }
  @keyframes appear { from { opacity: 0 } to { opacity: 1 } }
  @keyframes vanish { from { opacity: 1 } to { opacity: 0 } }
  @media (prefers-reduced-motion) { text { animation: none !important } }"""


def draw(outputs: Sequence[Output], title: str) -> str:
    """Return the picture of a recording."""
    shown = versions(outputs)
    rows = 1 + max((version.row for version in shown if version.end is None), default=0)
    width = round(2 * MARGIN + COLUMNS * CHARACTER_WIDTH)
    height = 2 * MARGIN + rows * LINE_HEIGHT
    drawn = [_draw(version) for version in shown if version.row < rows]
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


def _draw(version: Version) -> str:
    y = MARGIN + (version.row + 1) * LINE_HEIGHT - 5
    inner = "".join(map(_span, version.spans))
    is_command = "".join(span.text for span in version.spans).startswith(PROMPT)
    kinds = " ".join(filter(None, ("command" * is_command, "past" * (version.end is not None))))
    kind = f' class="{kinds}"' if kinds else ""
    animation = f"appear 1ms {version.start:.2f}s both"
    if version.end is not None:
        animation = f"{animation}, vanish 1ms {version.end:.2f}s forwards"
    return f'<text x="{MARGIN}" y="{y}"{kind} style="animation: {animation}">{inner}</text>'


def _span(span: Span) -> str:
    kinds = " ".join(dict.fromkeys(_COLOURS[code] for code in span.style if code in _COLOURS))
    text = escape(span.text)
    return f'<tspan class="{kinds}">{text}</tspan>' if kinds else text

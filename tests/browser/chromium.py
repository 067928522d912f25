"""Headless Chromium: a page as a picture, the document that it becomes, and its log.

`python -m tests.browser.chromium` draws the pictures in docs/ again.
"""

import shutil
import struct
import subprocess
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from kubectl_dsjob.html_page import html_page
from tests.unit.cli.views import real_run

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--hide-scrollbars", "--force-color-profile=srgb", "--enable-logging=stderr"),
)
LIMIT_SECONDS = 60
PICTURES = {5: (1100, 1800), 5000: (1100, 2000)}
Colour = tuple[int, int, int]


def program() -> str:
    """Return the path of Chromium; AssertionError if there is none."""
    found = next(filter(None, map(shutil.which, PROGRAMS)), None)
    assert found, "there is no Chromium; on Debian: apt-get install chromium"
    return found


def run(page: Path, *flags: str) -> tuple[str, str]:
    """Return what Chromium prints for a page: its stdout, and its log."""
    with tempfile.TemporaryDirectory() as profile:
        done = subprocess.run(
            [program(), *FLAGS, f"--user-data-dir={profile}", *flags, page.as_uri()],
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
            check=True,
        )
    return done.stdout, done.stderr


def picture(page: Path, target: Path, size: tuple[int, int], *flags: str) -> str:
    """Write what a window of that size shows; return the log."""
    width, height = size
    return run(page, f"--window-size={width},{height}", f"--screenshot={target}", *flags)[1]


def rows(path: Path) -> Iterator[list[Colour]]:
    """Yield the rows of a PNG (8 bits for each channel, not interlaced)."""
    data = path.read_bytes()
    position, body = 8, b""
    width = height = channels = 0
    while position < len(data):
        length, kind = struct.unpack(">I4s", data[position : position + 8])
        part = data[position + 8 : position + 8 + length]
        if kind == b"IHDR":
            width, height, _, colour_type = struct.unpack(">IIBB", part[:10])
            channels = {2: 3, 6: 4}[colour_type]
        elif kind == b"IDAT":
            body += part
        position += length + 12
    raw = zlib.decompress(body)
    stride = width * channels
    line = bytearray(stride)
    for start in range(0, height * (stride + 1), stride + 1):
        filtered = bytearray(raw[start + 1 : start + 1 + stride])
        line = _unfilter(raw[start], filtered, line, channels)
        yield list(zip(*(line[i::channels] for i in range(3)), strict=True))


def colours(path: Path) -> Counter[Colour]:
    """Return how many pixels a picture has of each colour."""
    found: Counter[Colour] = Counter()
    for row in rows(path):
        found.update(row)
    return found


def _unfilter(kind: int, line: bytearray, above: bytearray, step: int) -> bytearray:
    """Return a line of pixels without its filter (PNG specification, 9)."""
    for i in range(len(line)):
        left = line[i - step] if i >= step else 0
        corner = above[i - step] if i >= step else 0
        if kind == 1:
            line[i] = (line[i] + left) & 255
        elif kind == 2:
            line[i] = (line[i] + above[i]) & 255
        elif kind == 3:
            line[i] = (line[i] + (left + above[i]) // 2) & 255
        elif kind == 4:
            guess = left + above[i] - corner
            nearest = min((left, above[i], corner), key=lambda each: abs(guess - each))
            line[i] = (line[i] + nearest) & 255
    return line


def main() -> None:
    """Draw the pictures in docs/."""
    with tempfile.TemporaryDirectory() as folder:
        for count, size in PICTURES.items():
            page = Path(folder, "page.html")
            page.write_text(html_page(real_run(count)), "utf-8")
            picture(page, ROOT / "docs" / f"report-{count}.png", size)


if __name__ == "__main__":
    main()

"""What the user sees while something runs: one line per step, on stderr, with its time."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

QUIET_SECONDS = 60


def say(text: str) -> None:
    """Print words for the user; stdout stays free for data."""
    print(text, file=sys.stderr, flush=True)


def show(text: str) -> None:
    """Print data, which another program may read."""
    print(text, flush=True)


@contextmanager
def step(text: str) -> Iterator[None]:
    """Print `text…` and, when the block ends, how long it took; a sign of life every minute."""
    started = time.monotonic()
    over = threading.Event()
    _write(f"{text}…")

    def tick() -> None:
        while not over.wait(QUIET_SECONDS):
            _write(f" {time.monotonic() - started:.0f} s…")

    ticker = threading.Thread(target=tick, daemon=True)
    ticker.start()
    outcome = "failed after "
    try:
        yield
        outcome = ""
    finally:
        over.set()
        ticker.join()
        _write(f" {outcome}{time.monotonic() - started:.1f} s\n")


def _write(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()

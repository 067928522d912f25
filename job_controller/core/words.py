"""Texts from elsewhere, made fit for a status, an event or a terminal."""

from __future__ import annotations

# Long enough for an image reference and a registry's sentence, short enough for `kubectl get`.
DETAIL_LIMIT = 300


def brief(text: str, limit: int = DETAIL_LIMIT) -> str:
    """Return `text` on one line, without control characters, cut to `limit` characters."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"

"""Foreign texts, made safe for a status, an event or a terminal."""

from __future__ import annotations

from daemonset_job.api.json_text import json_bytes

# Long enough for an image reference and a registry's sentence, short enough for `kubectl get`, and
# for a thousand of them in one report.
DETAIL_LIMIT = 300
_ELLIPSIS = "…"


def single_line(text: str, limit: int = DETAIL_LIMIT) -> str:
    """Return `text` on one line, without control characters, cut to `limit` bytes.

    The bytes are those of JSON as the API server writes it, six for a character such as `<`: with
    plain text they are its characters.
    """
    head = text[: limit * 8]
    if not head.isprintable():
        head = "".join(c if c.isprintable() else " " for c in head)
    line = " ".join(head.split())
    if json_bytes(line) <= limit:
        return line
    room, kept = limit - len(_ELLIPSIS.encode()), 0
    for character in line:
        room -= json_bytes(character)
        if room < 0:
            break
        kept += 1
    return line[:kept] + _ELLIPSIS

"""Foreign texts, made safe for a status, an event or a terminal."""

from __future__ import annotations

from daemonset_job.api.json_text import json_bytes

# Long enough for an image reference and a registry's sentence, short enough for `kubectl get`, and
# for a thousand of them in one report.
DETAIL_LIMIT = 300
# A refusal may list all violations of a policy, with the reason at the end. A condition has room.
REFUSAL_LIMIT = 1024
_ELLIPSIS = "…"


def single_line(text: str, limit: int = DETAIL_LIMIT) -> str:
    """Return `text` on one line, without control characters, shortened to `limit` bytes.

    A text that is too long loses its middle: it begins with what was tried, and ends with the
    reason. The bytes are those of JSON as the API server writes it, six for a character such as
    `<`: with plain text they are its characters.
    """
    # A longer text need not be read: 8 characters make at least one of the line, but for spaces.
    most = limit * 8
    is_short = len(text) <= 2 * most
    head = _on_one_line(text if is_short else text[:most])
    if is_short and json_bytes(head) <= limit:
        return head
    tail = head if is_short else _on_one_line(text[-most:])
    room = limit - len(_ELLIPSIS.encode())
    begin = _beginning(head, room // 2)
    end = _beginning(tail[::-1], room - json_bytes(begin))[::-1]
    return f"{begin.rstrip()}{_ELLIPSIS}{end.lstrip()}"


def _on_one_line(text: str) -> str:
    if not text.isprintable():
        text = "".join(c if c.isprintable() else " " for c in text)
    return " ".join(text.split())


def _beginning(line: str, room: int) -> str:
    """Return the beginning of a line that has at most `room` bytes."""
    kept = 0
    for character in line:
        room -= json_bytes(character)
        if room < 0:
            break
        kept += 1
    return line[:kept]

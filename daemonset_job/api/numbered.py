"""What a user may request again after something else: a revision, or a request to run again.

After a change and a change back, a hash is the same as before. So each change has a number, too.
The status has the newest one before anything is done for it. The next number follows from the
status and from what the user wants now, so both programs find the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

# Digits of a number. What has more was written by another client.
_DIGITS: Final = 9


def next_numbered(recorded: str, digest: str) -> str:
    """Return `recorded`, such as "2-89abcdef", if it has this hash, else "3-" and the hash.

    Without a hash it is the number alone, "2", and "" if there was none before. After that any hash
    is a new one.
    """
    number, _, known = recorded.partition("-")
    if not digest:
        return number
    return recorded if known == digest else f"{number_of(recorded) + 1}-{digest}"


def newest_numbered(found: Iterable[str]) -> str:
    """Return the text with the highest number, "" for none.

    Of different ones with that number it is the number alone, so that any hash is a new one.
    """
    texts = set(found)
    highest = max(map(number_of, texts), default=0)
    newest = [text for text in texts if number_of(text) == highest]
    if not highest:
        return ""
    return newest[0] if len(newest) == 1 else str(highest)


def number_of(recorded: str) -> int:
    """Return the number in such a text, 0 without one."""
    number = recorded.partition("-")[0]
    is_number = number.isascii() and number.isdigit() and len(number) <= _DIGITS
    return int(number) if is_number else 0

"""Splits a log's bytes into lines: in bounded memory, and without repeating lines on resumption.

Pure. The input is what the kubelet sends for ``timestamps=true`` (kubernetes
pkg/kubelet/kuberuntime/logs, logWriter.write). Each line begins with the time of its first record
and one blank. The time is RFC 3339 with nanoseconds and possibly a zone's offset. The kubelet has
already joined the records of one long line. Text without a time is either the rest of a line whose
head was cut off by ``tailLines`` or an error message of the kubelet. Neither is a whole line of
the task.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple

# The head of a line that is kept; containerd cuts longer lines into records of this size too.
LINE_LIMIT = 16 * 1024
# "2024-01-02T03:04:05.123456789+02:00 " and nothing longer.
_STAMP_LIMIT = 36
# The rest of a line whose head was cut off is longer: a record of a runtime is.
_ERROR_LIMIT = 4 * 1024
_STAMP = re.compile(
    rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)(?: |$)", re.ASCII
)


class Line(NamedTuple):
    """One line: its time, its bytes without newline, and whether it is complete.

    `timestamp` is RFC 3339 in UTC with nine digits, so that it compares as text, or "" if there
    was none. `truncated`: `data` is the first LINE_LIMIT bytes only. `unfinished`: the answer ended
    before a newline, so the line may continue.
    """

    timestamp: str
    data: bytes
    truncated: bool = False
    unfinished: bool = False


class Cursor(NamedTuple):
    """How far a log was read: the last line's time, and the number of lines at it."""

    timestamp: str = ""
    seen: int = 0

    def after(self, timestamp: str) -> "Cursor":
        """Return the cursor advanced by one line of that time."""
        if not timestamp:
            return self
        return Cursor(timestamp, self.seen + 1 if timestamp == self.timestamp else 1)

    @property
    def since(self) -> datetime | None:
        """Return the value for ``sinceTime``: this time, cut to whole seconds, or None."""
        if not self.timestamp:
            return None
        return datetime.fromisoformat(self.timestamp[:19]).replace(tzinfo=UTC)


class Span(NamedTuple):
    """A part of a log that was read without a gap: the times of its first and its last line.

    Both are "" for an empty span. With `has_all_before`, no line with the time of the first one is
    missing before it: a log may have many lines of one time.
    """

    first_at: str = ""
    last_at: str = ""
    has_all_before: bool = False

    def follows(self, earlier: "Span") -> bool:
        """Return whether nothing is missing between `earlier` and this span."""
        if self.has_all_before and self.first_at == earlier.last_at:
            return True
        return self.first_at < earlier.last_at

    def combined_with(self, other: "Span") -> "Span":
        """Return the newest span without a gap, after `other` was read as well.

        Returns `other` itself if lines are missing before it.
        """
        if not other.last_at or (self.last_at and other.last_at < self.first_at):
            return self  # an answer without lines, or an outdated one
        if not other.follows(self):
            return other
        first_at, has_all = min((self.first_at, self[2]), (other.first_at, other[2]))
        return Span(first_at, max(self.last_at, other.last_at), has_all)


class LogParser:
    """Splits the bytes of one response into lines; with a cursor, drops lines read before.

    The kubelet sends whole seconds again. So the parser drops lines before the cursor's time, and
    as many lines of exactly its time as the cursor has counted. From the first line after these,
    every line is new, even if the node's clock has been set back since. `cursor` is where to
    resume. `has_seen_cursor` says that the line of the old cursor came again, so no line is missing
    in between. `has_all_of_cursor_time` says that lines before that time came too, and therefore
    all lines of exactly that time.
    """

    def __init__(self, cursor: Cursor | None = None) -> None:
        self.cursor = cursor or Cursor()
        self.has_seen_cursor = not self.cursor.timestamp
        self.has_all_of_cursor_time = False
        self._has_others = False
        self._old = self.cursor
        self._is_resuming = bool(self.cursor.timestamp)
        self._equal = 0
        self._head = bytearray()
        self._truncated = False

    def feed(self, chunk: bytes) -> list[Line]:
        """Return the new lines that `chunk` completes, in order."""
        *ends, rest = chunk.split(b"\n")
        lines: list[Line] = []
        for end in ends:
            if self._head:
                self._extend(end)
                raw = bytes(self._head)
                self._head.clear()
            else:
                raw = end
            self._deliver(raw, lines)
            self._truncated = False
        self._extend(rest)
        return lines

    def finish(self) -> list[Line]:
        """Return the last line if it had no newline, marked unfinished; at most one.

        The cursor does not move past it: a later read brings it again, finished or not.
        """
        if not self._head:
            return []
        lines: list[Line] = []
        cursor = self.cursor
        self._deliver(bytes(self._head), lines)
        self.cursor = cursor
        self._head.clear()
        return [line._replace(unfinished=True) for line in lines]

    def _extend(self, data: bytes) -> None:
        room = LINE_LIMIT + _STAMP_LIMIT - len(self._head)
        self._head += data[:room]
        self._truncated = self._truncated or len(data) > room

    def _deliver(self, raw: bytes, lines: list[Line]) -> None:
        timestamp, data = _split(raw)
        if self._is_resuming and not self._is_new(timestamp):
            return
        self.cursor = self.cursor.after(timestamp)
        truncated = self._truncated or len(data) > LINE_LIMIT
        lines.append(Line(timestamp, data[:LINE_LIMIT] if truncated else data, truncated))

    def _is_new(self, timestamp: str) -> bool:
        """Return whether a line of that time is new, if all lines before it were known."""
        if timestamp < self._old.timestamp:  # "" too: a fragment of something known
            self._has_others = self._has_others or bool(timestamp)
            return False
        if timestamp == self._old.timestamp:
            self.has_seen_cursor = True
            self.has_all_of_cursor_time = self._has_others
            self._equal += 1
            if self._equal <= self._old.seen:
                return False
        self._is_resuming = False
        return True


def kubelet_error(answer: bytes) -> str:
    """Return the message if the kubelet answered with an error and not with a log, else "".

    It sends some errors with status 200, for example "unable to retrieve container logs for
    containerd://ID" of a container that it replaces (kubernetes pkg/kubelet/kuberuntime,
    GetContainerLogs). They are one line without a time.
    """
    if len(answer) > _ERROR_LIMIT:  # most answers: they are not looked at
        return ""
    text = answer.rstrip(b"\n")
    if b"\n" in text or _STAMP.match(text):
        return ""
    return text.decode(errors="replace")


def portions(data: bytes, count: int) -> Iterator[bytes]:
    """Yield `data` in pieces of `count` bytes, at least one."""
    for start in range(0, max(len(data), 1), count):
        yield data[start : start + count]


def _split(raw: bytes) -> tuple[str, bytes]:
    """Return a raw line's time, normalised, and the rest; ("", raw) without a time.

    The task itself may have printed what looks like a time. If `sinceTime` leaves out a record of
    16 KiB, the kubelet sends the next record without a time before it.
    """
    found = _STAMP.match(raw)
    if found is None:
        return "", raw
    whole, fraction, zone = found[1].decode(), (found[2] or b"").decode(), found[3]
    try:
        if zone == b"Z":
            datetime.fromisoformat(whole)
        else:
            moment = datetime.fromisoformat(whole + zone.decode()).astimezone(UTC)
            whole = moment.replace(tzinfo=None).isoformat()
    except (ValueError, OverflowError):
        return "", raw
    return f"{whole}.{fraction:0<9}Z", raw[found.end() :]

"""The findings in the log of one container instance, and the gapless span that they are from.

Pure. A result counts only if no other value of it can have been printed later, up to the token.
Therefore the findings are kept together with their span: the part of the log, up to its newest
line, that was read without a gap. There are three causes of a gap. A read does not reach back to
the read before, a stream does not resume at the last line read, or the kubelet rotates the file.
Results from before a gap are dropped, and searched for again after the token (see
``backward_read``).

While a stream is open, a short read may be ahead of it. This is no gap yet: the stream delivers
the lines between, unless it ends first.
"""

from collections.abc import Iterator
from datetime import datetime

from terminator.logs.findings import Findings
from terminator.logs.log_parser import Cursor, Line, LogParser, Span, portions
from terminator.logs.matcher import Matcher
from terminator.logs.tail_read import TailRead


class InstanceLog:
    """The findings in one instance's log, and how far it was read (`cursor`, `unfinished`)."""

    def __init__(self) -> None:
        self.findings = Findings()
        self.cursor = Cursor()
        self.unfinished: Line | None = None
        self._span = Span()
        self._ahead = Span()  # read ahead of the open stream, if there is one

    def is_ahead_of(self, span: Span) -> bool:
        """Return whether lines later than all of `span` were read."""
        return bool(span.last_at) and self._span.last_at > span.last_at

    def take_read(self, read: TailRead, *, is_streaming: bool) -> None:
        """Add the span of a short read that is over."""
        if read.has_decided:
            self._join(read.span)
        elif not self.findings.is_final:
            self._join(read.span, may_wait=is_streaming)

    def take_stream(self, span: Span) -> None:
        """Add the span that a stream has delivered since its beginning."""
        self._join(span)

    def stream_ended(self) -> None:
        """Record that no stream fills the gap before the lines that are ahead of it."""
        ahead, self._ahead = self._ahead, Span()
        if not self.findings.is_final:
            self._join(ahead)

    def _join(self, part: Span, *, may_wait: bool = False) -> None:
        if may_wait and not part.follows(self._span):
            self._ahead = self._ahead.combined_with(part)
        else:
            self._extend(part)
        if self._ahead.last_at and self._ahead.follows(self._span):
            self._extend(self._ahead)
            self._ahead = Span()

    def _extend(self, part: Span) -> None:
        before, self._span = self._span, self._span.combined_with(part)
        self.findings.drop_results_before(self._span.first_at)
        if self._span is part and before.last_at == part.first_at:
            # Some lines of this time are missing, and it is unknown which.
            self.findings.drop_results_up_to(part.first_at)


class StreamRead:
    """A follow stream of one instance's log that resumes at the last line read.

    Request lines `since` that time, if any, and pass them to `feed`, which advances `cursor`.
    """

    def __init__(self, matcher: Matcher, log: InstanceLog) -> None:
        self._matcher = matcher
        self._log = log
        self._from = log.cursor
        self._parser = LogParser(log.cursor)
        self._first_at = ""
        self._newest_at = log.cursor.timestamp

    @property
    def since(self) -> datetime | None:
        """Return the time to resume at, None for the beginning of the log."""
        return self._from.since

    @property
    def cursor(self) -> Cursor:
        """Return how far the stream has come."""
        return self._parser.cursor

    def feed_in_portions(self, chunk: bytes) -> Iterator[None]:
        """Parse more of the stream until a token is found; yield between portions."""
        for number, portion in enumerate(portions(chunk, self._matcher.portion_bytes)):
            if number:
                yield
            if self._log.findings.is_final:
                return
            self.feed(portion)

    def feed(self, chunk: bytes) -> None:
        """Parse more of the stream and add what it says to the findings."""
        lines = self._parser.feed(chunk)
        times = (line.timestamp for line in lines if line.timestamp)
        if not self._first_at and (first_at := next(times, "")):
            self._first_at = first_at
            if not self._parser.has_seen_cursor:
                # It may be the rest of a longer line (see ``tail_read``); the next check decides.
                del lines[0]
            elif self._from.timestamp:
                self._first_at = self._from.timestamp
        findings = self._log.findings
        findings.remember(lines)
        findings.add(self._matcher, lines, self._newest_at)
        self._newest_at = max(self._newest_at, *(line.timestamp for line in lines), "")
        if self._first_at:
            span = Span(self._first_at, self._parser.cursor.timestamp, self._parser.has_seen_cursor)
            self._log.take_stream(span)

"""What is known of a log after any reads and streams of it: a result is the last one, or missing.

The kubelet is played by `Log`: it serves the end of the newest file, and streams.
"""

from bisect import bisect_left

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from terminator.logs.instance_log import InstanceLog, StreamRead
from terminator.logs.matcher import Matcher
from terminator.logs.tail_read import TailRead

MATCHER = Matcher("done", "Line", None, ("ip", "n"))


def stamp(number):
    return f"2026-01-02T03:{number // 60:02}:{number % 60:02}.000000000Z"


class Log:
    """A log with `pace` lines of each timestamp, and the reader of it.

    No two files have lines of one timestamp: the kubelet rotates a log seconds apart.
    """

    def __init__(self, pace=1):
        self.pace = pace
        self.lines = []
        self.numbers = []  # of the lines' timestamps
        self.number = self.count = 0
        self.file_begins = 0
        self.seen = InstanceLog()
        self.stream = None
        self.sent = 0

    def write(self, *lines):
        for line in lines:
            if self.count == self.pace:
                self.tick()
            self.lines.append(line)
            self.numbers.append(self.number)
            self.count += 1

    def tick(self):
        """Let the next line have another timestamp."""
        self.number, self.count = self.number + 1, 0

    def rotate(self):
        self.file_begins = len(self.lines)
        self.tick()

    def _bytes(self, begin, end):
        return b"".join(
            f"{stamp(self.numbers[n])} ".encode() + self.lines[n] + b"\n" for n in range(begin, end)
        )

    def _begin(self, since, count):
        begin = max(self.file_begins, len(self.lines) - count)
        if since is None:
            return begin
        return max(begin, bisect_left(self.numbers, _number(since)))

    def read(self, *, uses_cursor=False):
        cursor = self.seen.cursor if uses_cursor and self.seen.cursor.timestamp else None
        read = TailRead(MATCHER, self.seen.findings, cursor)
        while read.request is not None:
            begin = self._begin(cursor.since if cursor else None, read.request.lines)
            read.feed(self._bytes(begin, len(self.lines))[: read.request.max_bytes])
        self.seen.take_read(read, is_streaming=self.stream is not None)
        self.seen.cursor = max(self.seen.cursor, read.cursor)

    def open(self):
        self.stream = StreamRead(MATCHER, self.seen)
        since = self.stream.since
        self.sent = self._begin(since, 2000 if since is not None else len(self.lines))

    def send(self, count):
        end = min(self.sent + count, len(self.lines))
        if not self.seen.findings.is_final:
            self.stream.feed(self._bytes(self.sent, end))
            self.seen.cursor = max(self.seen.cursor, self.stream.cursor)
        self.sent = end

    def close(self):
        self.stream = None
        self.seen.stream_ended()

    @property
    def results(self):
        return self.seen.findings.results


def _number(moment):
    return moment.minute * 60 + moment.second


def noise(count):
    return [b"noise"] * count


IP = b"dsjob:result ip=1"
IP2 = b"dsjob:result ip=2"


def test_older_result_is_dropped_at_a_gap_closed_later():
    log = Log()
    log.write(IP)
    log.read()
    log.write(IP2, *noise(150))
    log.read()  # of the last hundred lines
    log.write(b"done")
    log.read(uses_cursor=True)  # goes on from there
    assert log.seen.findings.completed_at
    assert log.results == {}


def test_an_older_value_is_dropped_at_a_gap_before_a_stream():
    log = Log()
    log.write(IP)
    log.read()
    log.write(IP2, *noise(2500))
    log.open()
    log.send(9000)
    log.close()
    log.write(b"done")
    log.read()
    assert log.seen.findings.completed_at
    assert log.results == {}


def test_an_older_value_is_dropped_when_the_log_was_rotated():
    log = Log()
    log.write(IP)
    log.read()
    log.write(IP2)
    log.rotate()
    log.write(b"x", b"done")
    log.read(uses_cursor=True)
    assert log.seen.findings.completed_at
    assert log.results == {}


@pytest.mark.parametrize("uses_cursor", [False, True])
def test_lines_of_one_time_do_not_hide_a_gap(uses_cursor):
    log = Log(pace=1000)
    log.write(IP)
    log.read()
    log.write(IP2, *noise(150), b"done")
    log.read(uses_cursor=uses_cursor)
    assert log.seen.findings.completed_at
    assert log.results == {}


def test_a_log_of_one_line_that_is_read_again_is_known():
    log = Log()
    log.write(IP)
    log.read()
    log.read()
    log.write(b"done")
    log.read()
    assert log.results == {"ip": "1"}


def test_a_check_drops_nothing_that_a_stream_has_seen_without_a_gap():
    log = Log()
    log.write(IP)
    log.open()
    log.send(1)
    log.write(*noise(300))
    log.send(300)
    log.read()
    log.write(b"done")
    log.read()
    assert log.seen.findings.completed_at
    assert log.results == {"ip": "1"}


@pytest.mark.parametrize("seconds", [(1, 5, 3), (5, 3, 4), (5, 3, 6)])
def test_a_stream_takes_the_last_result_although_the_clock_was_set_back(seconds):
    log = InstanceLog()
    stream = StreamRead(MATCHER, log)
    for second, text in zip(seconds, (IP, IP2, b"done"), strict=True):
        stream.feed(f"{stamp(second)} ".encode() + text + b"\n")
    assert log.findings.completed_at
    assert log.findings.results == {"ip": "2"}


def test_short_read_ahead_of_its_stream_drops_nothing():
    log = Log()
    log.write(IP)
    log.read()
    log.open()
    log.write(*noise(300))
    log.read()
    assert log.results == {"ip": "1"}
    log.send(400)
    log.close()
    log.write(b"done")
    log.read()
    assert log.results == {"ip": "1"}


def test_stream_that_ends_before_the_last_short_read_leaves_a_gap():
    log = Log()
    log.write(IP)
    log.read()
    log.open()
    log.write(IP2, *noise(300))
    log.read()
    log.close()
    log.write(b"done")
    log.read()
    assert log.seen.findings.completed_at
    assert log.results == {}


def test_what_was_checked_ahead_of_a_stream_that_ends_is_known():
    log = Log()
    log.write(b"x")
    log.read()
    log.open()
    log.write(*noise(300), IP, b"x")
    log.read()
    log.close()
    log.write(b"done")
    log.read(uses_cursor=True)
    assert log.results == {"ip": "1"}


def test_a_stream_of_a_whole_log_fills_the_gap_before_what_was_read():
    log = Log()
    log.open()
    log.write(IP, *noise(300))
    log.read()
    log.send(400)
    log.write(b"done")
    log.send(1)
    assert log.results == {"ip": "1"}


steps = st.one_of(
    st.tuples(st.just("write"), st.sampled_from([1, 60, 99, 100, 101, 150, 2100])),
    st.tuples(st.just("result"), st.sampled_from(["ip", "n"])),
    st.tuples(st.just("read"), st.booleans()),
    st.tuples(st.just("open"), st.none()),
    st.tuples(st.just("send"), st.sampled_from([1, 50, 400, 9000])),
    st.tuples(st.just("close"), st.none()),
    st.tuples(st.just("rotate"), st.none()),
)


def happen(log, what, how):
    match what:
        case "read":
            log.read(uses_cursor=how)
        case "open" if log.stream is None:
            log.open()
        case "send" if log.stream is not None:
            log.send(how)
        case "close" if log.stream is not None:
            log.close()
        case "rotate":
            log.rotate()


@example([("result", "n"), ("read", False), ("result", "n"), ("rotate", None)], 0, False, 3)
@example([("write", 60), ("read", False), ("rotate", None), ("open", None)], 0, True, 3)
@given(
    st.lists(steps, max_size=25),
    st.sampled_from([0, 3, 150]),
    st.booleans(),
    st.sampled_from([1, 1, 3, 300]),
)
def test_a_result_is_the_last_one_or_missing(history, after, by_stream, pace):
    log, last = Log(pace), {}
    for what, how in history:
        if what == "write":
            log.write(*noise(how))
        elif what == "result":
            last[how] = str(len(log.lines))
            log.write(f"dsjob:result {how}={last[how]}".encode())
        else:
            happen(log, what, how)
    log.write(b"done")
    log.tick()
    log.write(*noise(after), b"dsjob:result ip=late")
    if by_stream and log.stream is not None:
        log.send(100_000)
    log.read()
    if log.seen.findings.is_final:
        assert log.results.items() <= last.items()

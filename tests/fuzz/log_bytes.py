"""Bytes of logs: as kubelets send them, as they should not, and anything."""

from tests.fuzz.source import Source

_TIMESTAMPS = (
    b"2026-01-02T03:04:05.000000001Z",
    b"2026-01-02T03:04:05.000000002Z",
    b"2026-01-02T03:04:05Z",
    b"2026-01-02T03:04:06.5Z",
    b"2026-01-02T05:04:05.123456789+02:00",
    b"9999-12-31T23:59:59.999999999Z",
    b"9999-12-31T23:59:59-14:00",
    b"0001-01-01T00:00:00+14:00",
    b"0000-00-00T00:00:00Z",
    b"2026-02-30T25:61:61Z",
    b"2026-01-02T03:04:05.1234567890Z",
    b"2026-01-02T03:04:05",
    b"2026-01-02T03:04:05+99:99",
    "\u0662\u0660\u0662\u0666-01-02T03:04:05Z".encode(),
    b"unable to retrieve container logs for containerd://x",
    b"",
)
_TEXTS = (
    b"done",
    b"x",
    b"",
    b"broken",
    b"dsjob:result ip=10.0.0.1",
    b"dsjob:progress 1/2",
    b"\x1b[32mdone\x1b[0m\r",
    b"done!",
    b"dsjob:result ip=" + b"y" * 300,
    b"dsjob:progress 999999999999999/1",
    b"\xff\x00\x9b",
)
_LONG = (4095, 16 * 1024 - 1, 16 * 1024, 16 * 1024 + 1, 16 * 1024 + 36, 16 * 1024 + 37, 40_000)


def draw_timestamp(source: Source) -> bytes:
    return source.pick(_TIMESTAMPS)


def draw_line(source: Source) -> bytes:
    """Return what comes after a line's time."""
    match source.below(8):
        case 0:
            return source.take(source.below(40)).replace(b"\n", b"")
        case 1:
            return source.pick((b"x", b"\x1b[", b"\xe2")) * source.pick(_LONG)
        case _:
            return source.pick(_TEXTS)


def draw_log(source: Source, lines: int = 40) -> bytes:
    """Return a log: lines with times and without, repeated ones, perhaps an end without newline."""
    if source.below(4) == 0:
        return source.rest()
    log = []
    for _ in range(source.below(lines)):
        line = draw_timestamp(source) + source.pick((b" ", b" ", b" ", b"", b"  "))
        line += draw_line(source) + b"\n"
        log += [line] * (1 if source.below(8) else 1 + source.below(150))
    return b"".join(log) + (b"" if source.below(2) else source.take(60))

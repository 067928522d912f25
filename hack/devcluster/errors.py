"""What can go wrong, in the two shapes a user can act on.

DevclusterError
|-- MissingError      something this machine lacks: what, why, how to get it (exit code 2)
`-- StepFailedError   a step was tried and failed: the command's last words (exit code 1)
"""

from pathlib import Path

TAIL_LINES = 20


class DevclusterError(Exception):
    """Base of everything that is reported to the user as a sentence, never as a traceback."""

    exit_code = 1


class MissingError(DevclusterError):
    """The machine lacks something; the text says what, why it is needed and how to get it."""

    exit_code = 2

    def __init__(self, what: str, *, why: str, fix: str) -> None:
        """Keep the three parts, so that `doctor` can print them in its own form."""
        super().__init__(f"missing: {what}\n  needed for: {why}\n  to get it:  {fix}")
        self.what = what
        self.why = why
        self.fix = fix


class StepFailedError(DevclusterError):
    """A command failed; shows the end of its log and where the whole log is."""

    def __init__(self, what: str, *, log: Path | None = None) -> None:
        """Append the log's last lines to the sentence, if there is a log."""
        super().__init__(what if log is None else f"{what}\n{tail(log)}\nfull log: {log}")


def tail(log: Path, lines: int = TAIL_LINES) -> str:
    """Return the last lines of a log, indented; empty if it cannot be read."""
    try:
        text = log.read_text(errors="replace")
    except OSError:
        return ""
    return "\n".join(f"  | {line}" for line in text.splitlines()[-lines:])

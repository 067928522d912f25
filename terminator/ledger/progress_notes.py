"""The progress of the tasks of one run, until it is due to be written.

Pure: time is given, in seconds of the event loop's clock. A task may print progress a thousand
times a second, on thousands of nodes. So all progress of a run is written together, at a bounded
rate, and that of an attempt not before its second ten seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from daemonset_job.api.evidence import Evidence
from daemonset_job.api.task_progress import TaskProgress

# How old a note has to be, and the least pause between two writes of a run.
NOTE_SECONDS: Final = 10.0
# A report of 1,000 nodes costs the API server about a quarter of a second per write, and each watch
# as much. With this pause, progress costs it about 1 % of one processor.
SECONDS_PER_NODE: Final = 0.03
MAX_PAUSE_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class _Note:
    """The newest progress on a node, and since when there is some that is not written."""

    node_uid: str
    progress: TaskProgress
    since: float


class ProgressNotes:
    """The newest progress on each node that is not written yet; false without any."""

    def __init__(self) -> None:
        self._notes: dict[str, _Note] = {}
        self._next_at = 0.0

    def __bool__(self) -> bool:
        """Return whether there is a note."""
        return bool(self._notes)

    def add(self, node: str, node_uid: str, progress: TaskProgress, now: float) -> None:
        """Note the progress on a node, instead of older progress."""
        known = self._notes.get(node)
        since = now
        if known is not None and _attempt(known.progress) == _attempt(progress):
            since = known.since
        self._notes[node] = _Note(node_uid, progress, since)

    def clear(self) -> None:
        """Drop all notes."""
        self._notes.clear()

    def remaining_seconds(self, now: float) -> float | None:
        """Return the seconds until progress is due, 0 if it is, None if there is none."""
        if not self._notes:
            return None
        oldest = min(note.since for note in self._notes.values())
        return max(oldest + NOTE_SECONDS - now, self._next_at - now, 0.0)

    def take_due(self, nodes: int, now: float) -> dict[str, Evidence]:
        """Return the evidence that is due, by node; it is not returned again.

        The next is due after a pause that grows with the `nodes` of the run.
        """
        if self.remaining_seconds(now) != 0:
            return {}
        due = {
            name: Evidence(note.node_uid, progress=note.progress)
            for name, note in self._notes.items()
            if note.since + NOTE_SECONDS <= now
        }
        for name in due:
            del self._notes[name]
        pause = min(max(SECONDS_PER_NODE * nodes, NOTE_SECONDS), MAX_PAUSE_SECONDS)
        self._next_at = now + pause
        return due


def _attempt(progress: TaskProgress) -> tuple[str, int]:
    return progress.pod_uid, progress.attempt

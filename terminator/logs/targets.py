"""The pods whose logs are read: for which Job and node, and the state of reading each."""

import asyncio
from dataclasses import dataclass
from zlib import crc32

from daemonset_job.api.container import Container
from daemonset_job.api.job import JobKey
from daemonset_job.api.pod import Pod
from terminator.logs.matcher import Matcher, Progress
from terminator.logs.read_policy import LogReadState


@dataclass(frozen=True, slots=True)
class Target:
    """A pod to read, the node that its log is evidence about, and the lines to look for.

    Unless `is_live`, only the logs of instances that have ended matter. `wants_lines`: the last
    lines are to be reported although the task runs. It has failed, and its pod is about to go.
    `has_succeeded`: in mode Exit, its exit code is known to have completed the node.
    """

    pod: Pod
    job_uid: str
    node_uid: str
    matcher: Matcher
    is_live: bool = True
    wants_lines: bool = False
    has_succeeded: bool = False

    def reads_same_log_as(self, other: "Target") -> bool:
        """Return whether findings for one target hold for the other."""
        return (self.pod.uid, self.node_uid, self.matcher, self.is_live) == (
            other.pod.uid,
            other.node_uid,
            other.matcher,
            other.is_live,
        )


class ScannedPod:
    """The scanner's state of one pod that it reads."""

    __slots__ = (
        "due",
        "has_warned",
        "is_queued",
        "is_yielding_stream",
        "job",
        "noted_progress",
        "read_state",
        "search",
        "stream",
        "target",
    )

    def __init__(self, job: JobKey, target: Target) -> None:
        self.job = job
        self.target = target
        spread = (crc32(target.pod.uid.encode()) & 0xFFFF) / 0x10000
        self.read_state = LogReadState(spread, is_live=target.is_live)
        self.stream: asyncio.Task[None] | None = None
        # The search of its log for missing results; the findings are reported after it.
        self.search: asyncio.Task[None] | None = None
        self.is_queued = False
        self.has_warned = False
        self.is_yielding_stream = False  # its stream is being closed for one of another namespace
        self.due = float("inf")
        # The attempt and its progress that were reported last.
        self.noted_progress: tuple[int, Progress] | None = None

    @property
    def container(self) -> Container | None:
        """Return the task container, as the cache has it."""
        return self.target.pod.container

    @property
    def namespace(self) -> str:
        """Return the namespace of its Job."""
        return self.job[0]

    @property
    def is_decided(self) -> bool:
        """Return whether its findings are final and no search runs."""
        return self.read_state.findings.is_final and self.search is None

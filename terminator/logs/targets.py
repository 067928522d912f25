"""Which pod is read, for which Job and node, and what is known of reading it."""

import asyncio
from dataclasses import dataclass
from zlib import crc32

from daemonset_job.api.objects import Container, Pod
from terminator.logs.matcher import Matcher
from terminator.logs.read_policy import LogReadState

JobKey = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Target:
    """A pod to read, the node that it speaks for, and what to look for.

    Unless `is_live`, only the logs of instances that have ended matter.
    """

    pod: Pod
    job_uid: str
    node_uid: str
    matcher: Matcher
    is_live: bool = True

    def reads_same_log_as(self, other: "Target") -> bool:
        """Whether what was read for one holds for the other."""
        return (self.pod.uid, self.node_uid, self.matcher, self.is_live) == (
            other.pod.uid,
            other.node_uid,
            other.matcher,
            other.is_live,
        )


class ScannedPod:
    """What the scanner knows of one pod that it reads."""

    __slots__ = (
        "due",
        "is_yielding_stream",
        "is_queued",
        "job",
        "read_state",
        "search",
        "stream",
        "target",
        "has_warned",
    )

    def __init__(self, job: JobKey, target: Target) -> None:
        self.job = job
        self.target = target
        spread = (crc32(target.pod.uid.encode()) & 0xFFFF) / 0x10000
        self.read_state = LogReadState(spread, is_live=target.is_live)
        self.stream: asyncio.Task[None] | None = None
        # Reads its log backwards for results; what was found is told after that.
        self.search: asyncio.Task[None] | None = None
        self.is_queued = False
        self.has_warned = False
        self.is_yielding_stream = False  # its stream is closed for one of another namespace
        self.due = float("inf")

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
        """Whether its findings are final, and nothing more is looked for."""
        return self.read_state.findings.is_final and self.search is None

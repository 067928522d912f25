"""What the task of each Job does on the simulated nodes: its token, its failures, its time."""

import asyncio
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.integration.simulated_nodes import SimulatedNodes, TaskRun

# A kubelet waits longer and longer before it starts a failed container again. Much shorter than
# that, and long enough that the kept pods of many failed Jobs cost next to nothing.
BACK_OFF_SECONDS = 1.0
# What a task prints for a regular expression that it has to match.
REGEX_EXAMPLES = {
    "^ok$": "ok",
    "[[:alpha:]]{900}": "a" * 900,
    "^all .*$": "all done",
    "(?i)DONE|finished": "it has finished",
    "^[\\p{L}\\p{N} ]{1,200}: done$": "node: done",
    "\\p{L}{100}": "é" * 100,
}
_NUMBERED = re.compile(r"m\d{5}-")


@dataclass(frozen=True)
class Task:
    """What a task does when it is started: works for `seconds`, fails `failures` times, completes.

    If it `holds`, it works until its Job is released, whatever the load of the machine. A failure
    is the exit code `code`, or the failure token if `says` so. `waiting` is why its container
    cannot be started.
    """

    seconds: float = 0.0
    failures: int = 0
    code: int = 1
    says: bool = False
    waiting: str = ""
    holds: bool = False


class Tasks:
    """The behaviour of simulated nodes on which every Job has a task of its own."""

    def __init__(self) -> None:
        self._tasks: dict[str, tuple[Task, Mapping[str, Any]]] = {}
        self._released: dict[str, asyncio.Event] = {}
        # The nodes that call this object; set by the code that creates them.
        self.nodes: SimulatedNodes
        # By Job and node: starts of the task, and starts that were to complete the node.
        self.starts: Counter[tuple[str, str]] = Counter()
        self.completions: Counter[tuple[str, str]] = Counter()

    def add(self, job: str, task: Task, spec: Mapping[str, Any]) -> None:
        """Set the task of a Job's pods; `spec` says what completes them."""
        self._tasks[job] = (task, spec)
        self._released.setdefault(job, asyncio.Event())

    def release(self, job: str) -> None:
        """Let the tasks of a Job that wait continue."""
        self._released[job].set()

    def drop(self, job: str) -> None:
        """Forget a deleted Job."""
        self._tasks.pop(job, None)
        self._released.pop(job, None)
        for key in [key for key in self.starts if key[0] == job]:
            self.starts.pop(key, None)
            self.completions.pop(key, None)

    def _pod(self) -> str:
        """Return the name of the pod whose played life is running."""
        current = asyncio.current_task()
        assert current is not None
        if "/" in current.get_name():
            return current.get_name().partition("/")[2]
        name: str = next(
            life.pod["metadata"]["name"]
            for life in self.nodes._lives.values()
            if current in life.tasks
        )
        return name

    def __call__(self, node: str, _start: int) -> TaskRun:
        """Return what the task that starts now does (simulated_nodes.Behaviour).

        The argument is the node only. The pod's name, which begins with the Job's, is that of the
        asyncio task that calls.
        """
        pod = self._pod()
        job = pod.partition("-daemonset-job-")[0]
        # Of a Job with a long name the pod has the beginning only; it has no task of its own.
        assert job in self._tasks or (pod and not _NUMBERED.match(pod)), f"whose pod is {pod!r}?"
        task, spec = self._tasks.get(job, (Task(), {}))
        if task.waiting:
            return TaskRun(waiting=task.waiting, message="played")
        self.starts[job, node] += 1
        after = self._released[job] if task.holds else _after(task.seconds)
        completion = spec.get("completion") or {}
        if self.starts[job, node] <= task.failures:
            if task.says and completion.get("failureToken"):
                return TaskRun(lines=(completion["failureToken"],), after=after)
            lines = ("working", f"it fails at start {self.starts[job, node]}")
            return TaskRun(lines, task.code, after=after, back_off=BACK_OFF_SECONDS)
        self.completions[job, node] += 1
        if completion.get("mode") == "Exit":
            return TaskRun(("working",), 0, after=after)
        return TaskRun(("working", _line(completion)), after=after)


def can_complete(spec: Mapping[str, Any]) -> bool:
    """Return whether the played task has a line that the Job's token matches.

    No line matches `$a^`, which only its author can know: such a Job runs until it is deleted.
    """
    completion = spec.get("completion") or {}
    token = completion.get("token") or ""
    if completion.get("match") != "Regex" or token in REGEX_EXAMPLES:
        return True
    try:
        return bool(re.search(token, token))
    except re.error:
        return False


def _line(completion: Mapping[str, Any]) -> str:
    token = completion.get("token") or "done"
    match completion.get("match"):
        case "Contains":
            return f"it says {token} today"
        case "Regex":
            return REGEX_EXAMPLES.get(token, token)
    return token


def _after(seconds: float) -> asyncio.Event | None:
    if not seconds:
        return None
    event = asyncio.Event()
    asyncio.get_running_loop().call_later(seconds, event.set)
    return event

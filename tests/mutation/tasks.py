"""What the task of each Job does on the simulated nodes: its token, its failures, its time."""

import asyncio
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from daemonset_job.api import names
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

    def _pod(self) -> Mapping[str, Any]:
        """Return the pod whose played life is running."""
        current = asyncio.current_task()
        return next(life.pod for life in self.nodes._lives.values() if current in life.tasks)

    def __call__(self, node: str, _start: int) -> TaskRun:
        """Return what the task that starts now does (simulated_nodes.Behaviour).

        The argument is the node only. The pod's name, which begins with the Job's, is that of the
        asyncio task that calls.
        """
        pod = self._pod()
        job = pod["metadata"]["name"].partition("-daemonset-job-")[0]
        # A Job that another one owns has no task of its own: a rollback, a check, a pull of images.
        # Nor has one with a long name, of which the pod has the beginning only.
        task, spec = self._tasks.get(job, (Task(), {}))
        if task.waiting:
            return TaskRun(waiting=task.waiting, message="played")
        self.starts[job, node] += 1
        after = self._released[job] if task.holds else _after(task.seconds)
        completion = {**completion_by_pod(pod), **(spec.get("completion") or {})}
        if self.starts[job, node] <= task.failures:
            if task.says and completion.get("failureToken"):
                return TaskRun(lines=(completion["failureToken"],), after=after)
            lines = ("working", f"it fails at start {self.starts[job, node]}")
            return TaskRun(lines, task.code, after=after, back_off=BACK_OFF_SECONDS)
        self.completions[job, node] += 1
        if completion.get("mode") == "Exit":
            return TaskRun(("working",), 0, after=after)
        found = (f"dsjob:result {each['name']}=1.2" for each in spec.get("results") or ())
        return TaskRun(("working", *found, _line(completion)), after=after)


def completion_by_pod(pod: Mapping[str, Any]) -> dict[str, Any]:
    """Return what completes the node of a pod that says so itself: its token, or its exit."""
    spec = pod.get("spec") or {}
    if any(each["name"] == names.CONTAINER_NAME for each in spec.get("initContainers") or ()):
        return {"mode": "Exit"}
    tokens = (
        variable.get("value")
        for each in spec.get("containers") or ()
        if each["name"] == names.CONTAINER_NAME
        for variable in each.get("env") or ()
        if variable["name"] == names.ENV_TOKEN
    )
    token = next(tokens, None)
    # As the kubelet does: `$$` is `$`.
    return {"token": token.replace("$$", "$")} if token else {}


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

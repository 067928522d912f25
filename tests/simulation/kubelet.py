"""The model of the kubelet: what a pod does on its machine, and what the API shows of it.

Modelled:

- start-up lag, container states and restart counts with back-off, `lastState`;
- tasks by plan (see `script`), as the pod's one container or as an init container before `pause`;
- graceful end of deleted pods, eviction, graceful shutdown;
- a node that hangs and comes back: nothing moves, and Ready turns Unknown after a while. What was
  due is done late, and each task keeps its order;
- a machine that is replaced under the same name: its old pods that still exist are started again;
- a node that is only registered again: its containers go on.

Not modelled: probes, what sidecars do, problems of the container `pause`, image garbage, a kubelet
that restarts.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from tests.fakekube.containers import (
    KILLED_EXIT_CODE,
    TERMINATED_EXIT_CODE,
    Container,
    backs_off,
    died_with_machine,
    is_success,
    restart_back_off,
    running,
    terminated,
    waiting,
)
from tests.fakekube.pod_endings import (
    UNKNOWN_END,
    ended_by_kubelet,
    final_status,
    forgotten,
    rejected,
    without_sandbox,
)
from tests.fakekube.pod_status import INITIALIZING, default_waiting_reason
from tests.simulation.corrections import task_with_image
from tests.simulation.oracle.start_problems import BLOCKED, REJECTED, UNEXPLAINED
from tests.simulation.pod_status import has_init_task, task_status, with_containers, with_init
from tests.simulation.schedule import Task
from tests.simulation.script import LAST_WORDS_SECONDS, Script, write_script
from tests.simulation.server import PODS, Raw, controller_of

if TYPE_CHECKING:
    from tests.simulation.machine import Machine

# The kubelet's back-off, sped up. After the limit of restarts it is as long as the run: a task that
# always fails must not keep a run from becoming quiet.
FIRST_BACKOFF_SECONDS, LONGEST_BACKOFF_SECONDS = 1.0, 16.0
RESTARTS_LIMIT = 7
# The most that a kubelet takes to say why a pod has ended, once its containers have.
NOT_ADMITTED_SECONDS = 50.0
# What follows from the start of a task is on record by then.
FOLLOW_UP_SECONDS = 30.0
# Why a container is not created again, and after how many attempts the back-off, which counts from
# the end of the container, hides that no more.
AGAIN = ("ErrImagePull", "ImagePullBackOff", "CreateContainerConfigError", "CreateContainerError")
AGAIN_LIMIT = 8
# Another init container that is at work before the task.
PREPARE = "prepare"
# The log of an instance: from when a line is visible, its timestamp, and the line.
Log = list[tuple[float, str, bytes]]


class PodRun:
    """One pod on one machine: the instances of its task container and their logs."""

    def __init__(self, machine: Machine, pod: Raw) -> None:
        self.machine = machine
        self.world = machine.world
        self.is_forged = not controller_of(pod)
        self.plan = machine.world.plan_of(pod)
        self.task = self.plan.tasks.get(machine.name, machine.task)
        self.task = task_with_image(self.task, pod)
        if self.is_forged:
            self.task = Task()
        self.is_init = has_init_task(pod)
        self.namespace = pod["metadata"]["namespace"]
        self.pod_name = pod["metadata"]["name"]
        # `shape`: with an init container that only this node's pod has.
        self.raw = self.shape = pod
        self.pod_uid = pod["metadata"]["uid"]
        self.is_ending = False
        self.is_over = False
        # One log for each instance: (visible from, timestamp, line). An instance that is taken
        # over from a former machine has none.
        old = task_status(pod)
        self.instance = old.get("restartCount", -1) + 1 if old.get("state") else 0
        # A machine finds no container of a former one. Until it creates its first one, it counts
        # that as an end if it ran (convertToAPIContainerStatuses). Then it counts from 0
        # (calcRestartCountByLogDir in pkg/kubelet/kuberuntime).
        self.first_instance = self.instance
        ran = "running" in old.get("state", {})
        self.last: Raw = UNKNOWN_END if ran else old.get("lastState", {})
        self.former_restarts = self.instance - (0 if ran else 1) if self.instance else 0
        self.logs: dict[int, Log] = {}
        self.state: Raw = {}
        self.hold = waiting(INITIALIZING)
        # The states of other init containers, by name.
        self.inits: dict[str, Raw] = {}
        self.is_at_work_for_ever = False
        self.waiters: list[asyncio.Future[None]] = []

    def pod(self) -> Raw | None:
        """Return the pod as the API has it, None if it is gone or another one."""
        return None if self.is_over else self.world.server.now(PODS, self.raw)

    # --- life ----------------------------------------------------------------------------

    def admit(self) -> None:
        """Take the pod up: its start time, and the first instance or the image's problem."""
        if self.pod() is None or self.is_ending:
            return
        task, records = self.task, self.world.oracle.failures
        self.world.oracle.timeouts.admitted(self)
        if task.kind == "reject" and self.machine.rejects(self):
            self.reject()
            return
        if task.kind == "work" and self.attempts == 0:
            self.shape = with_init(self.raw, PREPARE)
            self.inits = {PREPARE: waiting(INITIALIZING)}
        self.world.oracle.timeouts.shows(self, UNEXPLAINED)
        reason = INITIALIZING if task.kind == "init" else default_waiting_reason(self.shape)
        self.write(waiting(reason), started=True)
        if self.inits:
            self.work()
            return
        if task.kind == "slow" and self.attempts == 0:
            self.machine.call_later(task.after, self.show, waiting("ErrImagePull"), BLOCKED)
            self.start_later(task.after + 2.0)
            return
        if task.kind in {"mount", "init"} and self.attempts == 0:
            records.allow_failure_of(self)
            if task.after > 0:
                self.start_later(task.after)
            return
        if task.kind == "pull" and self.attempts == 0:
            reason = "ErrImagePull"
            self.machine.call_later(0.3, self.pull_fails, reason)
            if task.after > 0:
                self.start_later(task.after)
            return
        self.machine.call_later(self.machine.lag(0.05, 1.0), self.start)

    def work(self) -> None:
        """Have another init container at work: it fails once, and succeeds then."""
        steps: tuple[tuple[float, Raw, str], ...] = (
            (0.3, {"running": {}}, ""),
            (self.task.after, terminated(1), BLOCKED),
            (2.0, {"running": {}}, ""),
            (3.0, terminated(0), UNEXPLAINED),
        )
        at, state = 0.0, waiting(INITIALIZING)
        for seconds, init, kind in steps:
            at += seconds
            self.machine.call_later(at, self.show, state, kind, {PREPARE: init})
        self.start_later(at + 0.5)

    def show(self, state: Raw, kind: str, inits: Mapping[str, Raw] | None = None) -> None:
        """Report what the task waits for, and in which states other init containers are."""
        if "running" in self.state or self.pod() is None or self.is_ending:
            return
        self.inits.update(inits or {})
        self.world.oracle.timeouts.shows(self, kind)
        self.write(state, last=self.last)

    def create_again(self, instance: int, count: int = 0) -> None:
        """Fail to create the container again; between the attempts the kubelet backs off."""
        if self.pod() is None or self.is_ending or not self.is_to_be_created_again(instance):
            return
        reason = AGAIN[self.world.schedule.seed % len(AGAIN)]
        self.show(waiting(reason, "not created again"), BLOCKED)
        if count < AGAIN_LIMIT:
            self.machine.call_later(1.5, self.back_off_again, instance)
            self.machine.call_later(3.0 + count, self.create_again, instance, count + 1)

    def back_off_again(self, instance: int) -> None:
        """Show that the next attempt to create the container again has to wait."""
        if self.is_to_be_created_again(instance):
            self.show(backs_off(), BLOCKED)

    def is_to_be_created_again(self, instance: int) -> bool:
        """Whether the container of this instance has failed and was not created again since."""
        return self.instance == instance and self.attempts == 1 and "running" not in self.state

    def start_later(self, seconds: float) -> None:
        """Start the task once what keeps it from starting is over."""
        self.machine.starts_by = self.world.loop.moment + seconds + FOLLOW_UP_SECONDS
        self.machine.call_later(seconds, self.start)

    def reject(self) -> None:
        """Reject the pod, as the kubelet does with one whose sysctls are not allowed."""
        self.world.oracle.failures.allow_failure_of(self)
        pod = self.pod()
        self.over()
        self.world.oracle.timeouts.shows(self, REJECTED)
        message = 'forbidden sysctl: "net.core.somaxconn" not allowlisted'
        status = rejected("SysctlForbidden", message, self.machine.stamp())
        if pod is not None:
            self.world.server.set_status("kubelet", PODS, pod, status)

    def pull_fails(self, reason: str) -> None:
        if "running" in self.state or "terminated" in self.state or self.is_over or self.is_ending:
            return
        self.world.oracle.failures.allow_failure_of(self)
        self.world.oracle.timeouts.shows(self, BLOCKED)
        self.write(waiting(reason, "no such image"))
        if reason == "ErrImagePull":
            self.machine.call_later(1.0, self.pull_fails, "ImagePullBackOff")

    def start(self) -> None:
        """Start an instance of the task."""
        if self.pod() is None or self.is_ending:
            return
        machine = self.machine
        machine.attempts[self.plan.key] += not self.is_forged
        self.world.oracle.timeouts.started(self)
        if not self.logs:
            self.last = {}
        self.logs[self.instance] = []
        self.world.oracle.task_starts(self)
        self.write(running(self.machine.stamp()))
        instance = self.instance
        script = write_script(
            self.plan,
            self.task,
            attempt=self.attempts,
            instance=instance,
            value=f"{self.pod_uid}.{instance}",
        )
        self.is_at_work_for_ever = not (
            script.late_lines or script.reboots or script.code is not None
        )
        for line in script.lines:
            self.say(line)
        self._plan_work(instance, script)

    def _plan_work(self, instance: int, script: Script) -> None:
        """Have an instance do what its script says after its first lines, one step at a time."""
        steps: list[tuple[float, Callable[[], None]]] = []
        if script.middle_lines:
            prints = partial(self.print_lines, instance, script.middle_lines)
            steps.append((script.middle, prints))
        if script.late_lines:
            steps.append((script.after, partial(self.speak, instance, script)))
        if script.reboots:
            steps.append((script.after, partial(self.reboot, instance)))
        if script.code is not None:
            finish = partial(self.finish, instance, script.code)
            steps.append((script.after + LAST_WORDS_SECONDS, finish))
        # Each timer does the next step, whichever it was set for. A machine that comes back does
        # late what was due: a token that is due right then still follows the lines before it.
        left = deque(act for _, act in steps)

        def do_next() -> None:
            left.popleft()()

        for after, _ in steps:
            self.machine.call_later(after, do_next)

    @property
    def is_at_work(self) -> bool:
        """Whether an instance of the task runs."""
        return "running" in self.state and not self.is_over

    @property
    def attempts(self) -> int:
        return self.machine.attempts[self.plan.key]

    def reboot(self, instance: int) -> None:
        """Reboot the machine, as its task asks."""
        if self.is_running(instance) and self.machine.is_up:
            self.world.oracle.reboots.task_reboots(self)
            self.machine.reboot_by_task(self.task.away)

    def print_lines(self, instance: int, lines: tuple[bytes, ...]) -> None:
        """Print lines of an instance that is at work."""
        if self.is_running(instance):
            for line in lines:
                self.say(line)

    def speak(self, instance: int, script: Script) -> None:
        """Print the last words of an instance, its token among them."""
        if not self.is_running(instance):
            return
        if script.succeeds:
            self.world.oracle.task_succeeds(self)
        if script.refuses:
            self.world.oracle.failures.task_refuses(self)
        for line in script.late_lines:
            self.say(line)

    def say(self, text: bytes) -> None:
        """Write a line to the log: visible soon, and not before the lines that it has already."""
        late = self.world.log_delay(self.machine.name) + self.machine.lag(0.0, 0.05)
        log = self.logs[self.instance]
        visible = self.world.loop.moment + late
        if log:
            visible = max(visible, log[-1][0])
        log.append((visible, self.world.clock.log_stamp(self.machine.skew), text))
        self.world.oracle.evidence.results.said(self, text)
        if self.waiters:
            self.world.loop.call_at(visible, self.wake)

    def finish(self, instance: int, code: int) -> None:
        """End the instance with an exit code; the kubelet will start the next one."""
        if not self.is_running(instance):
            return
        self.show_log()
        stamp = self.machine.stamp()
        self.last = terminated(code, self.state["running"]["startedAt"], stamp)
        is_success = self.is_init and code == 0
        if is_success:
            self.world.oracle.task_succeeds(self)
        else:
            self.world.oracle.failure_rules.ended(self, code)
            self.world.oracle.failures.task_failed(self)
        self.wake()
        self.write(dict(self.last))
        if is_success:
            self.machine.call_later(self.machine.lag(0.05, 1.0), self.hold_pod)
            return
        if self.task.kind == "again" and self.attempts == 1:
            self.machine.call_later(0.2, self.back_off, instance)
            self.machine.call_later(1.0, self.create_again, instance)
            if self.task.after > 0:
                self.machine.starts_by = (
                    self.world.loop.moment + self.task.after + FOLLOW_UP_SECONDS
                )
                self.machine.call_later(self.task.after, self.restart, instance)
            return
        restarts = self.instance
        if restarts >= RESTARTS_LIMIT:
            self.machine.call_later(1.0, self.back_off, instance)
            return
        pause = restart_back_off(restarts, FIRST_BACKOFF_SECONDS, LONGEST_BACKOFF_SECONDS)
        if self.machine.lag(0.0, 1.0) < 0.7:  # or the state between is never seen
            self.machine.call_later(0.2, self.back_off, instance)
        self.machine.call_later(pause, self.restart, instance)

    def show_log(self) -> None:
        """Make all of the log visible: the runtime reports an end when the log has all of it."""
        now, log = self.world.loop.moment, self.logs[self.instance]
        log[:] = [(min(visible, now), at, text) for visible, at, text in log]

    def hold_pod(self) -> None:
        """Start the container that holds the pod once its init container has ended well."""
        if self.pod() is not None and not self.is_ending:
            self.hold = running(self.machine.stamp())
            self.write(self.state, last={})

    def rebooted(self) -> None:
        """Report that the container died with its machine, and start it again in a new sandbox."""
        pod = self.pod()
        if pod is None or not self.logs:
            return
        if self.is_ending:
            self.remove()
            return
        has_ended_well = self.is_init and is_success(self.state)
        if "running" in self.state and self.task.on_term == "clean" and self.is_init:
            # As its machine shut down, the task ended with 0.
            self.state = self.last = self.ended_on_term(0, self.machine.stamp())
            shown = without_sandbox(self.shown(pod.get("status") or {}, {}))
            self.world.server.set_status("kubelet", PODS, pod, shown)
            self.machine.call_later(self.machine.lag(0.05, 1.0), self.start_in_new_sandbox)
            return
        if "running" in self.state:
            self.last = died_with_machine(self.state, self.machine.stamp())
            if self.task.kind != "reboot":
                self.world.oracle.failures.task_failed(self)
        elif has_ended_well:
            self.world.oracle.evidence.results.starts_again(self)
        else:
            return
        self.start_in_new_sandbox()

    def start_in_new_sandbox(self) -> None:
        """Start the task again after its sandbox has ended."""
        if self.pod() is None or self.is_ending:
            return
        self.instance += 1
        self.logs.pop(self.instance - 2, None)
        self.logs[self.instance] = []
        self.hold = waiting(INITIALIZING)
        self.wake()
        self.write(waiting(default_waiting_reason(self.shape)), last=self.last)
        self.machine.call_later(self.machine.lag(0.1, 1.0), self.start)

    def back_off(self, instance: int) -> None:
        if self.instance == instance and self.pod() is not None and not self.is_ending:
            self.write(backs_off(), last=self.last)

    def restart(self, instance: int) -> None:
        if self.instance == instance and self.pod() is not None and not self.is_ending:
            self.instance += 1
            self.logs.pop(self.instance - 2, None)
            self.start()

    # --- the end -------------------------------------------------------------------------

    def terminate(self) -> None:
        """Send TERM to the task of a pod that is being deleted: its grace period has begun."""
        grace = float(self.raw["spec"].get("terminationGracePeriodSeconds", 30))
        on_term = self.task.on_term if "running" in self.state else ""
        if on_term == "deaf":
            self.machine.call_later(grace, self.end, KILLED_EXIT_CODE)
        elif on_term == "clean":
            self.machine.call_later(min(self.machine.lag(0.1, 2.0), grace), self.end, 0)
        else:
            self.end(TERMINATED_EXIT_CODE)

    def end(self, code: int) -> None:
        """End the task's container with that code, report that, and let the object go."""
        if "running" in self.state and self.pod() is not None:
            stamp = self.machine.stamp()
            self.show_log()
            self.wake()
            self.write(self.ended_on_term(code, stamp), is_final=True)
            self.machine.call_later(self.machine.lag(0.01, 0.3), self.remove)
        elif (pod := self.pod()) is not None and self.world.schedule.has_last_statuses:
            status = final_status(pod, pod.get("status") or {})
            self.world.server.set_status("kubelet", PODS, pod, status)
            self.machine.call_later(self.machine.lag(0.01, 0.3), self.remove)
        else:
            self.remove()

    def ended_on_term(self, code: int, stamp: str) -> Raw:
        """Return the state of the task that runs, once TERM or KILL has ended it with that code."""
        if code == 0:
            self.world.oracle.evidence.ended_on_term.add(self.pod_uid)
        return terminated(code, self.state["running"]["startedAt"], stamp)

    def remove(self) -> None:
        """Let the object of a pod go whose containers have ended."""
        pod = self.pod()
        self.over()
        if pod is not None:
            self.world.server.remove("kubelet", PODS, self.pod_name, self.namespace)

    def end_for_node(self, reason: str, code: int) -> None:
        """End the pod because of its node: containers that run end with that code.

        One that does not run, and was never started or is about to be started again, is reported as
        lost (see `final_status`).
        """
        pod, stamp = self.pod(), self.machine.stamp()
        if "running" in self.state:
            self.state = self.ended_on_term(code, stamp)
        self.over()
        if pod is None:
            return
        status = ended_by_kubelet(pod.get("status") or {}, reason)
        if "running" in self.hold:
            self.hold = terminated(code, self.hold["running"]["startedAt"], stamp)
        if "containerStatuses" in status:
            last = self.last if "terminated" not in self.state else {}
            status = {**final_status(pod, self.shown(status, last)), "phase": status["phase"]}
        self.world.server.set_status("kubelet", PODS, pod, status)

    def is_not_admitted(self) -> None:
        """End the pod because the restarted kubelet has no room for it: first the containers.

        Its status says so only when all of them have ended.
        """
        pod = self.pod()
        if pod is None:
            return
        self.world.server.set_status("kubelet", PODS, pod, forgotten(pod.get("status") or {}))
        on_term = self.task.on_term if "running" in self.state else ""
        code = {"deaf": KILLED_EXIT_CODE, "clean": 0}.get(on_term, TERMINATED_EXIT_CODE)
        self.is_ending = True
        self.machine.call_later(self.machine.lag(0.1, 3.0), self.end_without_sandbox, code)

    def end_without_sandbox(self, code: int) -> None:
        """End the containers of a pod that is not admitted, and a while later say why."""
        pod, stamp = self.pod(), self.machine.stamp()
        if pod is None or self.is_over:
            return
        if "running" in self.state:
            self.show_log()
            self.state = self.ended_on_term(code, stamp)
        if "running" in self.hold:
            self.hold = terminated(code, self.hold["running"]["startedAt"], stamp)
        self.wake()
        last = self.last if "terminated" not in self.state else {}
        shown = without_sandbox(self.shown(pod.get("status") or {}, last))
        self.world.server.set_status("kubelet", PODS, pod, shown)
        delay = min(self.machine.lag(0.05, 8.0), NOT_ADMITTED_SECONDS)
        self.machine.call_later(delay, self.say_not_admitted)

    def say_not_admitted(self) -> None:
        """Say why the pod has ended."""
        pod = self.pod()
        if pod is None or self.is_over:
            return
        status = {**(pod.get("status") or {}), "phase": "Failed", "reason": "OutOfpods"}
        self.world.server.set_status("kubelet", PODS, pod, status)
        if "deletionTimestamp" in pod["metadata"]:
            self.remove()
        else:
            self.over()

    def over(self, *, stays: bool = False) -> None:
        """Nothing of this pod runs here any more; its logs are gone. `stays`: it starts again."""
        self.is_over = True
        self.world.oracle.evidence.results.became_unreadable(self)
        if not stays:
            self.world.oracle.timeouts.gone(self)
        self.machine.pods.pop(self.pod_uid, None)
        self.wake()

    # --- telling -------------------------------------------------------------------------

    def is_running(self, instance: int) -> bool:
        return self.instance == instance and "running" in self.state and not self.is_over

    def wake(self) -> None:
        """Wake the follow streams."""
        waiters, self.waiters = self.waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def shown(self, status: Raw, last: Raw) -> Raw:
        """Return the pod's status with its containers as they are now."""
        restarts = self.instance - self.first_instance if self.logs else self.former_restarts
        task = Container(self.state, last, restarts)
        return with_containers(self.shape, status, task, self.hold, self.inits)

    def write(
        self,
        state: Raw,
        *,
        last: Raw | None = None,
        started: bool = False,
        is_final: bool = False,
    ) -> None:
        """Write the container's state to the API."""
        pod = self.pod()
        if pod is None:
            return
        self.state = state
        status = dict(pod.get("status") or {})
        if started:
            status.setdefault("startTime", self.machine.stamp())
        before = last if last is not None else (self.last if "terminated" not in state else {})
        shown = self.shown(status, before)
        if is_final:
            shown = final_status(pod, shown)
        self.world.server.set_status("kubelet", PODS, pod, shown)

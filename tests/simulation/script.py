"""Computes, before an instance of a task starts, what it prints and when it ends.

Results are printed as `a`, twice, so that only the last value counts, as `b`, and under one name
that no Job allows. Their values name pod and instance, so a mixture of two instances is detected.
An attempt that fails prints a `b` too; one that succeeds after it in the same pod does not. Tasks
with the most output pause before their token, so that the token is read by itself.
"""

from dataclasses import dataclass, replace

from tests.simulation.schedule import FAILURE_TOKEN, JobPlan, Task

TOKEN = b"done"
RESULTS = ("a", "b")
PULLED_AFTER_SECONDS = 0.5
# The task ends a moment after its last words.
LAST_WORDS_SECONDS = 0.01
# A task that prints this many lines prints its token after a pause.
MUCH_NOISE = 150
TOKEN_PAUSE_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Script:
    """What an instance does: `lines` at once, `late_lines` and an end with `code` after a while.

    Before that, `middle_lines` after `middle`. `succeeds` and `refuses`: whether it prints one of
    the tokens by then. `code` is None for an instance that does not end. `reboots`: the instance
    reboots its node, which ends it.
    """

    after: float
    lines: tuple[bytes, ...]
    late_lines: tuple[bytes, ...] = ()
    succeeds: bool = False
    refuses: bool = False
    code: int | None = None
    reboots: bool = False
    middle: float = 0.0
    middle_lines: tuple[bytes, ...] = ()


def write_script(plan: JobPlan, task: Task, *, attempt: int, instance: int, value: str) -> Script:
    """Return what an instance of a Job's task does.

    `attempt` counts instances on the machine, `instance` those in the pod before this one; `value`
    is what results say.
    """
    turn = _turn(plan, task, attempt, instance)
    first, last = _results(plan, value, is_again=instance > 0)
    last = _between(last, task.noise)
    lines = (b"working", *first)
    if turn.kind == "again":
        return Script(PULLED_AFTER_SECONDS, lines, code=turn.code)
    if turn.kind in {"never", "reboot"}:
        return Script(turn.after, lines, reboots=turn.kind == "reboot")
    if turn.kind == "refuse":
        words = (FAILURE_TOKEN.encode(),)
        return Script(turn.after, lines, words, refuses=True, code=turn.code or None)
    code: int | None
    if plan.is_exit:
        code = turn.code if turn.kind in {"exit", "once", "fail"} else 0
        return Script(turn.after, lines, last if code == 0 else (), code=code)
    if turn.kind in {"fail", "silent"}:
        shown = (b"attempt %d: %s" % (attempt, b"x" * 150),) if task.noise else ()
        shown = (*(line for line in last if line.startswith(b"dsjob:result b")), *shown)
        return Script(turn.after, (*lines, *shown), code=turn.code if turn.kind == "fail" else 0)
    code = turn.code if turn.kind in {"exit", "once"} else None
    return _with_token(Script(turn.after, lines, (*last, TOKEN), succeeds=True, code=code), task)


def _with_token(script: Script, task: Task) -> Script:
    """Return the script; a task that prints much prints its token a while after all else."""
    if task.noise < MUCH_NOISE:
        return script
    *last, token = script.late_lines
    after = script.after + TOKEN_PAUSE_SECONDS
    return replace(
        script, after=after, late_lines=(token,), middle=script.after, middle_lines=tuple(last)
    )


def _between(last: tuple[bytes, ...], noise: int) -> tuple[bytes, ...]:
    """Return the last lines with noise after the results, before a token that follows them."""
    return (*last, *(b"noise %d" % i for i in range(noise)))


def _turn(plan: JobPlan, task: Task, attempt: int, instance: int) -> Task:
    """Return what of the task's plan holds for this instance."""
    if task.kind in {"fail", "refuse", "reboot"} and attempt > task.times:
        return Task("done", task.after)
    if task.kind == "again" and attempt == 1:
        return task
    if task.kind in {"pull", "mount", "init", "reject", "slow", "work", "again"}:
        return Task("done", PULLED_AFTER_SECONDS)
    if task.kind == "fail" and instance > 0 and task.later_code is not None:
        return replace(task, code=task.later_code)
    if (task.kind == "once" and instance > 0) or (
        task.kind == "refuse" and "failureToken" not in plan.spec.get("completion", {})
    ):
        return Task("never", task.after)
    return task


def _results(plan: JobPlan, value: str, *, is_again: bool) -> tuple[tuple[bytes, ...], ...]:
    """Return the lines at the beginning and at the end of the work that declare results."""
    if "results" not in plan.spec:
        return (), ()
    first = (f"dsjob:result a={value}.early",)
    names = RESULTS[:1] if is_again else RESULTS
    last = (*(f"dsjob:result {name}={value}" for name in names), f"dsjob:result other={value}")
    return tuple(line.encode() for line in first), tuple(line.encode() for line in last)

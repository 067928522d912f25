"""What a Job with a plan would run, and what would follow each of its steps, in words. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from daemonset_job.api.job import Job
from daemonset_job.api.job_spec import JobSpec
from daemonset_job.api.reasons import ProgressingReason
from daemonset_job.api.rollout import Check, Rollout, Step
from daemonset_job.api.states import ConditionType
from daemonset_job.kube.client.messages import clean_text
from kubectl_dsjob.tables import counted

# Of an image with its arguments, and of any other text of the author.
_TASK_LIMIT: Final = 160
_TEXT_LIMIT: Final = 80
_MESSAGE_LIMIT: Final = 1024


def plan_words(job: Job) -> str:
    """Return what would run on each node, within which limits, and what would follow each step."""
    spec, rollout = job.spec, job.spec.rollout or Rollout()
    lines = [
        f"{job.name} would run {_task(spec)}",
        *_on_node(spec),
        *_limits(rollout),
        *_invalid_window(job),
        *_empty_steps(job, rollout),
        *_steps(job, rollout),
    ]
    return "\n".join(lines)


def _task(spec: JobSpec) -> str:
    if spec.script is not None:
        words = f"a script of {counted(len(spec.script.splitlines()), 'line')}"
    elif spec.script_from is not None:
        source = spec.script_from
        key, name = (clean_text(each, _TEXT_LIMIT) for each in (source.key, source.name))
        words = f"the script {key} of {'Secret' if source.is_secret else 'ConfigMap'} {name}"
    else:
        words = clean_text(" ".join([spec.image, *spec.command, *spec.args]), _TASK_LIMIT)
    return f"{words} on the host" if spec.host_exec else words


def _on_node(spec: JobSpec) -> Iterator[str]:
    if spec.drain is not None:
        yield "each node: cordoned and drained before it, uncordoned after it"
    elif spec.cordon:
        yield "each node: cordoned before it, uncordoned after it"


def _limits(rollout: Rollout) -> Iterator[str]:
    found = []
    if rollout.max_parallel is not None:
        found.append(f"maxParallel {rollout.max_parallel}")
    if rollout.max_parallel_per_zone is not None:
        found.append(f"maxParallelPerZone {rollout.max_parallel_per_zone}")
    if (window := rollout.window) is not None:
        words = f"{window.start} for {window.duration} {window.time_zone or 'UTC'}"
        found.append(f"window {clean_text(words, _TASK_LIMIT)}")
    if rollout.exclusive:
        found.append(f"exclusive {clean_text(rollout.exclusive, _TEXT_LIMIT)}")
    if rollout.pull_images_first:
        found.append("images pulled on all nodes first")
    if found:
        yield f"limits: {', '.join(found)}"


def _invalid_window(job: Job) -> Iterator[str]:
    """Say that no node would start; the condition is of the spec that the plan is about."""
    found = job.status.condition(ConditionType.PROGRESSING)
    if found is not None and found.reason == ProgressingReason.INVALID_WINDOW:
        yield f"no node would start: {clean_text(found.message, _MESSAGE_LIMIT)}"


def _counts(job: Job) -> dict[int, int]:
    """Return how many nodes have their turn in each step of the plan, and in the rest."""
    plan = job.status.rollout.plan if job.status.rollout is not None else ()
    return {batch.step: batch.count for batch in plan}


def _empty_steps(job: Job, rollout: Rollout) -> Iterator[str]:
    """Say of each step of the plan that has fewer nodes than it names, or none at all, why."""
    counts = _counts(job)
    total, before = sum(counts.values()), 0
    for number, step in enumerate(rollout.steps, 1):
        count = counts.get(number)
        if count and step.selector is None and isinstance(step.nodes, int) and step.nodes > total:
            yield f"step {number} names {step.nodes} nodes, and there are only {total}"
        before += count or 0
        if count != 0:
            continue
        if total and before == total:
            yield f"step {number} adds no node: the steps before it have all {total}"
        elif step.selector is None:
            yield f"step {number} adds no node: `nodes` counts those of earlier steps, too"
        else:
            yield (
                f"step {number} adds no node: its selector selects no further one; if it selects "
                "none at all, the run waits there for a person"
            )


def _steps(job: Job, rollout: Rollout) -> Iterator[str]:
    """Say what follows each step. Nothing follows those after the one that has the last nodes."""
    last = _last_step(job)
    after = {number: list(_after_step(step)) for number, step in enumerate(rollout.steps, 1)}
    for number, found in after.items():
        if found and (last is None or number <= last):
            yield f"after step {number}: {', '.join(found)}"
    if last is not None and any(found for number, found in after.items() if number > last):
        yield f"step {last} has the last nodes: the run ends after it, and no further step follows"


def _last_step(job: Job) -> int | None:
    """Return the step after which no node is left; None if there is none, or it is not known."""
    counts = _counts(job)
    if not counts or counts.get(max(counts)) != 0:
        return None
    return max((number for number, count in counts.items() if count), default=None)


def _after_step(step: Step) -> Iterator[str]:
    if step.soak_seconds:
        yield f"a soak of {step.soak_seconds} s"
    if not step.check.is_empty:
        yield f"a check ({', '.join(_checks(step.check))})"
    if step.needs_approval:
        yield "an approval"


def _checks(check: Check) -> Iterator[str]:
    if check.node_ready:
        yield "nodeReady"
    for name in ("pods", "http", "prometheus", "script"):
        if getattr(check, name) is not None:
            yield name

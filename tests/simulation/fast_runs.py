"""Makes runs fast without changing them: silent loggers, and caches of pure functions.

The product calls its pure functions in every reconcile, mostly with unchanged objects. Here their
answers are cached for one run, by the identity of the raw object that they are computed from. The
model's server never changes an object that it has stored.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from types import ModuleType
from typing import Any, Self

from loguru import logger

from daemonset_job.api import compact
from daemonset_job.api import job as jobs
from daemonset_job.api.job import Job
from daemonset_job.api.packed_json import PackedJson
from job_controller.core import daemon_set_actions
from job_controller.core import start as run_start
from job_controller.core.desired import limits
from job_controller.core.render import report_status as report
from job_controller.core.settings import Settings
from job_controller.core.state import blockers, desired_count, snapshot
from terminator import node_count

# A module or class, a name in it, and what replaces it during a run.
Replacement = tuple[ModuleType | type, str, Any]
# By the arguments of a function: the objects and the values that its answer depends on.
Key = Callable[..., tuple[tuple[Any, ...], tuple[Any, ...]]]


class Nothing:
    """Takes any call and any attribute: loggers, metrics and events that no test reads."""

    def __getattr__(self, name: str) -> Nothing:
        setattr(self, name, self)  # found without a call the next time
        return self

    def __call__(self, *_args: object, **_kwargs: object) -> Nothing:
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        return None


NOTHING = Nothing()


class _NoId:
    """Replaces uuid4(), the id of a reconcile in the logs."""

    hex = "00000000"


@contextmanager
def fast_run() -> Iterator[None]:
    """Have the product's loggers say nothing and its pure functions remember, for one run."""
    patches = [*_quiet(), *_remembering()]
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in patches]
    for owner, name, value in patches:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)


def _quiet() -> list[Replacement]:
    """Return what replaces those names of the product's modules that only serve its logs."""
    found: list[Replacement] = []
    for module in _modules():
        if vars(module).get("logger") is logger:
            found.append((module, "logger", NOTHING))
        if "uuid4" in vars(module):
            found.append((module, "uuid4", _NoId))
    return found


@cache
def _modules() -> list[ModuleType]:
    """Return the product's modules."""
    return [
        module
        for name, module in sorted(sys.modules.items())
        if name.partition(".")[0] in {"daemonset_job", "job_controller", "terminator"}
    ]


def _remembering() -> list[Replacement]:
    """Return the functions that remember: by what their answers depend on, objects and values."""

    def of_job(
        job: Job, *, gated: bool, settings: Settings, selection_changed: bool = False
    ) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        asked = job.uid, job.completion_token, job.revision
        return (job.raw_spec,), (*asked, gated, settings, selection_changed)

    return [
        (owner, name, _remembered(getattr(owner, name), key))
        for owner, name, key in (
            (run_start, "build_daemon_set", of_job),
            (daemon_set_actions, "build_daemon_set", of_job),
            (
                daemon_set_actions,
                "is_up_to_date",
                lambda live, desired: (
                    (live.spec, live.labels, live.annotations, desired),
                    (live.alteration,),
                ),
            ),
            (desired_count, "build_pod_template", of_job),
            (
                desired_count,
                "has_same_placement",
                lambda live, desired: ((live.spec, desired["spec"]["template"]), ()),
            ),
            (snapshot, "NodeAffinity", lambda pod_spec: ((pod_spec,), ())),
            (node_count, "NodeAffinity", lambda pod_spec: ((pod_spec,), ())),
            (
                report,
                "build_timeline",
                lambda status, records, conditions, before: (
                    (),
                    (repr(status), tuple(records.items()), repr(conditions), before.timeline[:1]),
                ),
            ),
            # Read once for all versions of an object that have the same spec: the answers above
            # are those for one raw spec.
            (PackedJson, "read", lambda packed: ((), packed.data)),
            (jobs, "nodes_hash", lambda raw_spec: ((raw_spec,), ())),
            (jobs, "parse_spec", lambda raw_spec: ((raw_spec,), ())),
            (compact, "parse_spec", lambda raw_spec: ((raw_spec,), ())),
            (limits, "measure_terms", lambda job: ((job.raw_spec, job.spec.template), ())),
            (blockers, "measure_terms", lambda job: ((job.raw_spec, job.spec.template), ())),
        )
    ]


def _remembered(function: Callable[..., Any], key: Key) -> Callable[..., Any]:
    answers: dict[tuple[Any, ...], tuple[Any, tuple[Any, ...]]] = {}

    def remembered(*args: Any, **how: Any) -> Any:
        objects, values = key(*args, **how)
        at = (*map(id, objects), values)
        found = answers.get(at)
        if found is None:
            # The objects are kept as well: an id is an object's own only as long as that lives.
            found = answers[at] = function(*args, **how), objects
        return found[0]

    return remembered

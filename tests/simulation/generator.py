"""Generates a schedule from a seed: cluster, Jobs, features of the API, and disturbances.

Most schedules have one theme, so that each kind of disturbance is frequent, and some have all.
Times are short rather than long: a run of three nodes is over within seconds.
"""

from functools import partial
from random import Random
from typing import Any

from tests.simulation import (
    changed_rollouts,
    changed_schedules,
    corrections,
    crowded_rollouts,
    drains,
    exit_codes,
    far_clocks,
    holds,
    interrupted_exits,
    labelled_steps,
    lost_logs,
    orphans,
    refused_writes,
    reimages,
    scheduled_jobs,
    undone_changes,
    undone_selections,
    zones,
)
from tests.simulation.continuous_jobs import with_continuous_jobs
from tests.simulation.delayed_starts import with_delayed_starts
from tests.simulation.drawn_disturbances import with_drawn_disturbances
from tests.simulation.features import with_features
from tests.simulation.node_changes import with_node_changes
from tests.simulation.node_conditions import with_conditions
from tests.simulation.reboots import with_reboots
from tests.simulation.released_pods import with_released_pods
from tests.simulation.rollbacks import with_rollbacks
from tests.simulation.rollout_parts import with_rollout_parts
from tests.simulation.rollouts import with_rollouts
from tests.simulation.schedule import Disturbance, JobPlan, NodePlan, Schedule, Task
from tests.simulation.server import Raw
from tests.simulation.standing_work import with_standing_work

THEMES = (
    "calm",
    "faults",
    "crashes",
    "stale",
    "churn",
    "failures",
    "users",
    "logs",
    "races",
    "all",
    "all",
)
PROCESSES = ("controller", "terminator")
RESOURCES = ("jobs", "daemonsets", "pods", "jobreports", "nodes")
WRITES = {
    "controller": ("jobs", "daemonsets", "pods", "jobreports"),
    "terminator": ("jobs", "jobreports"),
}
FAULTS = ("before", "after", "conflict", "slow", "throttle")

# From which seed on schedules have something that others have not, the last ones first.
_RANGES = (
    (far_clocks.FIRST_SEED, "far clocks", far_clocks.with_far_clocks),
    (refused_writes.FIRST_SEED, "refused writes", refused_writes.with_refused_writes),
    (labelled_steps.FIRST_SEED, "labelled steps", labelled_steps.with_labelled_steps),
    (changed_schedules.FIRST_SEED, "changed schedules", changed_schedules.with_changed_schedules),
    (lost_logs.FIRST_SEED, "lost logs", lost_logs.with_lost_logs),
    (changed_rollouts.FIRST_SEED, "changed rollouts", changed_rollouts.with_changed_rollouts),
    (
        interrupted_exits.FIRST_SEED,
        "interrupted exits",
        interrupted_exits.with_interrupted_exits,
    ),
    (
        undone_selections.FIRST_SEED,
        "undone selections",
        undone_selections.with_undone_selections,
    ),
    (undone_changes.FIRST_SEED, "undone changes", undone_changes.with_undone_changes),
    (exit_codes.FIRST_SEED, "exit codes", exit_codes.with_exit_codes),
    (reimages.FIRST_SEED, "reimages", reimages.with_reimages),
    (crowded_rollouts.FIRST_SEED, "crowded", crowded_rollouts.with_crowded_rollouts),
    (orphans.FIRST_SEED, "orphans", orphans.with_orphans),
    (corrections.LATE_SEED, "corrections", partial(corrections.with_corrections, is_late=True)),
    (corrections.FIRST_SEED, "corrections", corrections.with_corrections),
    (scheduled_jobs.FIRST_SEED, "scheduled", scheduled_jobs.with_scheduled_jobs),
    (drains.FIRST_SEED, "drains", drains.with_drains),
    (zones.FIRST_SEED, "zones", zones.with_zones),
    (holds.FIRST_SEED, "holds", holds.with_holds),
)


def generate_schedule(seed: int, *, is_early: bool = False) -> Schedule:
    """Return the schedule of a seed; `is_early`: as before `standing_work` and `reboots` came."""
    schedule = with_features(_Generator(Random(seed)).schedule(seed), Random(f"{seed}/features"))
    schedule = with_drawn_disturbances(schedule, Random(f"{seed}/hazards"))
    schedule = with_conditions(schedule, Random(f"{seed}/conditions"))
    schedule = with_delayed_starts(schedule, Random(f"{seed}/startings"))
    schedule = with_released_pods(schedule, Random(f"{seed}/releases"))
    schedule = with_node_changes(schedule, Random(f"{seed}/node changes"))
    schedule = with_continuous_jobs(schedule, Random(f"{seed}/continuous"))
    if is_early:
        return schedule
    schedule = with_standing_work(schedule, Random(f"{seed}/standing work"))
    schedule = with_reboots(schedule, Random(f"{seed}/reboots"))
    schedule = with_rollouts(schedule, Random(f"{seed}/rollouts"))
    for first, name, adapt in _RANGES:
        if seed >= first:
            return adapt(schedule, Random(f"{seed}/{name}"))
    rolled_back = with_rollbacks(schedule, Random(f"{seed}/rollbacks"))
    if rolled_back is not schedule:
        return rolled_back
    return with_rollout_parts(schedule, Random(f"{seed}/rollout parts"))


class _Generator:
    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.theme = rng.choice(THEMES)
        self.nodes: tuple[NodePlan, ...] = ()

    def has(self, *themes: str) -> bool:
        return self.theme == "all" or self.theme in themes

    def schedule(self, seed: int) -> Schedule:
        rng = self.rng
        count = rng.choice((1, 2, 2, 3, 3, 3, 4, 5))
        later = rng.randrange(3) if self.has("churn") else 0
        self.nodes = tuple(
            NodePlan(f"n{i}", self.tasks(), rng.choice("ab"), is_initial=i < count)
            for i in range(count + later)
        )
        return Schedule(
            seed,
            self.nodes,
            (JobPlan(spec=self.spec()),),
            tuple(sorted(self.disturbances(), key=lambda d: d.at)),
            calm=self.theme == "calm",
            streams=rng.choice((0, 1, 256)),
        )

    # --- the Job and its tasks -----------------------------------------------------------

    def tasks(self) -> tuple[Task, ...]:
        return tuple(self.task() for _ in range(2 if self.has("churn") else 1))

    def task(self) -> Task:
        rng = self.rng
        after = rng.choice((0.0, 0.2, 1.0, 3.0, 8.0, 20.0))
        if self.theme != "failures" and rng.random() < (0.6 if self.theme == "all" else 0.8):
            return Task("done", after)
        kind = rng.choice(
            ("exit", "once", "fail", "fail", "never", "silent", "pull")
            if self.has("failures")
            else ("exit", "once", "never")
        )
        if kind == "fail":
            return Task(kind, min(after, 3.0), rng.choice((1, 2, 42)), rng.choice((1, 1, 2, 3, 99)))
        if kind == "pull":
            return Task(kind, rng.choice((0.0, 5.0, 20.0)))
        code = rng.choice((0, 0, 0, 3)) if kind in {"exit", "once"} and self.has("failures") else 0
        return Task(kind, after, code)

    def spec(self) -> Raw:
        rng = self.rng
        spec: dict[str, Any] = {"image": "example/task:1"}
        if self.has("failures") or rng.random() < 0.2:
            spec["backoffLimit"] = rng.choice((0, 0, 1, 2, 6))
        if self.has("failures"):
            policy: dict[str, Any] = {"action": rng.choice(("FailFast", "Continue", "Pause"))}
            policy["maxFailedNodes"] = rng.choice((0, 0, 1, "50%"))
            if rng.random() < 0.3:
                action = rng.choice(("Fail", "Ignore", "Retry"))
                policy["rules"] = [{"exitCodes": [42], "action": action}]
            drawn = rng.random()
            if drawn < 0.5:
                policy["pods"] = "Delete" if drawn < 0.2 else "Keep"
            spec["failurePolicy"] = policy
            if rng.random() < 0.15:
                spec["nodeDeadlineSeconds"] = rng.choice((10, 25))
            if rng.random() < 0.15:
                spec["activeDeadlineSeconds"] = rng.choice((10, 40))
        if rng.random() < 0.15:
            spec["ttlSecondsAfterFinished"] = rng.choice((0, 3, 20))
        if self.has("users", "churn") and rng.random() < 0.3:
            spec["nodes"] = {"selector": {"matchLabels": {"zone": "a"}}}
        if self.has("users") and rng.random() < 0.1:
            spec["suspend"] = True
        return spec

    # --- what happens to it --------------------------------------------------------------

    def disturbances(self) -> list[Disturbance]:
        found = []
        for themes, make, most in (
            (("faults", "crashes"), self.fault, 6),
            (("crashes",), self.crash, 4),
            (("stale", "crashes"), self.staleness, 6),
            (("churn",), self.churn, 5),
            (("users", "churn"), self.user, 4),
            (("logs",), self.logs, 5),
            (("races",), self.race, 4),
            (("faults", "failures", "stale"), self.slowness, 3),
        ):
            if self.has(*themes):
                found += [make() for _ in range(self.rng.randrange(most + 1))]
        return found

    def when(self) -> float:
        """Return a time: within two seconds, while the tasks run, or later, equally often."""
        rng = self.rng
        work = 3.0 + max(t.after for node in self.nodes for t in node.tasks)
        return round(rng.uniform(0, rng.choice((2.0, work, work, work + 20.0))), 2)

    def span(self, *choices: float) -> float:
        return float(self.rng.choice(choices))

    def node(self) -> str:
        return self.rng.choice(self.nodes).name

    def fault(self) -> Disturbance:
        who = self.rng.choice(PROCESSES)
        what = self.rng.choice((*WRITES[who], "*"))
        return Disturbance(
            self.when(), "fail", who, what, self.rng.choice(FAULTS), self.span(0.5, 2, 4)
        )

    def crash(self) -> Disturbance:
        rng, who = self.rng, self.rng.choice(PROCESSES)
        if rng.random() < 0.4:
            kind = rng.choice(("crash", "crash", "stop"))
            return Disturbance(self.when(), kind, who, seconds=self.span(0.2, 1, 5, 20))
        what = rng.choice((*WRITES[who], "*"))
        mode = rng.choice(("before", "after"))
        return Disturbance(self.when(), "crash_on", who, what, mode, self.span(0.2, 1, 5, 20))

    def staleness(self) -> Disturbance:
        rng = self.rng
        kind = rng.choice(("stall", "stall", "relist", "repeat"))
        who, what = rng.choice(PROCESSES), rng.choice(RESOURCES)
        return Disturbance(self.when(), kind, who, what, seconds=self.span(0.3, 1, 3, 10))

    def churn(self) -> Disturbance:
        rng = self.rng
        kind = rng.choice(
            ("join", "join", "leave", "renew", "reregister", "down", "evict", "delete_pod", "zone")
        )
        seconds = 0.0
        if kind in {"renew", "reregister"}:
            seconds = self.span(2, 5, 20, 70)
        if kind == "down":
            seconds = self.span(0, 5, 20, 40)
        return Disturbance(self.when(), kind, what=self.node(), seconds=seconds)

    def user(self) -> Disturbance:
        rng = self.rng
        kind = rng.choice(
            (
                *("delete_pod", "delete_pod", "delete_daemon_set", "suspend", "retry", "forge"),
                *("forge", "select", "delete_job", "again"),
            )
        )
        what, seconds = self.node(), 0.0
        if kind == "suspend":
            seconds = self.span(0, 2, 10, 30)
        if kind == "again":
            seconds = self.span(0.1, 1, 10)
        if kind == "select":
            what = rng.choice(("a", "b", "*"))
        return Disturbance(self.when(), kind, what=what, seconds=seconds)

    def race(self) -> Disturbance:
        """Return a pod's end about when its node completes, or a watch that lags about then."""
        rng, plan = self.rng, self.rng.choice(self.nodes)
        at = round(plan.tasks[0].after + rng.uniform(0.5, 4.0), 2)
        if rng.random() < 0.5:
            return Disturbance(
                at, rng.choice(("delete_pod", "delete_pod", "evict")), what=plan.name
            )
        what = rng.choice(("jobreports", "jobreports", "pods", "daemonsets", "jobs"))
        who = rng.choice(("controller", "controller", "terminator"))
        return Disturbance(max(at - 1.0, 0.0), "stall", who, what, seconds=self.span(1, 3, 10))

    def logs(self) -> Disturbance:
        kind = self.rng.choice(("log_fails", "log_late", "log_fails", "lose_lines"))
        return Disturbance(self.when(), kind, what=self.node(), seconds=self.span(1, 4, 15, 40))

    def slowness(self) -> Disturbance:
        kind = self.rng.choice(
            ("slow_daemon_sets", "slow_scheduler", "slow_gc", "refuse_pods", "refuse_daemon_set")
        )
        return Disturbance(self.when(), kind, seconds=self.span(1, 5, 20))

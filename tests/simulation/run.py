"""Runs one schedule until it is quiet: `simulate(schedule)` returns what became of it."""

import asyncio
import hashlib
from collections.abc import Callable, Container
from contextlib import suppress
from dataclasses import dataclass

from loguru import logger

from tests.simulation.disturbances import apply_disturbance, create_job
from tests.simulation.loop import VirtualLoop
from tests.simulation.oracle.core import Violation
from tests.simulation.oracle.final_state import judge_final_state
from tests.simulation.oracle.processes import judge_error
from tests.simulation.oracle.quiet import restart_both, wait_until_quiet
from tests.simulation.process import Decide, virtual
from tests.simulation.schedule import Schedule
from tests.simulation.schedule_disturbances import create_scheduled
from tests.simulation.world import Step, World

# What a test looks at once a run is quiet.
Look = Callable[[World], None]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a run: violations as (time, invariant, words), excuses, the trace if asked."""

    violations: tuple[Violation, ...]
    excused: dict[str, int]
    seconds: float
    steps: int
    trace: tuple[Step, ...] = ()

    @property
    def kinds(self) -> set[str]:
        """The invariants that were violated."""
        return {invariant for _, invariant, _ in self.violations}

    def digest(self) -> str:
        """Return a hash of everything that happened."""
        text = "\n".join(f"{at} {actor} {words}" for at, actor, words in self.trace)
        return hashlib.sha256(text.encode()).hexdigest()


def simulate(
    schedule: Schedule,
    *,
    decide: Decide | None = None,
    is_tracing: bool = False,
    look: Look = lambda _world: None,
    stops_at: Container[str] = (),
) -> Outcome:
    """Run a schedule; the same one always gives the same outcome. `look` is called at its end.

    A run ends with the first violation of an invariant of `stops_at`. A defect can have a program
    write until the end, and all of that is judged.
    """
    for package in ("daemonset_job", "job_controller", "terminator"):
        logger.disable(package)
    loop = VirtualLoop()
    world = World(loop, schedule, decide=decide, is_tracing=is_tracing)
    loop.set_exception_handler(lambda _loop, context: judge_error(world, context))
    life = loop.create_task(_live(world, look))
    world.oracle.stop_at(stops_at, life.cancel)
    try:
        # It is canceled at one of these violations, and by nothing else.
        with virtual(world, world.decide):
            with suppress(asyncio.CancelledError):
                loop.run_until_complete(life)
            loop.run_until_complete(_end_tasks())
    finally:
        loop.close()
        for package in ("daemonset_job", "job_controller", "terminator"):
            logger.enable(package)
    return Outcome(
        tuple(world.oracle.violations),
        dict(world.oracle.excused),
        round(loop.moment, 1),
        world.steps,
        tuple(world.trace or ()),
    )


def _create_all(world: World) -> None:
    """Have users apply their Jobs, in time, and their ScheduledJobs."""
    schedule, loop = world.schedule, world.loop
    for job in schedule.jobs:
        if job.created_at:
            loop.call_at(job.created_at, create_job, world, job)
        else:
            create_job(world, job)
    for scheduled in schedule.scheduled:
        create_scheduled(world, scheduled)


async def _end_tasks() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


async def _live(world: World, look: Look) -> None:
    try:
        await _live_until_quiet(world, look)
    finally:
        world.is_over = True
        for process in world.processes.values():
            process.crash(0.0)


async def _live_until_quiet(world: World, look: Look) -> None:
    schedule, loop = world.schedule, world.loop
    for plan in schedule.nodes:
        if plan.is_initial:
            world.add_node(plan.name)
    world.workloads.begin()
    for process in world.processes.values():
        process.start()
    _create_all(world)
    for disturbance in schedule.disturbances:
        loop.call_at(disturbance.at, apply_disturbance, world, disturbance)
    await asyncio.sleep(schedule.quiet_from)
    world.clear_faults()
    if await wait_until_quiet(world):
        judge_final_state(world)
        look(world)
        await restart_both(world)

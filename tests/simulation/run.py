"""One schedule, from its beginning to rest: `simulate(schedule)` returns what became of it."""

import asyncio
import hashlib
from dataclasses import dataclass
from typing import Any

from loguru import logger

from tests.simulation.events import apply_disturbance, create_job
from tests.simulation.known import finding_of
from tests.simulation.loop import VirtualLoop
from tests.simulation.oracle.core import Violation
from tests.simulation.process import Decide, virtual
from tests.simulation.rest import REST_SECONDS, judge_rest
from tests.simulation.schedule import Schedule
from tests.simulation.world import Step, World

# After the last disturbance, a run that has not come to rest by then never will.
HORIZON_SECONDS = 900.0
AFTER_RESTART_SECONDS = 20.0
# The report and the Job's status, without a refusal and with it again.
REFUSED_WRITES = 4
SETTLE_SECONDS = 12.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a run: violations as (time, invariant, words), excuses, the trace if asked.

    `known` are violations that are known defects, see there.
    """

    violations: tuple[Violation, ...]
    known: tuple[Violation, ...]
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
    schedule: Schedule, *, decide: Decide | None = None, is_tracing: bool = False
) -> Outcome:
    """Run a schedule; the same one always gives the same outcome."""
    for package in ("daemonset_job", "job_controller", "terminator"):
        logger.disable(package)
    loop = VirtualLoop()
    world = World(loop, schedule, decide=decide, is_tracing=is_tracing)
    loop.set_exception_handler(lambda _loop, context: _complain(world, context))
    try:
        with virtual(world, world.decide):
            loop.run_until_complete(_live(world))
    finally:
        loop.close()
        for package in ("daemonset_job", "job_controller", "terminator"):
            logger.enable(package)
    oracle = world.oracle
    known = tuple(v for v in oracle.violations if finding_of(*v[1:]))
    return Outcome(
        tuple(v for v in oracle.violations if v not in known),
        known,
        dict(oracle.excused),
        round(loop.moment, 1),
        world.steps,
        tuple(world.trace or ()),
    )


def _complain(world: World, context: Any) -> None:
    words = f"{context.get('message')}: {context.get('exception')!r}"
    world.oracle.violate("process", words)


async def _live(world: World) -> None:
    schedule, loop = world.schedule, world.loop
    for plan in schedule.nodes:
        if plan.is_initial:
            world.add_node(plan.name)
    for process in world.processes.values():
        process.start()
    for job in schedule.jobs:
        if job.created_at:
            loop.call_at(job.created_at, create_job, world, job)
        else:
            create_job(world, job)
    for disturbance in schedule.disturbances:
        loop.call_at(disturbance.at, apply_disturbance, world, disturbance)
    await asyncio.sleep(schedule.quiet_from)
    world.clear_faults()
    if await _rest(world):
        judge_rest(world)
        await _restart(world)
    world.is_over = True
    for process in world.processes.values():
        process.crash(0.0)
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


async def _rest(world: World) -> bool:
    """Wait until nothing is written any more; return whether it came to that."""
    # Log reads that failed are tried again after ten seconds at the latest, and write nothing.
    await asyncio.sleep(SETTLE_SECONDS)
    end = world.loop.moment + HORIZON_SECONDS
    while world.loop.moment < end:
        processes = world.processes.values()
        # A process that has only just come back may have something to write yet.
        last = max(
            world.oracle.last_write_at,
            world.quiet_from,
            *(process.started_at for process in processes),
        )
        quiet = world.loop.moment - last
        is_up = all(process.is_up for process in processes)
        is_due = any(machine.starts_by > world.loop.moment for machine in world.machines.values())
        if quiet > REST_SECONDS and not is_due and is_up and not world.controller.expects_something:
            return True
        await asyncio.sleep(5.0)
    words = f"still writing {HORIZON_SECONDS:g} s after the last trouble"
    if world.refused_forever():
        words += ", writes are refused"
    world.oracle.violate("restless", words)
    return False


async def _restart(world: World) -> None:
    """Start both processes anew: at rest, they must find nothing to do.

    Excused while the controller may not write reports: a failure to start that is not on record is
    found anew, when the patience of the new process is over. Once while it may not delete pods: the
    seconds after which an exit is judged count anew too, and the refusal is shown after them.
    """
    before, theirs = world.oracle.our_writes, world.oracle.their_writes
    for process in world.processes.values():
        process.crash(0.1)
    await asyncio.sleep(AFTER_RESTART_SECONDS)
    if world.oracle.our_writes != before and world.oracle.their_writes == theirs:
        if ("controller", "patch status jobreports") in world.refused_forever():
            world.oracle.excused["restless: nothing is on record"] += 1
            return
        count = world.oracle.our_writes - before
        if ("controller", "delete pods") in world.refused_forever() and count <= REFUSED_WRITES:
            world.oracle.excused["restless: a pod may not be deleted"] += 1
            return
        words = f"{count} writes after a restart at rest"
        if any(d.kind == "reboot" for d in world.schedule.disturbances):
            words += ", after a reboot"
        words += world.oracle.patience.skews()
        world.oracle.violate("restless", words)

"""After the last disturbance a run becomes quiet, and restarted programs then write nothing."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.simulation.oracle.invariant import Invariant
from tests.simulation.oracle.set_aside import is_reachable
from tests.simulation.server import JOBS, NODES
from tests.simulation.settings import POD_START_TIMEOUT_SECONDS

if TYPE_CHECKING:
    from tests.simulation.world import World

INVARIANTS = (
    Invariant(
        "not quiet",
        "Soon after the last disturbance nothing is written any more, and a restart of both "
        "programs then writes nothing.",
        mutant="deletes_running_pods",
        seed=1,
        excuses={
            "nothing is on record": "The controller may not write reports: it finds a failure to "
            "start, or an unreachable node, again when the timeout of the new process is over.",
            "a pod may not be deleted": "The new process waits again before it judges an exit, and "
            "shows the refusal after that. With the DaemonSet, its pods may not be deleted either: "
            "a node whose task failed before a retry is active again (guarantees.md, Failures).",
            "late lines": "The node wrote lines of a failed attempt after its log was read. A new "
            "terminator reads them, and the status quotes the last one.",
            "a rollback waits": "The new process counts again how long a node is away. Until it is "
            "away, the status names it among the nodes for which the rollback waits.",
        },
    ),
)

# A task that does not start, and nothing says why, fails its node after three times the timeout.
QUIET_SECONDS = 3 * POD_START_TIMEOUT_SECONDS + 15.0
# After the last disturbance, a run that is not quiet by then never will be.
HORIZON_SECONDS = 900.0
AFTER_RESTART_SECONDS = 20.0
# The report and the Job's status, without a refusal and with it again.
REFUSED_WRITES = 4
# The report and the Job's status, which quote the last line that a terminator has found.
SHOWN_WRITES = 2
SETTLE_SECONDS = 12.0


async def wait_until_quiet(world: World) -> bool:
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
        is_due = is_due or world.oracle.schedules.is_refused_in_time()
        if (
            quiet > QUIET_SECONDS
            and not is_due
            and is_up
            and not world.controller.expects_something
        ):
            return True
        await asyncio.sleep(5.0)
    words = f"still writing {HORIZON_SECONDS:g} s after the last disturbance"
    if world.refused_forever():
        words += ", writes are refused"
    world.oracle.violate("not quiet", words)
    return False


async def restart_both(world: World) -> None:
    """Restart both processes, and judge that they write nothing."""
    before, theirs = world.oracle.our_writes.copy(), world.oracle.their_writes
    for process in world.processes.values():
        process.crash(0.1)
    await asyncio.sleep(AFTER_RESTART_SECONDS)
    if world.oracle.our_writes != before and world.oracle.their_writes == theirs:
        unwritten = {("controller", f"{verb} jobreports") for verb in ("create", "patch status")}
        if unwritten & set(world.refused_forever()):
            world.oracle.excuse("not quiet", "nothing is on record")
            return
        written = world.oracle.our_writes - before
        count = written.total()
        kinds = {disturbance.kind for disturbance in world.schedule.disturbances}
        found = written["terminator"]
        if "log_late" in kinds and found and written["controller"] <= SHOWN_WRITES * found:
            world.oracle.excuse("not quiet", "late lines")
            return
        if _keeps_pods(world, kinds) and count <= REFUSED_WRITES:
            world.oracle.excuse("not quiet", "a pod may not be deleted")
            return
        # The status names the node, and after its time no more.
        if _rollback_waits(world) and not found and count <= 2 * SHOWN_WRITES:
            world.oracle.excuse("not quiet", "a rollback waits")
            return
        words = f"{count} writes after a restart at rest"
        if "reboot" in kinds:
            words += ", after a reboot"
        words += world.oracle.timeouts.skews()
        world.oracle.violate("not quiet", words)


def _rollback_waits(world: World) -> bool:
    """Return whether a rollback waits while a node is not Ready."""
    statuses = [job.get("status") or {} for job in world.server.all(JOBS)]
    reasons = {each["reason"] for status in statuses for each in status.get("conditions") or ()}
    return "RollbackWaiting" in reasons and not all(map(is_reachable, world.server.all(NODES)))


def _keeps_pods(world: World, kinds: set[str]) -> bool:
    """Return whether the controller may not delete pods, or those of an ended run by their owner.

    `kinds` are those of the disturbances. A run that has ended deletes no pod for a retry.
    """
    refused = set(world.refused_forever())
    if ("controller", "delete pods") in refused:
        return True
    return ("controller", "delete daemonsets") in refused and "retry" in kinds

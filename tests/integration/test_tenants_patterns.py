"""A's pattern is the most costly one that is accepted; B's Jobs complete, and no lease is lost.

What the pattern costs, and why it is the worst one, says tests/contract/terminator/test_hostile.
"""

import asyncio
import contextlib
import random

import pytest

from daemonset_job.api.tokens import REGEX_PROGRAM_LIMIT, regex_line_bytes
from daemonset_job.kube.client.resource import JOBS
from tests.integration.simulated_nodes import TaskRun
from tests.integration.tenants import Tenants, tenants

pytestmark = pytest.mark.timeout(240)

# 500 and 498 instructions.
COMPLETION = {
    "token": "a(?:[ab]?){247}z",
    "failureToken": "a(?:[ab]?){246}y",
    "match": "Regex",
}
TOO_LARGE = {"token": "a(?:[ab]?){248}z", "match": "Regex"}
MATCHED = "az"
A_NODES = tuple(f"a{number:02}" for number in range(16))
# All that is compared of a line, what the terminator keeps of one at most, and more than that.
LINE_BYTES = (regex_line_bytes(REGEX_PROGRAM_LIMIT), 4_000, 20_000)
LINES_AT_ONCE = 20
PAUSE_SECONDS = 0.5


def hostile_lines(count: int) -> list[bytes]:
    rng = random.Random(0)
    return [bytes(rng.choices(b"ab", k=LINE_BYTES[i % len(LINE_BYTES)])) for i in range(count)]


LINES = hostile_lines(300)


def behaviour(node: str, _start: int) -> TaskRun:
    return TaskRun(lines=[line.decode() for line in LINES] if node in A_NODES else ("done",))


@contextlib.asynccontextmanager
async def talking(scene: Tenants):
    """Have all tasks of A go on printing, for as long as this is open."""
    logs = scene.harness.nodes.logs.logs

    def all_of_a():
        return [found[-1] for key, found in logs.items() if key[0] == scene.a.namespace]

    async def talk():
        rng = random.Random(1)
        while True:
            await asyncio.sleep(PAUSE_SECONDS)
            for log in all_of_a():
                log.write(*rng.sample(LINES, LINES_AT_ONCE))

    running = asyncio.create_task(talk())
    try:
        yield all_of_a
    finally:
        running.cancel()


async def test_the_worst_pattern_and_the_longest_lines_delay_no_other_tenant(tenants_env, tmp_path):
    async with tenants(tenants_env, tmp_path, a_nodes=A_NODES, behaviour=behaviour) as scene:
        a, harness = scene.a, scene.harness
        include = [harness.nodes.name(node) for node in A_NODES]
        spec = {"image": "example/task:v1", "nodes": {"include": include}}
        await a.apply({**spec, "completion": COMPLETION}, "worst")
        await a.apply({**spec, "completion": TOO_LARGE}, "refused")

        async with talking(scene) as all_of_a:

            async def are_read():
                read = await scene.terminator.metric("dsj_log_read_bytes_total")
                return len(all_of_a()) == len(A_NODES) and (read or 0) > 1024 * 1024

            await harness.wait_until(are_read, "A's logs are read")
            leaders = await scene.leaders()
            for number in range(5):
                await scene.completes(f"quiet-{number}")
                for script in scene.programs:
                    assert await script.ask("/healthz") == "ok\n"
                    assert await script.ask("/readyz") == "ok\n"
            # A has not ended meanwhile, and has cost no process the lead.
            assert (await a.client.get(JOBS, "worst", a.namespace))["status"]["phase"] == "Running"
            assert await scene.leaders() == leaders

            # What is larger is reported, and is not begun.
            refused = await a.client.get(JOBS, "refused", a.namespace)
            assert "startTime" not in refused["status"]
            (progressing,) = [
                c for c in refused["status"]["conditions"] if c["type"] == "Progressing"
            ]
            assert progressing["reason"] == "InvalidCompletionToken"
            assert str(REGEX_PROGRAM_LIMIT) in progressing["message"]

        # A's own token is found behind all that.
        for log in all_of_a():
            log.write(MATCHED)
        await harness.wait_deleted(JOBS, "worst", namespace=a.namespace, seconds=60)
        assert await scene.leaders() == leaders

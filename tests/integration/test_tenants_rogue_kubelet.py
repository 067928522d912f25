"""The kubelet of A's nodes answers what no kubelet would; Jobs of B complete.

Root on a node is what A is wherever pods may mount host paths, or has nodes of its own.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web

from daemonset_job.api.names import CONTAINER_NAME
from daemonset_job.kube.client.errors import Invalid
from daemonset_job.kube.client.resource import JOB_REPORTS, JOBS, PODS
from tests.integration.simulated_nodes import SimulatedNodes, TaskRun
from tests.integration.tenants import Tenants, tenants

pytestmark = pytest.mark.timeout(240)

# What both programs may use (deploy/deployment.yaml), and some of which is Python's own.
MEMORY_LIMIT_MIB = 256
CHUNK = b"x" * 64 * 1024
Answer = Callable[[web.Request, web.StreamResponse], Awaitable[None]]


def is_open(http: web.Request) -> bool:
    """Return whether the client is still there: a write does not always raise when it is not."""
    return http.transport is not None and not http.transport.is_closing()


async def endless_line(http: web.Request, response: web.StreamResponse) -> None:
    """Send one line without end, whatever was asked for."""
    await response.write(b"2025-01-01T00:00:00.000000000Z ")
    while is_open(http):
        await response.write(CHUNK)
        await asyncio.sleep(0)


async def endless_lines(http: web.Request, response: web.StreamResponse) -> None:
    """Send short lines without end."""
    lines = b"2025-01-01T00:00:00.000000000Z x\n" * 2000
    while is_open(http):
        await response.write(lines)
        await asyncio.sleep(0)


async def huge(_http: web.Request, response: web.StreamResponse) -> None:
    """Send 64 MiB and end."""
    for _ in range(1024):
        await response.write(CHUNK)


STAMPS = (
    "2026-99-99T99:99:99Z",
    "0000-00-00T00:00:00Z",
    "0001-01-01T00:00:00+23:59",
    "9999-12-31T23:59:59.999999999-23:59",
    "9999-12-31T23:59:59.999999999Z",
    "2026-01-01T00:00:00." + "9" * 5000 + "Z",
    "2026-01-01T00:00:00+99:99",
    "\u0662\u0660\u0662\u0666-01-01T00:00:00Z",
    "",
    "\x00",
)


def times(last: str) -> Answer:
    """Return what sends lines whose times are no times, or none that can be counted with.

    The last line's time is what the next request begins with.
    """

    async def answer(_http: web.Request, response: web.StreamResponse) -> None:
        for stamp in (*STAMPS, last):
            await response.write(stamp.encode() + b" working\n")
            await response.write(stamp.encode() + b"\xff\xfe dsjob:result \x1b[31m=\x00\n")
            await response.write(stamp.encode() + b" working\n")
        await response.write(b"Z" * 20_000)

    return answer


async def nothing(_http: web.Request, _response: web.StreamResponse) -> None:
    """Send no byte, and do not end."""
    await asyncio.sleep(3600)


ANSWERS: dict[str, Answer] = {
    "a-endless-line": endless_line,
    "a-endless-lines": endless_lines,
    "a-huge": huge,
    **{f"a-time-{number}": times(stamp) for number, stamp in enumerate(STAMPS)},
    "a-nothing": nothing,
}
HONEST = "a-honest"
# What a kubelet may write into the status of its own pods. What the API server does not take, it
# may not; the others reach the programs.
YEAR_1, YEAR_9999 = "0001-01-01T00:00:01Z", "9999-12-31T23:59:59Z"
TERMINATED = {"exitCode": 1, "reason": "Error", "startedAt": YEAR_1, "finishedAt": YEAR_9999}
MAX_INT = 2**31 - 1


def container(**fields: Any) -> dict[str, Any]:
    own = {"name": CONTAINER_NAME, "image": "x", "imageID": "", "ready": False, "restartCount": 0}
    return {**own, **fields}


STATUSES: dict[str, dict[str, Any]] = {
    "s-exit-codes": {
        "containerStatuses": [
            container(
                restartCount=MAX_INT,
                state={"terminated": {**TERMINATED, "exitCode": -MAX_INT - 1}},
                lastState={"terminated": {**TERMINATED, "exitCode": MAX_INT}},
            )
        ]
    },
    "s-restarts": {
        "containerStatuses": [
            container(restartCount=-4, state={"running": {"startedAt": YEAR_9999}})
        ]
    },
    "s-times": {
        "startTime": YEAR_9999,
        "conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": YEAR_1},
            {"type": "DisruptionTarget", "status": "True", "lastTransitionTime": YEAR_9999},
        ],
        "containerStatuses": [container(state={"terminated": TERMINATED})],
    },
    "s-texts": {
        "phase": "Failed",
        "reason": "\u001b[31m" + "r" * 20_000,
        "message": "m\u0000\u2028" * 20_000,
        "containerStatuses": [
            container(state={"waiting": {"reason": "w" * 50_000, "message": "\u202e" * 50_000}})
        ],
    },
    "s-none": {"phase": "Running", "containerStatuses": []},
    "s-twice": {
        "phase": "Succeeded",
        "containerStatuses": [
            container(state={"running": {"startedAt": None}}),
            container(state={"terminated": TERMINATED}),
        ],
    },
}
A_NODES = (HONEST, *ANSWERS, *STATUSES)


def behaviour(node: str, _start: int) -> TaskRun:
    return TaskRun(lines=("working",)) if node in ANSWERS or node in STATUSES else TaskRun()


def send_answers(nodes: SimulatedNodes) -> set[str]:
    """Have the log server of these nodes send what ANSWERS says; return which nodes did."""
    honest = nodes.logs._serve
    asked: set[str] = set()

    async def serve(http: web.Request) -> web.StreamResponse:
        pod = await nodes.admin.get(PODS, http.match_info["pod"], http.match_info["namespace"])
        node = nodes.short(pod["spec"].get("nodeName") or "")
        answer = ANSWERS.get(node)
        if answer is None:
            return await honest(http)
        asked.add(node)
        response = web.StreamResponse()
        await response.prepare(http)
        with contextlib.suppress(ConnectionError):
            await answer(http, response)
        return response

    nodes.logs.answer = serve
    return asked


async def lie(scene: Tenants, node: str) -> bool:
    """Write a status of the pod on that node; return whether the API server took it."""
    harness = scene.harness
    name = harness.nodes.name(node)
    pods = (await harness.admin.list(PODS, scene.a.namespace))["items"]
    (pod,) = [each for each in pods if each["spec"].get("nodeName") == name]
    try:
        await harness.admin.merge_patch(
            PODS.with_subresource("status"),
            pod["metadata"]["name"],
            {"status": STATUSES[node]},
            scene.a.namespace,
        )
    except Invalid:
        return False
    return True


async def test_whatever_a_nodes_kubelet_says_others_complete(tenants_env, tmp_path):
    async with tenants(tenants_env, tmp_path, a_nodes=A_NODES, behaviour=behaviour) as scene:
        a, harness = scene.a, scene.harness
        asked = send_answers(harness.nodes)
        leaders = await scene.leaders()
        include = [harness.nodes.name(node) for node in A_NODES]
        spec = {
            "image": "example/task:v1",
            "nodes": {"include": include},
            "failurePolicy": {"action": "Continue"},
            "backoffLimit": 1,
            "results": [{"name": "any"}],
        }
        await a.apply(spec, "rogue")
        for node in A_NODES:
            await harness.wait_started(node)

        async def states() -> dict[str, Any]:
            reports = (await a.client.list(JOB_REPORTS, a.namespace))["items"]
            return reports[0].get("status", {}).get("nodeStates") or {} if reports else {}

        async def are_all_on_record():
            return len(await states()) == len(A_NODES)

        # A pod that is rejected at once and replaced may never have been seen.
        await harness.wait_until(are_all_on_record, "all nodes of A are on record")
        harness.nodes.frozen |= set(STATUSES)
        taken = [node for node in STATUSES if await lie(scene, node)]
        # Today's API server takes all of them; should it take fewer one day, that is better.
        assert taken

        for number in range(5):
            await scene.completes(f"quiet-{number}")

        # A's own record is written all the same: the honest node is on it, and no other is done.
        async def is_recorded():
            recorded = await states()
            done = {node for node, state in recorded.items() if state["state"] == "Completed"}
            return len(recorded) == len(A_NODES) and done == {harness.nodes.name(HONEST)}

        await harness.wait_until(
            is_recorded, "A's honest node is on record, and all others as undone"
        )
        job = await a.client.get(JOBS, "rogue", a.namespace)
        assert job["status"]["phase"] == "Running"
        assert job["status"]["nodes"]["desired"] == len(A_NODES)
        assert asked == set(ANSWERS)
        for script in scene.programs:
            assert script.process.returncode is None
            assert script.peak_mib() < MEMORY_LIMIT_MIB
            assert "Traceback" not in script.text()
        assert await scene.leaders() == leaders

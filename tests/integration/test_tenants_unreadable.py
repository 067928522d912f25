"""A stores JSON that no program can read; Jobs of B complete all the while."""

import json
from pathlib import Path
from typing import Any

import pytest

from daemonset_job.api.names import LABEL_MANAGED, LABEL_MANAGED_VALUE
from daemonset_job.kube.client.errors import BadRequest, Invalid, KubeError
from daemonset_job.kube.client.resource import (
    DAEMON_SETS,
    EVENTS,
    JOB_REPORTS,
    JOBS,
    NODES,
    PODS,
    Resource,
)
from tests.integration.jobs import job, report
from tests.integration.scripts import CONTROLLER, TERMINATOR, Script
from tests.integration.tenants import Tenant, Tenants, tenants

pytestmark = pytest.mark.timeout(180)

IMAGE = {"image": "example/task:v1"}
# orjson reads 1,024 levels, the API server 10,000.
LEVELS = 1500
# The one part of any object whose depth nothing bounds: who may write the object may write it.
DEEP_FIELDS = '{"f:a":' * LEVELS + "{}" + "}" * LEVELS
POD = {"containers": [{"name": "x", "image": "example/task:v1"}]}
LABELS = {"any": "deep"}
# What of each kind the tenant stores. For reports, which only the system may write, and for nodes,
# where it would be the node's kubelet, an administrator does it.
STORED: dict[Resource, dict[str, Any]] = {
    JOBS: {"spec": {**IMAGE, "suspend": True}},
    PODS: {"spec": POD},
    DAEMON_SETS: {
        "spec": {
            "selector": {"matchLabels": LABELS},
            "template": {"metadata": {"labels": LABELS}, "spec": POD},
        }
    },
    EVENTS: {
        "involvedObject": {"kind": "DaemonSet", "name": "x"},
        "reason": "FailedCreate",
    },
    JOB_REPORTS: {"spec": report("any")["spec"]},
    NODES: {},
}
NOT_THE_TENANTS = (JOB_REPORTS, NODES)
FOLLOWED = {
    CONTROLLER: ("controller", [JOBS, PODS, DAEMON_SETS, JOB_REPORTS, NODES]),
    TERMINATOR: ("terminator", [JOBS, PODS, DAEMON_SETS, JOB_REPORTS, NODES]),
}


def who_may(scene: Tenants, resource: Resource) -> Tenant:
    """Return A, or an administrator for what only the system may write."""
    return (
        Tenant(scene.a.namespace, scene.harness.admin) if resource in NOT_THE_TENANTS else scene.a
    )


async def store(
    scene: Tenants, resource: Resource, fields: str = DEEP_FIELDS, name: str = "deep"
) -> bytes:
    """Store an object of that kind in A's namespace, and return it."""
    entry = {
        "manager": "tenant",
        "operation": "Update",
        "apiVersion": resource.api_version,
        "time": "2025-01-01T00:00:00Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": "HERE",
    }
    meta = {
        "name": name,
        **({"namespace": scene.a.namespace} if resource.namespaced else {}),
        "labels": {LABEL_MANAGED: LABEL_MANAGED_VALUE},
        "managedFields": [entry],
    }
    body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": meta}
    body |= STORED[resource]
    if resource is EVENTS:
        body["involvedObject"] |= {"namespace": scene.a.namespace}
    who = who_may(scene, resource)
    return await who.send("create", resource, body=body, replace={"HERE": fields})


async def wait_for_unreadable(
    scene: Tenants, number: int, *, readable: tuple[Resource, ...] = ()
) -> None:
    """Return once both programs say that this number of objects of each kind cannot be read.

    `readable`: kinds of which they can read all.
    """
    for script in scene.programs:
        component, resources = FOLLOWED[script.name]
        for resource in resources:
            expected = 0 if resource in readable else number
            labels = f'component="{component}",resource="{resource.plural}"'
            await scene.sampled(script, f"dsj_unreadable_objects{{{labels}}}", expected)
            if expected:
                await scene.logged(
                    script, "cannot be read", f"resource={resource.plural} ", "name=deep "
                )


async def lists(script: Script) -> list[str]:
    """Return which lists the program has asked for, each with how often."""
    text = await script.ask("/metrics")
    return [
        line for line in text.splitlines() if "_requests_total{" in line and 'verb="list"' in line
    ]


async def test_objects_too_deep_to_be_read_are_named_and_others_complete(tenants_env, tmp_path):
    async with tenants(tenants_env, tmp_path) as scene:
        for resource in STORED:
            assert (await store(scene, resource)).count(b'"f:a":') == LEVELS, resource
        # A watch of pods brings managedFields as bytes that are not parsed; a list is JSON.
        await wait_for_unreadable(scene, 1, readable=(PODS,))
        # It was understood: a client that writes once a second must not have all listed again.
        for script in scene.programs:
            listed = await lists(script)
            assert listed, script.name
            assert [line for line in listed if not line.endswith(" 1.0")] == [], script.name

        async def is_reported():
            return b'"reason":"Unreadable"' in await scene.a.send("get", JOBS, "deep")

        await scene.harness.wait_until(is_reported, "A's Job says that it cannot be read")
        reported = await scene.a.send("get", JOBS, "deep")
        # The watches go on.
        await scene.completes("during")
        for script in scene.programs:
            assert script.process.returncode is None

        # So do programs that begin with a list of all that.
        for script in scene.programs:
            assert await script.end(15) == 0
        await scene.start()
        await wait_for_unreadable(scene, 1)
        await scene.completes("after-a-restart")
        # Nothing is written of it again: its version is that of the report.
        assert await scene.a.send("get", JOBS, "deep") == reported

        # They see its end, too.
        for resource in STORED:
            now = {"gracePeriodSeconds": 0}
            await who_may(scene, resource).send("delete", resource, "deep", now)
        await wait_for_unreadable(scene, 0)
        await scene.completes("at-the-end")


def peak_bytes(pid: int) -> int:
    """Return how much memory a process has had at most."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    peak = dict(line.split(":", 1) for line in lines)["VmHWM"]
    return int(peak.removesuffix("kB")) * 1024


async def test_long_names_of_deep_fields_take_no_more_memory_than_there_is(tenants_env, tmp_path):
    """As deep as both programs read it; deploy/ gives each of them 256 MiB."""
    levels, name = 900, "f:" + "a" * 1400
    inner = f'{{"{name}":' * levels + "{}" + "}" * levels
    async with tenants(tenants_env, tmp_path) as scene:
        stored = await store(scene, DAEMON_SETS, f'{{"f:spec":{inner}}}')
        assert stored.count(name.encode()) == levels
        await scene.completes("during")
        for script in scene.programs:
            assert peak_bytes(script.process.pid) < 200 * 2**20, script.name


@pytest.mark.on_demand
async def test_pages_of_what_users_make_fit_into_the_memory_there_is(tenants_env, tmp_path):
    """What is parsed of it takes 27 times its bytes; there are 14 MiB of each kind."""
    chain = '{"f:a":' * 900 + "{}" + "}" * 900
    fields = ",".join(f'"f:{number}":{chain}' for number in range(160))
    async with tenants(tenants_env, tmp_path) as scene:
        for number in range(12):
            for resource in (PODS, DAEMON_SETS):
                stored = await store(scene, resource, f"{{{fields}}}", f"dense-{number}")
                assert len(stored) > 1_000_000
        for script in scene.programs:
            assert await script.end(15) == 0
        await scene.start()
        await scene.completes("after-a-restart")
        for script in scene.programs:
            assert peak_bytes(script.process.pid) < 240 * 2**20, script.name


def template(**container: Any) -> dict[str, Any]:
    return IMAGE | {"template": {"spec": {"containers": [{"name": "job-container", **container}]}}}


DEEP_LIST = "[" * LEVELS + "]" * LEVELS


async def test_a_spec_too_deep_or_too_large_is_refused_or_reported(tenants_env, tmp_path):
    """What is refused names the field; what is stored without it, or too large, delays no Job."""
    async with tenants(tenants_env, tmp_path) as scene:
        a = scene.a

        async def create(name: str, spec: dict[str, Any], deep: str = DEEP_LIST) -> bytes:
            body = job(a.namespace, spec, name)
            return await a.send("create", JOBS, body=body, replace={"HERE": deep})

        # As users send it: kubectl asks for strict validation.
        manifest = json.dumps(job(a.namespace, template(unknown="HERE"), "strict"))
        path = tmp_path / "deep.json"
        path.write_text(manifest.replace('"HERE"', DEEP_LIST))
        refusal = tenants_env.refusal("apply", "-f", str(path))
        assert 'unknown field "spec.template.spec.containers[0].unknown"' in refusal
        # As others may: it is left out.
        assert DEEP_LIST.encode() not in await create("dropped", template(unknown="HERE"))
        with pytest.raises(Invalid, match=r"containers\[0\].args\[0\]"):
            await create("typed", template(args=["HERE"]))
        with pytest.raises(BadRequest, match="exceeded max depth"):
            await create("deeper", template(unknown="HERE"), "[" * 15000 + "]" * 15000)
        with pytest.raises(KubeError) as refused:
            await create("enormous", template(args=["x" * 60_000] * 60))
        assert refused.value.status == 413

        for number in range(5):
            await create(f"large-{number}", template(args=["x" * 50_000] * 20))

        async def is_reported():
            raw = json.loads(await a.send("get", JOBS, "large-4"))
            return [c for c in raw.get("status", {}).get("conditions", ()) if c["status"] != "True"]

        conditions = await scene.harness.wait_until(
            is_reported, "A's Job says that it is too large"
        )
        assert [(c["type"], c["reason"]) for c in conditions] == [("Progressing", "SpecTooLarge")]
        assert "spec" in conditions[0]["message"]
        await scene.completes("during")

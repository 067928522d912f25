"""Two tenants of one system: what A does with the rights of a namespace, while Jobs of B complete.

Both programs run as processes with leader election, and look at all namespaces, as deployed.
"""

import contextlib
import json
import time
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.request import Request
from daemonset_job.kube.client.resource import (
    DAEMON_SETS,
    EVENTS,
    JOB_REPORTS,
    JOBS,
    PODS,
    Resource,
)
from tests.integration.harness import Harness, open_harness
from tests.integration.jobs import job as make_job
from tests.integration.kube_env import KubeEnv, service_account
from tests.integration.scripts import (
    CONTROLLER,
    TERMINATOR,
    Script,
    leadership,
    ready,
    run_scripts,
)
from tests.integration.simulated_nodes import Behaviour, done

Raw = dict[str, Any]

# What a Job of B may take on a machine that does other things too: two seconds when it does none.
SOON_SECONDS = 20.0


@dataclass(frozen=True)
class Tenant:
    """A namespace, and a client with the rights of the cluster role `edit` in it."""

    namespace: str
    client: KubeClient

    async def send(
        self,
        verb: str,
        resource: Resource,
        name: str | None = None,
        body: Raw | None = None,
        replace: Mapping[str, str] | None = None,
    ) -> bytes:
        """Return the answer as it is: both may be what no client parses.

        `replace` is what the body has in place of a text.
        """
        text = json.dumps(body)
        for word, by in (replace or {}).items():
            text = text.replace(json.dumps(word), by)
        data = None if body is None else text.encode()
        namespace = self.namespace if resource.namespaced else None
        return await self.client._transport.send(
            Request(verb, resource, namespace, name, body=data)
        )

    async def apply(self, spec: Raw, name: str, **metadata: Any) -> Raw:
        """Create a Job."""
        body = make_job(self.namespace, spec, name)
        body["metadata"] |= metadata
        return await self.client.create(JOBS, body, self.namespace)


@dataclass(eq=False)
class Tenants:
    """The harness that runs B's Jobs, both programs, and A."""

    harness: Harness
    a: Tenant
    controller: Script
    terminator: Script
    nodes: Sequence[str]

    @property
    def programs(self) -> tuple[Script, Script]:
        """Both programs."""
        return self.controller, self.terminator

    async def start(self) -> None:
        """Start both programs and return once they are ready."""
        for script in self.programs:
            await script.start()
        for script in self.programs:
            await ready(self.harness, script)

    async def completes(self, name: str, seconds: float = SOON_SECONDS) -> float:
        """Have a Job of B complete on each of B's nodes in that time; return how long it took."""
        harness, began = self.harness, time.monotonic()
        nodes = [harness.nodes.name(node) for node in self.nodes]
        await harness.apply({"image": "example/task:v1", "nodes": {"include": nodes}}, name)
        await harness.wait_deleted(JOBS, name, seconds=seconds)
        took = time.monotonic() - began
        report = await harness.report(name)
        assert report is not None
        assert report["status"]["phase"] == "Succeeded", report
        states = {node: state["state"] for node, state in (await harness.node_states(name)).items()}
        assert states == dict.fromkeys(self.nodes, "Completed")
        return took

    async def leaders(self) -> list[tuple[str, int]]:
        """Return who leads, and how often that has changed, of both programs, once both lead."""

        async def look() -> list[tuple[str, int]]:
            found = [await leadership(self.harness, script.name) for script in self.programs]
            return found if all(holder for holder, _ in found) else []

        leaders: list[tuple[str, int]] = await self.harness.wait_until(look, "both programs lead")
        return leaders

    async def logged(self, script: Script, *words: str) -> None:
        """Return once a line of the program's log has all these words."""

        async def look() -> bool:
            return any(all(word in line for word in words) for line in script.text().splitlines())

        await self.harness.wait_until(look, f"{script.name} logs {words}")

    async def sampled(self, script: Script, metric: str, value: float) -> None:
        """Return once a metric of the program has this value."""

        async def look() -> bool:
            return await script.metric(metric) == value

        await self.harness.wait_until(look, f"{metric} of {script.name} is {value:g}")


@contextlib.asynccontextmanager
async def tenants(
    env: KubeEnv,
    folder: Path,
    *,
    nodes: Sequence[str] = ("b1", "b2"),
    a_nodes: Sequence[str] = (),
    behaviour: Behaviour = done,
) -> AsyncIterator[Tenants]:
    """Run both programs for two fresh namespaces; A's pods are simulated if A has nodes."""
    mark = uuid.uuid4().hex[:6]
    a, b = f"tenant-a-{mark}", f"tenant-b-{mark}"
    for name in (a, b):
        env.kubectl("create", "namespace", name)
    kubeconfig = _tenant_kubeconfig(env, a)
    async with (
        open_harness(
            env, b, *([a] if a_nodes else []), nodes=(*nodes, *a_nodes), behaviour=behaviour,
            controller=False, terminator=False,
        ) as harness,
        await KubeClient.connect(kubeconfig=str(kubeconfig), user_agent="tenant") as client,
    ):  # fmt: skip
        made = [Script(harness, name, folder, everywhere=True) for name in (CONTROLLER, TERMINATOR)]
        controller, terminator = made
        found = Tenants(harness, Tenant(a, client), controller, terminator, nodes)
        try:
            async with run_scripts(*made):
                for script in made:
                    await ready(harness, script)
                yield found
        finally:
            await _clear(harness, a)


def _tenant_kubeconfig(env: KubeEnv, namespace: str) -> Path:
    env.kubectl("create", "serviceaccount", "tenant", "-n", namespace)
    env.kubectl(
        *("create", "rolebinding", "tenant", "-n", namespace),
        *("--clusterrole=edit", f"--serviceaccount={namespace}:tenant"),
    )
    user = service_account(namespace, "tenant")
    deadline = time.monotonic() + 30
    jobs = JOBS.plural + "." + JOBS.group
    while not env.is_allowed(user, "create", jobs, namespace):
        assert time.monotonic() < deadline, "the cluster role edit does not contain Jobs"
        time.sleep(0.1)
    return env.kubeconfig_for_service_account(namespace, "tenant")


async def _clear(harness: Harness, namespace: str) -> None:
    """Delete what A has left: the programs of the next test look at all namespaces."""
    for resource in (JOBS, DAEMON_SETS, PODS, JOB_REPORTS, EVENTS):
        body = json.dumps({"gracePeriodSeconds": 0}).encode()
        request = Request("deletecollection", resource, namespace, body=body, timeout_seconds=60)
        await harness.admin._transport.send(request)

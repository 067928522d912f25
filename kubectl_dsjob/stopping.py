"""The verbs stop-all and resume-all: one field of one ConfigMap stops all Jobs of the cluster."""

from __future__ import annotations

from typing import Any, Final

from daemonset_job.api import names
from daemonset_job.kube.client.errors import Forbidden, KubeError, NotFound
from daemonset_job.kube.client.resource import CONFIG_MAPS
from kubectl_dsjob.edge import Answer
from kubectl_dsjob.errors import CliError
from kubectl_dsjob.proposals import CLUSTER
from kubectl_dsjob.system.installed import find_installed
from kubectl_dsjob.target import Target

SYSTEM_NAMESPACE: Final = "daemonset-job-system"


async def stop_all(target: Target, namespace: str, reason: str) -> Answer:
    """Stop all Jobs: no further node starts, and no ScheduledJob starts a run."""
    is_system = await _write(target, namespace, {"stop": "true", "reason": reason or None})
    way = resume_command(namespace)
    if not is_system:
        return Answer(words=f"{_no_controller(namespace)} To end the stop: {way}")
    return Answer(
        words=(
            "all Jobs of the cluster are stopped: no further node starts, and running tasks "
            f"continue. To end that: {way}"
        )
    )


def resume_command(namespace: str) -> str:
    """Return the command that ends a stop, for a system in that namespace."""
    system = "" if namespace == SYSTEM_NAMESPACE else f" --system-namespace {namespace}"
    return f"kubectl dsjob resume-all{system}{CLUSTER}"


async def resume_all(target: Target, namespace: str) -> Answer:
    """End a stop of all Jobs, if there is one."""
    if not await _write(target, namespace, {"stop": "false", "reason": None}):
        return Answer(words=_no_controller(namespace))
    return Answer(words="all Jobs of the cluster go on: no stop of all is in force now")


def _no_controller(namespace: str) -> str:
    return (
        f"wrote ConfigMap {names.STOP_CONFIG_MAP} in namespace {namespace}, where no controller "
        f"is: one in another namespace does not read it. `kubectl dsjob doctor{CLUSTER}` finds it; "
        "name its namespace with --system-namespace."
    )


async def _write(target: Target, namespace: str, data: dict[str, Any]) -> bool:
    """Write the ConfigMap; return False if the controller is known not to be in the namespace."""
    name = names.STOP_CONFIG_MAP
    async with await target.connect() as client:
        try:
            await client.merge_patch(CONFIG_MAPS, name, {"data": data}, namespace)
        except NotFound:
            body = {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": name, "namespace": namespace},
                "data": {key: text for key, text in data.items() if text is not None},
            }
            try:
                await client.create(CONFIG_MAPS, body, namespace)
            except NotFound as error:
                way = "Name the namespace of the system with --system-namespace."
                raise CliError(f"there is no namespace {namespace!r}", way) from error
        except Forbidden as error:
            way = f"Ask an administrator, who may write ConfigMap {name} in {namespace}."
            what = "stop" if data["stop"] == "true" else "resume"
            raise CliError(f"you may not {what} all Jobs of this cluster", way) from error
        try:
            return await find_installed(client, namespace) is not None
        except KubeError:
            return True  # who may write one ConfigMap need not read Deployments

"""Checks whether an administrator has stopped all Jobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from daemonset_job.api import names
from daemonset_job.api.stop import parse_stop, stop_message
from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.resource import CONFIG_MAPS
from kubectl_dsjob.doctor.findings import Area, Finding, Level
from kubectl_dsjob.doctor.reads import Missing, read
from kubectl_dsjob.stopping import resume_command


async def check_stop(client: KubeClient, namespace: str) -> list[Finding]:
    """Return a finding if all Jobs are stopped, or if the user may not read whether they are."""
    return judge_stop(await read(client, CONFIG_MAPS, names.STOP_CONFIG_MAP, namespace), namespace)


def judge_stop(found: Mapping[str, Any] | Missing, namespace: str) -> list[Finding]:
    """Return what there is to say about the ConfigMap of the stop. Pure."""
    if found is Missing.ABSENT:
        return []
    if isinstance(found, Missing):
        text = (
            f"you may not read the ConfigMap {names.STOP_CONFIG_MAP} in namespace {namespace}, "
            "which stops all Jobs"
        )
        return [Finding(Area.PROGRAMS, Level.UNKNOWN, text)]
    message = stop_message(parse_stop(found))
    if not message:
        return []
    return [Finding(Area.PROGRAMS, Level.NOTE, message, resume_command(namespace))]

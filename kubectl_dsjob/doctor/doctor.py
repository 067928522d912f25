"""The verb `doctor`: runs all checks, each with the user's rights."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

from kubectl_dsjob.doctor.access_checks import check_access
from kubectl_dsjob.doctor.crd_checks import check_crds
from kubectl_dsjob.doctor.findings import format_findings, format_json, is_well
from kubectl_dsjob.doctor.job_checks import check_jobs
from kubectl_dsjob.doctor.policy_checks import check_policies
from kubectl_dsjob.doctor.program_checks import check_programs
from kubectl_dsjob.doctor.rights_checks import check_system_rights
from kubectl_dsjob.doctor.stop_checks import check_stop
from kubectl_dsjob.edge import Answer
from kubectl_dsjob.errors import CliError
from kubectl_dsjob.exit_codes import ExitCode
from kubectl_dsjob.outputs import Output
from kubectl_dsjob.system.installed import find_namespace
from kubectl_dsjob.target import Target

# A hundred years, which a timedelta can have.
_LONGEST_SECONDS: Final = 100 * 365 * 86400.0


async def examine(
    target: Target,
    system_namespace: str,
    output: Output,
    *,
    is_everywhere: bool,
    stuck_seconds: float,
) -> Answer:
    """Return what was found; FAILURE if there is a problem."""
    if output not in (Output.TABLE, Output.JSON):
        raise CliError("doctor prints text or JSON", "Use -o json.", ExitCode.USAGE)
    namespace = target.find_namespace()
    now = datetime.now(UTC)
    limit = timedelta(seconds=min(stuck_seconds, _LONGEST_SECONDS))
    async with await target.connect() as client:
        system = await find_namespace(client, system_namespace)
        findings = [
            *await check_crds(client, namespace),
            *await check_programs(client, system, now),
            *await check_system_rights(client, system),
            *await check_stop(client, system),
            *await check_policies(client, system),
            *await check_access(client, namespace),
            *await check_jobs(client, None if is_everywhere else namespace, now, limit),
        ]
    findings = [replace(found, way_out=target.name_cluster(found.way_out)) for found in findings]
    text = format_json(findings) if output == Output.JSON else format_findings(findings)
    return Answer(text, code=ExitCode.SUCCESS if is_well(findings) else ExitCode.FAILURE)

"""The verb `doctor`: runs all checks, each with the user's rights."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

from daemonset_job.kube.client.errors import KubeError, Unauthorized, Unavailable
from kubectl_dsjob.doctor.access_checks import check_access
from kubectl_dsjob.doctor.crd_checks import check_crds
from kubectl_dsjob.doctor.findings import (
    Area,
    Finding,
    Level,
    format_findings,
    format_json,
    is_well,
)
from kubectl_dsjob.doctor.installation_checks import check_installations
from kubectl_dsjob.doctor.job_checks import check_jobs
from kubectl_dsjob.doctor.policy_checks import check_policies
from kubectl_dsjob.doctor.program_checks import check_programs
from kubectl_dsjob.doctor.rights_checks import check_system_rights
from kubectl_dsjob.doctor.stop_checks import check_stop
from kubectl_dsjob.edge import Answer, as_cli_error
from kubectl_dsjob.errors import CliError
from kubectl_dsjob.exit_codes import ExitCode
from kubectl_dsjob.outputs import Output
from kubectl_dsjob.system.installed import find_namespace
from kubectl_dsjob.target import Target

# A hundred years, which a timedelta can have.
_LONGEST_SECONDS: Final = 100 * 365 * 86400.0

Check = Callable[[], Coroutine[Any, Any, list[Finding]]]


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
        where = None if is_everywhere else namespace
        findings = await _run_all(
            [
                (Area.CRDS, partial(check_crds, client, namespace)),
                (Area.PROGRAMS, partial(check_programs, client, system, now)),
                (Area.PROGRAMS, partial(check_installations, client, system, where)),
                (Area.PROGRAMS, partial(check_system_rights, client, system)),
                (Area.PROGRAMS, partial(check_stop, client, system)),
                (Area.POLICIES, partial(check_policies, client, system)),
                (Area.RIGHTS, partial(check_access, client, namespace)),
                (Area.JOBS, partial(check_jobs, client, where, now, limit)),
            ]
        )
    findings = [replace(found, way_out=target.name_cluster(found.way_out)) for found in findings]
    text = format_json(findings) if output == Output.JSON else format_findings(findings)
    return Answer(text, code=ExitCode.SUCCESS if is_well(findings) else ExitCode.FAILURE)


async def _run_all(checks: Sequence[tuple[Area, Check]]) -> list[Finding]:
    """Return what all checks find. One that the API server fails is a problem, and no end.

    Without any answer the others would wait as long, so they are left out. Credentials that are
    refused are so for all.
    """
    found: list[Finding] = []
    for number, (area, check) in enumerate(checks, 1):
        try:
            found += await check()
        except Unauthorized:
            raise
        except KubeError as error:
            failure = as_cli_error(error)
            is_silent = isinstance(error, Unavailable) and not error.status
            text = f"this check failed: {failure.message}"
            if is_silent and number < len(checks):
                text += "; the checks after it were left out"
            found.append(Finding(area, Level.PROBLEM, text, failure.way_out))
            if is_silent:
                break
    return found

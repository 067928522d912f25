"""Reports missing admission policies of deploy/: everything else works without them.

Layer: over kube. It decides nothing and stops nothing. A missing policy is a warning in the log,
once for each change, and a metric.
"""

import asyncio
import math
from collections.abc import Callable

from loguru import logger

from daemonset_job.api import names
from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.errors import Forbidden, KubeError, NotFound
from daemonset_job.kube.client.resource import ADMISSION_BINDINGS, ADMISSION_POLICIES

CHECK_SECONDS = 300.0


async def missing_policies(client: KubeClient) -> list[str]:
    """Return the names of policies that are missing or not bound to deny; raises KubeError.

    A new policy takes about a second until the API server enforces it.
    """
    missing = []
    for name in names.ADMISSION_POLICIES:
        try:
            await client.get(ADMISSION_POLICIES, name)
            binding = await client.get(ADMISSION_BINDINGS, name)
        except NotFound:
            missing.append(name)
        else:
            if "Deny" not in ((binding.get("spec") or {}).get("validationActions") or ()):
                missing.append(name)
    return missing


async def watch_policies(client: KubeClient, report: Callable[[float], None]) -> None:
    """Check until cancelled; `report` gets the number of missing policies, NaN if unknown."""
    before: list[str] | None = []
    while True:
        try:
            missing = await missing_policies(client)
        except Forbidden as error:
            if before is not None:
                logger.warning(
                    "cannot check whether the admission policies exist", error=str(error)
                )
            before = None
            report(math.nan)
        except KubeError as error:
            logger.debug("cannot read the admission policies, retrying", error=str(error))
        except Exception:  # noqa: BLE001 - the process would end, and works without this check
            logger.exception("the check of the admission policies failed, retrying")
            report(math.nan)
        else:
            if missing and missing != before:
                logger.warning(
                    "admission policies are missing: apply deploy/ again", missing=",".join(missing)
                )
            elif before and not missing:
                logger.info("all admission policies exist")
            before = missing
            report(len(missing))
        await asyncio.sleep(CHECK_SECONDS)

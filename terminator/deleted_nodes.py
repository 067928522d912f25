"""Drops evidence about deleted nodes from the reports of a Job of policy Continuous.

Shell. Nodes that come and go would fill one report after the other.
"""

from loguru import logger

from daemonset_job.api.deleted_nodes import find_dropped_nodes
from daemonset_job.api.job import Job
from daemonset_job.api.report import merge_evidence, metadata_without_managed_fields
from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.resource import JOB_REPORTS
from terminator.caches import Caches
from terminator.node_count import reports_of_run


async def drop_deleted_nodes(client: KubeClient, caches: Caches, job: Job) -> None:
    """Drop the evidence about the oldest deleted nodes, if there are too many; raises KubeError.

    The cache of nodes has synced. The controller drops the records of the same nodes.
    """
    if not job.spec.is_continuous:
        return
    reports = reports_of_run(job, caches.reports_of(job))
    present = caches.nodes()
    deleted = {
        name: entry.completion_time
        for name, entry in merge_evidence(reports).items()
        if name not in present
    }
    dropped = find_dropped_nodes(deleted)
    for report in reports:
        names = sorted(dropped & report.evidence.keys())
        if names:
            body = {
                "metadata": metadata_without_managed_fields(report.uid),
                "evidence": dict.fromkeys(names),
            }
            await client.merge_patch(JOB_REPORTS, report.name, body, report.namespace)
            logger.bind(namespace=job.namespace, job=job.name, report=report.name).info(
                "dropped evidence about deleted nodes", count=len(names)
            )

"""How events name a Job."""

from __future__ import annotations

from daemonset_job.api import names
from daemonset_job.api.job import Job
from daemonset_job.kube.recorder import ObjectReference


def job_reference(job: Job) -> ObjectReference:
    """Return the reference by which an event is about the Job."""
    return ObjectReference(
        api_version=names.API_VERSION,
        kind=names.JOB_KIND,
        namespace=job.namespace,
        name=job.name,
        uid=job.uid,
        resource_version=job.resource_version,
    )

"""Asks the API server for pods that the cache has not seen, before a Job is deleted.

Shell. A watch of pods may be late by any time. Then the numbers of the count may agree by chance.
The DaemonSet counts the new pod of a node that joined, and the cache has a pod that is gone.
"""

from collections.abc import Iterable

from loguru import logger

from daemonset_job.api import names
from daemonset_job.api.daemon_set import DaemonSet
from daemonset_job.api.job import Job
from daemonset_job.api.pod import Pod, parse_pod
from daemonset_job.kube.cache.pager import Pager
from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.resource import PODS
from daemonset_job.kube.client.selection import Selection
from daemonset_job.kube.client.unreadable import Unreadable

# Pages of 500 pods. Who forges more of them than that delays only the end of that one Job.
_PAGES_LIMIT = 40


async def has_unseen_pod(
    client: KubeClient, job: Job, owner: DaemonSet, pods: Iterable[Pod]
) -> bool:
    """Return whether the DaemonSet has a pod that is not among `pods`; raises KubeError.

    Reads the metadata of the Job's pods, which is some 1 KB each.
    """
    known = {pod.uid for pod in pods}
    selector = f"{names.LABEL_JOB_UID}={job.uid}"
    what = Selection(PODS, job.namespace, label_selector=selector, metadata_only=True)
    pager, continue_ = Pager(client, what), ""
    for _ in range(_PAGES_LIMIT):
        page = await pager.page(continue_)
        for raw in page.items:
            if isinstance(raw, Unreadable):
                continue
            pod = parse_pod(raw)
            if pod.owner_uid == owner.uid and pod.uid not in known:
                return True
        continue_ = page.continue_
        if not continue_:
            return False
    logger.warning("the Job has too many pods to look for new ones", namespace=job.namespace)
    return True

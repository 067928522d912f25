"""What the actions write with: the client, and the writes that the caches do not have yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from daemonset_job.api.job import JobKey
from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.errors import NotFound
from daemonset_job.kube.client.resource import JOBS, Resource
from daemonset_job.runtime.expectations import VersionExpectations
from job_controller.caches import Caches, watch_id


@dataclass(frozen=True, slots=True)
class Writer:
    """The client of one process, its caches, and its writes that are not in them yet."""

    client: KubeClient
    caches: Caches
    written: VersionExpectations[JobKey]

    def expect_version(self, key: JobKey, resource: Resource, written: Mapping[str, Any]) -> None:
        """Make reconciles of a Job wait until its caches have the version that a write returned."""
        watch = watch_id(resource.plural, self.caches.watch_namespace(key[0]))
        # A deletion answers with the terminating object, or else with a Status,
        # which has no version: there is nothing to wait for then.
        version = (written.get("metadata") or {}).get("resourceVersion") or ""
        self.written.wrote(key, watch, version)

    async def find_job(self, key: JobKey) -> Mapping[str, Any] | None:
        """Return the metadata of that Job, read from the server, None if it is deleted."""
        try:
            found = await self.client.get(JOBS, key[1], key[0])
        except NotFound:
            return None
        meta: Mapping[str, Any] = found["metadata"]
        return meta

"""Which objects of a resource type are listed or watched."""

from dataclasses import dataclass

from daemonset_job.kube.client.request import query_of
from daemonset_job.kube.client.resource import Resource


@dataclass(frozen=True, slots=True)
class Selection:
    """The objects of a resource type that have these labels and fields.

    `namespace` None means all namespaces. With `metadata_only` they are PartialObjectMetadata.
    """

    resource: Resource
    namespace: str | None = None
    label_selector: str | None = None
    field_selector: str | None = None
    metadata_only: bool = False

    def query(self, **options: str | int | None) -> dict[str, str]:
        """Return the query of a list or watch of these objects, with further `options`."""
        return query_of(
            labelSelector=self.label_selector, fieldSelector=self.field_selector, **options
        )

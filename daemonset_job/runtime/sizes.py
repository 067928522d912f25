"""Gauges of how much a program holds, so that an administrator sees what grows."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from daemonset_job.runtime.workqueue import WorkQueue


@dataclass(frozen=True, slots=True)
class Size:
    """One gauge: its name without the prefix `dsj_`, its help text, and how to read it.

    With a `label`, `read` returns a mapping from the label's values to numbers. A gauge that
    `is_shared` exists in both programs; the label `component` says which one it is of.
    """

    name: str
    text: str
    read: Callable[[], float | Mapping[str, float]]
    label: str = ""
    is_shared: bool = False


class Caches(Protocol):
    """What the gauges ask of a program's caches, each by resource."""

    def sizes(self) -> Mapping[str, int]:
        """Return how many objects each cache holds."""
        ...

    def unreadable(self) -> Mapping[str, int]:
        """Return how many objects each cache lacks because they cannot be read."""
        ...

    def silence(self) -> Mapping[str, float]:
        """Return for how many seconds each cache has had no answer of the API server."""
        ...


def process_sizes(
    queue: Callable[[], WorkQueue[tuple[str, str]]], caches: Callable[[], Caches]
) -> list[Size]:
    """Return the gauges that both programs have, of the work queue and caches of the moment."""

    def keys() -> Mapping[str, int]:
        now = queue()
        return {"due": len(now), "delayed": now.delayed, "processing": now.processing}

    by_resource = partial(Size, label="resource", is_shared=True)
    return [
        Size("asyncio_tasks", "asyncio tasks.", lambda: len(asyncio.all_tasks()), is_shared=True),
        Size("workqueue_keys", "Jobs in the work queue, by state.", keys, "state", is_shared=True),
        by_resource(
            "cache_objects", "Objects in the caches, by resource.", lambda: caches().sizes()
        ),
        by_resource(
            "unreadable_objects",
            "Objects that exist and that cannot be read, by resource.",
            lambda: caches().unreadable(),
        ),
        by_resource(
            "watch_silence_seconds",
            "Seconds since the API server last answered a list or a watch, by resource.",
            lambda: caches().silence(),
        ),
    ]


class SizeCollector(Collector):
    """Reads all sizes when the metrics are requested; keeps nothing."""

    def __init__(self, component: str, sizes: Iterable[Size]) -> None:
        self._component = component
        self._sizes = tuple(sizes)

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Return nothing: registering must not read."""
        return ()

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Return one gauge for each size."""
        for size in self._sizes:
            shared = {"component": self._component} if size.is_shared else {}
            labels = [*shared, *([size.label] if size.label else [])]
            family = GaugeMetricFamily(f"dsj_{size.name}", size.text, labels=labels)
            found = size.read()
            if isinstance(found, Mapping):
                for value, number in found.items():
                    family.add_metric([*shared.values(), value], number)
            else:
                family.add_metric([*shared.values()], found)
            yield family

import pytest
from prometheus_client import CollectorRegistry

from daemonset_job.runtime.sizes import Size, SizeCollector, process_sizes
from daemonset_job.runtime.workqueue import WorkQueue

pytestmark = pytest.mark.looptime


class Caches:
    objects = 1

    def sizes(self):
        return {"pods": self.objects}

    def unreadable(self):
        return {"pods": 3}

    def silence(self):
        return {"pods": 1.5}


async def test_sizes_are_those_of_the_moment_of_the_scrape():
    queue: WorkQueue[tuple[str, str]] = WorkQueue()
    caches = Caches()
    sizes = process_sizes(lambda: queue, lambda: caches)
    registry = CollectorRegistry()
    registry.register(SizeCollector("program", [*sizes, Size("books", "Books.", lambda: 7)]))

    def value(name, **labels):
        return registry.get_sample_value(f"dsj_{name}", labels)

    assert value("workqueue_keys", component="program", state="due") == 0
    queue.add(("ns", "a"))
    queue.add_after(("ns", "b"), 5)
    caches.objects = 2
    assert value("workqueue_keys", component="program", state="due") == 1
    assert value("workqueue_keys", component="program", state="delayed") == 1
    assert value("workqueue_keys", component="program", state="processing") == 0
    assert value("cache_objects", component="program", resource="pods") == 2
    assert value("unreadable_objects", component="program", resource="pods") == 3
    assert value("watch_silence_seconds", component="program", resource="pods") == 1.5
    assert value("asyncio_tasks", component="program") == 1
    assert value("books") == 7
    queue.close()

"""Clock, work queue, workers and expectations: asyncio and the standard library only.

Layer: knows no Kubernetes and no HTTP. It does not log; callers pass callbacks.
"""

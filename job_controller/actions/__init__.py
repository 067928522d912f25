"""The controller's writes to the cluster: one module for each kind of object.

Layer: below the reconciler, above caches. Each write is recorded as expected, so that the next
reconcile of the Job waits until the caches have it.
"""

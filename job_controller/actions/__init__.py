"""What the controller does to the cluster: one module for each kind of object.

Layer: below the reconciler, above caches. Each write is noted, so that the next pass over the Job
waits until the caches have seen it.
"""

"""One model of Kubernetes for all rings of tests, as pure functions of raw objects.

Its DaemonSet controller, and what its API server stores and refuses. Nothing here has a store, a
clock or random names, and no argument is ever changed: a result shares the parts that stay.
"""

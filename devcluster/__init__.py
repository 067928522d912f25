"""A real Kubernetes cluster for the demo, the tests and the benchmarks: `python3 -m devcluster`.

Standard library only, because it runs before any virtual environment exists. It uses kind with
the published node image where that can be pulled; on a Debian machine without an image registry
it builds the node image itself from Go modules and Debian packages.
"""

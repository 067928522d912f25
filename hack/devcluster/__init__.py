"""A real Kubernetes cluster for demo, tests and benchmarks: `python3 -m hack.devcluster`.

Standard library only, because it runs before any virtual environment exists. It uses kind with
the published node image where that can be pulled; on a Debian machine without an image registry
it builds the node image itself from Go modules and Debian packages.
"""

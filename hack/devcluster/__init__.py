"""A real Kubernetes cluster for demo, tests and benchmarks: `python3 -m hack.devcluster`.

Standard library only, because it runs before any virtual environment exists. It uses kind with
the published node image, if that can be pulled. On a Debian machine without an image registry it
builds the node image from Go modules and Debian packages.
"""

"""The metrics of the running programs."""

from tests.e2e.cluster import SYSTEM, RealCluster

CONTROLLER_PORT = 8080
TERMINATOR_PORT = 8081


def metrics(cluster: RealCluster, pod: str, port: int) -> dict[str, str]:
    """Return the value of each metric, with its labels, of one program of a pod."""
    path = f"/api/v1/namespaces/{SYSTEM}/pods/{pod}:{port}/proxy/metrics"
    lines = cluster.kubectl("get", "--raw", path).splitlines()
    return dict(line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))

"""In the middle of drains the Jobs are deleted as docs/how-to/drain-nodes.md says to uninstall.

`test_install` uninstalls the system itself in the middle of drains.
"""

import os
import subprocess

import pytest

from tests.e2e.cluster import CONTROLLER, SYSTEM, RealCluster, eventually
from tests.e2e.doc_blocks import blocks
from tests.e2e.drains import assert_nothing_left, is_cordoned, start_drains, web_pods

pytestmark = pytest.mark.alone


def commands(cluster: RealCluster) -> list[str]:
    """Return the commands of the page: to delete and to look, and to lift what is left."""
    text = (cluster.root / "docs/how-to/drain-nodes.md").read_text(encoding="utf-8")
    _, _, section = text.partition("\n## Uninstall\n")
    return [block.text for block in blocks(section) if block.language == "sh"]


def run(cluster: RealCluster, script: str) -> str:
    done = subprocess.run(
        ["bash", "-e", "-c", script],
        env=os.environ | {"KUBECONFIG": cluster.kubeconfig},
        text=True,
        capture_output=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done
    return done.stdout


def test_the_commands_to_uninstall_leave_nothing_of_drains(draining, namespace, folder):
    """The first time with a controller, the second time without."""
    cluster = draining
    delete, lift = commands(cluster)
    _, look = delete.strip().splitlines()
    start_drains(cluster, namespace, folder)
    before = {pod["metadata"]["uid"] for pod in web_pods(cluster, namespace)}
    run(cluster, delete)
    eventually(lambda: run(cluster, look) == "", 30, "no node is marked")
    assert_nothing_left(cluster, folder)

    held, working = start_drains(cluster, namespace, folder)
    (own,) = set(cluster.nodes) - {held, working}
    deployment = ("deployment", CONTROLLER, "-n", SYSTEM)
    cluster.kubectl("scale", *deployment, "--replicas=0")
    try:
        eventually(lambda: not cluster.get("pods", "-n", SYSTEM)["items"], 60, "no controller")
        cluster.kubectl("cordon", own)
        run(cluster, delete)
        assert set(run(cluster, look).split()) == {held, working}
        run(cluster, lift)
        assert is_cordoned(cluster, own), "the cordon of a user stays"
        cluster.kubectl("uncordon", own)
        assert_nothing_left(cluster, folder)
    finally:
        cluster.kubectl("scale", *deployment, "--replicas=1")
        cluster.wait_for_system(1)
    assert {pod["metadata"]["uid"] for pod in web_pods(cluster, namespace)} == before

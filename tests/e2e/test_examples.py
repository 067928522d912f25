"""Two examples that no page runs.

The first one is in test_main_job, 14 to 18 are in test_node_examples,
19 in test_reboot, 20 to 22 in test_standing_examples, 23 in test_scheduled, 24 in test_rollout,
25 in test_drain, 26 in test_windows, all others in test_pages.
"""

import subprocess
import sys

import yaml

from tests.e2e.cluster import RealCluster
from tests.e2e.doc_surroundings import facts


def example(cluster: RealCluster, name: str) -> dict:
    return yaml.safe_load((cluster.root / "examples" / name / "job.yaml").read_text())


def devcluster(cluster: RealCluster, *words: str) -> str:
    """Run a verb of devcluster in the project's root and return what it printed."""
    command = [sys.executable, "-m", "hack.devcluster", *words]
    done = subprocess.run(
        command, cwd=cluster.root, text=True, capture_output=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout.strip()


def test_an_image_made_of_scripts_writes_its_facts_on_every_node(cluster, namespace):
    job = example(cluster, "02-script-image")
    archive = devcluster(cluster, "build", "examples/02-script-image", job["spec"]["image"])
    with facts(cluster):
        devcluster(cluster, "load", archive)
        job["metadata"]["namespace"] = namespace
        cluster.apply(job)
        cluster.wait_gone(namespace, "node-facts")

        assert cluster.completed(namespace, "node-facts") == set(cluster.nodes)


def test_selected_nodes_are_cleaned_and_no_others(cluster, namespace, folder):
    """As the example says, but for the folder: the nodes of a cluster may share /tmp."""
    job = example(cluster, "03-selected-nodes")
    left_alone, *workers = [node for node in cluster.nodes if "control-plane" not in node]
    job["metadata"]["namespace"] = namespace
    job["spec"]["mountPath"] = folder
    job["spec"]["nodes"]["exclude"] = [left_alone]
    cluster.on_all_nodes(f"mkdir -p {folder}/foo")

    cluster.apply(job)
    cluster.wait_gone(namespace, "cleanup-workers")

    left = cluster.on_all_nodes(f"ls {folder}")
    assert {node for node, text in left.items() if "foo" not in text} == set(workers)
    assert cluster.completed(namespace, "cleanup-workers") == set(workers)

"""What a rollout asks before it goes on: images on the nodes, scripts, endpoints and Prometheus.

Which nodes have begun is read from the nodes themselves.
"""

import pytest

from tests.e2e.cluster import RealCluster, consistently, eventually, make_job
from tests.e2e.endpoints import PORT, endpoints, start_server
from tests.e2e.jobs import RETRY, wait_condition
from tests.e2e.test_rollout import annotate, begun, timed, times

# Answers /well with 200 and /ill with 500. As a Prometheus, it answers 0.5 if the query has the
# word `high`, and 0.01 otherwise.
SERVER = """
import http.server, json, urllib.parse

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        value = "0.5" if "high" in url.query else "0.01"
        data = {"resultType": "vector", "result": [{"metric": {}, "value": [1, value]}]}
        body = json.dumps({"status": "success", "data": data}).encode()
        self.send_response(500 if url.path == "/ill" else 200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass

http.server.ThreadingHTTPServer(("0.0.0.0", 8000), Handler).serve_forever()
"""
CONFIG = """
sources:
  - name: web
    namespaces: ['{namespace}']
    paths: [/well, /ill]
  - name: prometheus
    namespaces: ['*']
    queries: {{low: 'errors_low', high: 'errors_high'}}
  - name: gone
    namespaces: ['*']
    queries: {{low: 'errors_low'}}
"""


def owned(cluster: RealCluster, namespace: str, name: str) -> list[str]:
    """Return the Jobs that a Job owns."""
    job = cluster.job(namespace, name)
    assert job is not None
    return [
        raw["metadata"]["name"]
        for raw in cluster.get("dsj", "-n", namespace)["items"]
        for owner in raw["metadata"].get("ownerReferences", ())
        if owner["uid"] == job["metadata"]["uid"]
    ]


@pytest.mark.on_demand
@pytest.mark.alone
def test_a_bad_tag_is_found_before_any_node_has_begun(cluster, namespace, folder):
    rollout = {"maxParallel": 1, "pullImagesFirst": True}
    job = make_job("tag", namespace, mountPath=folder, rollout=rollout, **timed(0))
    job["spec"]["image"] = "localhost:1/example/nosuch:v9"
    with cluster.controller_settings(POD_START_TIMEOUT="10s"):
        cluster.apply(job)
        eventually(
            lambda: cluster.condition(namespace, "tag", "Progressing")["reason"] == "PullingImages",
            30,
            "it pulls",
        )
        failed = wait_condition(cluster, namespace, "tag", "Failed", 120)
        assert failed["reason"] == "ImagePullFailed"
        assert "localhost:1/example/nosuch:v9" in failed["message"]
        assert begun(cluster, folder) == set()
        eventually(lambda: owned(cluster, namespace, "tag") == [], 30, "the Job that pulls is gone")
        records = cluster.report(namespace, "tag")["status"]["nodeStates"]
        assert not any(record.get("turnAt") for record in records.values())
        # A retry pulls again, and fails again.
        before = cluster.status(namespace, "tag")["completionTime"]
        cluster.kubectl("annotate", "dsj", "tag", "-n", namespace, f"{RETRY}=1")
        eventually(
            lambda: cluster.status(namespace, "tag").get("completionTime") not in {None, before},
            120,
            "it has failed again",
        )
    assert cluster.condition(namespace, "tag", "Failed")["reason"] == "ImagePullFailed"
    assert begun(cluster, folder) == set()


def test_images_are_on_all_nodes_before_the_first_begins(cluster, namespace, folder):
    # A pod of mode Exit has the pause image too, in which there is no shell.
    rollout = {"maxParallel": 1, "pullImagesFirst": True}
    job = make_job("good", namespace, mountPath=folder, rollout=rollout, **timed(1))
    cluster.apply(job)
    wait_condition(cluster, namespace, "good", "Complete", 120)
    pull = cluster.report(namespace, "good-image-pull")
    assert pull["status"]["phase"] == "Succeeded"
    assert set(pull["status"]["nodeStates"]) == set(cluster.nodes)
    first, *_ = times(cluster, folder).values()
    ended = cluster.on_node(cluster.nodes[0], f"date -d {pull['status']['completionTime']} +%s%N")
    assert int(ended) <= first[0]
    assert set(times(cluster, folder)) == set(cluster.nodes)
    assert cluster.status(namespace, "good")["rollout"]["imagesPulled"] is True
    assert owned(cluster, namespace, "good") == []


def checked(name, namespace, folder, check, nodes=1):
    """Return a Job whose first step is checked; each has a folder of its own on the nodes."""
    rollout = {"steps": [{"nodes": nodes, "check": check}]}
    return make_job(name, namespace, mountPath=f"{folder}/{name}", rollout=rollout, **timed(0))


def test_a_script_checks_the_nodes_of_a_step(cluster, namespace, folder):
    script = "test -s /basetarget/ended && touch /basetarget/checked"
    cluster.apply(checked("passes", namespace, folder, {"script": {"script": script}}, nodes=2))
    wait_condition(cluster, namespace, "passes", "Complete", 120)
    listed = cluster.on_all_nodes(f"ls {folder}/passes")
    states = cluster.report(namespace, "passes")["status"]["nodeStates"]
    first = {node for node, record in states.items() if record["step"] == 1}
    assert len(first) == 2
    assert {node for node, text in listed.items() if "checked" in text} == first
    assert all("ended" in text for text in listed.values())
    assert owned(cluster, namespace, "passes") == []


def test_a_script_that_fails_stops_the_rollout_at_the_canary(cluster, namespace, folder):
    script = "echo the kernel is too old; exit 3"
    cluster.apply(checked("fails", namespace, folder, {"script": {"script": script}}))
    failed = wait_condition(cluster, namespace, "fails", "Failed", 120)
    (canary,) = begun(cluster, f"{folder}/fails")
    assert failed["reason"] == "CheckFailed"
    assert canary in failed["message"]
    assert "the kernel is too old" in failed["message"]
    eventually(lambda: owned(cluster, namespace, "fails") == [], 30, "its Job is gone")


def test_a_script_that_fails_after_the_last_nodes_fails_the_run(cluster, namespace, folder):
    check = {"script": {"script": "echo the kernel is too old; exit 3"}}
    cluster.apply(checked("last", namespace, folder, check, nodes="100%"))
    failed = wait_condition(cluster, namespace, "last", "Failed", 120)
    assert failed["reason"] == "CheckFailed"
    assert "the kernel is too old" in failed["message"]
    assert begun(cluster, f"{folder}/last") == set(cluster.nodes)
    status = cluster.report(namespace, "last")["status"]
    assert (status["phase"], status["nodes"]["completed"]) == ("Failed", len(cluster.nodes))


@pytest.mark.parametrize("policy", ["Once", "Continuous"])
def test_a_retry_checks_again_after_the_daemon_set_was_deleted(cluster, namespace, folder, policy):
    """The nodes are fixed meanwhile; what has completed does not run again."""
    name = policy.lower()
    script = "test -e /basetarget/fixed || { echo not fixed; exit 1; }"
    job = checked(name, namespace, folder, {"script": {"script": script}})
    job["spec"]["completion"] = {"mode": "Exit", "policy": policy}
    job["spec"]["failurePolicy"] = {"pods": "Delete"}
    if policy == "Continuous":
        del job["spec"]["ttlSecondsAfterFinished"]
    cluster.apply(job)
    failed = wait_condition(cluster, namespace, name, "Failed", 120)
    assert failed["reason"] == "CheckFailed"
    assert "not fixed" in failed["message"]

    def daemon_sets():
        return cluster.get("daemonset", "-n", namespace)["items"]

    eventually(lambda: daemon_sets() == [], 30, "its DaemonSet is gone")
    before = cluster.job(namespace, name)["metadata"]["resourceVersion"]
    consistently(lambda: daemon_sets() == [], 5, "its DaemonSet stays away")
    assert cluster.job(namespace, name)["metadata"]["resourceVersion"] == before
    (canary,) = begun(cluster, f"{folder}/{name}")
    at_first = times(cluster, f"{folder}/{name}")
    cluster.on_all_nodes(f"mkdir -p {folder}/{name} && touch {folder}/{name}/fixed")
    cluster.kubectl("annotate", "dsj", name, "-n", namespace, f"{RETRY}=1")
    wait_condition(cluster, namespace, name, "Complete", 120)
    at_last = times(cluster, f"{folder}/{name}")
    assert set(at_last) == set(cluster.nodes)
    assert at_last[canary] == at_first[canary]


@pytest.mark.on_demand
@pytest.mark.alone
def test_sources_pass_fail_or_leave_the_decision_to_a_person(cluster, namespace, folder, tmp_path):
    url = start_server(cluster, namespace, SERVER)
    files = {"web.url": url, "prometheus.url": url, "gone.url": url.replace(str(PORT), "9")}
    checks = {
        "well": {"http": {"source": "web", "path": "/well"}},
        "low": {"prometheus": {"source": "prometheus", "query": "low", "below": 0.05}},
        "ill": {"http": {"source": "web", "path": "/ill"}},
        "high": {"prometheus": {"source": "prometheus", "query": "high", "below": 0.05}},
        "away": {"http": {"source": "gone"}},
        "lost": {"prometheus": {"source": "gone", "query": "low", "below": 0.05}},
    }
    with endpoints(cluster, tmp_path, CONFIG.format(namespace=namespace), files):
        cluster.apply(
            *(
                checked(name, namespace, folder, {**check, "timeoutSeconds": 10})
                for name, check in checks.items()
            )
        )
        for name in ("well", "low"):
            wait_condition(cluster, namespace, name, "Complete", 120)
            assert begun(cluster, f"{folder}/{name}") == set(cluster.nodes)
        for name, words in (
            ("ill", "the source web answered with HTTP 500"),
            ("high", "high of source prometheus is 0.5, not below 0.05"),
        ):
            failed = wait_condition(cluster, namespace, name, "Failed", 120)
            assert failed["reason"] == "CheckFailed"
            assert words in failed["message"]
            assert len(begun(cluster, f"{folder}/{name}")) == 1
        for name in ("away", "lost"):
            asked = wait_condition(cluster, namespace, name, "Suspended", 120)
            assert asked["reason"] == "CheckInconclusive"
            assert len(begun(cluster, f"{folder}/{name}")) == 1
            annotate(cluster, namespace, name, "approve", 1)
            wait_condition(cluster, namespace, name, "Complete", 120)

"""Receivers of notifications in the cluster: deploy/components/notifications on real nodes.

Changes the controller for the time of the test, and puts it back as it was.
"""

import json
from contextlib import AbstractContextManager
from typing import Any

import pytest

from tests.e2e.cluster import RealCluster, counting, eventually, make_job
from tests.e2e.endpoints import endpoints, start_server
from tests.e2e.jobs import in_turn, on, wait_condition

# Prints each request as a line of JSON: the path, the header, the body. Answers 200, or 503 while
# the file exists.
SERVER = """
import http.server, json, os, sys

class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        status = 503 if os.path.exists("/tmp/away") else 200
        entry = [self.path, self.headers.get("Authorization"), status, json.loads(body)]
        # In one piece: requests come at the same time.
        sys.stdout.write(json.dumps(entry) + "\\n")
        sys.stdout.flush()
        self.send_response(status)
        self.end_headers()

    def log_message(self, *args):
        pass

http.server.ThreadingHTTPServer(("0.0.0.0", 8000), Handler).serve_forever()
"""
CONFIG = """
clusterName: e2e
receivers:
  - name: hook
    namespaces: ['{namespace}']
    tokenFile: /etc/daemonset-job/receivers/hook.token
  - name: chat
    format: Slack
    namespaces: ['*']
"""


def received(cluster: RealCluster, namespace: str, status: int = 200) -> list[Any]:
    """Return what the receiver was sent and answered so: path, Authorization, status, JSON."""
    lines = cluster.kubectl("logs", "receiver", "-n", namespace).splitlines()
    return [entry for entry in map(json.loads, lines) if entry[2] == status]


def events(cluster: RealCluster, namespace: str, job: str) -> list[str]:
    return [
        body["event"]
        for path, _, _, body in received(cluster, namespace)
        if path == "/hook" and body["job"]["name"] == job
    ]


def notifying(
    cluster: RealCluster, folder: Any, namespace: str, url: str
) -> AbstractContextManager[None]:
    """Run the controller with the component, and with two receivers at `url`."""
    files = {"hook.url": f"{url}/hook", "hook.token": "t0ken", "chat.url": f"{url}/chat\n"}
    return endpoints(cluster, folder, CONFIG.format(namespace=namespace), files)


PREFIX = "daemonset.darkowlzz.space"


def pausing(cluster: RealCluster, namespace: str) -> dict[str, Any]:
    """Return a Job that waits for approval after its first node, and fails on the second one."""
    failing = on(in_turn(cluster)[1], "exit 3", otherwise="exit 0")
    return make_job(
        *("asked", namespace),
        notify=[{"receiver": "hook"}],
        completion={"mode": "Exit"},
        backoffLimit=0,
        failurePolicy={"action": "Pause"},
        rollout={"steps": [{"nodes": 1, "approval": "Required"}, {"nodes": 1}]},
        **failing,
    )


def lead_to_failure(cluster: RealCluster, namespace: str) -> None:
    """Approve the first step of the Job of `pausing`, and abort it once it has paused."""
    for reason, answer in (
        ("WaitingForApproval", "approve=1"),
        ("MaxFailedNodesExceeded", "abort=enough"),
    ):
        eventually(
            lambda reason=reason: (
                cluster.condition(namespace, "asked", "Suspended").get("reason") == reason
            ),
            *(90, f"it is paused: {reason}"),
        )
        cluster.kubectl("annotate", "dsj", "asked", "-n", namespace, f"{PREFIX}/{answer}")
    wait_condition(cluster, namespace, "asked", "Failed")


@pytest.mark.on_demand
@pytest.mark.alone
def test_receivers_in_the_cluster_hear_of_runs_and_of_nothing_twice(
    cluster, namespace, other_namespace, folder, tmp_path
):
    url = start_server(cluster, namespace, SERVER)
    notify = [{"receiver": "hook"}, {"receiver": "chat", "events": ["Succeeded", "Failed"]}]
    with notifying(cluster, tmp_path, namespace, url):
        # A Job that deletes itself right after its end.
        cluster.apply(
            make_job("good", namespace, mountPath=folder, notify=notify, **counting()),
            # The hook is not for this namespace.
            make_job("other", other_namespace, mountPath=folder, notify=notify, **counting()),
            pausing(cluster, namespace),
        )
        lead_to_failure(cluster, namespace)
        expected = ["Started", "WaitingForApproval", "Paused", "Failed"]
        eventually(lambda: events(cluster, namespace, "asked") == expected, 60, "all four sent")
        cluster.wait_gone(namespace, "good")
        eventually(
            lambda: events(cluster, namespace, "good") == ["Started", "Succeeded"], 60, "both sent"
        )
        (entry,) = [
            each
            for each in received(cluster, namespace)
            if each[0] == "/hook" and each[3]["event"] == "Succeeded"
        ]
        assert entry[1] == "Bearer t0ken"
        assert entry[3]["cluster"] == "e2e"
        assert entry[3]["nodes"]["completed"] == len(cluster.nodes)
        told = cluster.report(namespace, "good")["status"]["notifications"]
        assert {name: each["sent"] for name, each in told.items()} == {"hook": 2, "chat": 1}
        eventually(
            lambda: any(
                event["reason"] == "NotificationNotSent"
                and "the receiver 'hook'" in event["message"]
                for event in cluster.events(other_namespace, "other")
            ),
            60,
            "the Job that may not use the receiver says so",
        )

        # The receiver is away, the Job is gone and the controller starts again in between.
        cluster.kubectl("exec", "receiver", "-n", namespace, "--", "touch", "/tmp/away")
        cluster.apply(make_job("late", namespace, mountPath=folder, notify=notify, **counting()))
        eventually(lambda: len(cluster.pods(namespace, "late")) == len(cluster.nodes), 60, "pods")
        cluster.wait_gone(namespace, "late")
        eventually(lambda: received(cluster, namespace, 503), 30, "a try")
        cluster.kill("job-controller")
        cluster.kubectl("exec", "receiver", "-n", namespace, "--", "rm", "/tmp/away")
        eventually(
            lambda: events(cluster, namespace, "late") == ["Started", "Succeeded"], 120, "both sent"
        )
        assert events(cluster, namespace, "good") == ["Started", "Succeeded"]
        texts = [body["text"] for path, *_, body in received(cluster, namespace) if path == "/chat"]
        count = f"{len(cluster.nodes)} of {len(cluster.nodes)} nodes completed"
        assert sorted(text.split(" (")[0] for text in texts) == sorted(
            f"Succeeded: Job {job} in e2e: {count}"
            for job in (f"{namespace}/good", f"{namespace}/late", f"{other_namespace}/other")
        )

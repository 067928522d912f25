"""What is run: the bare DaemonSet that is the floor, the Job, and the logs of simulated pods."""

from typing import Any

TASK_IMAGE = "docker.io/darkowlzz/daemonset-job-task:v0.1.0"
LOGS = ("small", "1MiB", "results")
RESULTS = {"kernel": "6.1.0-28-amd64", "address": "10.200.113.27", "disk-free-gib": "173"}
MIB = 1024 * 1024
# Simulated nodes carry a taint. A bare DaemonSet tolerates it in the same way.
TOLERATIONS = [{"key": "kwok.x-k8s.io/node", "operator": "Exists"}]
_STAMP = "2024-01-01T00:00:{second:02d}.{fraction:09d}Z stdout F "
_FILLER = "x" * 99
_WAIT = "trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done"
_PRINT = {
    "small": "echo starting; echo working; echo done",
    "1MiB": f"yes {_FILLER} | head -c {MIB}; echo; echo done",
    "results": "".join(f"echo dsjob:result {k}={v}; " for k, v in RESULTS.items()) + "echo done",
}


def fake_log(kind: str) -> str:
    """Return the log of every simulated pod as a container runtime writes it (CRI format)."""
    lines = ["starting", "working", "done"]
    if kind == "1MiB":
        lines = [*[_FILLER] * (MIB // (len(_FILLER) + 1)), "done"]
    if kind == "results":
        lines = [*(f"dsjob:result {k}={v}" for k, v in RESULTS.items()), "done"]
    return "".join(
        _STAMP.format(second=number // 1000, fraction=number % 1000 * 1_000_000) + line + "\n"
        for number, line in enumerate(lines)
    )


def daemon_set(name: str, namespace: str, log: str) -> dict[str, Any]:
    """Return a bare DaemonSet of the same task, as a person would write it."""
    labels = {"sweep": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "terminationGracePeriodSeconds": 10,
                    "tolerations": TOLERATIONS,
                    "containers": [{"name": "task", "image": TASK_IMAGE, **_command(log)}],
                },
            },
        },
    }


def job(name: str, namespace: str, log: str) -> dict[str, Any]:
    """Return the Job."""
    results = {"results": [{"name": name} for name in RESULTS]} if log == "results" else {}
    return {
        "apiVersion": "daemonset.darkowlzz.space/v1beta1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "image": TASK_IMAGE,
            **_command(log),
            **results,
            "template": {"spec": {"tolerations": TOLERATIONS}},
        },
    }


def _command(log: str) -> dict[str, Any]:
    return {"command": ["sh", "-c"], "args": [f"{_PRINT[log]}; {_WAIT}"]}

"""What is run: bare DaemonSets, Jobs, and the logs of simulated pods.

The kinds of runs, one thing switched on at a time:

| kind | what it is |
|---|---|
| floor | a bare DaemonSet, as a person would write it |
| template | the DaemonSet of a Job, without the Job, and with labels that no program watches |
| watched | the floor with the label by which both programs watch pods |
| template-watched | both |
| small, 1MiB, results | a Job in mode Log whose tasks print this |
| exit | a Job in mode Exit |
| gated | a kept Job that has completed on one node, from the moment when all nodes are added |

With `gated`, each new pod waits at the scheduling gate until the controller removes it.
"""

from typing import Any, Final

from daemonset_job.api import names
from daemonset_job.api.job import parse_job
from job_controller.core.desired.daemon_set import build_daemon_set
from job_controller.core.settings import Settings

TASK_IMAGE = "docker.io/darkowlzz/daemonset-job-task:v0.1.0"
DAEMON_SETS_ALONE: Final = ("floor", "template", "watched", "template-watched")
GATED: Final = "gated"
JOBS: Final = ("small", "1MiB", "results", "exit", GATED)
RESULTS = {"kernel": "6.1.0-28-amd64", "address": "10.200.113.27", "disk-free-gib": "173"}
MIB = 1024 * 1024
# Simulated nodes carry a taint. A bare DaemonSet tolerates it in the same way.
TOLERATIONS = [{"key": "kwok.x-k8s.io/node", "operator": "Exists"}]
_STAMP = "2024-01-01T00:00:{second:02d}.{fraction:09d}Z stdout F "
_FILLER = "x" * 99
WAIT = "trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done"
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


def daemon_set(name: str, namespace: str, kind: str) -> dict[str, Any]:
    """Return a DaemonSet of the same task that belongs to no Job."""
    made = _template_of_job(name, namespace) if kind.startswith("template") else _bare(name)
    labels = {"sweep": name}
    if kind.endswith("watched"):
        labels[names.LABEL_MANAGED] = names.LABEL_MANAGED_VALUE
    made["metadata"]["labels"] = labels
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"selector": {"matchLabels": labels}, "template": made},
    }


def _bare(name: str) -> dict[str, Any]:
    return {
        "metadata": {"labels": {"sweep": name}},
        "spec": {
            "terminationGracePeriodSeconds": 10,
            "tolerations": TOLERATIONS,
            "containers": [{"name": "task", "image": TASK_IMAGE, **_command("small")}],
        },
    }


def _template_of_job(name: str, namespace: str) -> dict[str, Any]:
    raw = job(name, namespace, "small")
    raw["metadata"]["uid"] = "00000000-0000-0000-0000-000000000000"
    made = build_daemon_set(parse_job(raw), gated=False, settings=Settings())
    template: dict[str, Any] = made["spec"]["template"]
    return template


def job(name: str, namespace: str, kind: str) -> dict[str, Any]:
    """Return the Job."""
    spec: dict[str, Any] = {"template": {"spec": {"tolerations": TOLERATIONS}}}
    if kind == "results":
        spec["results"] = [{"name": name} for name in RESULTS]
    if kind == "exit":
        spec["completion"] = {"mode": "Exit"}
    log = kind if kind in _PRINT else "small"
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.JOB_KIND,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"image": TASK_IMAGE, **_command(log, waits=kind != "exit"), **spec},
    }


def _command(log: str, *, waits: bool = True) -> dict[str, Any]:
    return {"command": ["sh", "-c"], "args": [f"{_PRINT[log]}; {WAIT if waits else 'exit 0'}"]}

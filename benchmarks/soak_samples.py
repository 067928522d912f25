"""What controller and terminator use at one moment: from /proc on their nodes, and from /metrics.

A process is one life: its node, its pid and the time at which it began.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from benchmarks.soak_cluster import PodMetricsError, SoakCluster
from benchmarks.soak_verdict import PROGRAMS
from daemonset_job.kube.client.errors import KubeError
from daemonset_job.kube.client.resource import JOB_REPORTS, JOBS, PODS

SYSTEM = "daemonset-job-system"
SYSTEM_PODS = "app.kubernetes.io/name=daemonset-job"
PORTS = dict(zip(PROGRAMS, (8080, 8081), strict=True))
_PROCESSES = {"controller": "job-controller", "terminator": "terminator"}
_TICKS_PER_SECOND = 100
_CASES = " ".join(f"*/bin/{path}' '*) n={name};;" for name, path in _PROCESSES.items())
_PROC = f"""
for p in /proc/[0-9]*; do
  c=$(tr '\\0' ' ' < $p/cmdline 2>/dev/null); n=
  case "$c" in sh' '*) ;; {_CASES} esac
  [ -n "$n" ] || continue
  read -r s < $p/stat; s=${{s##*) }}; set -- $s
  set -- $((${{12}} + ${{13}})) ${{20}} $(sed -n \
    's/^\\(VmRSS\\|VmHWM\\|Threads\\):[^0-9]*\\([0-9]*\\).*/\\2/p' $p/status)
  echo "$n ${{p#/proc/}} $* $(ls $p/fd | wc -l) $(ls -l $p/fd | grep -c socket:)"
done
"""
_METRIC = re.compile(r"^dsj_(\w+?)(?:\{([^}]*)\})? (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')
# Gauges with one label become a key for each of its values; what they are called here.
_LABELLED = {"workqueue_keys": ("queue", "state"), "cache_objects": ("cache", "resource")}
_GAUGES = (
    "asyncio_tasks",
    "log_streams",
    "log_targets",
    "ledger_pending_nodes",
    "ledger_runs",
    "unsatisfied_expectations",
)


def parse_processes(node: str, output: str) -> Iterator[dict[str, Any]]:
    """Return what the script on a node printed, a dictionary for each process."""
    for line in output.splitlines():
        name, *numbers = line.split()
        pid, ticks, began, peak, resident, threads, fds, sockets = map(int, numbers)
        yield {
            "program": name,
            "life": f"{node}/{pid}/{began}",
            "cpu_seconds": ticks / _TICKS_PER_SECOND,
            "peak_mib": round(peak / 1024, 2),
            "rss_mib": round(resident / 1024, 2),
            "threads": threads,
            "fds": fds,
            "sockets": sockets,
        }


def parse_gauges(metrics: str) -> dict[str, float]:
    """Return the gauges of a program that show what it holds in memory, if it exports them."""
    found: dict[str, float] = {}
    for name, labels, value in _METRIC.findall(metrics):
        if name in _GAUGES:
            found[name] = float(value)
        elif name in _LABELLED:
            prefix, label = _LABELLED[name]
            found[f"{prefix}_{dict(_LABEL.findall(labels)).get(label, '')}"] = float(value)
    return found


def parse_totals(metrics: str) -> dict[str, float]:
    """Return the counters of passes and of what failed, by their names and labels."""
    return {
        f"{name}{{{labels}}}" if labels else name: float(value)
        for name, labels, value in _METRIC.findall(metrics)
        if name in ("reconciles_total", "job_deletions_total", "log_read_errors_total")
    }


async def take_sample(
    cluster: SoakCluster, at: float, namespaces: Collection[str]
) -> dict[str, Any]:
    """Return one sample; `namespaces` are those of the soak run, Jobs elsewhere are foreign."""
    pods = (await cluster.client.list(PODS, SYSTEM, label_selector=SYSTEM_PODS))["items"]
    processes: list[dict[str, Any]] = []
    for pod in pods:
        node = pod["spec"].get("nodeName")
        if not node or pod["status"].get("phase") != "Running":
            continue
        for process in parse_processes(node, await cluster.on_node(node, _PROC)):
            if not any(known["life"] == process["life"] for known in processes):
                processes.append(process)
        await _add_metrics(cluster, pod, processes)
    jobs = (await cluster.client.list(JOBS, metadata_only=True))["items"] or ()
    reports = (await cluster.client.list(JOB_REPORTS, metadata_only=True))["items"] or ()
    foreign = sum(job["metadata"]["namespace"] not in namespaces for job in jobs)
    return {
        "type": "sample",
        "at": round(at, 1),
        "processes": processes,
        "cluster": {"Jobs": len(jobs), "reports": len(reports), "foreign Jobs": foreign},
        "restarts": {pod["metadata"]["name"]: _restarts(pod) for pod in pods},
    }


async def _add_metrics(
    cluster: SoakCluster, pod: Mapping[str, Any], processes: list[dict[str, Any]]
) -> None:
    """Add a pod's metrics to its processes. With two pods on one node they are left out."""
    node = pod["spec"]["nodeName"]
    for program, port in PORTS.items():
        mine = [
            p for p in processes if p["program"] == program and p["life"].startswith(f"{node}/")
        ]
        if len(mine) != 1:
            continue
        try:
            text = await cluster.pod_metrics(SYSTEM, pod["metadata"]["name"], port)
        except (PodMetricsError, KubeError):
            continue  # it is being restarted
        mine[0].update(parse_gauges(text))
        mine[0]["totals"] = parse_totals(text)


def _restarts(pod: Mapping[str, Any]) -> dict[str, Any]:
    return {
        status["name"]: {
            "count": status.get("restartCount", 0),
            "last": (status.get("lastState") or {}).get("terminated", {}).get("reason", ""),
        }
        for status in pod["status"].get("containerStatuses") or ()
    }

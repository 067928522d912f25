"""CPU and memory of processes on the cluster's real nodes, from /proc; requests from /metrics.

Every real node is entered through the devcluster, so that nothing is installed for it and nothing
runs while a measurement is going on. What is read: user and system time since the process began,
and the peak of its resident memory since the last `reset_peaks`.
"""

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

SYSTEM = "daemonset-job-system"
OURS = ("controller", "terminator")
_TICKS_PER_SECOND = 100
# A line of the script has name, pid, ticks, peak and resident memory.
_FIELDS = 5
# What a process is called here: a shell pattern of its command line.
_PATTERNS = {
    "controller": "*/bin/job-controller' '*",
    "terminator": "*/bin/terminator' '*",
    "kube-apiserver": "*kube-apiserver' '*",
    "kube-controller-manager": "*kube-controller-manager' '*",
    "kube-scheduler": "*kube-scheduler' '*",
    "etcd": "*etcd' '*",
    "kubelet": "*/kubelet' '*",
    "containerd": "*/containerd' '*",
}
_CASES = " ".join(f"{pattern}) n={name};;" for name, pattern in _PATTERNS.items())
_SCRIPT = f"""
for p in /proc/[0-9]*; do
  c=$(tr '\\0' ' ' < $p/cmdline 2>/dev/null); n=
  case "$c" in sh' '*) ;; {_CASES} esac
  [ -n "$n" ] || continue
  read -r s < $p/stat; s=${{s##*) }}; set -- $s
  h=$(sed -n 's/^VmHWM:[^0-9]*\\([0-9]*\\).*/\\1/p' $p/status)
  r=$(sed -n 's/^VmRSS:[^0-9]*\\([0-9]*\\).*/\\1/p' $p/status)
  echo "$n ${{p#/proc/}} $((${{12}} + ${{13}})) $h $r RESET"
done
"""
_RESET = "$(echo 5 > $p/clear_refs && echo reset)"
_REQUESTS = re.compile(
    r"^dsj_api_requests_total"
    r'\{code="(\d+)",component="[a-z]+",resource="([^"]*)",verb="([^"]*)"\} (\S+)$',
    re.MULTILINE,
)
_BYTES = re.compile(r"^dsj_log_read_bytes_total (\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Sample:
    """The processes of one name at one moment, on all nodes: sums. A restart shows in the pids."""

    pids: frozenset[int]
    cpu_seconds: float
    peak_mib: float
    resident_mib: float

    def plus(self, other: "Sample") -> "Sample":
        """Return the sums of both; pids of several nodes may be equal, since each has its own."""
        return Sample(
            self.pids | other.pids,
            self.cpu_seconds + other.cpu_seconds,
            self.peak_mib + other.peak_mib,
            self.resident_mib + other.resident_mib,
        )


class Nodes:
    """The cluster's real nodes, entered from outside."""

    def __init__(self, names: Iterable[str], root: Path) -> None:
        self._names = tuple(names)
        self._root = root

    def sample(self, *, reset_peaks: bool = False) -> dict[str, Sample]:
        """Return the known processes by name, and reset their peaks of memory if asked to."""
        script = _SCRIPT.replace("RESET", _RESET if reset_peaks else "")
        with ThreadPoolExecutor() as pool:
            outputs = pool.map(lambda node: self._run(node, script), self._names)
            lines = [line.split() for output in outputs for line in output.splitlines()]
        found: dict[str, Sample] = {}
        # A process that has just ended has no memory any more.
        whole = [line for line in lines if len(line) >= _FIELDS]
        for name, pid, ticks, peak, resident, *_ in whole:
            sample = Sample(
                frozenset({int(pid)}),
                int(ticks) / _TICKS_PER_SECOND,
                int(peak) / 1024,
                int(resident) / 1024,
            )
            found[name] = sample.plus(found[name]) if name in found else sample
        return found

    def _run(self, node: str, script: str) -> str:
        command = [sys.executable, "-m", "hack.devcluster", "exec", node, "--", "sh", "-c", script]
        return subprocess.run(
            command, cwd=self._root, text=True, capture_output=True, check=True, timeout=60
        ).stdout


def machine_cpu_seconds() -> float:
    """Return the CPU time of everything on this machine since it started, the benchmark included.

    Time that the hypervisor gave to others is left out, as is waiting for disks.
    """
    _cpu, user, nice, system, _idle, _iowait, irq, softirq, *_ = (
        Path("/proc/stat").read_text().split("\n", 1)[0].split()
    )
    return sum(map(int, (user, nice, system, irq, softirq))) / _TICKS_PER_SECOND


def parse_requests(metrics: str) -> Counter[str]:
    """Return the requests that a process made so far, by "verb resource code"."""
    counts: Counter[str] = Counter()
    for code, resource, verb, number in _REQUESTS.findall(metrics):
        counts[f"{verb} {resource} {code}"] += int(float(number))
    return counts


def parse_log_bytes(metrics: str) -> int:
    """Return the bytes of log that the terminator has received so far."""
    return sum(int(float(number)) for number in _BYTES.findall(metrics))

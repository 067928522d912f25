"""How long one decision takes, and what it is made from, by the number of nodes of a Job.

    python -m benchmarks.decisions --nodes 1000,5000,20000,100000 [--out results.json]

A decision looks at every node of the Job. It is measured in the middle of a run: a half of the
nodes has completed, and the other half works. CPU is that of this process. Memory is what the pods,
the nodes, the ledger and the records of that Job take, as both programs keep them. No cluster is
needed. Seconds depend on the machine; the growth with the number of nodes does not.
"""

import argparse
import gc
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from job_controller.core.decide import decide
from tests.unit.builders import NOW, SampleCluster, done, make_cluster
from tests.unit.core.runs import run

ROUNDS = 5


def half_done(count: int) -> SampleCluster:
    """Return a cluster of that many nodes in the middle of a run, as its report records it."""
    names = [f"node-{number:06}" for number in range(count)]
    cluster = make_cluster(*names, gated=True)
    run(cluster)
    cluster.evidence = {name: done(name) for name in names[: count // 2]}
    run(cluster)
    return cluster


def measure(count: int) -> dict[str, Any]:
    """Return the CPU of a decision about `count` nodes, and the memory of what it starts from."""
    gc.collect()
    before = _resident_bytes()
    cluster = half_done(count)
    gc.collect()
    memory = _resident_bytes() - before
    took = []
    for _ in range(ROUNDS):
        snapshot = cluster.snapshot()
        began = time.process_time()
        decide(snapshot, NOW)
        took.append(time.process_time() - began)
    return {
        "nodes": count,
        "cpu_seconds": round(median(took), 4),
        "least_cpu_seconds": round(min(took), 4),
        "memory_mib": round(memory / 2**20, 1),
    }


def table(found: Sequence[dict[str, Any]]) -> str:
    """Return the measurements as a table in Markdown."""
    lines = ["| nodes | CPU of a decision | for each node | memory |", "|---|---|---|---|"]
    lines += [
        f"| {each['nodes']:,} | {1000 * each['cpu_seconds']:.0f} ms "
        f"| {1e6 * each['cpu_seconds'] / each['nodes']:.0f} µs | {each['memory_mib']:.0f} MiB |"
        for each in found
    ]
    return "\n".join(lines)


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def main() -> int:
    """Measure each size, print a table, and write the numbers if asked to."""
    parser = argparse.ArgumentParser(prog="benchmarks.decisions", description=__doc__)
    parser.add_argument("--nodes", default="1000,5000,20000,100000", help="sizes, with commas")
    parser.add_argument("--out", type=Path, help="where to write the results as JSON")
    options = parser.parse_args()
    found = [measure(int(each)) for each in options.nodes.split(",")]
    print(table(found))
    if options.out:
        options.out.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

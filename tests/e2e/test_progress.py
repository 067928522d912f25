"""What tasks say of themselves: how far they have come, and results as large as they may be."""

import json

from tests.e2e.cluster import WAIT, eventually, make_job
from tests.e2e.jobs import on, shell

WAIT_FOR_FILE = "until test -e /run/daemonset-job/go; do sleep 1; done"
# 1,024 bytes: JSON on one line, and a value that is one byte longer.
JSON_SCRIPT = """
pad() { head -c "$1" /dev/zero | tr '\\0' x; }
echo "dsjob:result facts={\\"node\\": \\"<&>\\", \\"pad\\": \\"$(pad 990)\\"}"
for name in a b c; do echo "dsjob:result $name=$(pad 1024)"; done
echo "dsjob:result long=$(pad 1025)"
echo done
"""


def test_progress_is_in_the_status_and_the_report_until_the_node_is_completed(cluster, namespace):
    slow = min(cluster.nodes)
    steps = f"echo dsjob:progress 1/10; {WAIT_FOR_FILE}; echo dsjob:progress 9/10; sleep 40; "
    script = on(slow, steps + "echo done; " + WAIT)
    cluster.apply(make_job("steps", namespace, **script))

    def shown():
        status = cluster.status(namespace, "steps")
        return status.get("progress"), status.get("lowestProgress")

    eventually(lambda: shown() == ("10%", f"{slow} 1/10"), 90, "progress in the status")
    entry = cluster.report(namespace, "steps")["evidence"][slow]["progress"]
    assert (entry["attempt"], entry["done"], entry["total"]) == (1, 1, 10)
    row = cluster.kubectl("get", "dsj", "steps", "-n", namespace, "-o", "wide").splitlines()
    assert row[0].split().index("PROGRESS") > 0
    assert "10%" in row[1]
    (pod,) = [p for p in cluster.pods(namespace, "steps") if p["spec"]["nodeName"] == slow]
    name = pod["metadata"]["name"]
    cluster.kubectl(
        "exec", "-n", namespace, name, "-c", "job-container", "--",
        "touch", "/run/daemonset-job/go",
    )  # fmt: skip
    eventually(lambda: shown() == ("90%", f"{slow} 9/10"), 60, "the newest progress")
    cluster.wait_gone(namespace, "steps", timeout=120)
    evidence = cluster.report(namespace, "steps")["evidence"]
    assert not any("progress" in each for each in evidence.values())


def test_results_of_a_kibibyte_and_of_four_for_each_node(cluster, namespace):
    names = ["a", "b", "c", "facts", "long"]
    results = [{"name": name} for name in names]
    cluster.apply(make_job("large", namespace, results=results, **shell(JSON_SCRIPT + WAIT)))
    cluster.wait_gone(namespace, "large", timeout=120)
    assert cluster.completed(namespace, "large") == set(cluster.nodes)
    report = cluster.report(namespace, "large")
    for node in cluster.nodes:
        entry = report["evidence"][node]
        assert {name: len(value) for name, value in entry["results"].items()} == {
            "a": 1024, "b": 1024, "c": 1024, "facts": len(entry["results"]["facts"]),
        }  # fmt: skip
        facts = json.loads(entry["results"]["facts"])
        assert (facts["node"], len(facts["pad"])) == ("<&>", 990)
        assert entry["omittedResults"] == ["long"]
        record = report["status"]["nodeStates"][node]
        assert (record["state"], record["reason"]) == ("Completed", "ResultTooLong")
        assert "long" in record["message"]

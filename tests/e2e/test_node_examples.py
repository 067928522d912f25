"""The examples 14 to 18: each runs as it is in its directory, and the nodes are looked at."""

import secrets
import shutil
from functools import partial
from pathlib import Path

import pytest
import yaml

from tests.e2e.cluster import RealCluster, consistently, eventually
from tests.e2e.doc_runner import real_names
from tests.e2e.jobs import labelled, last_lines, state, tainted, wait_condition
from tests.e2e.variants import first_of

OLD = "touch -h -d '10 days ago'"


def example(cluster: RealCluster, name: str, namespace: str) -> dict:
    """Return the Job of an example, with an image that the nodes have."""
    path = cluster.root / "examples" / name / "job.yaml"
    job = yaml.safe_load(real_names(path.read_text(encoding="utf-8"), "dsj"))
    job["metadata"]["namespace"] = namespace
    return dict(job)


def results(cluster: RealCluster, namespace: str, name: str) -> dict[str, dict[str, str]]:
    """Return the results of each node that completed."""
    evidence = cluster.report(namespace, name)["evidence"]
    return {node: entry["results"] for node, entry in evidence.items() if entry.get("results")}


def settings_of(cluster: RealCluster) -> dict[str, object]:
    """Return what a manifest must not leave behind on a node: labels, taints, cordons."""
    return {
        node["metadata"]["name"]: (node["metadata"]["labels"], node["spec"])
        for node in cluster.get("nodes")["items"]
    }


# --- 14-cleanup-sweep --------------------------------------------------------------------


@pytest.fixture
def swept(cluster, folder):
    """Return a folder with files to remove, and with all that must stay, on every node."""
    outside = f"{folder}-outside"
    cluster.on_all_nodes(
        f"""set -e
        mkdir -p {outside} {folder}/neighbour {folder}/build-cache/'with space'
        cd {folder}/build-cache
        head -c 8000 /dev/zero > a.tmp
        echo x > 'with space/b c.tmp'
        echo x > "$(printf 'line\\ndsjob:result files=99\\n.tmp')"
        echo x > -delete.tmp
        echo x > twice.tmp
        ln twice.tmp second-name
        echo x > young.tmp
        echo x > old.txt
        echo x > ../neighbour/x.tmp
        echo x > {outside}/x.tmp
        ln -s / root
        ln -s {outside} absolute
        ln -s ../neighbour relative
        ln -s ../neighbour/x.tmp link.tmp
        ln -s / ../root-link
        ln -s build-cache ../inner-link
        find . .. {outside} ! -name young.tmp -exec {OLD} -- {{}} +
        """
    )
    yield folder
    cluster.on_all_nodes(f"rm -rf {outside}")


def names_in(cluster: RealCluster, folder: str) -> set[str]:
    (listed,) = set(
        cluster.on_all_nodes(
            f"cd {folder}; find . -print | sort; ls {folder}-outside; ls -d /etc/passwd"
        ).values()
    )
    return set(listed.split("\n"))


def test_a_sweep_removes_old_files_of_a_pattern_and_reports_their_bytes(cluster, namespace, swept):
    before = names_in(cluster, swept)
    # The file with two names frees nothing.
    sizes = cluster.on_all_nodes(
        f"cd {swept}/build-cache; stat -c '%b' -- a.tmp *b*/*.tmp -delete.tmp line*"
    )
    expected = {
        node: {"files": "5", "bytes": str(512 * sum(map(int, text.split())))}
        for node, text in sizes.items()
    }
    job = example(cluster, "14-cleanup-sweep", namespace)
    job["spec"]["mountPath"] = swept
    cluster.apply(job)
    cluster.wait_gone(namespace, "cleanup-sweep")

    assert results(cluster, namespace, "cleanup-sweep") == expected
    assert before - names_in(cluster, swept) == {
        "./build-cache/a.tmp",
        "./build-cache/with space/b c.tmp",
        "./build-cache/-delete.tmp",
        "./build-cache/twice.tmp",
        *("./build-cache/line", "dsjob:result files=99", ".tmp"),
    }


def says(cluster: RealCluster, namespace: str, name: str, words: str) -> bool:
    """Return whether the message of a failed Job has these words."""
    return words in cluster.condition(namespace, name, "Failed")["message"]


def test_a_sweep_refuses_a_directory_that_a_link_or_dots_lead_to(cluster, namespace, swept):
    before = names_in(cluster, swept)
    refused = ["root-link", "root-link/var/tmp", "inner-link", "..", ".", "build-cache/../.."]
    for number, directory in enumerate(refused):
        job = example(cluster, "14-cleanup-sweep", namespace)
        job["metadata"]["name"] = f"sweep-{number}"
        job["spec"].update(mountPath=swept, args=[directory, "*", "-1"])
        job["spec"]["nodes"] = {"include": [cluster.nodes[number % 3]]}
        cluster.apply(job)
    for number, directory in enumerate(refused):
        words = f"refused: {directory} is not a plain path"
        wait_condition(cluster, namespace, f"sweep-{number}", "Failed")
        # The controller waits 5 s for the last line of the log, and adds a later one.
        eventually(partial(says, cluster, namespace, f"sweep-{number}", words), 30)
    assert names_in(cluster, swept) == before
    daemon_set = cluster.get("daemonset", "sweep-0-daemonset-job", "-n", namespace)
    spec = daemon_set["spec"]["template"]["spec"]
    assert spec["priorityClassName"] == "system-node-critical"


# --- 15-image-prepull --------------------------------------------------------------------


@pytest.mark.alone
def test_a_wanted_image_is_on_all_nodes_but_those_of_a_pool(cluster, namespace):
    """A cordon does not keep it off. The image is a foreign one, and has no shell."""
    before = settings_of(cluster)
    cordoned, batch = (node for node in cluster.nodes if "worker" in node)
    job = example(cluster, "15-image-prepull", namespace)
    key = f"e2e.example.com/{secrets.token_hex(4)}"
    (expression,) = job["spec"]["nodes"]["selector"]["matchExpressions"]
    expression.update(key=key, values=["in"])
    with labelled(cluster, key, batch):
        cluster.kubectl("cordon", cordoned)
        try:
            cluster.apply(job)
            cluster.wait_gone(namespace, "image-prepull")
        finally:
            cluster.kubectl("uncordon", cordoned)
    assert settings_of(cluster) == before
    assert cluster.completed(namespace, "image-prepull") == set(cluster.nodes) - {batch}
    found = cluster.on_node(cordoned, "ctr -n k8s.io images ls -q")
    assert job["spec"]["image"] in found.splitlines()


def test_a_wrong_tag_is_reported_in_the_words_of_the_kubelet(cluster, namespace):
    job = example(cluster, "15-image-prepull", namespace)
    job["spec"]["image"] = "registry.invalid/coredns:no-such-tag"
    cluster.apply(job)

    def condition():
        found = cluster.condition(namespace, "image-prepull", "Progressing")
        return found.get("reason") == "ImagePullFailed" and found["message"]

    assert "registry.invalid/coredns:no-such-tag" in eventually(condition, 60, "is reported")
    for pod in cluster.pods(namespace, "image-prepull"):
        assert "hostPID" not in pod["spec"]
        containers = [*pod["spec"]["initContainers"], *pod["spec"]["containers"]]
        assert not any(each["securityContext"].get("privileged") for each in containers)


def test_an_image_that_is_looked_for_and_missing_fails_each_node(cluster, namespace):
    """With the pull policy Never, as the README has it."""
    job = example(cluster, "15-image-prepull", namespace)
    job["spec"]["image"] = "registry.k8s.io/coredns/coredns:no-such-tag"
    container = {"name": "job-container", "imagePullPolicy": "Never"}
    job["spec"]["template"] = {"spec": {"containers": [container]}}
    cluster.apply(job)

    message = wait_condition(cluster, namespace, "image-prepull", "Failed")["message"]

    assert message.startswith("3 of 3 nodes failed: ")
    assert '"registry.k8s.io/coredns/coredns:no-such-tag" is not present' in message


# --- 16-disk-report ----------------------------------------------------------------------


@pytest.mark.alone
def test_free_space_is_reported_of_each_node_a_tainted_one_too(cluster, namespace):
    before = settings_of(cluster)
    job = example(cluster, "16-disk-report", namespace)
    with tainted(cluster, cluster.nodes[-1]):
        cluster.apply(job)
        cluster.wait_gone(namespace, "disk-report")
    assert settings_of(cluster) == before

    found = results(cluster, namespace, "disk-report")
    assert set(found) == set(cluster.nodes)
    for name, path in (("lib", "/var/lib"), ("log", "/var/log")):
        for node, text in cluster.on_all_nodes(f"df -P -m {path} | tail -n 1").items():
            free, used = text.split()[3:5]
            assert abs(int(found[node][f"{name}-free-mib"]) - int(free)) < 1024
            assert abs(int(found[node][f"{name}-used"][:-1]) - int(used[:-1])) <= 1
    report = cluster.report(namespace, "disk-report")["metadata"]["name"]
    template = cluster.root / "examples" / "16-disk-report" / "table"
    table = cluster.kubectl(
        *("get", "dsjr", report, "-n", namespace, "-o", f"go-template-file={template}")
    )
    rows = [line.split() for line in table.splitlines()[1:]]
    assert {row[0]: row[1] for row in rows} == {
        node: entry["lib-free-mib"] for node, entry in found.items()
    }


def test_a_disk_report_can_write_nothing(cluster, namespace):
    job = example(cluster, "16-disk-report", namespace)
    job["spec"]["script"] += "touch /host/var/lib/written /host/var/log/written\n"
    job["spec"]["backoffLimit"] = 0
    cluster.apply(job)
    wait_condition(cluster, namespace, "disk-report", "Failed")
    # Another node may have failed the run before.
    node = cluster.nodes[0]

    def is_reported() -> bool:
        record = state(cluster, namespace, "disk-report", node)
        return record["state"] == "Failed" and "Read-only file system" in record["message"]

    eventually(is_reported, 60, "the node's failure has the words of its task")


# --- 17-kubelet-config-drift -------------------------------------------------------------


# The image of the example is busybox. The task image has that program, beside other ones.
BY_BUSYBOX = """tools=$(mktemp -d)
/bin/busybox --install -s "$tools"
PATH=$tools exec /bin/busybox sh -c "$0" "$@"
"""


def test_a_node_whose_kubelet_has_another_setting_is_listed(cluster, namespace, folder):
    """On copies of the real files: no kubelet is changed."""
    cluster.on_all_nodes(f"cp /var/lib/kubelet/config.yaml {folder}/")
    changed = cluster.nodes[1]
    cluster.on_node(
        changed,
        f"sed -i -e 's/^clusterDomain:.*/clusterDomain: other.example/' -e '/^rotateCert/d' "
        f"{folder}/config.yaml",
    )
    sums = cluster.on_all_nodes(f"sha256sum < {folder}/config.yaml")
    job = example(cluster, "17-kubelet-config-drift", namespace)
    job["spec"]["template"]["spec"]["volumes"][0]["hostPath"]["path"] = f"{folder}/config.yaml"
    job["spec"]["args"].insert(0, BY_BUSYBOX)
    cluster.apply(job)
    wait_condition(cluster, namespace, "kubelet-config-drift", "Complete")

    record = eventually(
        lambda: (
            (found := state(cluster, namespace, "kubelet-config-drift", changed))["state"]
            == "Failed"
            and found
        )
    )
    assert record["exitCode"] == 1
    lines = last_lines(cluster, namespace, "kubelet-config-drift", changed)
    assert lines[-1] == (
        "drift: clusterDomain: other.example, expected cluster.local; "
        "rotateCertificates: (not set), expected true"
    )
    expected = {node: {"sha256": text.split()[0]} for node, text in sums.items() if node != changed}
    eventually(lambda: results(cluster, namespace, "kubelet-config-drift") == expected, 30)


def test_the_kubelets_of_this_cluster_are_as_expected(cluster, namespace):
    cluster.apply(example(cluster, "17-kubelet-config-drift", namespace))
    cluster.wait_gone(namespace, "kubelet-config-drift")
    assert cluster.completed(namespace, "kubelet-config-drift") == set(cluster.nodes)


# --- 18-host-script ----------------------------------------------------------------------


def apply_host_script(cluster: RealCluster, namespace: str, directory: Path) -> str:
    """Apply a copy of the example; return the name of its ConfigMap."""
    cluster.kubectl("apply", "-n", namespace, "-k", str(directory))
    spec = (cluster.job(namespace, "host-script") or {})["spec"]
    return str(spec["scriptFrom"]["configMapKeyRef"]["name"])


@pytest.fixture
def host_script(cluster, tmp_path):
    """Return a copy of the example whose file on the host is one of this test.

    Beside the file, `runs` has a line for each run.
    """
    copy = tmp_path / "host-script"
    shutil.copytree(cluster.root / "examples" / "18-host-script", copy)
    file = f"/run/e2e-{secrets.token_hex(4)}"
    script = copy / "host-facts.sh"
    text = script.read_text().replace("/run/host-facts", file)
    script.write_text(f"{text}echo $$ >> {file}.runs\n")
    yield copy, file
    cluster.on_all_nodes(f"rm -f {file} {file}.*")


def is_done(cluster: RealCluster, namespace: str) -> bool:
    """Return whether all nodes have run the newest script, and no pod is left on a node."""
    job = cluster.job(namespace, "host-script")
    assert job, "the Job is gone"
    status = job["status"]
    pods = cluster.pods(namespace, "host-script")
    return (
        status["observedGeneration"] == job["metadata"]["generation"]
        and any(c["type"] == "Complete" and c["status"] == "True" for c in status["conditions"])
        and status["nodes"]["completed"] == len(cluster.nodes) == len(pods)
        and all("nodeName" not in pod["spec"] for pod in pods)
    )


def runs(cluster: RealCluster, file: str) -> set[int]:
    """Return how often the nodes ran the script; one number if all ran it as often."""
    texts = cluster.on_all_nodes(f"cat {file}.runs 2>/dev/null || :").values()
    return {text.count("\n") for text in texts}


def test_a_script_of_a_config_map_runs_in_the_namespaces_of_the_host(
    cluster, namespace, host_script
):
    directory, file = host_script
    apply_host_script(cluster, namespace, directory)
    eventually(lambda: is_done(cluster, namespace), 90, "all nodes have run it")

    seen = cluster.on_all_nodes(f"cat {file}")
    kinds = " ".join(f"/proc/1/ns/{kind}" for kind in ("mnt", "pid", "net", "uts"))
    hosts = cluster.on_all_nodes(f"readlink {kinds}; hostname; cat /proc/1/comm")
    found = results(cluster, namespace, "host-script")
    for node, text in hosts.items():
        *namespaces, name, init = text.split()
        assert seen[node].splitlines()[0] == "namespaces=" + " ".join(namespaces)
        assert (found[node]["hostname"], found[node]["init"]) == (name, init)
        assert int(found[node]["failed-units"]) >= 0


def test_a_host_script_runs_again_when_it_has_changed_and_only_then(
    cluster, namespace, host_script
):
    directory, file = host_script
    before = apply_host_script(cluster, namespace, directory)
    eventually(lambda: is_done(cluster, namespace), 90, "all nodes have run it")
    assert apply_host_script(cluster, namespace, directory) == before
    consistently(lambda: runs(cluster, file) == {1}, 4, "the unchanged script runs nowhere")

    with (directory / "host-facts.sh").open("a") as script:
        script.write(f"echo changed >> {file}\n")
    assert apply_host_script(cluster, namespace, directory) != before

    eventually(lambda: is_done(cluster, namespace), 90, "all nodes have run the new one")
    assert runs(cluster, file) == {2}
    assert set(cluster.on_all_nodes(f"tail -n 1 {file}").values()) == {"changed\n"}


@pytest.mark.parametrize(("end", "code"), first_of([("exit 42", 42), ("kill -KILL $$", 137)]))
def test_a_host_script_that_fails_is_started_once(cluster, namespace, host_script, end, code):
    """With backoffLimit 0, although the kubelet starts its container again."""
    directory, file = host_script
    with (directory / "host-facts.sh").open("a") as script:
        script.write(f"echo ends here\n{end}\n")
    job = yaml.safe_load((directory / "job.yaml").read_text())
    job["spec"]["backoffLimit"] = 0
    (directory / "job.yaml").write_text(yaml.safe_dump(job))

    apply_host_script(cluster, namespace, directory)

    def recorded() -> int:
        reason = cluster.condition(namespace, "host-script", "Progressing").get("reason")
        assert reason != "Completed"
        if reason != "NodesFailed":
            return 0
        return int(state(cluster, namespace, "host-script", cluster.nodes[0])["exitCode"])

    assert eventually(recorded, 90, "all nodes have failed") == code
    consistently(lambda: runs(cluster, file) == {1}, 5, "each node has started it once")


def test_a_host_script_that_is_at_work_is_a_process_of_the_host(cluster, namespace, host_script):
    directory, file = host_script
    with (directory / "host-facts.sh").open("a") as script:
        script.write("trap 'exit 0' TERM\nwhile :; do sleep 0.2; done\n")
    apply_host_script(cluster, namespace, directory)
    process = f". /dev/stdin <<P\n$(sed -n '/^pid=/p' {file})\nP\ncat /proc/$pid/cmdline"
    eventually(
        lambda: all("/bin/sh" in text for text in cluster.on_all_nodes(process).values()),
        60,
        "the script is a process of each host",
    )
    cluster.kubectl("delete", "dsj", "host-script", "-n", namespace)
    eventually(lambda: not cluster.pods(namespace, "host-script"), 60, "the pods are gone")
    left = cluster.on_all_nodes(f"{process} 2>/dev/null || :")
    assert set(left.values()) == {""}

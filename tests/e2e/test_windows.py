"""Windows on real nodes: when tasks began and ended is read from the nodes themselves."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
import yaml

from tests.e2e.cluster import RealCluster, consistently, eventually, make_job
from tests.e2e.jobs import GO, patch_spec, shell, wait_condition
from tests.e2e.test_rollout import BEGAN, ENDED, EXIT, begun, overlaps, timed, times

ZONE = ZoneInfo("Europe/Berlin")
# A start comes within a minute, and its run takes some seconds.
START_SECONDS = 90


def minute(moment: datetime) -> datetime:
    """Return the minute of a moment, as cron knows it."""
    return moment.replace(second=0, microsecond=0)


def daily(opens: datetime) -> str:
    """Return the cron expression of a start each day, by the clocks of the zone of `opens`."""
    return f"{opens.minute} {opens.hour} * * *"


def outside(cluster: RealCluster, namespace: str, name: str) -> str:
    """Return the message of a Job that waits for its window, "" for any other Job."""
    found = cluster.condition(namespace, name, "Progressing")
    return str(found["message"]) if found.get("reason") == "OutsideWindow" else ""


def opening(moment: datetime) -> str:
    """Return the words of a condition for the opening of a window."""
    return f"opens at {moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}:"


# --- 26-sweep-in-a-window ------------------------------------------------------------------


def sweep(cluster: RealCluster, namespace: str, folder: str, opens: datetime) -> dict:
    """Return the example with a sweep each minute, in a window that opens at another time."""
    path = cluster.root / "examples" / "26-sweep-in-a-window" / "scheduledjob.yaml"
    body = yaml.safe_load(path.read_text(encoding="utf-8"))
    body["metadata"]["namespace"] = namespace
    spec = body["spec"]["jobTemplate"]["spec"]
    assert body["spec"]["schedule"] == spec["rollout"]["window"]["start"]
    body["spec"]["schedule"] = "* * * * *"
    spec["mountPath"] = folder
    spec["rollout"]["window"]["start"] = daily(opens)
    return dict(body)


def names_in(cluster: RealCluster, folder: str) -> set[str]:
    """Return what is in the swept directory of each node; the nodes have the same there."""
    listed = cluster.on_all_nodes(f"cd {folder}/build-cache; find . -mindepth 1 | sort").values()
    return {" ".join(text.split()) for text in listed}


@pytest.mark.first
def test_the_example_sweeps_in_its_window_and_waits_outside_of_it(
    cluster, namespace, other_namespace, folder
):
    for each in ("open", "closed"):
        cluster.on_all_nodes(
            f"""set -e
            mkdir -p {folder}/{each}/build-cache/used {folder}/{each}/build-cache/empty
            cd {folder}/{each}/build-cache
            head -c 8192 /dev/urandom > used/old
            ln -s / link
            touch -h -d '20 days ago' used/old link
            touch used/new
            touch -d '2 hours ago' empty
            """
        )
    before, after = "./empty ./link ./used ./used/new ./used/old", "./link ./used ./used/new"
    now = datetime.now(ZONE)
    opens = minute(now + timedelta(hours=2))
    cluster.apply(
        sweep(cluster, namespace, f"{folder}/open", now - timedelta(minutes=10)),
        sweep(cluster, other_namespace, f"{folder}/closed", opens),
    )

    def swept() -> dict:
        found = cluster.get("dsjr", "-n", namespace)["items"]
        return next((each for each in found if each["status"]["phase"] == "Succeeded"), {})

    rows = eventually(swept, START_SECONDS, "a sweep succeeded")["status"]["nodeList"]
    cluster.kubectl("delete", "dsjs", "window-sweep", "-n", namespace)
    assert {row["name"] for row in rows} == set(cluster.nodes)
    assert [row["results"] for row in rows] == [{"files": "1", "kilobytes": "8"}] * len(rows)
    assert names_in(cluster, f"{folder}/open") == {after}

    (held,) = cluster.get("dsj", "-n", other_namespace)["items"]
    name = held["metadata"]["name"]
    assert opening(opens) in eventually(lambda: outside(cluster, other_namespace, name), 30)
    assert names_in(cluster, f"{folder}/closed") == {before}
    assert not [p for p in cluster.pods(other_namespace, name) if "nodeName" in p["spec"]]
    # A person lets this sweep begin now; others stay in their window.
    window = f'{{"rollout":{{"window":{{"start":"{daily(now - timedelta(minutes=10))}"}}}}}}'
    patch_spec(cluster, other_namespace, name, window)
    eventually(lambda: names_in(cluster, f"{folder}/closed") == {after}, 60, "it goes on")
    cluster.kubectl("delete", "dsjs", "window-sweep", "-n", other_namespace)


# --- rollouts ------------------------------------------------------------------------------


def test_no_task_starts_outside_the_window_and_another_one_lets_them_start(
    cluster, namespace, folder
):
    now = datetime.now(UTC)
    opens = minute(now + timedelta(hours=1))
    rollout = {"window": {"start": daily(opens), "duration": "6h"}}
    cluster.apply(make_job("night", namespace, mountPath=folder, rollout=rollout, **timed(0)))
    assert opening(opens) in eventually(lambda: outside(cluster, namespace, "night"), 30)
    consistently(lambda: begun(cluster, folder) == set(), 5, "no node begins")
    window = f'{{"rollout":{{"window":{{"start":"{daily(now - timedelta(hours=1))}"}}}}}}'
    patch_spec(cluster, namespace, "night", window)
    wait_condition(cluster, namespace, "night", "Complete")
    assert begun(cluster, folder) == set(cluster.nodes)


@pytest.mark.on_demand
@pytest.mark.first
def test_a_window_that_closes_ends_no_task_and_the_next_one_goes_on(cluster, namespace, folder):
    """A window opens at a minute mark, and closes 30 s from now: it was open for a minute."""
    now = datetime.now(UTC)
    first = minute(now) - timedelta(minutes=1)
    closes = now.replace(microsecond=0) + timedelta(seconds=30)
    second = minute(closes + timedelta(seconds=72))  # at least 12 s after that
    window = {
        "start": f"{first.minute},{second.minute} * * * *",
        "duration": f"{(closes - first).seconds}s",
    }
    task = {**shell(f"{BEGAN}; {GO}; {ENDED}; exit 0"), **EXIT}
    rollout = {"maxParallel": 1, "window": window}
    cluster.apply(make_job("nights", namespace, mountPath=folder, rollout=rollout, **task))
    eventually(lambda: len(begun(cluster, folder)) == 1, 60, "one node began")
    assert opening(second) in eventually(lambda: outside(cluster, namespace, "nights"), 60)
    # The window is closed. The node that is at work finishes, and no other one begins.
    cluster.on_all_nodes(f"touch {folder}/go")
    # The next window opens in 72 s at most, and nodes take their turns one by one.
    wait_condition(cluster, namespace, "nights", "Complete", 100 + 15 * len(cluster.nodes))
    found = times(cluster, folder)
    assert set(found) == set(cluster.nodes)
    (_, ended), *others = found.values()
    assert closes.timestamp() * 10**9 <= ended < second.timestamp() * 10**9
    assert all(second.timestamp() * 10**9 <= began for began, _ in others)
    assert overlaps(found) == []

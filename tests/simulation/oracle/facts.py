"""Small questions about raw objects that several invariants ask."""

from tests.simulation.server import JOBS, PODS, Raw, Server, controller_of, node_of


def is_true(job: Raw, type_: str, reason: str = "") -> bool:
    """Return whether a condition of the raw Job is True, for that reason if one is given."""
    conditions = (job.get("status") or {}).get("conditions") or ()
    return any(
        c["type"] == type_ and c["status"] == "True" and reason in {"", c["reason"]}
        for c in conditions
    )


def find_job(server: Server, uid: str) -> Raw | None:
    """Return the raw Job with that UID, None if it is deleted."""
    return next((job for job in server.all(JOBS) if job["metadata"]["uid"] == uid), None)


def owned_by(server: Server, daemon_set: Raw) -> dict[str, Raw]:
    """Return the pods of a DaemonSet that are not on their way out, by node."""
    uid = daemon_set["metadata"]["uid"]
    return {
        node_of(pod): pod
        for pod in server.all(PODS)
        if controller_of(pod) == uid and "deletionTimestamp" not in pod["metadata"]
    }


def is_continuous(job: Raw) -> bool:
    """Return whether a raw Job has no end: policy Continuous."""
    return bool(job["spec"].get("completion", {}).get("policy") == "Continuous")


def cordons(job: Raw) -> bool:
    """Return whether a raw Job has its nodes cordoned."""
    return bool(job["spec"].get("cordon")) or "drain" in job["spec"]


def rollout_of(job: Raw) -> Raw | None:
    """Return the rollout of a raw Job, None without one: cordoned nodes have turns one by one."""
    rollout: Raw | None = job["spec"].get("rollout")
    return {"maxParallel": 1, **(rollout or {})} if cordons(job) else rollout

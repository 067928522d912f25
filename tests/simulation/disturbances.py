"""Applies disturbances: to processes, to the cluster, and as actions of users.

Each kind is one small function; see `schedule.Disturbance` for the fields.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from daemonset_job.api import names
from tests.fakekube.node_lifecycle import replace_taints, taints_of
from tests.fakekube.pod_endings import disrupted
from tests.simulation.cordons import CORDON_TAINT, KEY
from tests.simulation.corrections import CORRECTED, LOOK_SECONDS
from tests.simulation.drain_disturbances import DURING_DRAINS
from tests.simulation.edits import edited
from tests.simulation.machine import TURNS_UNKNOWN_SECONDS
from tests.simulation.orphans import orphan_daemon_set
from tests.simulation.schedule import TOPOLOGY_ZONE, Disturbance, JobPlan
from tests.simulation.schedule_disturbances import OF_SCHEDULES
from tests.simulation.server import CONFIG_MAPS, DAEMON_SETS, JOBS, NODES, PODS, Raw, node_of

if TYPE_CHECKING:
    from tests.simulation.world import World

USER = "user"
# How long after the start of a machine's shutdown its pods have ended.
PODS_END_SECONDS = 1.0


def apply_disturbance(world: World, disturbance: Disturbance) -> None:
    """Apply a disturbance now."""
    world.note("disturbance", disturbance)
    _KINDS[disturbance.kind](world, disturbance)


# --- the processes -----------------------------------------------------------------------


def _fail(world: World, d: Disturbance) -> None:
    world.add_fault(d.who, d.what, d.mode, d.seconds)


def _crash_on(world: World, d: Disturbance) -> None:
    world.add_fault(d.who, d.what, f"crash {d.mode}", d.seconds)


def _crash(world: World, d: Disturbance) -> None:
    world.processes[d.who].crash(d.seconds)


def _stop(world: World, d: Disturbance) -> None:
    world.processes[d.who].stop(d.seconds)


def _stall(world: World, d: Disturbance) -> None:
    if watch := world.processes[d.who].watches.get(d.what):
        world.expect_delay(d.who, d.seconds)
        watch.stall(d.seconds)


def _relist(world: World, d: Disturbance) -> None:
    if watch := world.processes[d.who].watches.get(d.what):
        world.expect_delay(d.who, d.seconds)
        watch.relist(d.seconds)


def _list_late(world: World, d: Disturbance) -> None:
    if watch := world.processes[d.who].watches.get(d.what):
        world.expect_delay(d.who, d.seconds)
        watch.list_late(d.seconds)


def _repeat(world: World, d: Disturbance) -> None:
    if watch := world.processes[d.who].watches.get(d.what):
        watch.repeat()


# --- the cluster -------------------------------------------------------------------------


def _join(world: World, d: Disturbance) -> None:
    world.add_node(d.what)


def _leave(world: World, d: Disturbance) -> None:
    if world.server.get(NODES, d.what, "") is None:
        return
    machine = world.machines.pop(d.what, None)
    if machine is not None:
        machine.is_gone = True
        for run in list(machine.pods.values()):
            run.over()
    world.server.remove("cloud", NODES, d.what, "")


def _renew(world: World, d: Disturbance) -> None:
    """Replace the machine: another one of the same name joins after a while."""
    raw = world.server.get(NODES, d.what, "")
    if raw is not None:
        _leave(world, d)
        zone = raw["metadata"]["labels"]["zone"]
        world.loop.call_later(d.seconds, world.add_node, d.what, zone)


def _reregister(world: World, d: Disturbance) -> None:
    """Delete the Node object only; its kubelet registers it again and its containers go on."""
    raw = world.server.get(NODES, d.what, "")
    if raw is None:
        return
    world.server.remove(USER, NODES, d.what, "")

    def again() -> None:
        machine = world.machines.get(d.what)
        if machine is not None and world.server.get(NODES, d.what, "") is None:
            new = world.register(d.what, raw["metadata"]["labels"]["zone"])
            machine.uid = new["metadata"]["uid"]
            for pod in world.server.all(PODS):
                if pod["spec"].get("nodeName") == d.what:
                    machine.pod_changed(pod)

    if machine := world.machines.get(d.what):
        machine.call_later(d.seconds, again)  # not while it is down


def _down(world: World, d: Disturbance) -> None:
    machine = world.machines.get(d.what)
    if machine is None or not machine.is_up:
        return
    machine.go_down()
    world.oracle.failures.allow_failure(d.what)

    def unknown() -> None:
        if not machine.is_up and not machine.is_gone:
            world.set_ready(d.what, "Unknown")

    def back() -> None:
        if not machine.is_up and not machine.is_gone:
            machine.come_back()
            world.set_ready(d.what, "True")

    world.loop.call_later(TURNS_UNKNOWN_SECONDS, unknown)
    if d.seconds:
        world.loop.call_later(d.seconds, back)


def _shutdown(world: World, d: Disturbance) -> None:
    """Have a machine shut down gracefully: its kubelet says so, and then ends the pods.

    It sets Ready to False first (syncNodeStatus in nodeshutdown_manager.go), so the node has its
    taint by the time that its pods have failed.
    """
    machine = world.machines.get(d.what)
    if machine is None or not machine.is_up:
        return

    def end() -> None:
        if machine.is_up and not machine.is_gone:
            machine.shut_down()
            _down(world, d)
        elif not machine.is_gone:
            # It reboots instead, and its kubelet says that the node is Ready when it is up again.
            machine.call_later(0.1, world.set_ready, d.what, "True")

    world.set_ready(d.what, "False")
    world.loop.call_later(PODS_END_SECONDS, end)


def _force_delete(world: World, d: Disturbance) -> None:
    """Take the pods of a node out of the API; its kubelet ends them when its watch shows it."""
    machine = world.machines.get(d.what)
    for pod in world.server.all(PODS):
        if pod["spec"].get("nodeName") == d.what:
            meta = pod["metadata"]
            world.server.remove(USER, PODS, meta["name"], meta["namespace"])
            if machine is not None and (run := machine.pods.get(meta["uid"])):
                machine.call_later(machine.lag(0.05, 1.5), run.over)


def _no_network(world: World, d: Disturbance) -> None:
    """Have a cloud's controller say that a node has no network for a while, or permanently."""
    world.set_network(d.what, is_there=False)
    world.oracle.failures.allow_failure(d.what)
    if d.seconds:
        world.loop.call_later(d.seconds, lambda: world.set_network(d.what, is_there=True))


def _evict(world: World, d: Disturbance) -> None:
    machine = world.machines.get(d.what)
    if machine is not None and machine.is_up:
        machine.evict()


def _readmit(world: World, d: Disturbance) -> None:
    machine = world.machines.get(d.what)
    if machine is not None and machine.is_up:
        machine.readmit()


def _zone(world: World, d: Disturbance) -> None:
    raw = world.server.get(NODES, d.what, "")
    if raw is not None:
        zone = "b" if raw["metadata"]["labels"]["zone"] == "a" else "a"
        body = {"metadata": {"labels": {"zone": zone}}}
        world.server.patch(USER, NODES, d.what, body, namespace="")


def _label(world: World, d: Disturbance) -> None:
    """Have a user set a label of a node, or remove it: `mode` is "key=value", or "key=".

    After a while, if there is one, the label is as it was.
    """
    raw = world.server.get(NODES, d.what, "")
    if raw is None:
        return
    key, _, value = d.mode.partition("=")
    was = raw["metadata"]["labels"].get(key)

    def change(text: str | None) -> None:
        if world.server.get(NODES, d.what, "") is not None:
            body = {"metadata": {"labels": {key: text}}}
            world.server.patch(USER, NODES, d.what, body, namespace="")

    change(value or None)
    if d.seconds:
        world.loop.call_later(d.seconds, change, was)


def _topology(world: World, d: Disturbance) -> None:
    """Have a cloud's controller say in which of its zones a node is."""
    if world.server.get(NODES, d.what, "") is not None:
        body = {"metadata": {"labels": {TOPOLOGY_ZONE: d.mode}}}
        world.server.patch("cloud", NODES, d.what, body, namespace="")


def _reboot(world: World, d: Disturbance) -> None:
    """Reboot a machine; it is not away for long enough to be missed."""
    machine = world.machines.get(d.what)
    if machine is not None and machine.is_up:
        machine.reboot(d.seconds)


def _reimage(world: World, d: Disturbance) -> None:
    """Install a machine again: its containers and logs are gone, its Node object stays."""
    machine = world.machines.get(d.what)
    if machine is not None and machine.is_up:
        machine.reimage(d.seconds)


def _refuse_write(world: World, d: Disturbance) -> None:
    """Refuse writes of one kind: `what` is "verb resource", `mode` the status."""
    world.refuse_write(d.who, d.what, d.mode, d.seconds)


def _not_ready(world: World, d: Disturbance) -> None:
    """Have a kubelet say that its node is not Ready, while everything goes on.

    If its machine reboots meanwhile, it says that the node is Ready when the machine is up again.
    """
    world.oracle.failures.allow_failure(d.what)
    machine = world.machines.get(d.what)
    if machine is not None and machine.is_up:
        world.set_ready(d.what, "False")
        machine.call_later(d.seconds, world.set_ready, d.what, "True")


def _no_room(world: World, d: Disturbance) -> None:
    """Have the scheduler find no room on a node, or on any, for a while."""
    world.fill(d.what, d.seconds)


def _disrupt(world: World, d: Disturbance) -> None:
    """Delete the pods of a node by way of the eviction API, or to make room for others."""
    for pod in world.server.all(PODS):
        if pod["spec"].get("nodeName") == d.what and "deletionTimestamp" not in pod["metadata"]:
            status = disrupted(pod.get("status") or {}, d.mode)
            world.server.set_status("scheduler", PODS, pod, status)
            world.server.drop("scheduler", PODS, pod)


def _drain(world: World, d: Disturbance) -> None:
    """Do as a cluster autoscaler does before it removes a node; then it may think better of it."""
    taint = replace(d, kind="taint", mode="NoSchedule")
    _taint(world, taint)
    _disrupt(world, replace(d, mode="EvictionByEvictionAPI"))
    if not d.seconds:
        world.loop.call_later(3.0, _leave, world, d)


def _taint(world: World, d: Disturbance) -> None:
    """Put a taint of that effect on a node, for a while or permanently."""

    def change(taints: list[Raw]) -> None:
        raw = world.server.get(NODES, d.what, "")
        if raw is not None:
            world.put_taints(USER, raw, {key}, taints)

    key = f"sim/{d.mode}"
    change([{"key": key, "effect": d.mode}])
    if d.seconds:
        world.loop.call_later(d.seconds, change, [])


def _cordon(world: World, d: Disturbance) -> None:
    """Keep other pods off a node, as kubectl cordon does, for a while or permanently."""

    def change(is_cordoned: bool) -> None:
        raw = world.server.get(NODES, d.what, "")
        if raw is not None:
            taint = [CORDON_TAINT] if is_cordoned else []
            taints = replace_taints(taints_of(raw), {KEY}, taint)
            spec = {"unschedulable": is_cordoned or None, "taints": taints or None}
            world.server.patch(USER, NODES, d.what, {"spec": spec}, namespace="")

    change(True)
    if d.seconds:
        world.loop.call_later(d.seconds, change, False)


def _logs(world: World, d: Disturbance) -> None:
    world.disturb_logs(d.kind, d.what, d.seconds)


def _lose_ended_logs(world: World, d: Disturbance) -> None:
    """Have a node's kubelet delete the logs of the instances before the present one.

    Once a minute, it keeps only the newest instance of a container that does not run. Between
    creation and start, that is the next one (evictableContainers in pkg/kubelet, v1.34).
    """
    machine = world.machines.get(d.what)
    for run in machine.pods.values() if machine is not None else ():
        for instance in [each for each in run.logs if each < run.instance]:
            world.oracle.failures.log_is_lost(run, instance)
            del run.logs[instance]


def _slow(world: World, d: Disturbance) -> None:
    world.slow_down(d.kind, d.seconds)
    world.expect_delay("controller", d.seconds)


def _refuse_pods(world: World, d: Disturbance) -> None:
    world.refuse(PODS, d.seconds)


def _refuse_daemon_set(world: World, d: Disturbance) -> None:
    world.refuse(DAEMON_SETS, d.seconds)
    world.expect_delay("controller", d.seconds + 20.0)


# --- users -------------------------------------------------------------------------------


def create_job(world: World, plan: JobPlan) -> None:
    """Apply the Job of a plan, unless it is there."""
    body = {
        "apiVersion": names.API_VERSION,
        "kind": names.JOB_KIND,
        "metadata": {"name": plan.name},
        "spec": plan.spec,
    }
    if world.server.get(JOBS, plan.name, plan.namespace) is None:
        world.server.create(USER, JOBS, body, plan.namespace)


def _job(world: World, d: Disturbance) -> Raw | None:
    """Return the Job that a disturbance is about, None if it is not there."""
    plan = world.schedule.job(d.who)
    return world.server.get(JOBS, plan.name, plan.namespace) if plan is not None else None


def _delete_job(world: World, d: Disturbance) -> None:
    job = _job(world, d)
    if job is not None:
        world.server.drop(USER, JOBS, job)


def _again(world: World, d: Disturbance) -> None:
    """Delete the Job, if it is still there, and apply it again."""
    _delete_job(world, d)
    plan = world.schedule.job(d.who)
    if plan is not None:
        world.loop.call_later(d.seconds, create_job, world, plan)


def _patch_job(world: World, d: Disturbance, body: Raw) -> None:
    job = _job(world, d)
    if job is not None:
        meta = job["metadata"]
        world.server.patch(USER, JOBS, meta["name"], body, namespace=meta["namespace"])


def _suspend(world: World, d: Disturbance) -> None:
    _patch_job(world, d, {"spec": {"suspend": True}})
    if d.seconds:
        world.loop.call_later(d.seconds, _patch_job, world, d, {"spec": {"suspend": None}})


def _correct(world: World, d: Disturbance) -> None:
    """Suspend the Job, correct its image once its start is taken back, and resume it.

    The user gives up after a while, and resumes it as it is. The CRD refuses the change before.
    """
    _patch_job(world, d, {"spec": {"suspend": True}})
    until = world.loop.moment + d.seconds

    def look() -> None:
        job = _job(world, d)
        if job is None or not job["spec"].get("suspend"):
            return
        if "startTime" not in (job.get("status") or {}):
            spec = {key: value for key, value in job["spec"].items() if key != "suspend"}
            world.server.set_spec(USER, JOBS, job, {**spec, "image": CORRECTED})
        elif world.loop.moment >= until:
            _patch_job(world, d, {"spec": {"suspend": None}})
        else:
            world.loop.call_later(LOOK_SECONDS, look)

    world.loop.call_later(LOOK_SECONDS, look)


def _retry(world: World, d: Disturbance) -> None:
    annotation = {names.ANNOTATION_RETRY: str(int(world.loop.moment * 1000))}
    _patch_job(world, d, {"metadata": {"annotations": annotation}})


def _annotate(world: World, d: Disturbance) -> None:
    """Write what a person wants of a rollout into the Job: approve, promote or abort."""
    key, value = {
        "approve": (names.ANNOTATION_APPROVE, d.what),
        "promote": (names.ANNOTATION_PROMOTE, "all"),
        "abort": (names.ANNOTATION_ABORT, "a mistake"),
    }[d.kind]
    _patch_job(world, d, {"metadata": {"annotations": {key: value}}})


def _stop_all(world: World, d: Disturbance) -> None:
    """Have an administrator stop all Jobs of the cluster for a while."""

    def order(text: str) -> None:
        name, namespace = names.STOP_CONFIG_MAP, names.SYSTEM_NAMESPACE
        body: Raw = {"metadata": {"name": name}, "data": {"stop": text}}
        if world.server.get(CONFIG_MAPS, name, namespace) is None:
            world.server.create(USER, CONFIG_MAPS, body, namespace)
        else:
            world.server.patch(USER, CONFIG_MAPS, name, {"data": body["data"]}, namespace=namespace)
        world.oracle.holds.all_stopped(is_stopped=text == "true")

    order("true")
    world.loop.call_later(d.seconds, order, "false")


def _roll_back(world: World, d: Disturbance) -> None:
    _patch_job(world, d, {"metadata": {"annotations": {names.ANNOTATION_ROLLBACK: "slower"}}})


def _rerun(world: World, d: Disturbance) -> None:
    """Request that nodes run the task again: `what` is the value of the annotation."""
    _patch_job(world, d, {"metadata": {"annotations": {names.ANNOTATION_RERUN: d.what}}})


def _lose_status(world: World, d: Disturbance) -> None:
    """Remove a field of a Job's status, `what`, or all of it, as a backup without status does."""
    if (job := _job(world, d)) is not None:
        kept = {
            key: value
            for key, value in (job.get("status") or {}).items()
            if d.what not in {"", key}
        }
        world.server.set_status(USER, JOBS, job, kept)


def _relabel(world: World, d: Disturbance) -> None:
    """Change the zone of a node, and change it back after a while if there is one."""
    _zone(world, d)
    if d.seconds:
        world.loop.call_later(d.seconds, _zone, world, d)


def _select(world: World, d: Disturbance) -> None:
    nodes = None if d.what == "*" else {"selector": {"matchLabels": {"zone": d.what}}}
    _patch_job(world, d, {"spec": {"nodes": nodes}})


def _edit(world: World, d: Disturbance) -> None:
    """Change a field of a Job's spec, and change it back after a while if there is one."""
    job = _job(world, d)
    if job is None:
        return
    was = job["spec"].get(d.mode)
    world.server.set_spec(USER, JOBS, job, edited(job["spec"], d.mode, d.what))

    def back() -> None:
        current = world.server.now(JOBS, job)
        if current is not None:
            spec = {key: value for key, value in current["spec"].items() if key != d.mode}
            spec = spec if was is None else {**spec, d.mode: was}
            world.server.set_spec(USER, JOBS, current, spec)

    if d.seconds:
        world.loop.call_later(d.seconds, back)


def _delete_pod(world: World, d: Disturbance) -> None:
    for pod in world.server.all(PODS):
        if node_of(pod) == d.what and "deletionTimestamp" not in pod["metadata"]:
            world.server.drop(USER, PODS, pod)
            return


def _delete_daemon_set(world: World, d: Disturbance) -> None:
    if plan := world.schedule.job(d.who):
        name = names.daemon_set_name(plan.name)
        for daemon_set in world.server.select(DAEMON_SETS, namespace=plan.namespace, name=name):
            world.server.drop(USER, DAEMON_SETS, daemon_set)


def _forge(world: World, d: Disturbance) -> None:
    """Make a pod that carries all labels of a Job's, prints the token, and has no owner."""
    job, machine = _job(world, d), world.machines.get(d.what)
    if job is None or machine is None:
        return
    meta = job["metadata"]
    name = names.daemon_set_name(meta["name"])
    labels = {
        names.LABEL_DAEMON_SET: name,
        names.LABEL_JOB: meta["name"],
        names.LABEL_MANAGED: names.LABEL_MANAGED_VALUE,
        names.LABEL_JOB_UID: meta["uid"],
    }
    body = {
        "metadata": {"name": f"{name}-forged-{world.server.version}", "labels": labels},
        "spec": {"nodeName": d.what, "meant_for": d.what, **_containers(world, d)},
        "status": {"phase": "Pending"},
    }
    world.server.create(USER, PODS, body, meta["namespace"])


def _containers(world: World, d: Disturbance) -> Raw:
    """Return what of a forged pod's spec says how it is to complete its node."""
    task = [{"name": names.CONTAINER_NAME}]
    plan = world.schedule.job(d.who)
    if plan is None or not plan.is_exit:
        return {"containers": task}
    return {"initContainers": task, "containers": [{"name": names.PAUSE_CONTAINER_NAME}]}


_KINDS = {
    "fail": _fail,
    "crash": _crash,
    "crash_on": _crash_on,
    "stop": _stop,
    "stall": _stall,
    "relist": _relist,
    "repeat": _repeat,
    "list_late": _list_late,
    "join": _join,
    "leave": _leave,
    "renew": _renew,
    "reregister": _reregister,
    "down": _down,
    "evict": _evict,
    "readmit": _readmit,
    "zone": _zone,
    "label": _label,
    "topology": _topology,
    "taint": _taint,
    "cordon": _cordon,
    **DURING_DRAINS,
    **OF_SCHEDULES,
    "not_ready": _not_ready,
    "reboot": _reboot,
    "reimage": _reimage,
    "shutdown": _shutdown,
    "force_delete": _force_delete,
    "no_network": _no_network,
    "refuse_write": _refuse_write,
    "no_room": _no_room,
    "disrupt": _disrupt,
    "drain": _drain,
    "log_fails": _logs,
    "log_late": _logs,
    "lose_lines": _logs,
    "lose_ended_logs": _lose_ended_logs,
    "slow_daemon_sets": _slow,
    "slow_scheduler": _slow,
    "slow_gc": _slow,
    "refuse_pods": _refuse_pods,
    "refuse_daemon_set": _refuse_daemon_set,
    "delete_job": _delete_job,
    "again": _again,
    "suspend": _suspend,
    "correct": _correct,
    "retry": _retry,
    "roll_back": _roll_back,
    "rerun": _rerun,
    "lose_status": _lose_status,
    "approve": _annotate,
    "promote": _annotate,
    "abort": _annotate,
    "stop_all": _stop_all,
    "relabel": _relabel,
    "select": _select,
    "edit": _edit,
    "delete_pod": _delete_pod,
    "delete_daemon_set": _delete_daemon_set,
    "orphan_daemon_set": orphan_daemon_set,
    "forge": _forge,
}

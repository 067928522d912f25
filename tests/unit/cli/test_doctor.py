"""What the doctor makes of objects: Deployments, Leases, policies, CRDs and Jobs. Pure."""

import copy
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from daemonset_job.api import names
from kubectl_dsjob.doctor import (
    crd_checks,
    installation_checks,
    job_checks,
    policy_checks,
    program_checks,
    rights_checks,
    stop_checks,
)
from kubectl_dsjob.doctor.findings import (
    Area,
    Finding,
    Level,
    format_findings,
    format_json,
    is_well,
)
from kubectl_dsjob.doctor.reads import Missing
from kubectl_dsjob.system import render

GOLDEN = Path(__file__).with_name("golden") / "doctor.txt"
NOW = datetime(2025, 1, 1, 12, tzinfo=UTC)
LIMIT = timedelta(minutes=5)
CONTROLLER = "daemonset-job-controller"


def time(minutes):
    return f"{NOW - timedelta(minutes=minutes):%Y-%m-%dT%H:%M:%SZ}"


def deployment(replicas=1, ready=1, tag="v0.1.0", containers=("controller", "terminator")):
    return {
        "metadata": {"name": CONTROLLER, "namespace": "sys", "generation": 1},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "x"}},
            "template": {
                "spec": {"containers": [{"name": n, "image": f"r/{n}:{tag}"} for n in containers]}
            },
        },
        "status": {"readyReplicas": ready},
    }


def test_a_deployment_without_pods_says_what_does_not_happen():
    found = program_checks.judge_deployment(deployment(replicas=0, ready=0), ())
    assert found.level == Level.PROBLEM
    assert found.message == (
        "daemonset-job-controller has 0 replicas, so there is no controller and terminator: "
        "no Job starts and no node completes"
    )
    scale = "kubectl scale -n sys{cluster} deployment/daemonset-job-controller --replicas=1"
    assert found.way_out == scale


def test_a_stop_of_all_jobs_is_named_with_its_reason_and_the_command_that_ends_it():
    order = {"metadata": {}, "data": {"stop": "true", "reason": "an incident"}}
    [found] = stop_checks.judge_stop(order, "sys")
    assert (found.area, found.level) == (Area.PROGRAMS, Level.NOTE)
    assert "stopped all Jobs of this cluster (an incident)" in found.message
    assert found.way_out == "kubectl dsjob resume-all --system-namespace sys{cluster}"
    [found] = stop_checks.judge_stop(order, "daemonset-job-system")
    assert found.way_out == "kubectl dsjob resume-all{cluster}"
    assert stop_checks.judge_stop({"metadata": {}, "data": {"stop": "false"}}, "sys") == []
    assert stop_checks.judge_stop(Missing.ABSENT, "sys") == []
    [found] = stop_checks.judge_stop(Missing.FORBIDDEN, "sys")
    assert found.level == Level.UNKNOWN


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (
            {"containerStatuses": [
                {"name": "controller", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
            ]},
            "container controller: CrashLoopBackOff",
        ),
        (
            {"conditions": [{"type": "PodScheduled", "status": "False", "message": "no room"}]},
            "a pod is not scheduled: no room",
        ),
        ({}, "no node completes"),
    ],
)  # fmt: skip
def test_a_deployment_that_is_not_ready_says_why(status, words):
    found = program_checks.judge_deployment(deployment(ready=0), [{"status": status}])
    assert found.level == Level.PROBLEM
    assert words in found.message


REFUSED = {
    "type": "ReplicaFailure",
    "status": "True",
    "reason": "FailedCreate",
    "message": 'pods "c-1" is forbidden: violates PodSecurity "restricted:latest"',
}


def test_pods_that_are_refused_are_named_with_the_words_of_the_api_server():
    given = deployment(ready=0)
    given["status"]["conditions"] = [REFUSED]
    found = program_checks.judge_deployment(given, ())
    assert found.level == Level.PROBLEM
    assert 'violates PodSecurity "restricted:latest"' in found.message
    assert "describe replicasets -n sys" in found.way_out
    # The pod of before an upgrade is ready, and goes on.
    given["status"]["readyReplicas"] = given["status"]["replicas"] = 1
    found = program_checks.judge_deployment(given, ())
    assert (found.level, "violates PodSecurity" in found.message) == (Level.NOTE, True)


OOM = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}


@pytest.mark.parametrize(
    ("kind", "container", "words"),
    [
        (
            "containerStatuses",
            {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": OOM},
            "container c: CrashLoopBackOff; it ended with exit code 137 (OOMKilled)",
        ),
        ("containerStatuses", {"state": OOM}, "container c: it ended with exit code 137"),
        (
            "initContainerStatuses",
            {"state": {"waiting": {"reason": "ErrImagePull"}}},
            "container c: ErrImagePull",
        ),
        (
            "containerStatuses",
            {"ready": False, "state": {"running": {}}},
            "container c runs and is not ready",
        ),
    ],
)
def test_a_container_that_does_not_work_is_named_with_its_last_end(kind, container, words):
    pod = {"metadata": {"name": "p"}, "status": {kind: [{"name": "c", **container}]}}
    found = program_checks.judge_deployment(deployment(ready=0), [{"status": {}}, pod])
    assert words in found.message
    has_ended = "it ended" in words
    assert ("kubectl logs -n sys{cluster} p -c c" in found.way_out) == has_ended


def test_an_init_container_that_is_done_is_no_cause():
    done = {"name": "i", "state": {"terminated": {"exitCode": 0}}}
    found = program_checks.judge_deployment(
        deployment(ready=0), [{"status": {"initContainerStatuses": [done]}}]
    )
    assert found.message.endswith("no node completes")


def test_an_evicted_pod_is_no_cause_beside_one_that_should_run():
    """Pods that were evicted stay, and their ReplicaSet has made others."""
    ended = {"name": "c", "state": {"terminated": {"exitCode": 137}}}
    evicted = {"status": {"phase": "Failed", "containerStatuses": [ended]}}
    unscheduled = {"type": "PodScheduled", "status": "False", "message": "no node"}
    pending = {"status": {"phase": "Pending", "conditions": [unscheduled]}}
    found = program_checks.judge_deployment(deployment(ready=0), [evicted, pending])
    assert found.message.endswith(": a pod is not scheduled: no node")
    alone = program_checks.judge_deployment(deployment(ready=0), [evicted])
    assert "it ended with exit code 137" in alone.message


def test_a_terminator_that_no_deployment_has_is_named():
    split = deployment(containers=("controller",))
    [found] = program_checks.judge_terminator([split, Missing.ABSENT], "sys")
    assert (found.level, "no Deployment in namespace sys" in found.message) == (
        Level.PROBLEM,
        True,
    )
    other = deployment(containers=("terminator",))
    for well in ([split, other], [deployment(), Missing.ABSENT], [split, Missing.FORBIDDEN]):
        assert program_checks.judge_terminator(well, "sys") == []


def test_programs_of_a_later_version_are_not_judged_by_the_roles_of_this_one():
    found = program_checks.judge_deployment(deployment(tag="v99.0.0"), ())
    assert found.level == Level.NOTE
    assert found.way_out == "Install the version of kubectl dsjob that the cluster has."


def test_an_earlier_version_and_fewer_pods_are_notes():
    assert program_checks.judge_deployment(deployment(), ()).level == Level.OK
    old = program_checks.judge_deployment(deployment(tag="v0.0.9"), ())
    assert (old.level, old.way_out) == (Level.NOTE, "kubectl dsjob upgrade{cluster}")
    stuck = deployment()
    stuck["status"]["replicas"] = 2
    waiting = {"waiting": {"reason": "ErrImagePull"}}
    pods = [{"status": {"containerStatuses": [{"name": "controller", "state": waiting}]}}]
    found = program_checks.judge_deployment(stuck, pods)
    assert found.level == Level.NOTE
    assert "a pod of a change is not ready: container controller: ErrImagePull" in found.message
    assert found.way_out == "kubectl describe pods -n sys{cluster} -l app=x"
    few = program_checks.judge_deployment(deployment(replicas=2), ())
    assert (few.level, "1 of 2 pods" in few.message) == (Level.NOTE, True)


@pytest.mark.parametrize(
    ("lease", "level"),
    [
        (Missing.FORBIDDEN, Level.UNKNOWN),
        (Missing.ABSENT, Level.PROBLEM),
        ({"spec": {}}, Level.PROBLEM),
        ({"spec": {"holderIdentity": "", "renewTime": time(0)}}, Level.PROBLEM),
        (
            {"spec": {"holderIdentity": "p", "renewTime": time(1), "leaseDurationSeconds": 15}},
            Level.PROBLEM,
        ),
        (
            {"spec": {"holderIdentity": "p", "renewTime": time(1), "leaseDurationSeconds": 60}},
            Level.OK,
        ),
    ],
)
def test_a_lease_is_held_only_if_it_is_renewed(lease, level):
    assert program_checks.judge_lease(lease, CONTROLLER, "sys", NOW).level == level


def lease_of(minutes, holder="p"):
    spec = {"holderIdentity": holder, "renewTime": time(minutes), "leaseDurationSeconds": 15}
    return {"spec": spec}


def test_a_lease_of_a_time_to_come_is_not_held_for_that():
    """The clock of the user is behind, and says nothing of its age."""
    found = program_checks.judge_lease(lease_of(-5), CONTROLLER, "sys", NOW)
    assert (found.level, "in the future" in found.message) == (Level.PROBLEM, True)


@pytest.mark.parametrize(
    ("before", "after", "level", "words"),
    [
        (lease_of(5), lease_of(4.9), Level.NOTE, "its clock and yours differ by 4m54s"),
        (lease_of(-5), lease_of(-5.1), Level.NOTE, "its clock and yours differ by 5m6s"),
        (lease_of(5, ""), lease_of(0), Level.OK, "p holds the Lease"),
        (lease_of(5), lease_of(5), None, ""),
        (lease_of(5), lease_of(4, ""), None, ""),
        (lease_of(5), Missing.ABSENT, None, ""),
    ],
)
def test_a_lease_that_is_renewed_meanwhile_is_held_whatever_the_clocks_say(
    before, after, level, words
):
    found = program_checks.judge_renewal(before, after, CONTROLLER, NOW)
    assert (found and found.level) == level
    assert words in (found.message if found else "")


def test_the_logs_of_a_lease_are_those_of_the_pods_of_its_program():
    split = "app.kubernetes.io/name=daemonset-job-terminator"
    found = program_checks.judge_lease(Missing.ABSENT, "daemonset-job-terminator", "s", NOW, split)
    assert f" -l {split} " in found.way_out


@pytest.mark.parametrize(
    ("policy", "binding", "level"),
    [
        ({}, {"spec": {"validationActions": ["Deny"]}}, Level.OK),
        ({}, {"spec": {"validationActions": ["Audit"]}}, Level.PROBLEM),
        ({}, {"spec": {"policyName": "p", "validationActions": ["Deny"]}}, Level.OK),
        ({}, {"spec": {"policyName": "q", "validationActions": ["Deny"]}}, Level.PROBLEM),
        ({}, {"spec": {"validationActions": ["Deny"], "matchResources": {"a": 1}}}, Level.NOTE),
        ({}, Missing.ABSENT, Level.PROBLEM),
        (Missing.ABSENT, {}, Level.PROBLEM),
    ],
)
def test_a_policy_has_to_be_bound_to_deny(policy, binding, level):
    assert policy_checks.judge_policy("p", policy, binding).level == level


def crd(change=lambda properties: None, established="True"):
    found = copy.deepcopy(render.crds()[0])
    change(found["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"])
    found["status"] = {"conditions": [{"type": "Established", "status": established}]}
    return found


@pytest.mark.parametrize(
    ("there", "level", "words"),
    [
        (crd(), Level.OK, "is that of version"),
        (crd(established="False"), Level.PROBLEM, "is not established"),
        (crd(lambda s: s["properties"].pop("suspend")), Level.PROBLEM, "lacks spec.suspend"),
        (
            crd(lambda s: s["properties"].update(later={"properties": {"a": {}}})),
            Level.NOTE,
            "also has spec.later",
        ),
        (crd(lambda s: s.update(description="other")), Level.OK, "is that of version"),
        (crd(lambda s: s.update(maxProperties=3)), Level.NOTE, "differs"),
    ],
)
def test_a_crd_is_compared_field_by_field(there, level, words):
    (found,) = crd_checks.compare(there, render.crds()[0])
    assert (found.level, words in found.message) == (level, True), found


def without_rules(schema):
    del schema["x-kubernetes-validations"]


@pytest.mark.parametrize(
    ("change", "level", "words"),
    [
        (
            lambda found: found["metadata"].update(deletionTimestamp=time(1)),
            Level.PROBLEM,
            "is being deleted",
        ),
        (
            lambda found: found["spec"]["versions"][0].update(served=False),
            Level.PROBLEM,
            "does not serve version v1beta1",
        ),
        (
            lambda found: found["spec"]["versions"][0].pop("subresources"),
            Level.PROBLEM,
            "lacks the subresource status",
        ),
        (
            lambda found: without_rules(found["spec"]["versions"][0]["schema"]["openAPIV3Schema"]),
            Level.NOTE,
            "differs from that of this program",
        ),
    ],
)
def test_a_crd_that_does_not_do_its_work_is_not_well(change, level, words):
    there = crd()
    change(there)
    (found,) = crd_checks.compare(there, render.crds()[0])
    assert (found.level, words in found.message) == (level, True), found


def watching(*names, namespace="sys", replicas=1):
    found = deployment(replicas=replicas)
    found["metadata"]["namespace"] = namespace
    [controller, _] = found["spec"]["template"]["spec"]["containers"]
    controller["env"] = [{"name": "WATCH_NAMESPACES", "value": ",".join(names)}]
    return found


def test_a_namespace_that_the_controller_does_not_look_after_is_named():
    [found] = installation_checks.judge_watch(watching("team-a"), (), "team-b")
    assert found.level == Level.NOTE
    assert "looks after namespace team-b: no Job starts there" in found.message
    assert installation_checks.judge_watch(watching("team-a"), (), "team-a") == []
    assert installation_checks.judge_watch(watching(), (), "team-b") == []
    assert installation_checks.judge_watch(watching("team-a"), (), None) == []


@pytest.mark.parametrize("other", [watching("team-b", namespace="b"), watching(namespace="b")])
def test_a_namespace_that_another_controller_looks_after_is_not_said_to_have_none(other):
    [found] = installation_checks.judge_watch(watching("team-a"), [other], "team-b")
    assert (found.level, "no Job starts" in found.message) == (Level.NOTE, False)
    assert found.way_out.endswith(" --system-namespace b")


@pytest.mark.parametrize(
    ("own", "other", "acts_on_same_jobs"),
    [
        (watching(), watching(namespace="b"), True),
        (watching("x", "y"), watching("y", namespace="b"), True),
        (watching("x"), watching("y", namespace="b"), False),
        (watching(), watching(namespace="b", replicas=0), False),
        (watching(replicas=0), watching(namespace="b"), False),
        (watching(), watching(), False),
    ],
)
def test_a_second_controller_for_the_same_jobs_is_a_problem(own, other, acts_on_same_jobs):
    assert installation_checks.acts_on_same_jobs(own, other) == acts_on_same_jobs
    [found] = installation_checks.judge_others([other], "sys")
    assert (found.level, "--replicas=0" in found.way_out) == (Level.PROBLEM, True)


def test_another_version_of_the_api_is_a_problem():
    there = crd()
    there["spec"]["versions"][0]["name"] = "v1alpha1"
    (found,) = crd_checks.compare(there, render.crds()[0])
    assert (found.level, "other versions" in found.message) == (Level.PROBLEM, True)


def job(conditions=(), spec=None, metadata=None, **status):
    return {
        "apiVersion": names.API_VERSION,
        "kind": "Job",
        "metadata": {
            "name": "sweep",
            "namespace": "team",
            "uid": "u",
            "creationTimestamp": time(60),
            **(metadata or {}),
        },
        "spec": {"image": "i:v1", **(spec or {})},
        "status": {"conditions": list(conditions), **status},
    }


def condition(type_, status, minutes=10, reason="Reason", message="why"):
    return {
        "type": type_,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": time(minutes),
    }


def undone(status, reason, minutes=10, **more):
    """Return a failed Job with the condition of its rollback."""
    conditions = [condition("Failed", "True"), condition("RolledBack", status, minutes, reason)]
    spec = {"rollback": {"command": ["x"]}, "failurePolicy": {"action": "Rollback"}}
    return job(conditions, spec, **more)


PAUSED = {"phase": "Paused"}
COMPLETE = [condition("Complete", "True")]


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (job([condition("Progressing", "False")]), "no progress for 10m: Reason: why"),
        (job([condition("Failed", "True")]), "has failed, 10m ago: Reason: why"),
        (job(), "has had no status for 1h"),
        (
            job(metadata={"deletionTimestamp": time(6), "finalizers": ["a/b"]}),
            "is being deleted for 6m; finalizers: a/b",
        ),
        (job(COMPLETE, completionTime=time(10)), "should have been deleted 10m ago"),
        (job([condition("Suspended", "True")], **PAUSED), "is paused for 10m: why"),
        (undone("False", "RollbackWaiting"), "not rolled back for 10m: RollbackWaiting: why"),
        (undone("False", "RollbackFailed"), "not rolled back for 10m: RollbackFailed: why"),
    ],
)
def test_a_stuck_job_is_found_with_its_cause_and_a_way_out(raw, words):
    found = job_checks.judge_job(raw, NOW, LIMIT)
    assert words in found.message
    assert found.message.startswith("team/sweep ")
    assert found.way_out
    is_note = "paused" in words
    assert found.level == (Level.NOTE if is_note else Level.PROBLEM)


@pytest.mark.parametrize(
    "raw",
    [
        job([condition("Progressing", "False", 5)]),
        job([condition("Progressing", "True")]),
        job([condition("Progressing", "False")], {"suspend": True}),
        job([condition("Failed", "True")], {"ttlSecondsAfterFinished": 3600}),
        job([condition("Failed", "True", 5)]),
        job(metadata={"creationTimestamp": time(1)}),
        job(metadata={"deletionTimestamp": time(5)}),
        job(COMPLETE, completionTime=time(5)),
        job(COMPLETE, {"ttlSecondsAfterFinished": 600}, completionTime=time(10)),
        job(COMPLETE, {"completion": {"policy": "Continuous"}}, completionTime=time(60)),
        job([condition("Suspended", "True", 5)], **PAUSED),
        undone("False", "RollingBack", rollback={"desired": 3}),
        undone("False", "RollbackWaiting", 5),
        job(COMPLETE, completionTime=time(10), rollback={"completionTime": time(4)}),
    ],
)
def test_a_job_that_is_not_stuck_is_not_named(raw):
    assert job_checks.judge_job(raw, NOW, LIMIT) is None


def test_what_no_retry_revives_is_only_deleted():
    whole = {"desired": 1, "completed": 1, "completionTime": time(9)}
    for raw in (
        undone("True", "RolledBack", rollback=whole),
        job([condition("Failed", "True", reason="Aborted")]),
    ):
        found = job_checks.judge_job(raw, NOW, LIMIT)
        assert "kubectl dsjob retry" not in found.way_out
        assert "kubectl delete dsj sweep -n team" in found.way_out


def test_a_job_that_cannot_be_read_is_named():
    found = job_checks.judge_job(job(spec={"backoffLimit": "x"}), NOW, LIMIT)
    assert "cannot be read" in found.message


def test_of_many_stuck_jobs_twenty_are_named():
    raws = [job()] * (job_checks.SHOWN_LIMIT + 3)
    found = job_checks.judge_jobs(raws, NOW, LIMIT)
    assert len(found) == job_checks.SHOWN_LIMIT + 1
    assert found[-1].message == "3 more Jobs are stuck"
    assert job_checks.judge_jobs(raws[:-2], NOW, LIMIT)[-1].message == "1 more Job is stuck"
    assert len(job_checks.judge_jobs(raws[:-3], NOW, LIMIT)) == job_checks.SHOWN_LIMIT


FINDINGS = [
    Finding(Area.JOBS, Level.PROBLEM, "team/sweep is stuck\x1b[2J", "kubectl dsjob status sweep"),
    Finding(Area.CRDS, Level.OK, "jobs is that of version 0.1.0"),
    Finding(Area.POLICIES, Level.UNKNOWN, "you may not read the admission policies"),
    Finding(Area.RIGHTS, Level.NOTE, "you may not delete Jobs", "Ask."),
]


def test_the_text_is_by_area_and_has_no_control_characters():
    assert format_findings(FINDINGS) + "\n" == GOLDEN.read_text()


def test_only_problems_are_unhealthy():
    assert not is_well(FINDINGS)
    assert is_well(FINDINGS[1:])
    found = json.loads(format_json(FINDINGS))
    assert found["healthy"] is False
    assert found["checks"][1] == {
        "area": "CRDs",
        "level": "ok",
        "message": "jobs is that of version 0.1.0",
    }
    assert found["checks"][3]["wayOut"] == "Ask."
    assert format_findings(FINDINGS[1:2]).endswith("No problem found.")


def rights(components=(), namespaces=(), system="daemonset-job-system"):
    wish = render.SystemWish(components, system)
    return rights_checks.wanted_rights(render.render(wish), namespaces)


def test_the_rights_of_the_programs_are_those_of_their_roles():
    found = rights()
    assert len(found) == len(set(found))
    assert {right.account for right in found} == {CONTROLLER}
    status = rights_checks.Right(
        CONTROLLER,
        "ClusterRole daemonset-job-controller",
        "patch",
        "daemonset.darkowlzz.space",
        "jobs/status",
    )
    assert status in found
    [stop] = [right for right in found if right.resource == "configmaps" and right.verb == "list"]
    assert (stop.name, stop.namespace) == (names.STOP_CONFIG_MAP, "daemonset-job-system")
    assert not [right for right in found if right.role.endswith(("-view", "-edit", "-admin"))]


def test_rights_are_asked_for_in_each_watched_namespace_but_those_on_nodes():
    found = rights(namespaces=["a", "b"], system="sys")
    where = {right.namespace for right in found if right.resource == "jobreports"}
    assert where == {"a", "b"}
    assert {right.namespace for right in found if right.resource == "nodes"} == {""}
    assert {right.namespace for right in found if right.resource == "leases"} == {"sys"}


def test_a_split_terminator_needs_the_rights_with_its_own_account():
    found = rights(("split",))
    logs = {right.account for right in found if right.resource == "pods/log"}
    assert logs == {"daemonset-job-terminator"}


@pytest.mark.parametrize(
    ("value", "expected"), [("", []), ("team-b, team-a", ["team-a", "team-b"]), (None, [])]
)
def test_the_watched_namespaces_are_those_of_the_deployment(value, expected):
    given = deployment()
    [controller, _] = given["spec"]["template"]["spec"]["containers"]
    controller["env"] = [{"name": "X", "value": "y"}, {"name": "WATCH_NAMESPACES", "value": value}]
    assert rights_checks.watched_namespaces(given) == expected
    assert rights_checks.watched_namespaces(deployment()) == []


def test_missing_rights_are_named_by_account_role_and_namespace():
    [well] = rights_checks.judge_rights([])
    assert (well.area, well.level) == (Area.PROGRAMS, Level.OK)
    right = rights_checks.Right("sa", "ClusterRole r", "get", "", "pods/log", namespace="team-a")
    [found] = rights_checks.judge_rights([right])
    assert found.level == Level.PROBLEM
    assert found.message == (
        "the service account sa lacks rights of the ClusterRole r in namespace team-a: get pods/log"
    )
    assert found.way_out.startswith("Apply the manifests again: kubectl dsjob upgrade{cluster}")
    many = [rights_checks.Right("sa", "ClusterRole r", f"v{n}", "", "pods") for n in range(10)]
    [found] = rights_checks.judge_rights(many)
    assert found.message.endswith("v7 pods, and 2 more")

"""Who may do what: the system what test_split shows that it does; what people's roles become."""

import time

import pytest

from tests.integration.kube_env import KubeEnv, User, service_account

GROUP = "daemonset.darkowlzz.space"
SYSTEM = "daemonset-job-system"
ACCOUNT = service_account(SYSTEM, "daemonset-job-controller")
VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
READ = {"get", "list", "watch"}
# The system's caches list and watch; nothing asks for one of these objects alone.
FOLLOW = {"list", "watch"}
GRANTED = {
    f"jobs.{GROUP}": READ | {"create", "delete"},
    f"jobs.{GROUP}/status": {"patch"},
    f"jobs.{GROUP}/finalizers": {"update"},
    f"scheduledjobs.{GROUP}": READ,
    f"scheduledjobs.{GROUP}/status": {"patch"},
    f"scheduledjobs.{GROUP}/finalizers": {"update"},
    f"jobreports.{GROUP}": FOLLOW | {"create", "patch", "delete"},
    f"jobreports.{GROUP}/status": {"patch"},
    "daemonsets.apps": FOLLOW | {"create", "patch", "delete"},
    "pods": FOLLOW | {"patch", "delete"},
    "pods/log": {"get"},
    "nodes": FOLLOW,
    "events": {"get", "list", "create", "patch"},
}
# What every authenticated user may (system:basic-user): ask about itself.
EVERYBODY = {
    "selfsubjectaccessreviews.authorization.k8s.io": {"create"},
    "selfsubjectrulesreviews.authorization.k8s.io": {"create"},
    "selfsubjectreviews.authentication.k8s.io": {"create"},
}


@pytest.fixture(scope="module")
def resources(kube_env: KubeEnv) -> list[str]:
    """Every resource and subresource of the server, and subresources that only RBAC knows."""
    found = {
        f"jobs.{GROUP}/finalizers",
        f"scheduledjobs.{GROUP}/finalizers",
        "pods/exec",
        "pods/attach",
        "nodes/proxy",
        "secrets",
    }
    _, core = kube_env.request("GET", "/api/v1")
    lists = [("", core)]
    _, groups = kube_env.request("GET", "/apis")
    for group in groups["groups"]:
        version = group["preferredVersion"]["groupVersion"]
        lists.append((group["name"], kube_env.request("GET", f"/apis/{version}")[1]))
    for group, listed in lists:
        for resource in listed["resources"]:
            name, _, subresource = resource["name"].partition("/")
            found.add(
                (f"{name}.{group}" if group else name) + (f"/{subresource}" if subresource else "")
            )
    return sorted(found)


def allowed(env: KubeEnv, user: User, resources: list[str], namespace: str) -> dict[str, set[str]]:
    table = {
        resource: {verb for verb in VERBS if env.is_allowed(user, verb, resource, namespace)}
        for resource in resources
    }
    return {resource: verbs for resource, verbs in table.items() if verbs}


def test_the_system_may_do_what_it_does_and_no_more(kube_env: KubeEnv, resources):
    assert len(resources) > 80
    assert allowed(kube_env, ACCOUNT, resources, "anywhere") == GRANTED | EVERYBODY


def test_leases_are_granted_in_the_systems_namespace_by_name(kube_env: KubeEnv):
    def may(verb: str, name: str, namespace: str = SYSTEM) -> bool:
        return kube_env.is_allowed_attributes(
            ACCOUNT,
            {
                "verb": verb,
                "group": "coordination.k8s.io",
                "resource": "leases",
                "namespace": namespace,
                "name": name,
            },
        )

    for name in ("daemonset-job-controller", "daemonset-job-terminator"):
        assert {verb for verb in VERBS if may(verb, name)} == {"get", "update", "create"}
        assert not may("get", name, "default")
    assert {verb for verb in VERBS if may(verb, "other")} == {"create"}


def test_one_config_map_may_be_followed_in_the_systems_namespace(kube_env: KubeEnv):
    def may(verb: str, name: str, namespace: str = SYSTEM) -> bool:
        asked = {"verb": verb, "resource": "configmaps", "namespace": namespace, "name": name}
        return kube_env.is_allowed_attributes(ACCOUNT, asked)

    assert {verb for verb in VERBS if may(verb, "daemonset-job-stop")} == FOLLOW
    assert not any(may(verb, "other") for verb in VERBS)
    assert not any(may(verb, "daemonset-job-stop", "default") for verb in VERBS)


def test_the_system_has_no_other_rights_in_its_own_namespace(kube_env: KubeEnv, resources):
    expected = GRANTED | EVERYBODY | {"leases.coordination.k8s.io": {"create"}}
    assert allowed(kube_env, ACCOUNT, resources, SYSTEM) == expected


PEOPLE = {
    "view": {
        f"jobs.{GROUP}": READ,
        f"jobs.{GROUP}/status": {"get"},
        f"jobreports.{GROUP}": READ,
        f"jobreports.{GROUP}/status": {"get"},
        f"scheduledjobs.{GROUP}": READ,
        f"scheduledjobs.{GROUP}/status": {"get"},
    },
    "edit": {
        f"jobs.{GROUP}": set(VERBS),
        f"jobs.{GROUP}/status": {"get"},
        f"jobreports.{GROUP}": READ,
        f"jobreports.{GROUP}/status": {"get"},
        f"scheduledjobs.{GROUP}": set(VERBS),
        f"scheduledjobs.{GROUP}/status": {"get"},
    },
    "admin": {
        f"jobs.{GROUP}": set(VERBS),
        f"jobs.{GROUP}/status": {"get"},
        f"jobreports.{GROUP}": READ | {"delete", "deletecollection"},
        f"jobreports.{GROUP}/status": {"get"},
        f"scheduledjobs.{GROUP}": set(VERBS),
        f"scheduledjobs.{GROUP}/status": {"get"},
    },
}


@pytest.mark.parametrize(("role", "expected"), PEOPLE.items(), ids=PEOPLE)
def test_people_get_it_with_the_clusters_own_roles(
    kube_env: KubeEnv, namespace, resources, role, expected
):
    user = User(f"{role}er")
    kube_env.kubectl(
        "create", "rolebinding", role, "-n", namespace, f"--clusterrole={role}",
        f"--user={user.name}",
    )  # fmt: skip
    ours = [resource for resource in resources if GROUP in resource]
    deadline = time.monotonic() + 20
    # The controller manager aggregates when it has come up; kubectl has long come back.
    while (table := allowed(kube_env, user, ours, namespace)) != expected:
        assert time.monotonic() < deadline, table
        time.sleep(0.2)

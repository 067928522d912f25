"""What deploy/ says, read as data. What it does on an API server, tests/integration shows."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from daemonset_job.api import names

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
VERSION = "v" + tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
NAMESPACE = "daemonset-job-system"
KUSTOMIZATION = yaml.safe_load((DEPLOY / "kustomization.yaml").read_text())
CLUSTER_SCOPED = {
    "Namespace",
    "ClusterRole",
    "ClusterRoleBinding",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
}


def documents() -> list[dict[str, Any]]:
    files = sorted(DEPLOY.glob("*.yaml"))
    found = [d for f in files for d in yaml.safe_load_all(f.read_text())]
    return [each for each in found if each["kind"] != "Kustomization"]


def one(kind: str, name: str | None = None) -> dict[str, Any]:
    (found,) = [
        each
        for each in documents()
        if each["kind"] == kind and name in {None, each["metadata"]["name"]}
    ]
    return found


POD = one("Deployment")["spec"]["template"]
CONTAINERS = {each["name"]: each for each in POD["spec"]["containers"]}


def environment(container: str) -> dict[str, Any]:
    return {each["name"]: each for each in CONTAINERS[container]["env"]}


def test_the_kustomization_has_every_file():
    files = {f.name for f in DEPLOY.glob("*.yaml")} - {"kustomization.yaml"}
    assert set(KUSTOMIZATION["resources"]) == files | {"../crds"}
    crds = yaml.safe_load((ROOT / "crds" / "kustomization.yaml").read_text())
    files = {f.name for f in (ROOT / "crds").glob("*.yaml")} - {"kustomization.yaml"}
    assert set(crds["resources"]) == files


def test_everything_is_in_the_systems_namespace():
    for each in documents():
        expected = None if each["kind"] in CLUSTER_SCOPED else NAMESPACE
        assert each["metadata"].get("namespace") == expected, each["metadata"]["name"]
        assert each["metadata"]["labels"]["app.kubernetes.io/name"] == "daemonset-job"


def test_images_are_those_of_this_version():
    expected = {f"docker.io/darkowlzz/daemonset-job-{name}:{VERSION}" for name in CONTAINERS}
    assert {each["image"] for each in CONTAINERS.values()} == expected
    assert {f"{each['name']}:{each['newTag']}" for each in KUSTOMIZATION["images"]} == expected


@pytest.mark.parametrize("container", CONTAINERS)
def test_containers_are_hardened(container):
    spec = CONTAINERS[container]
    assert spec["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert spec["imagePullPolicy"] == "IfNotPresent"
    assert spec["resources"]["limits"] == {"memory": "256Mi"}
    assert set(spec["resources"]["requests"]) == {"cpu", "memory"}
    assert POD["spec"]["securityContext"]["runAsNonRoot"] is True
    assert POD["spec"]["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}


def test_the_user_is_that_of_the_images():
    user = POD["spec"]["securityContext"]["runAsUser"]
    for container in CONTAINERS:
        assert f"USER {user}:{user}\n" in (ROOT / "images" / container / "Dockerfile").read_text()


@pytest.mark.parametrize(("container", "port"), [("controller", 8080), ("terminator", 8081)])
def test_probes_ask_the_right_port(container, port):
    spec = CONTAINERS[container]
    ports = {each["name"]: each["containerPort"] for each in spec["ports"]}
    for probe, path in (("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")):
        asked = spec[probe]["httpGet"]
        assert (asked["path"], ports[asked["port"]]) == (path, port)


def test_the_default_token_is_in_one_place():
    for container in CONTAINERS:
        source = environment(container)["TERMINATION_WORD"]["valueFrom"]["configMapKeyRef"]
        assert one("ConfigMap", "daemonset-job-terminator")["metadata"]["name"] == source["name"]
        assert one("ConfigMap", "daemonset-job-terminator")["data"][source["key"]] == "done"
    assert "terminationWord" not in yaml.safe_load(
        one("ConfigMap", "daemonset-job-terminator")["data"]["config.yaml"]
    )


def test_the_controller_takes_the_environment_it_is_given():
    config = pytest.importorskip("job_controller.config")
    given = {name: each.get("value", "x") for name, each in environment("controller").items()}
    (source,) = CONTAINERS["controller"]["envFrom"]
    given |= one("ConfigMap", source["configMapRef"]["name"])["data"]
    parsed = config.parse_config([], given | {"POD_NAMESPACE": NAMESPACE}, "host")
    assert parsed.namespaces == ()
    assert parsed.lease_namespace == NAMESPACE
    assert parsed.log_json is True
    assert parsed.probe_port == 8080
    # What the ConfigMap says is what the program would do without it.
    bare = config.parse_config([], {}, "host")
    for field in (
        "pod_start_timeout_seconds",
        "node_unreachable_grace_period_seconds",
        "history_limit",
    ):
        assert getattr(parsed, field) == getattr(bare, field)
    assert parsed.history_max_age_seconds == bare.history_max_age_seconds
    assert parsed.history_namespace_limit == bare.history_namespace_limit
    assert parsed.pause_image == bare.pause_image


def test_the_terminator_takes_its_environment_and_its_file():
    config = pytest.importorskip("terminator.config")
    given = {name: each.get("value", "done") for name, each in environment("terminator").items()}
    assert set(given) >= {"NAMESPACE", "POD_LABEL_SELECTOR", "TERMINATION_WORD", "POD_NAMESPACE"}
    text = one("ConfigMap", "daemonset-job-terminator")["data"]["config.yaml"]
    # What the file says is what the program would do without it, but for machines' logs.
    assert config.load_config(given, text) == config.Config(log_format="json")
    assert config.DEFAULT_PATH == "/etc/terminator/config.yaml"


def test_leases_are_granted_by_the_names_that_are_used():
    controller = pytest.importorskip("job_controller.config")
    terminator = pytest.importorskip("terminator.config")
    role = one("Role", "daemonset-job-leader-election")
    (named,) = [rule for rule in role["rules"] if "resourceNames" in rule]
    used = {controller.Config().lease_name, terminator.LEASE_NAME}
    assert set(named["resourceNames"]) == used


def test_the_stop_of_all_jobs_is_granted_by_its_name():
    (rule,) = one("Role", "daemonset-job-stop")["rules"]
    assert rule["resourceNames"] == [names.STOP_CONFIG_MAP]


def test_the_terminators_configuration_can_change_while_it_runs():
    (mount,) = CONTAINERS["terminator"]["volumeMounts"]
    assert "subPath" not in mount
    (volume,) = POD["spec"]["volumes"]
    assert volume["configMap"]["items"] == [{"key": "config.yaml", "path": "config.yaml"}]
    assert mount["mountPath"] == "/etc/terminator"


def test_the_system_prefers_the_control_plane():
    (preferred,) = POD["spec"]["affinity"]["nodeAffinity"][
        "preferredDuringSchedulingIgnoredDuringExecution"
    ]
    label = "node-role.kubernetes.io/control-plane"
    assert preferred["preference"]["matchExpressions"] == [{"key": label, "operator": "Exists"}]
    tolerated = {each["key"] for each in POD["spec"]["tolerations"]}
    assert label in tolerated
    component = (DEPLOY / "components" / "control-plane" / "kustomization.yaml").read_text()
    assert label in component


def test_no_other_pod_reaches_more_than_the_two_ports():
    policy = one("NetworkPolicy")["spec"]
    assert (policy["podSelector"], policy["policyTypes"]) == ({}, ["Ingress"])
    (rule,) = policy["ingress"]
    assert rule["from"]
    ports = {port["name"] for each in CONTAINERS.values() for port in each["ports"]}
    assert {each["port"] for each in rule["ports"]} == ports


def split_documents() -> list[dict[str, Any]]:
    folder = DEPLOY / "components" / "split"
    component = yaml.safe_load((folder / "kustomization.yaml").read_text())
    assert set(component["resources"]) == {f.name for f in folder.glob("*.yaml")} - {
        "kustomization.yaml"
    }
    files = [(folder / name).read_text() for name in component["resources"]]
    return [document for text in files for document in yaml.safe_load_all(text)]


def test_the_split_terminator_is_the_container_of_the_common_pod():
    (split,) = [d["spec"] for d in split_documents() if d["kind"] == "Deployment"]
    labels = {"app.kubernetes.io/name": "daemonset-job-terminator"}
    pod = split["template"]
    assert pod["metadata"]["labels"] == split["selector"]["matchLabels"] == labels
    assert pod["spec"]["containers"] == [CONTAINERS["terminator"]]
    same = dict(POD["spec"])
    own = dict(pod["spec"])
    (spread,) = own.pop("topologySpreadConstraints")
    assert spread["labelSelector"]["matchLabels"] == labels
    (common,) = same.pop("topologySpreadConstraints")
    assert spread | {"labelSelector": 0} == common | {"labelSelector": 0}
    assert own.pop("serviceAccountName") == "daemonset-job-terminator"
    for field in ("containers", "serviceAccountName"):
        same.pop(field, None)
        own.pop(field, None)
    assert own == same


def test_the_split_accounts_are_those_that_the_policies_know():
    (account,) = [d["metadata"] for d in split_documents() if d["kind"] == "ServiceAccount"]
    user = f"system:serviceaccount:{account['namespace']}:{account['name']}"
    text = (DEPLOY / "admission-system.yaml").read_text()
    of_people = [each for each in policies() if "-needs-" in each["metadata"]["name"]]
    assert text.count(f"'{user}'") == len(policies()) - len(of_people)
    (halves,) = [d for d in split_documents() if d["kind"] == "ValidatingAdmissionPolicy"]
    (condition,) = halves["spec"]["matchConditions"]
    assert ":daemonset-job-controller'" in condition["expression"]


def test_selectors_agree():
    labels = POD["metadata"]["labels"].items()
    deployment = one("Deployment")["spec"]
    budget = one("PodDisruptionBudget")["spec"]
    (spread,) = POD["spec"]["topologySpreadConstraints"]
    for selector in (deployment["selector"], budget["selector"], spread["labelSelector"]):
        assert selector["matchLabels"].items() <= labels


def test_no_role_has_a_wildcard_a_secret_or_a_way_up():
    for role in documents():
        for rule in role.get("rules", ()):
            words = {*rule["apiGroups"], *rule["resources"], *rule["verbs"]}
            assert not any("*" in word for word in words)
            assert not words & {"secrets", "escalate", "bind", "impersonate", "pods/exec"}


def documented_rights() -> dict[str, dict[str, set[str]]]:
    """Return, for each program, the verbs by resource of the table in security.md."""
    text = (ROOT / "docs" / "explanation" / "security.md").read_text()
    table = text.partition("| | controller | terminator |\n")[2].partition("\n\n")[0]
    found: dict[str, dict[str, set[str]]] = {"controller": {}, "terminator": {}}
    for line in table.splitlines()[1:]:
        resource, *cells = (cell.strip() for cell in line.split("|")[1:-1])
        for program, cell in zip(found, cells, strict=True):
            verbs = {verb.strip() for verb in cell.partition("(")[0].split(",")} - {""}
            if verbs:
                found[program][resource.partition(",")[0]] = verbs
    return found


def test_the_rights_are_those_on_the_security_page():
    for program, documented in documented_rights().items():
        given: dict[str, set[str]] = {}
        roles = [one("Role", "daemonset-job-leader-election")]
        if program == "controller":
            roles.append(one("Role", "daemonset-job-stop"))
        for role in (one("ClusterRole", f"daemonset-job-{program}"), *roles):
            for rule in role["rules"]:
                if "validatingadmissionpolicies" in rule["resources"]:
                    resources = ["validatingadmissionpolicies and their bindings"]
                else:
                    resources = rule["resources"]
                for resource in resources:
                    given.setdefault(resource, set()).update(rule["verbs"])
        assert documented == given


def test_the_system_is_bound_to_its_own_roles_only():
    bound = {
        each["roleRef"]["name"]
        for each in documents()
        if each["kind"] in {"ClusterRoleBinding", "RoleBinding"}
    }
    assert bound == {
        "daemonset-job-controller",
        "daemonset-job-terminator",
        "daemonset-job-leader-election",
        "daemonset-job-stop",
    }


def test_people_cannot_write_reports():
    for name in ("view", "edit", "admin"):
        for rule in one("ClusterRole", f"daemonset-job-{name}")["rules"]:
            if "jobreports" in rule["resources"] or "jobreports/status" in rule["resources"]:
                assert not set(rule["verbs"]) & {"create", "update", "patch"}


def policies() -> list[dict[str, Any]]:
    return [each for each in documents() if each["kind"] == "ValidatingAdmissionPolicy"]


def test_every_policy_is_bound_and_fails_closed():
    bindings = [each["spec"] for each in documents() if each["kind"].endswith("PolicyBinding")]
    assert bindings == [
        {"policyName": each["metadata"]["name"], "validationActions": ["Deny"]}
        for each in policies()
    ]
    assert {each["spec"]["failurePolicy"] for each in policies()} == {"Fail"}


def test_policies_are_there_before_what_they_guard():
    assert KUSTOMIZATION["sortOptions"] == {"order": "fifo"}
    resources = KUSTOMIZATION["resources"]
    first = {"namespace.yaml", "admission.yaml", "admission-system.yaml"}
    assert set(resources[: len(first)]) == first


def test_admission_policies_apply_to_the_system_accounts_only():
    account = one("ServiceAccount")["metadata"]
    user = f"system:serviceaccount:{account['namespace']}:{account['name']}"
    of_the_system = [each for each in policies() if "-system-" in each["metadata"]["name"]]
    assert len(of_the_system) == 4
    for each in of_the_system:
        (condition,) = each["spec"]["matchConditions"]
        assert condition["expression"].startswith("request.userInfo.username in [")
        assert f"'{user}'" in condition["expression"]


def test_the_controller_looks_for_every_policy():
    expected = [each["metadata"]["name"] for each in policies()]
    assert sorted(names.ADMISSION_POLICIES) == sorted(expected)
    (rule,) = [
        r for r in one("ClusterRole", "daemonset-job-controller")["rules"] if "resourceNames" in r
    ]
    assert sorted(rule["resourceNames"]) == sorted(expected)
    assert rule["verbs"] == ["get"]


def component_documents(name: str) -> list[dict[str, Any]]:
    folder = DEPLOY / "components" / name
    component = yaml.safe_load((folder / "kustomization.yaml").read_text())
    assert set(component["resources"]) == {f.name for f in folder.glob("*.yaml")} - {
        "kustomization.yaml"
    }
    # The policies come before the right that they confine.
    files = [(folder / name).read_text() for name in component["resources"]]
    return [document for text in files for document in yaml.safe_load_all(text)]


def test_drains_are_confined_before_they_are_allowed():
    policy, binding, role, role_binding = component_documents("drain")
    assert (role["kind"], role_binding["kind"]) == ("ClusterRole", "ClusterRoleBinding")
    assert role["rules"] == [
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["patch"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
        {"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]},
    ]
    account = one("ServiceAccount")["metadata"]
    user = f"system:serviceaccount:{account['namespace']}:{account['name']}"
    assert f"'{user}'" in policy["spec"]["matchConditions"][0]["expression"]
    assert policy["spec"]["failurePolicy"] == "Fail"
    assert names.ANNOTATION_CORDONED_BY in policy["spec"]["variables"][0]["expression"]
    assert binding["spec"] == {
        "policyName": policy["metadata"]["name"],
        "validationActions": ["Deny"],
    }


def test_changes_of_nodes_are_confined_before_they_are_allowed():
    kinds = [each["kind"] for each in component_documents("node-changes")]
    policies_and_bindings = ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"]
    assert kinds == [*policies_and_bindings * 2, "ClusterRole", "ClusterRoleBinding"]
    policy, binding, keys, keys_binding, role, role_binding = component_documents("node-changes")
    # The second one is for the policy of components/drain.
    assert role["rules"] == [
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["patch"]},
        {"apiGroups": [names.GROUP], "resources": ["nodechanges"], "verbs": ["use"]},
    ]
    account = one("ServiceAccount")["metadata"]
    assert role_binding["subjects"] == [
        {"kind": "ServiceAccount", "name": account["name"], "namespace": account["namespace"]}
    ]
    user = f"system:serviceaccount:{account['namespace']}:{account['name']}"
    assert f"'{user}'" in policy["spec"]["matchConditions"][0]["expression"]
    for each, bound in ((policy, binding), (keys, keys_binding)):
        assert each["spec"]["failurePolicy"] == "Fail"
        assert bound["spec"] == {
            "policyName": each["metadata"]["name"],
            "validationActions": ["Deny"],
        }


def test_both_policies_about_nodes_have_the_same_reserved_keys():
    policy, _, keys, *_ = component_documents("node-changes")
    found = set()
    for each in (policy, keys):
        # An administrator replaces the first variable of both with one patch.
        assert each["spec"]["variables"][0] == {"name": "chosen", "expression": "[]"}
        found |= set(re.findall(r"key\.matches\('([^']+)'\)", str(each)))
    (pattern,) = found
    assert names.GROUP.replace(".", "[.]") in pattern


def test_the_policies_know_the_names_that_the_code_gives():
    text = (DEPLOY / "admission-system.yaml").read_text()
    for name in (names.LABEL_MANAGED, names.LABEL_JOB_UID, names.START_GATE, names.JOB_KIND):
        assert f"'{name}'" in text
    assert f"'{names.GROUP}/'" in text


def test_the_policy_guards_specs_and_not_status():
    policy = one("ValidatingAdmissionPolicy", "daemonset-job-needs-daemonsets")
    (rule,) = policy["spec"]["matchConstraints"]["resourceRules"]
    assert rule["resources"] == ["jobs", "scheduledjobs"]

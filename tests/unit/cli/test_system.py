"""The manifests that `kubectl dsjob install` applies, without a cluster."""

import copy
import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from daemonset_job.api import names
from kubectl_dsjob.errors import CliError
from kubectl_dsjob.outputs import Output
from kubectl_dsjob.system import crds, installed, installing, kustomize, render, rollout
from kubectl_dsjob.system.installed import CONTROLLER, Installed
from kubectl_dsjob.system.render import SystemWish
from kubectl_dsjob.system.resources import resource_of
from kubectl_dsjob.system.uninstalling import _to_delete

ROOT = Path(__file__).resolve().parents[3]


def find(manifests, kind, name):
    (found,) = [m for m in manifests if (m["kind"], m["metadata"]["name"]) == (kind, name)]
    return found


def test_the_order_is_that_of_the_kustomization():
    kinds = [each["kind"] for each in render.render(SystemWish())]
    assert kinds[:3] == [
        "Namespace",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
    ]
    last_policy = max(i for i, kind in enumerate(kinds) if "Admission" in kind)
    assert last_policy < kinds.index("CustomResourceDefinition") < kinds.index("ClusterRole")
    assert kinds[-2:] == ["Deployment", "PodDisruptionBudget"]


def test_every_object_has_the_version_and_a_resource_type():
    for manifest in render.render(SystemWish(tuple(render.component_names()))):
        assert manifest["metadata"]["labels"][render.VERSION_LABEL] == render.version()
        resource = resource_of(manifest)
        has_namespace = "namespace" in manifest["metadata"]
        assert resource.namespaced == has_namespace, manifest["metadata"]["name"]


def test_the_images_are_where_the_user_has_them():
    wish = SystemWish(("split",), image_prefix="r.example:5000/team", tag="v0.1.0-abc")
    manifests = render.render(wish)
    for name in (CONTROLLER, "daemonset-job-terminator"):
        pod = find(manifests, "Deployment", name)["spec"]["template"]["spec"]
        assert [each["image"] for each in pod["containers"]] == [
            f"r.example:5000/team/{name}:v0.1.0-abc"
        ]
    data = find(manifests, "ConfigMap", CONTROLLER)["data"]
    assert data["TASK_IMAGE"] == "r.example:5000/team/daemonset-job-task:v0.1.0-abc"
    assert data["PAUSE_IMAGE"].startswith("registry.k8s.io/"), "not one of ours"


def test_another_namespace_is_used_everywhere_and_names_of_policies_stay():
    manifests = render.render(SystemWish(tuple(render.component_names()), namespace="ops"))
    text = json.dumps(manifests)
    assert "system:serviceaccount:daemonset-job-system:" not in text
    assert "system:serviceaccount:ops:daemonset-job-controller" in text
    find(manifests, "Namespace", "ops")
    find(manifests, "ValidatingAdmissionPolicy", "daemonset-job-system-pods")
    namespaces = {m["metadata"].get("namespace") for m in manifests}
    assert namespaces == {None, "ops"}


@pytest.mark.parametrize(
    "wish",
    [
        SystemWish(("none",)),
        SystemWish(("../split",)),
        SystemWish(namespace="kube-system"),
        SystemWish(namespace="default"),
        SystemWish(namespace="A/b"),
        SystemWish(image_prefix="r.example/"),
        SystemWish(image_prefix="a b"),
        SystemWish(tag="-x"),
    ],
)
def test_wrong_options_are_refused_with_a_way_out(wish):
    with pytest.raises(CliError) as caught:
        render.render(wish)
    assert (caught.value.code, bool(caught.value.way_out)) == (2, True)


def test_the_printed_manifests_can_be_read_again():
    wish = installing.InstallWish(("split",), "", "r.example")
    printed = list(yaml.safe_load_all(installing.show_manifests(wish, Output.YAML).data))
    assert printed == installing.manifests_of(SystemWish(("split",), image_prefix="r.example"))
    assert json.loads(installing.show_manifests(wish, Output.JSON).data)["items"] == printed


def test_an_upgrade_knows_what_install_was_asked_for():
    wish = SystemWish(("split", "control-plane"), "ops", "r.example", "v1")
    deployment = find(installing.manifests_of(wish), "Deployment", CONTROLLER)
    found = installed.describe(deployment, "ops")
    assert found.wish == SystemWish(("control-plane", "split"), "ops", "r.example", "v1")
    assert found.version == render.version()
    kept = installing.InstallWish().system(found.wish)
    assert (kept.components, kept.image_prefix) == (("control-plane", "split"), "r.example")
    changed = installing.InstallWish((), image_prefix="s.example").system(found.wish)
    assert (changed.components, changed.image_prefix, changed.tag) == ((), "s.example", "v1")


@pytest.mark.parametrize("text", ["", "[", "[]", '{"a": 1}', '{"components": 3}', "null"])
def test_an_annotation_of_another_client_is_no_wish(text):
    deployment = find(render.render(SystemWish()), "Deployment", CONTROLLER)
    deployment["metadata"]["annotations"] = {names.ANNOTATION_INSTALL: text}
    found = installed.describe(deployment, "ops")
    assert isinstance(found, Installed)
    assert found.wish is None


def test_a_system_without_a_version_has_that_of_its_image():
    deployment = find(render.render(SystemWish(tag="v0.0.7-abc")), "Deployment", CONTROLLER)
    del deployment["metadata"]["labels"][render.VERSION_LABEL]
    assert installed.describe(deployment, "x").version == "v0.0.7-abc"
    assert crds.is_older("v0.0.7-abc", "0.1.0")


def test_uninstall_deletes_programs_first_and_the_namespace_last():
    objects = _to_delete("ops", has_crds=False)
    kinds = [each["kind"] for each in objects]
    assert kinds[:2] == ["Deployment", "Deployment"]
    assert kinds[-1] == "Namespace"
    assert "CustomResourceDefinition" not in kinds
    assert kinds.index("ServiceAccount") < kinds.index("ValidatingAdmissionPolicyBinding")
    everything = render.render(SystemWish(tuple(render.component_names()), "ops"))
    found = {(each["kind"], each["metadata"]["name"]) for each in _to_delete("ops", has_crds=True)}
    assert found == {(each["kind"], each["metadata"]["name"]) for each in everything}


# --- comparing CRDs -----------------------------------------------------------------------


def schema(**properties):
    spec = {"properties": properties}
    return {"spec": {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": spec}}]}}


TEXT = {"type": "string"}


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (schema(a=TEXT), schema(a=TEXT), {}),
        (schema(a=TEXT), schema(a={**TEXT, "description": "x"}), {}),
        (schema(a=TEXT), schema(a=TEXT, b=TEXT), {"added": ("b",)}),
        (schema(a=TEXT, b={"properties": {"c": TEXT}}), schema(a=TEXT), {"removed": ("b",)}),
        (schema(a=TEXT), schema(a={**TEXT, "maxLength": 3}), {"changed": ("a",)}),
        (
            schema(a={"items": {"properties": {"b": TEXT}}}),
            schema(a={"items": {"properties": {"c": TEXT}}}),
            {"added": ("a[].c",), "removed": ("a[].b",)},
        ),
        (
            schema(a={"additionalProperties": TEXT}),
            schema(a={"additionalProperties": {"type": "integer"}}),
            {"changed": ("a[]",)},
        ),
        ({"spec": {"versions": []}}, schema(a=TEXT), {"versions_added": ("v1",)}),
        (schema(a=TEXT), {"spec": {}}, {"versions_removed": ("v1",)}),
    ],
)
def test_two_crds_are_compared_field_by_field(before, after, expected):
    assert crds.compare_crds(before, after) == crds.CrdChanges(**expected)
    assert bool(crds.compare_crds(before, after)) == bool(expected)


@pytest.mark.parametrize(
    ("version", "other", "expected"),
    [
        ("0.1.0", "0.1.0", False),
        ("v0.1.0-abc", "0.1.0", False),
        ("0.9", "0.10", True),
        ("v0.9.9", "v1", True),
        ("1.0.0", "0.9.9", False),
        ("latest", "1.0.0", False),
        ("", "1.0.0", False),
        ("9" * 5000, "1.0.0", False),
    ],
)
def test_versions_are_compared_by_their_numbers(version, other, expected):
    assert crds.is_older(version, other) is expected


@pytest.mark.parametrize(
    ("removed", "there", "expected"),
    [
        ((), "0.1.0", False),
        ((), "0.2.0", True),
        ((), "", False),
        (("spec.a",), "0.0.9", False),
        (("spec.a",), "0.1.0", True),
        (("spec.a",), "", True),
        (("spec.a",), "unknown", True),
    ],
)
def test_fewer_fields_are_a_downgrade_unless_the_version_is_later(removed, there, expected):
    assert crds.is_downgrade(crds.CrdChanges(removed=removed), there, "0.1.0") is expected


# --- kustomize ----------------------------------------------------------------------------


def kustomization(folder, **content):
    (folder / "a.yaml").write_text(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\n"
        "spec: {template: {spec: {containers: [{name: c, image: 'i:v1'}]}}}\n"
    )
    (folder / "kustomization.yaml").write_text(yaml.safe_dump({"resources": ["a.yaml"], **content}))
    return folder


PATCH = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\nspec: "
ONE = {"kind": "Deployment", "name": "a"}


@pytest.mark.parametrize(
    "content",
    [
        {"namePrefix": "x-"},
        {"sortOptions": {"order": "legacy"}},
        {"labels": [{"pairs": {"a": "b"}, "includeSelectors": True}]},
        {"images": [{"name": "i", "digest": "sha256:0"}]},
        {"patches": [{"patch": PATCH + "{}", "target": ONE}]},
        {"patches": [{"patch": "- {op: test, path: /a, value: 1}", "target": ONE}]},
        {"patches": [{"patch": "- {op: remove, path: /a}", "target": {"name": "a", "group": "x"}}]},
        {
            "patches": [
                {"patch": PATCH + "{template: {spec: {containers: [{name: n, $patch: delete}]}}}"}
            ]
        },
        {
            "patches": [
                {"patch": PATCH + "{template: {spec: {containers: [{name: c, $patch: replace}]}}}"}
            ]
        },
    ],
)
def test_what_is_not_implemented_is_an_error_and_no_other_manifest(tmp_path, content):
    with pytest.raises(kustomize.UnsupportedError):
        kustomize.build(kustomization(tmp_path, **content))


def test_patches_change_what_they_name(tmp_path):
    patches = [
        {"patch": PATCH + "{replicas: 2, template: {spec: {hostname: x}}}"},
        {"patch": "- {op: replace, path: /spec/template/spec/containers/0/image, value: 'j:v2'}\n"
                  "- {op: add, path: /metadata/annotations, value: {a~b: c}}\n"
                  "- {op: remove, path: /spec/template/spec/hostname}\n", "target": ONE},
    ]  # fmt: skip
    (found,) = kustomize.build(kustomization(tmp_path, patches=patches))
    assert found["spec"] == {
        "replicas": 2,
        "template": {"spec": {"containers": [{"name": "c", "image": "j:v2"}]}},
    }
    assert found["metadata"]["annotations"] == {"a~b": "c"}


# --- rollouts -----------------------------------------------------------------------------

READY = {
    "metadata": {"generation": 2},
    "spec": {"replicas": 1},
    "status": {
        "observedGeneration": 2,
        "replicas": 1,
        "updatedReplicas": 1,
        "availableReplicas": 1,
    },
}


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("observedGeneration", 2, True),
        ("observedGeneration", 1, False),
        ("replicas", 2, False),
        ("updatedReplicas", 0, False),
        ("availableReplicas", None, False),
    ],
)
def test_a_deployment_is_rolled_out_when_kubectl_says_so(field, value, expected):
    found = copy.deepcopy(READY)
    found["status"][field] = value
    assert rollout.is_rolled_out(found) is expected


def test_the_manifests_are_found_in_a_clone_and_start_no_import():
    assert (render.files() / "deploy" / "kustomization.yaml").exists()
    code = "import sys, kubectl_dsjob.main; print('yaml' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.stdout == "False\n"

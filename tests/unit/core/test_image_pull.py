"""Which images are pulled before the first turn, and the Job that pulls them."""

from dataclasses import replace

import pytest

from daemonset_job.api.choices import CompletionMode
from daemonset_job.api.compact import compact_job
from daemonset_job.api.job import parse_job
from daemonset_job.api.job_spec import Completion, FailurePolicy, NodeSelection, parse_spec
from daemonset_job.api.rollout import Rollout
from job_controller.core.desired.daemon_set import build_pod_template
from job_controller.core.desired.image_pull import image_pull_spec
from job_controller.core.desired.part import PartKind, build_part, make_part, purpose_of
from job_controller.core.desired.pod_images import (
    IMAGES_LIMIT,
    PodImage,
    find_image_problem,
    find_images,
)
from job_controller.core.settings import Settings
from tests.mutation.schema import part, problems
from tests.unit.builders import make_job

SETTINGS = Settings(task_image="registry.example/task:v1", pause_image="registry.example/pause:3")
PULL = Rollout(pull_images_first=True)


def job(**changes):
    found = make_job()
    return replace(found, spec=replace(found.spec, rollout=PULL, **changes))


def images(found):
    template = build_pod_template(found, gated=True, settings=SETTINGS)
    return find_images(template["spec"])


def pull_pod(found):
    """Return the pod of the Job that pulls, as the controller would make it."""
    spec = parse_spec(image_pull_spec(found, SETTINGS))
    pull = replace(make_job("sample-image-pull"), spec=spec)
    return build_pod_template(pull, gated=False, settings=SETTINGS)["spec"]


def containers(*each):
    return {"spec": {"containers": list(each)}}


def test_the_images_are_those_of_all_containers_each_once():
    template = {
        "spec": {
            "initContainers": [{"name": "first", "image": "a:1"}, {"name": "two", "image": "b:1"}],
            "containers": [{"name": "side", "image": "a:1", "imagePullPolicy": "Always"}],
        }
    }
    assert images(job(template=template)) == (
        PodImage("a:1", "Always"),
        PodImage("b:1"),
        PodImage("example/task:1"),
    )


def test_a_pod_of_mode_exit_has_the_pause_image_too():
    found = images(job(completion=Completion(mode=CompletionMode.EXIT)))
    assert [each.name for each in found] == ["example/task:1", SETTINGS.pause_image]


def test_a_script_runs_in_the_task_image():
    assert [each.name for each in images(job(image="", script="true"))] == [SETTINGS.task_image]


def test_an_image_of_the_template_replaces_that_of_the_spec():
    template = containers({"name": "job-container", "image": "other:2"})
    assert [each.name for each in images(job(template=template))] == ["other:2"]


@pytest.mark.parametrize("template", [{}, {"spec": None}, {"spec": {"containers": "odd"}}])
def test_a_strange_template_makes_no_error(template):
    assert image_pull_spec(job(template=template), SETTINGS)["completion"] == {"mode": "Exit"}


def test_sixteen_images_can_be_pulled_first_and_no_more():
    def with_images(count):
        extra = [{"name": f"c{n}", "image": f"i:{n}"} for n in range(count - 1)]
        return job(template=containers(*extra))

    assert find_image_problem(with_images(IMAGES_LIMIT), SETTINGS) == ""
    words = find_image_problem(with_images(IMAGES_LIMIT + 1), SETTINGS)
    assert "spec.rollout.pullImagesFirst: the pods have 17 images, and at most 16" in words
    spec = image_pull_spec(with_images(100), SETTINGS)
    assert len(spec["template"]["spec"]["initContainers"]) == IMAGES_LIMIT + 1


def test_without_the_field_any_number_of_images_is_fine():
    extra = [{"name": f"c{n}", "image": f"i:{n}"} for n in range(40)]
    found = job(template=containers(*extra))
    without = replace(found, spec=replace(found.spec, rollout=Rollout()))
    assert find_image_problem(without, SETTINGS) == ""


def test_the_pull_runs_busybox_in_each_image_and_nothing_of_it():
    found = job(
        template=containers({"name": "side", "image": "side:1"}),
        completion=Completion(mode=CompletionMode.EXIT),
        args=("--format-the-disk",),
    )
    pod = pull_pod(found)
    copies, *pulls = pod["initContainers"]
    assert copies["image"] == SETTINGS.task_image
    assert copies["command"][:2] == ["cp", "/bin/busybox"]
    assert [each["image"] for each in pulls] == [
        SETTINGS.pause_image,
        "side:1",
        "example/task:1",
    ]
    for each in pulls:
        assert each["command"] == [copies["command"][2], "true"]
        assert "args" not in each
    # The exit of this one completes the node, so the others have ended before.
    assert pulls[-1]["name"] == "job-container"


def test_the_pull_has_no_rights_on_the_node():
    found = job(
        image="", script="true", host_exec=True, mount_path="/etc", mounts=(), command=("x",)
    )
    pod = pull_pod(found)
    assert not any("hostPath" in volume for volume in pod["volumes"])
    assert "hostPID" not in pod
    for each in pod["initContainers"]:
        context = each["securityContext"]
        assert context["runAsNonRoot"] is True
        assert context["allowPrivilegeEscalation"] is False
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert "privileged" not in context


def test_the_pull_goes_where_the_job_goes():
    placement = {
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"operator": "Exists"}],
        "imagePullSecrets": [{"name": "registry"}],
        "serviceAccountName": "puller",
        "runtimeClassName": "kata",
        "affinity": {"nodeAffinity": {}},
        "hostNetwork": True,
    }
    nodes = NodeSelection(selector={"matchLabels": {"a": "b"}}, include=("n1",), exclude=("n2",))
    found = job(template={"spec": placement}, nodes=nodes)
    raw = image_pull_spec(found, SETTINGS)
    assert parse_spec(raw).nodes == nodes
    pod = pull_pod(found)
    for key in ("nodeSelector", "imagePullSecrets", "serviceAccountName", "runtimeClassName"):
        assert pod[key] == placement[key]
    assert placement["tolerations"][0] in pod["tolerations"]
    assert "hostNetwork" not in pod
    # Pods that pull are no pods of an application.
    assert set(raw) & {"rollout", "drain", "cordon", "after", "onSuccess", "results"} == set()


def test_a_quota_that_takes_the_task_takes_the_pull():
    resources = {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}, "claims": [{"name": "gpu"}]}
    template = containers({"name": "job-container", "resources": resources})
    for each in pull_pod(job(template=template))["initContainers"]:
        assert each["resources"] == {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}


def test_as_many_nodes_may_fail_as_in_the_job():
    policy = FailurePolicy(max_failed_nodes="10%", unreachable_seconds=30)
    spec = image_pull_spec(job(failure_policy=policy, node_unreachable_seconds=5), SETTINGS)
    parsed = parse_spec(spec)
    assert parsed.failure_policy.max_failed_nodes == "10%"
    assert parsed.failure_policy.unreachable_seconds == 30
    assert parsed.node_unreachable_seconds == 5
    assert parsed.failure_policy.action == "FailFast"


def test_the_crd_takes_the_spec():
    found = job(
        template=containers({"name": "side", "image": "side:1"}),
        nodes=NodeSelection(include=("a",)),
    )
    assert list(problems(part("jobs", "spec"), image_pull_spec(found, SETTINGS), "spec")) == []


def test_a_part_is_known_by_what_asked_for_it():
    one, same, other = (
        make_part(PartKind.IMAGE_PULL, "image-pull", {"image": "x"}, retry)
        for retry in ("1", "1", "2")
    )
    assert one == same
    assert one.purpose != other.purpose
    owned = parse_job(owned_raw(one))
    assert purpose_of(compact_job(owned)) == one.purpose
    assert owned.name == "sample-image-pull"


def owned_raw(part):
    body = build_part(make_job(), part)
    return {**body, "metadata": {**body["metadata"], "uid": "u"}}


def test_a_purpose_is_kept_of_owned_jobs_only_and_no_longer_than_it_may_be():
    raw = owned_raw(make_part(PartKind.CHECK, "check-1", {"image": "x"}))
    long = {"daemonset.darkowlzz.space/purpose": "x" * 65}
    stranger = {**raw, "metadata": {**raw["metadata"], "ownerReferences": []}}
    assert purpose_of(compact_job(parse_job(stranger))) == ""
    forged = {**raw, "metadata": {**raw["metadata"], "annotations": long}}
    assert purpose_of(compact_job(parse_job(forged))) == ""

"""Which generated fields of the pod give way to what a template says."""

import pytest

from daemonset_job.api.job_spec import parse_spec
from job_controller.core.desired.daemon_set import build_pod_template
from job_controller.core.settings import Settings
from tests.unit.builders import make_job


def pod_spec(template, mode="Log"):
    raw = {"image": "a", "completion": {"mode": mode}, "template": {"spec": template}}
    job = make_job(spec=parse_spec(raw))
    return build_pod_template(job, gated=False, settings=Settings())["spec"]


def task(template, mode="Log"):
    field = {"Log": "containers", "Exit": "initContainers"}[mode]
    return pod_spec({field: [{"name": "job-container", **template}]}, mode)[field][0]


def context(template, mode="Log"):
    return task({"securityContext": template}, mode)["securityContext"]


@pytest.mark.parametrize("mode", ["Log", "Exit"])
@pytest.mark.parametrize(
    "theirs",
    [
        {"privileged": True},
        {"capabilities": {"add": ["CAP_SYS_ADMIN"]}},
        {"capabilities": {"add": ["NET_ADMIN", "SYS_ADMIN"]}},
    ],
)
def test_a_privileged_task_may_escalate(theirs, mode):
    assert context(theirs, mode) == theirs


@pytest.mark.parametrize(
    "theirs",
    [{}, {"privileged": False}, {"capabilities": {"add": ["NET_ADMIN"], "drop": ["SYS_ADMIN"]}}],
)
def test_any_other_task_may_not(theirs):
    assert context(theirs) == {"allowPrivilegeEscalation": False, **theirs}


def test_what_the_template_says_itself_stays_although_it_cannot_be():
    theirs = {"privileged": True, "allowPrivilegeEscalation": False}
    assert context(theirs) == theirs


def test_a_privileged_container_beside_it_changes_nothing():
    other = {"name": "other", "image": "b", "securityContext": {"privileged": True}}
    ours, theirs = pod_spec({"containers": [other]})["containers"]
    assert ours["securityContext"] == {"allowPrivilegeEscalation": False}
    assert theirs == other


def test_the_holding_container_may_be_root_if_the_template_says_so():
    pause = {"name": "pause", "securityContext": {"runAsUser": 0, "privileged": True}}
    made = pod_spec({"containers": [pause]}, "Exit")["containers"][0]["securityContext"]
    assert made == {
        "capabilities": {"drop": ["ALL"]},
        "runAsUser": 0,
        "readOnlyRootFilesystem": True,
        "privileged": True,
    }


def test_a_pod_for_windows_has_nothing_that_linux_alone_has():
    made = pod_spec({"os": {"name": "windows"}}, "Exit")
    assert "securityContext" not in made
    assert "securityContext" not in made["initContainers"][0]
    assert made["containers"][0]["securityContext"] == {"runAsNonRoot": True}


def test_the_time_to_end_gives_way_to_a_longer_sleep():
    def grace(template):
        return pod_spec(template).get("terminationGracePeriodSeconds")

    def stops(seconds, name="job-container"):
        return [{"name": name, "lifecycle": {"preStop": {"sleep": {"seconds": seconds}}}}]

    assert grace({"containers": stops(10)}) == 10
    assert grace({"containers": stops(11)}) is None
    assert grace({"containers": stops(11, "beside")}) is None
    assert grace({"containers": stops(11), "terminationGracePeriodSeconds": 60}) == 60


@pytest.mark.parametrize(
    ("name", "theirs"),
    [
        ("NODE_NAME", {"value": "x"}),
        ("COMPLETION_TOKEN", {"valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}),
    ],
)
def test_a_variable_has_either_a_value_or_a_source(name, theirs):
    before = [each["name"] for each in pod_spec({})["containers"][0]["env"]]
    env = task({"env": [{"name": name, **theirs}]})["env"]
    assert [each["name"] for each in env] == before
    assert {"name": name, **theirs} in env


@pytest.mark.parametrize("bad", [None, "x", 7, [], [None], ["x"], {"a": None}])
def test_what_is_no_pod_at_all_is_left_to_the_api_server(bad):
    # As in Jobs that were stored before the schema knew these fields.
    for template in (
        {"os": bad},
        {"containers": [bad]},
        {"containers": [{"name": "job-container", "securityContext": bad, "env": bad}]},
        {"containers": [{"name": "job-container", "lifecycle": {"preStop": {"sleep": bad}}}]},
        {"containers": [{"name": "job-container", "securityContext": {"capabilities": bad}}]},
        {"containers": [{"name": "job-container", "lifecycle": bad}]},
    ):
        pod_spec(template)

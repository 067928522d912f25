"""The DaemonSet that a Job asks for, and the comparison with the one that exists."""

from copy import deepcopy
from dataclasses import replace

import pytest
from kubernetes.utils.quantity import parse_quantity

from daemonset_job.api import names
from daemonset_job.api.affinity import REQUIRED
from daemonset_job.api.daemon_set import DaemonSet
from daemonset_job.api.job_spec import (
    Completion,
    FailurePolicy,
    FailureRule,
    JobSpec,
    NodeSelection,
    parse_spec,
)
from job_controller.core.desired.comparison import _quantity, has_same_placement, is_up_to_date
from job_controller.core.desired.daemon_set import build_daemon_set, build_pod_template
from job_controller.core.settings import Settings
from tests.unit.builders import make_job

SEED = parse_spec(
    {"image": "darkowlzz/cleanup:v0.0.2", "args": ["/basetarget/foo"], "mountPath": "/tmp"}
)


def build(spec=SEED, *, name="job-sample", gated=False):
    return build_daemon_set(make_job(name, spec=spec), gated=gated, settings=Settings())


def pod_spec(spec=SEED, **options):
    return build(spec, **options)["spec"]["template"]["spec"]


def container(spec=SEED):
    return pod_spec(spec)["containers"][0]


def live(body, applied=None) -> DaemonSet:
    """Return `body` as a server would keep it: defaults filled in, empty things left out.

    `applied` is what was applied, if the server writes that in another way.
    """
    spec = deepcopy(body["spec"])
    spec["revisionHistoryLimit"] = 10
    pod = spec["template"]["spec"]
    pod["restartPolicy"] = "Always"
    pod["dnsPolicy"] = "ClusterFirst"
    pod["containers"][0]["imagePullPolicy"] = "IfNotPresent"
    meta = (applied or body)["metadata"]
    return DaemonSet(
        *("default", "x", "u", "1", "o", 1, 1, 1),
        labels=meta["labels"],
        annotations=meta["annotations"],
        spec=spec,
    )


def test_the_seed_manifest_keeps_its_names():
    body = build()

    assert body["metadata"]["name"] == "job-sample-daemonset-job"
    assert body["metadata"]["labels"] == {
        "daemonset": "job-sample-daemonset-job",
        "job": "job-sample",
        "daemonset-job": "true",
        names.LABEL_JOB_UID: "12345678-job-uid",
    }
    task = container()
    assert task["name"] == "job-container"
    assert task["image"] == "darkowlzz/cleanup:v0.0.2"
    assert task["args"] == ["/basetarget/foo"]
    assert "command" not in task
    assert {"name": "basetarget", "mountPath": "/basetarget"} in task["volumeMounts"]
    assert {"name": "basetarget", "hostPath": {"path": "/tmp"}} in pod_spec()["volumes"]


def test_the_job_owns_its_daemon_set():
    (owner,) = build()["metadata"]["ownerReferences"]
    assert owner["uid"] == "12345678-job-uid"
    assert owner["controller"] is True


def test_pods_get_no_token_and_no_privilege_unless_asked():
    spec = pod_spec()
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"] == {"seccompProfile": {"type": "RuntimeDefault"}}
    assert container()["securityContext"] == {"allowPrivilegeEscalation": False}


def test_running_pods_are_left_alone_by_updates():
    assert build()["spec"]["updateStrategy"] == {"type": "OnDelete"}


@pytest.mark.parametrize("name", ["a" * 253, "x" * 60, "with.dots." + "b" * 80])
def test_long_names_are_shortened_to_valid_ones(name):
    body = build(name=name)
    values = [body["metadata"]["name"], *body["metadata"]["labels"].values()]
    assert all(len(value) <= 63 for value in values)
    assert body["metadata"]["name"].endswith("-daemonset-job")


def test_shortened_names_stay_apart():
    first, second = build(name="a" * 100), build(name="a" * 99 + "b")
    assert first["metadata"]["name"] != second["metadata"]["name"]


def test_the_task_gets_the_token():
    spec = replace(SEED, completion=Completion(token="finished"))
    env = {e["name"]: e.get("value") for e in container(spec)["env"]}
    assert env["COMPLETION_TOKEN"] == "finished"
    assert {e["name"]: e.get("value") for e in container()["env"]}["COMPLETION_TOKEN"] == "done"


@pytest.mark.parametrize(
    ("token", "value"),
    [
        ("done$", "done$"),
        ("done $(NODE_NAME)", "done $$(NODE_NAME)"),
        ("a$$b $", "a$$$$b $$"),
        ("$$(X)", "$$$$(X)"),
    ],
)
def test_the_task_gets_the_token_that_the_terminator_looks_for(token, value):
    """Kubernetes replaces `$(NAME)` and `$$` in variables: no node completed."""
    spec = replace(SEED, completion=Completion(token=token))
    assert {e["name"]: e.get("value") for e in container(spec)["env"]}["COMPLETION_TOKEN"] == value


def test_template_is_merged_over_the_generated_pod():
    template = {
        "metadata": {"labels": {"team": "x", "job": "forged"}, "annotations": {"a": "b"}},
        "spec": {
            "priorityClassName": "high",
            "tolerations": [{"operator": "Exists"}],
            "containers": [
                {
                    "name": "job-container",
                    "env": [{"name": "X", "value": "1"}],
                    "resources": {"limits": {"memory": "64Mi"}},
                },
                {"name": "helper", "image": "h"},
            ],
            "volumes": [{"name": "extra", "emptyDir": {}}],
        },
    }
    pod = build_pod_template(
        make_job(spec=replace(SEED, template=template)), gated=False, settings=Settings()
    )

    assert pod["metadata"]["labels"]["team"] == "x"
    assert pod["metadata"]["labels"]["job"] == "sample"
    assert pod["metadata"]["annotations"] == {
        "a": "b",
        "kubectl.kubernetes.io/default-container": "job-container",
    }
    task, helper = pod["spec"]["containers"]
    assert task["image"] == "darkowlzz/cleanup:v0.0.2"
    assert {"name": "X", "value": "1"} in task["env"]
    assert len(task["env"]) == 5
    assert task["resources"] == {"limits": {"memory": "64Mi"}}
    assert helper == {"name": "helper", "image": "h"}
    assert [v["name"] for v in pod["spec"]["volumes"]] == [
        "daemonset-job-state",
        "basetarget",
        "extra",
    ]


def test_template_can_take_a_generated_field_away_with_null():
    template = {"spec": {"securityContext": None, "terminationGracePeriodSeconds": 60}}
    spec = pod_spec(replace(SEED, template=template))
    assert "securityContext" not in spec
    assert spec["terminationGracePeriodSeconds"] == 60


def test_gate_is_added_to_the_gates_of_the_template():
    template = {"spec": {"schedulingGates": [{"name": "mine/gate"}]}}
    spec = pod_spec(replace(SEED, template=template), gated=True)
    assert spec["schedulingGates"] == [{"name": names.START_GATE}, {"name": "mine/gate"}]


def terms(nodes, template=None):
    spec = replace(SEED, nodes=nodes, template=template or {})
    affinity = pod_spec(spec)["affinity"]["nodeAffinity"]
    return affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]


def name_is(operator, name):
    return {"key": "metadata.name", "operator": operator, "values": [name]}


NOT_WINDOWS = {"key": "kubernetes.io/os", "operator": "NotIn", "values": ["windows"]}


def test_no_selection_means_every_node_but_windows():
    assert terms(NodeSelection()) == [{"matchExpressions": [NOT_WINDOWS]}]


OS_TERM = {"matchExpressions": [{"key": "kubernetes.io/os", "operator": "Exists"}]}


@pytest.mark.parametrize(
    ("nodes", "template"),
    [
        (NodeSelection(include=("a",)), {}),
        (NodeSelection(selector={"matchLabels": {"kubernetes.io/os": "windows"}}), {}),
        (NodeSelection(), {"os": {"name": "windows"}}),
        (NodeSelection(), {"nodeSelector": {"kubernetes.io/os": "windows"}}),
        (
            NodeSelection(),
            {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [OS_TERM]}}}},
        ),
    ],
)
def test_a_job_that_names_an_operating_system_or_nodes_gets_them(nodes, template):
    spec = pod_spec(replace(SEED, nodes=nodes, template={"spec": template}))
    assert "NotIn" not in str(spec.get("affinity"))


def test_include_makes_a_term_a_name_and_exclude_a_requirement_a_name():
    nodes = NodeSelection(
        selector={
            "matchLabels": {"pool": "x"},
            "matchExpressions": [{"key": "gpu", "operator": "Exists"}],
        },
        include=("a", "b"),
        exclude=("c", "d"),
    )
    expressions = [
        {"key": "pool", "operator": "In", "values": ["x"]},
        {"key": "gpu", "operator": "Exists"},
    ]
    assert terms(nodes) == [
        {"matchExpressions": expressions, "matchFields": [name_is("In", "a")]},
        {"matchExpressions": expressions, "matchFields": [name_is("In", "b")]},
    ]
    outs = [name_is("NotIn", "c"), name_is("NotIn", "d")]
    assert terms(replace(nodes, include=())) == [
        {"matchExpressions": [*expressions, NOT_WINDOWS], "matchFields": outs}
    ]
    assert terms(NodeSelection(exclude=("c",))) == [
        {"matchExpressions": [NOT_WINDOWS], "matchFields": [name_is("NotIn", "c")]}
    ]


def test_an_affinity_of_the_template_narrows_and_never_widens():
    zone = [{"key": "zone", "operator": "In", "values": ["1"]}]
    template = {
        "spec": {
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [{"matchExpressions": zone}]
                    }
                }
            }
        }
    }
    assert terms(NodeSelection(exclude=("c",)), template) == [
        {"matchExpressions": [NOT_WINDOWS, *zone], "matchFields": [name_is("NotIn", "c")]}
    ]


@pytest.mark.parametrize("empty", [{}, {"matchExpressions": []}, {"matchFields": None}, None, "x"])
def test_a_term_of_the_template_without_requirements_holds_nowhere(empty):
    zone = {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}

    def narrowed(*theirs):
        required = {"nodeSelectorTerms": list(theirs)}
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
        return terms(NodeSelection(include=("a",)), {"spec": {"affinity": affinity}})

    assert narrowed(empty) == [{}]
    assert narrowed(empty, zone) == [{**zone, "matchFields": [name_is("In", "a")]}]


def test_what_was_applied_is_current_whatever_the_server_adds():
    assert is_up_to_date(live(build()), build())


@pytest.mark.parametrize(
    "spec",
    [
        replace(SEED, nodes=NodeSelection(exclude=("z",))),
        replace(SEED, args=("/basetarget/bar",)),
        JobSpec(image="other"),
    ],
)
def test_a_difference_is_seen(spec):
    assert not is_up_to_date(live(build()), build(spec))


def test_a_gate_too_few_or_too_many_is_seen():
    assert not is_up_to_date(live(build()), build(gated=True))
    assert not is_up_to_date(live(build(gated=True)), build())


def test_a_change_by_hand_is_seen():
    found = live(build())
    found.spec["template"]["spec"]["containers"][0]["image"] = "evil"
    assert not is_up_to_date(found, build())


@pytest.mark.parametrize(
    ("ours", "kept"),
    [
        ("1000m", "1"),
        (1, "1"),
        ("0.5", "500m"),
        ("1024Ki", "1Mi"),
        ("1024Mi", "1Gi"),
        ("1e3", "1k"),
        (0.1, "100m"),
    ],
)
def test_quantities_are_compared_as_numbers(ours, kept):
    def with_limit(value):
        template = {
            "spec": {
                "containers": [{"name": "job-container", "resources": {"limits": {"x": value}}}]
            }
        }
        return build(replace(SEED, template=template))

    assert is_up_to_date(live(with_limit(kept), with_limit(ours)), with_limit(ours))
    assert not is_up_to_date(live(with_limit("7"), with_limit(ours)), with_limit(ours))


def test_texts_that_are_the_same_quantity_are_different_values():
    def with_version(value):
        task = {"name": "job-container", "env": [{"name": "VERSION", "value": value}]}
        return build(replace(SEED, template={"spec": {"containers": [task]}}))

    ours, other = with_version("1.10"), with_version("1.1")
    # Changed by a webhook, which leaves the hash of what was applied as it was.
    other["metadata"]["annotations"] = ours["metadata"]["annotations"]
    assert is_up_to_date(live(ours), ours)
    assert not is_up_to_date(live(other), ours)


@pytest.mark.parametrize("suffix", ["", *"numkMGTPE", *(f"{c}i" for c in "KMGTPE")])
@pytest.mark.parametrize("number", ["0", "3", "-2", "+1", "0.25", ".5", "5.", "1024"])
def test_every_suffix_of_a_quantity_means_what_it_means_to_the_official_parser(number, suffix):
    text = f"{number}{suffix}"
    assert _quantity(text) == parse_quantity(text)


SELECTOR = {"matchLabels": {"zone": "a"}}
WIDENED = [
    ({"include": ["a"]}, {}),
    ({"selector": SELECTOR}, {}),
    ({"exclude": ["b"]}, {}),
    ({"selector": SELECTOR, "exclude": ["b"]}, {"selector": SELECTOR}),
    ({"selector": SELECTOR, "include": ["a"]}, {"include": ["a"]}),
    ({"selector": {"matchLabels": {"v": "1.10"}}}, {"selector": {"matchLabels": {"v": "1.1"}}}),
    ({"selector": {"matchLabels": {"v": "1000m"}}}, {"selector": {"matchLabels": {"v": "1"}}}),
    ({"include": ["01"]}, {"include": ["1"]}),
]


@pytest.mark.parametrize(("old", "new"), [*WIDENED, *((new, old) for old, new in WIDENED)])
def test_every_change_of_the_selection_is_seen(old, new):
    """One that only takes something away, and one that only looks like the same number."""

    def of(nodes):
        raw = {"image": "i", "nodes": nodes}
        job = make_job(spec=parse_spec(raw), raw_spec=raw)
        return build_daemon_set(job, gated=False, settings=Settings())

    found = live(of(old), of(new))  # as if the hashes were those of the new one
    assert not has_same_placement(found, of(new))
    assert not is_up_to_date(found, of(new))
    assert not is_up_to_date(live(of(old)), of(new))
    assert is_up_to_date(live(of(new)), of(new))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("nodeSelector", {"pool": "x"}),
        ("nodeSelector", {"node-role.kubernetes.io/control-plane": ""}),
        ("tolerations", [{"operator": "Exists"}]),
        ("affinity", {"podAffinity": {}, "nodeAffinity": {"x": [1]}}),
    ],
)
def test_a_selection_of_nodes_that_another_client_added_is_seen(field, value):
    found = live(build())
    found.spec["template"]["spec"][field] = value
    assert not has_same_placement(found, build())


def test_a_field_that_is_no_longer_applied_is_seen():
    found = live(build(replace(SEED, template={"spec": {"priorityClassName": "high"}})))
    assert not is_up_to_date(found, build())


def test_a_job_whose_names_are_all_excluded_runs_nowhere():
    found = terms(NodeSelection(include=("a",), exclude=("a", "b")))
    assert found == [{"matchFields": [name_is("In", "a"), name_is("NotIn", "a")]}]


def test_empty_things_that_the_server_leaves_out_are_no_difference():
    template = {"spec": {"nodeSelector": {}, "tolerations": [], "hostNetwork": False}}
    body = build(replace(SEED, template=template))
    found = live(body)
    for key in template["spec"]:
        del found.spec["template"]["spec"][key]
    assert is_up_to_date(found, body)


def test_exit_mode_runs_the_task_before_the_pause_container():
    spec = replace(SEED, completion=Completion(mode="Exit"))
    body = pod_spec(spec)

    (task,) = body["initContainers"]
    assert task["name"] == "job-container"
    assert task["args"] == ["/basetarget/foo"]
    (pause,) = body["containers"]
    assert pause["name"] == "pause"
    assert pause["image"] == Settings().pause_image
    assert pause["securityContext"]["runAsNonRoot"] is True


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        (["prepare", "fetch"], ["prepare", "fetch", "job-container"]),
        (["prepare", "job-container", "tidy"], ["prepare", "job-container", "tidy"]),
        ([], ["job-container"]),
    ],
)
@pytest.mark.parametrize("elsewhere", [False, True])
def test_in_exit_mode_other_init_containers_run_before_the_task(listed, expected, elsewhere):
    containers = [{"name": name, "image": "i"} for name in listed]
    template = {"spec": {"initContainers": containers}}
    if elsewhere:  # the task's own changes are in the other list
        template["spec"]["containers"] = [{"name": "job-container", "tty": True}]
    body = pod_spec(replace(SEED, completion=Completion(mode="Exit"), template=template))
    assert [container["name"] for container in body["initContainers"]] == expected
    (task,) = [c for c in body["initContainers"] if c["name"] == "job-container"]
    assert task["args"] == ["/basetarget/foo"]
    assert task.get("tty", False) is elsewhere


def test_init_containers_that_are_none_do_not_stop_the_order():
    odd = [{"name": "a"}, {"image": "without a name"}, {"name": ["b"]}, "c"]
    template = {"spec": {"initContainers": odd}}
    body = pod_spec(replace(SEED, completion=Completion(mode="Exit"), template=template))
    assert body["initContainers"][0] == {"name": "a"}
    assert len(body["initContainers"]) == len(odd) + 1


def test_the_task_gets_the_limit_of_its_attempts():
    limited = {e["name"]: e.get("value") for e in container(replace(SEED, backoff_limit=2))["env"]}
    assert limited["ATTEMPTS_LIMIT"] == "3"
    ignoring = FailurePolicy(rules=(FailureRule((75,), "Ignore"),))
    names_ = {e["name"] for e in container(replace(SEED, failure_policy=ignoring))["env"]}
    assert "ATTEMPTS_LIMIT" not in names_

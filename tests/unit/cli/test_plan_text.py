"""What `kubectl dsjob plan` says would run, and what would follow each step."""

import pytest

from daemonset_job.api.job import parse_job
from kubectl_dsjob.plan_text import plan_words


def words(**spec):
    return plan_words(parse_job({"metadata": {"name": "sweep", "uid": "u"}, "spec": spec}))


def test_all_that_surrounds_the_task_is_said():
    check = {
        "nodeReady": True,
        "pods": {"matchLabels": {"app": "web"}},
        "http": {"source": "web"},
        "prometheus": {"source": "prom", "query": "errors", "below": 1},
        "script": {"script": "true"},
    }
    rollout = {
        "maxParallel": "25%",
        "maxParallelPerZone": 1,
        "window": {"start": "0 22 * * *", "duration": "6h", "timeZone": "Europe/Berlin"},
        "exclusive": "kernel",
        "pullImagesFirst": True,
        "steps": [
            {"nodes": 1, "soakSeconds": 600, "check": check, "approval": "Required"},
            {"nodes": "10%"},
            {"nodes": "50%", "approval": "Required"},
        ],
    }
    found = words(script="a\nb\n", hostExec=True, drain={}, rollout=rollout)
    assert found.splitlines() == [
        "sweep would run a script of 2 lines on the host",
        "each node: cordoned and drained before it, uncordoned after it",
        (
            "limits: maxParallel 25%, maxParallelPerZone 1, window 0 22 * * * for 6h "
            "Europe/Berlin, exclusive kernel, images pulled on all nodes first"
        ),
        (
            "after step 1: a soak of 600 s, a check (nodeReady, pods, http, prometheus, script), "
            "an approval"
        ),
        "after step 3: an approval",
    ]


@pytest.mark.parametrize(
    ("spec", "task"),
    [
        ({"image": "a:1", "command": ["sh"], "args": ["-c", "x"]}, "a:1 sh -c x"),
        ({"image": "a:1", "script": "true"}, "a script of 1 line"),
        ({"scriptFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}, "the script k of Secret s"),
        (
            {"scriptFrom": {"configMapKeyRef": {"name": "s", "key": "k"}}},
            "the script k of ConfigMap s",
        ),
    ],
)
def test_the_task_is_an_image_or_a_script(spec, task):
    assert words(**spec) == f"sweep would run {task}"


def test_what_an_author_wrote_controls_no_terminal_and_has_a_bound():
    found = words(image="a:1", args=["\x1b]0;owned\x07\nsweep is safe", "x" * 5000])
    assert found.isprintable()
    assert len(found) < 200


def test_a_step_that_adds_no_node_is_named():
    steps = [{"nodes": 2}, {"nodes": 1}, {"selector": {"matchLabels": {"a": "b"}}}, {"nodes": 3}]
    plan = [{"step": each, "count": count} for each, count in enumerate((2, 0, 0, 1, 0), 1)]
    status = {"rollout": {"step": 1, "steps": 4, "plan": plan}}
    meta = {"name": "sweep", "uid": "u"}
    body = {"metadata": meta, "spec": {"image": "a:1", "rollout": {"steps": steps}}}
    assert plan_words(parse_job({**body, "status": status})).splitlines()[1:] == [
        "step 2 adds no node: `nodes` counts those of earlier steps, too",
        "step 3 adds no node: its selector selects no further one",
    ]

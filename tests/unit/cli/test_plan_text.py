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


def test_a_step_of_more_nodes_than_there_are_is_named():
    steps = [
        {"nodes": 1},
        {"nodes": 100},
        {"nodes": 200},
        {"selector": {"matchLabels": {"a": "b"}}},
    ]
    plan = [{"step": each, "count": count} for each, count in enumerate((1, 2, 0, 0, 0), 1)]
    status = {"rollout": {"step": 1, "steps": 4, "plan": plan}}
    meta = {"name": "sweep", "uid": "u"}
    body = {"metadata": meta, "spec": {"image": "a:1", "rollout": {"steps": steps}}}
    assert plan_words(parse_job({**body, "status": status})).splitlines()[1:] == [
        "step 2 names 100 nodes, and there are only 3",
        "step 3 adds no node: the steps before it have all 3",
        "step 4 adds no node: the steps before it have all 3",
    ]


def test_a_step_that_adds_no_node_is_named():
    steps = [{"nodes": 2}, {"nodes": 1}, {"selector": {"matchLabels": {"a": "b"}}}, {"nodes": 3}]
    plan = [{"step": each, "count": count} for each, count in enumerate((2, 0, 0, 1, 0), 1)]
    status = {"rollout": {"step": 1, "steps": 4, "plan": plan}}
    meta = {"name": "sweep", "uid": "u"}
    body = {"metadata": meta, "spec": {"image": "a:1", "rollout": {"steps": steps}}}
    assert plan_words(parse_job({**body, "status": status})).splitlines()[1:] == [
        "step 2 adds no node: `nodes` counts those of earlier steps, too",
        (
            "step 3 adds no node: its selector selects no further one; if it selects none at all, "
            "the run waits there for a person"
        ),
    ]


def planned(counts, steps, **status):
    """Return the words about a plan with these numbers of nodes, the last one of the rest."""
    plan = [{"step": number, "count": count} for number, count in enumerate(counts, 1)]
    whole = {"rollout": {"step": 1, "steps": len(steps), "plan": plan}, **status}
    spec = {"image": "a:1", "rollout": {"steps": steps}}
    body = {"metadata": {"name": "sweep", "uid": "u"}, "spec": spec, "status": whole}
    return plan_words(parse_job(body)).splitlines()[1:]


def test_no_step_follows_the_one_that_has_the_last_nodes():
    first = {"nodes": 1, "soakSeconds": 5}
    last = {"nodes": "100%", "check": {"nodeReady": True}}
    end = "the run ends after it, and no further step follows"
    assert planned((1, 2, 0), [first, last]) == [
        "after step 1: a soak of 5 s",
        "after step 2: a check (nodeReady)",
    ]
    assert planned((1, 1, 1), [first, last])[-1] == "after step 2: a check (nodeReady)"
    beyond = {"nodes": 9, "approval": "Required"}
    assert planned((3, 0, 0), [{"nodes": 5}, beyond]) == [
        "step 1 names 5 nodes, and there are only 3",
        "step 2 adds no node: the steps before it have all 3",
        f"step 1 has the last nodes: {end}",
    ]
    assert planned((1, 2, 0), [{"nodes": 1}, {"nodes": 3}]) == []


def test_a_plan_says_that_its_window_cannot_be_read():
    words = "spec.rollout.window.start: no"
    shown = {"type": "Progressing", "status": "False", "message": words}
    invalid = {**shown, "reason": "InvalidWindow"}
    assert planned((3,), [], conditions=[invalid]) == [f"no node would start: {words}"]
    assert planned((3,), [], conditions=[{**invalid, "reason": "Paused"}]) == []

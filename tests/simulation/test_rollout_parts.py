"""What a rollout runs in Jobs of its own: pulls of images, and checks by a script."""

from dataclasses import replace

from tests.simulation.generator import generate_schedule
from tests.simulation.run import simulate
from tests.simulation.schedule import JobPlan, NodePlan, Schedule, Task

NODES = ("n1", "n2", "n3")
PULL = {"maxParallel": 1, "pullImagesFirst": True}
CHECK = {"steps": [{"nodes": 1, "check": {"script": {"script": "check"}}}]}


def schedule(rollout, owned_tasks):
    """Return three nodes whose tasks succeed, and one Job with a rollout."""
    spec = {"image": "example/task:1", "rollout": rollout}
    job = JobPlan(spec=spec, owned_tasks=owned_tasks)
    return Schedule(seed=0, nodes=tuple(map(NodePlan, NODES)), jobs=(job,), calm=True)


def ran(outcome):
    """Return the Jobs of which a task was started, by the names of their pods."""
    return {
        words.split()[2].partition("-daemonset-job")[0]
        for _, actor, words in outcome.trace
        if actor == "kubelet" and "changes pods" in words and "running" in words
    }


def run(rollout, owned_tasks):
    found = simulate(schedule(rollout, owned_tasks), is_tracing=True)
    assert found.violations == ()
    return ran(found)


def test_a_rollout_goes_on_once_the_images_are_pulled():
    assert run(PULL, {"n2": Task("pull", 5.0)}) == {"sample-image-pull", "sample"}


def test_no_task_starts_if_a_node_cannot_pull():
    assert run(PULL, {"n2": Task("pull", 0.0)}) == {"sample-image-pull"}


def test_a_check_that_passes_and_one_that_fails():
    assert run(CHECK, {}) == {"sample", "sample-check-1"}
    fails = {node: Task("fail", 0.3, code=3, times=9) for node in NODES}
    assert run(CHECK, fails) == {"sample", "sample-check-1"}


def test_some_schedules_have_each_of_both():
    specs = [job.spec for seed in range(400) for job in generate_schedule(seed).jobs]
    rollouts = [spec["rollout"] for spec in specs if "rollout" in spec]
    pulls = [rollout for rollout in rollouts if rollout.get("pullImagesFirst")]
    checks = [r for r in rollouts if any("check" in step for step in r.get("steps", ()))]
    assert min(len(pulls), len(checks)) >= 10


def test_a_schedule_without_its_owned_tasks_is_another_one():
    one = schedule(PULL, {"n1": Task("pull", 0.0)})
    (job,) = one.jobs
    assert replace(one, jobs=(replace(job, owned_tasks={}),)).describe() != one.describe()

"""Changes of the task's container in `spec.template`, in whichever list they are."""

import pytest

from daemonset_job.api.choices import CompletionMode
from job_controller.core.desired.task_container import place_task_container

LISTS = {CompletionMode.LOG: "containers", CompletionMode.EXIT: "initContainers"}
TASK = {"name": "job-container", "env": [{"name": "A", "value": "1"}]}
OTHER = {"name": "other", "image": "x"}


def other_list(mode):
    return LISTS[CompletionMode.EXIT if mode == CompletionMode.LOG else CompletionMode.LOG]


@pytest.mark.parametrize("mode", CompletionMode)
def test_the_task_moves_to_the_list_of_its_mode_and_nothing_else_does(mode):
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {other_list(mode): [OTHER, TASK]}}
    assert place_task_container(template, mode) == {
        "metadata": {"labels": {"a": "b"}},
        "spec": {LISTS[mode]: [TASK], other_list(mode): [OTHER]},
    }


@pytest.mark.parametrize("mode", CompletionMode)
def test_a_template_that_has_it_in_the_list_of_its_mode_stays_as_it_is(mode):
    template = {"spec": {LISTS[mode]: [OTHER, TASK], other_list(mode): [OTHER]}}
    assert place_task_container(template, mode) is template


def test_changes_in_both_lists_are_merged_and_the_own_list_wins():
    first = {**TASK, "image": "ignored", "resources": {"limits": {"memory": "1Mi"}}}
    second = {"name": "job-container", "image": "used", "env": [{"name": "B", "value": "2"}]}
    template = {"spec": {"containers": [first], "initContainers": [OTHER, second]}}
    placed = place_task_container(template, CompletionMode.EXIT)
    assert placed["spec"] == {
        "initContainers": [
            {
                "name": "job-container",
                "image": "used",
                "env": [*TASK["env"], *second["env"]],
                "resources": {"limits": {"memory": "1Mi"}},
            },
            OTHER,
        ]
    }


@pytest.mark.parametrize(
    "template",
    [{}, {"spec": None}, {"spec": []}, {"spec": {"containers": None, "initContainers": "x"}}],
)
@pytest.mark.parametrize("mode", CompletionMode)
def test_a_template_without_containers_stays_as_it_is(template, mode):
    assert place_task_container(template, mode) is template

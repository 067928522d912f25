"""`rollout.pullImagesFirst`: no node has its turn before the images are on all of them."""

from dataclasses import replace

import pytest

from daemonset_job.api.choices import PodPolicy
from daemonset_job.api.job_spec import FailurePolicy
from daemonset_job.api.job_status import Condition, JobStatus
from daemonset_job.api.rollout import Rollout, WindowSpec
from daemonset_job.api.rollout_progress import RolloutProgress
from daemonset_job.api.states import ConditionType
from job_controller.core.job_actions import CreateJob, DeleteJob
from job_controller.core.plan import ApplyDaemonSet, DeleteDaemonSet, RefusedWrite, WriteStatus
from tests.unit.core.rollout_parts import PartsWorld, StandingPartsWorld
from tests.unit.core.runs import acts, spec
from tests.unit.core.standing_jobs import change

PULL = "sample-image-pull"
FIRST = Rollout(max_parallel=2, pull_images_first=True)
NODES = ("a", "b", "c")


def world(*nodes, rollout=FIRST, **changes):
    return PartsWorld(*(nodes or NODES), rollout=rollout, **changes)


def before_the_start(found):
    """Take away what there is once a run has started."""
    cluster = found.cluster
    cluster.job = replace(cluster.job, status=JobStatus())
    cluster.has_report, cluster.has_daemon_set, cluster.pods = False, False, []


def pulled(found):
    return found.cluster.job.status.rollout.images_pulled


def test_a_job_pulls_and_no_node_has_its_turn_meanwhile():
    found = world()
    found.step(5)
    assert found.created == [PULL]
    assert (found.turns(), found.started) == ({}, [])
    status, reason, message = found.condition("Progressing")
    assert (status, reason) == ("True", "PullingImages")
    assert "no node starts before the images are pulled on all of them" in message


def test_the_message_says_how_many_nodes_have_the_images_and_what_keeps_the_others():
    found = world()
    found.step()
    words = "1 of 3 nodes cannot pull the image (b): no such tag"
    blocked = Condition(ConditionType.PROGRESSING, False, "ImagePullFailed", words)
    found.show_owned(PULL, blocked, completed=2)
    found.step()
    _, reason, message = found.condition("Progressing")
    assert reason == "PullingImages"
    assert f"2 of 3 nodes have the images, no node starts before: {words}" in message


def test_the_result_is_on_record_before_a_turn_is_given_and_then_the_job_is_deleted():
    found = world()
    found.step()
    found.end_owned(PULL)
    plan = found.step()
    assert pulled(found)
    assert found.turns() == {}
    assert not any(isinstance(action, DeleteJob) for action in plan.actions)
    found.step()
    assert found.owned == {}
    assert set(found.turns()) == {"a", "b"}
    found.finish()
    assert (found.phase, found.created) == ("Succeeded", [PULL])


def test_if_the_images_cannot_be_pulled_the_run_fails_with_no_node_changed():
    found = world()
    found.step()
    words = '1 of 3 nodes failed: a Back-off pulling image "example/task:nosuch"'
    found.end_owned(PULL, words, completed=2)
    found.step(3)
    status, reason, message = found.condition("Failed")
    assert (status, reason) == ("True", "ImagePullFailed")
    assert message == f"the images cannot be pulled: {words}"
    assert (found.phase, found.turns(), found.started, found.owned) == ("Failed", {}, [], {})
    found.step(5)
    assert (found.created, found.turns()) == ([PULL], {})


def test_a_failed_pull_is_on_record_before_its_job_is_deleted():
    found = world()
    found.step()
    found.end_owned(PULL, "1 of 3 nodes failed")
    found.crash_after(1)
    found.step(3)
    assert found.condition("Failed")[1] == "ImagePullFailed"
    assert (found.owned, found.created) == ({}, [PULL])


def test_a_retry_pulls_again_and_the_failure_before_it_does_not_count():
    found = world()
    found.step()
    before = found.owned[PULL]
    found.end_owned(PULL, "1 of 3 nodes failed")
    failed = found.owned[PULL]
    found.step(2)
    found.retry("again")
    # The cache may show the failed Job still.
    found.owned[PULL] = failed
    found.step()
    assert found.condition("Failed")[0] == "False"
    assert found.owned == {}
    found.step()
    assert found.created == [PULL, PULL]
    assert found.owned[PULL].uid != before.uid
    found.end_owned(PULL)
    found.finish()
    assert found.phase == "Succeeded"


def test_a_retry_after_the_images_were_pulled_does_not_pull_again():
    found = world(rollout=replace(FIRST, max_parallel=1), backoff_limit=0)
    found.step()
    found.end_owned(PULL)
    found.step(3)
    found.fail("a")
    found.step(2)
    assert found.phase == "Failed"
    found.retry("again")
    found.finish()
    assert (found.phase, found.created) == ("Succeeded", [PULL])


def test_images_are_pulled_while_the_window_is_closed():
    window = WindowSpec("0 1 1 1 *", "1h")
    found = world(rollout=replace(FIRST, window=window))
    found.step()
    assert found.created == [PULL]
    found.end_owned(PULL)
    found.step(2)
    assert found.condition("Progressing")[1] == "OutsideWindow"
    assert found.turns() == {}


def test_a_suspended_job_does_not_begin_to_pull_and_a_pull_ends_with_the_start():
    found = world()
    spec(found.cluster, suspend=True)
    found.step(2)
    assert found.created == []
    spec(found.cluster, suspend=False)
    found.step(2)
    spec(found.cluster, suspend=True)
    found.step(2)
    assert found.owned == {}
    assert found.condition("Suspended")[1] == "StartTakenBack"


def test_a_corrected_job_pulls_the_new_image_once_the_pull_of_the_old_one_is_gone():
    found = world()
    found.step()
    assert found.owned[PULL].spec.image == found.cluster.job.spec.image
    spec(found.cluster, suspend=True)
    found.step(3)
    assert found.owned == {}
    assert found.cluster.job.status.rollout is None
    # What the start has created is deleted; then the Job starts as a new one.
    found.cluster.has_report, found.cluster.has_daemon_set = False, False
    found.cluster.pods, found.cluster.report_status = [], None
    spec(found.cluster, suspend=False, image="example/task:corrected")
    found.extra["is_dry_run_done"] = True
    found.step()
    assert found.created == [PULL]
    found.cluster.has_report, found.cluster.has_daemon_set = True, True
    found.step(2)
    assert found.created == [PULL, PULL]
    assert found.owned[PULL].spec.image == "example/task:corrected"
    assert found.turns() == {}


def test_an_aborted_run_pulls_no_more():
    found = world()
    found.step()
    found.request(abort="wrong day")
    found.step(3)
    assert (found.phase, found.owned, found.turns()) == ("Failed", {}, {})


def test_without_the_field_the_pull_ends_and_nodes_start():
    found = world()
    found.step(2)
    spec(found.cluster, rollout=Rollout(max_parallel=2))
    found.step(2)
    assert found.owned == {}
    assert set(found.turns()) == {"a", "b"}


def test_the_field_may_be_set_in_a_run_that_goes_on():
    found = world(rollout=Rollout(max_parallel=1))
    found.step(3)
    assert list(found.turns()) == ["a"]
    spec(found.cluster, rollout=FIRST)
    found.complete("a")
    found.step(3)
    assert list(found.turns()) == ["a"]
    found.end_owned(PULL)
    found.finish()
    assert found.phase == "Succeeded"


def test_in_a_completed_run_nobody_pulls_or_waits():
    found = world("a", rollout=Rollout(max_parallel=1), ttl_seconds_after_finished=600)
    found.finish()
    spec(found.cluster, rollout=FIRST, ttl_seconds_after_finished=600)
    found.step(2)
    assert (found.phase, found.created) == ("Succeeded", [])


def test_a_change_of_the_nodes_pulls_on_those_of_the_new_selection():
    found = world()
    found.step()
    job = found.cluster.job
    nodes = replace(job.spec.nodes, exclude=("zzz",))
    spec(found.cluster, nodes=nodes)
    found.step(3)
    assert found.created == [PULL, PULL]
    assert found.owned[PULL].spec.nodes == nodes


def test_each_revision_of_a_continuous_job_pulls_its_images():
    found = StandingPartsWorld("a", "b", rollout=FIRST)
    found.step(3)
    found.end_owned(PULL)
    found.step(4)
    assert pulled(found)
    assert len(found.turns()) == 2
    found.finish()
    change(found.cluster, image="example/task:2")
    found.step(3)
    assert found.created == [PULL, PULL]
    assert found.owned[PULL].spec.image == "example/task:2"
    assert (pulled(found), found.ran_newest()) == (False, [])
    found.end_owned(PULL)
    found.finish()
    assert sorted(found.ran_newest()) == ["a", "b"]


def test_of_a_continuous_job_a_failed_pull_lasts_until_a_retry():
    found = StandingPartsWorld("a", "b", rollout=FIRST)
    found.step(2)
    found.end_owned(PULL, "2 of 2 nodes failed")
    found.step(4)
    assert found.condition("Failed")[1] == "ImagePullFailed"
    assert (found.owned, found.ran) == ({}, [])
    found.retry("1")
    found.step(3)
    assert found.created == [PULL, PULL]
    found.end_owned(PULL)
    found.step(4)
    assert found.condition("Failed")[0] == "False"
    assert len(found.turns()) == 2


def test_of_a_continuous_job_a_failed_pull_lasts_while_the_daemon_set_is_deleted():
    found = StandingPartsWorld("a", "b", rollout=FIRST)
    change(found.cluster, failure_policy=FailurePolicy(pods=PodPolicy.DELETE))
    found.step(2)
    found.end_owned(PULL, "2 of 2 nodes failed")
    while not acts(found.step(), DeleteDaemonSet):
        pass
    found.cluster.has_daemon_set, found.cluster.pods = False, []
    for _ in range(5):
        assert found.step().actions == ()
    assert found.condition("Failed")[:2] == ("True", "ImagePullFailed")
    found.retry("1")
    assert acts(found.step(), ApplyDaemonSet)
    assert found.condition("Failed")[0] == "False"


def test_of_a_continuous_job_a_corrected_image_is_pulled_without_a_retry():
    found = StandingPartsWorld("a", "b", rollout=FIRST)
    found.step(2)
    found.end_owned(PULL, "2 of 2 nodes failed")
    found.step(4)
    change(found.cluster, image="example/task:2")
    found.step(4)
    assert found.created == [PULL, PULL]
    found.end_owned(PULL)
    found.finish()
    assert sorted(found.ran_newest()) == ["a", "b"]


def test_if_the_job_cannot_be_created_the_run_waits_and_says_why():
    found = world()
    found.extra = {"refusals": {RefusedWrite.OWNED_JOB: "exceeded quota"}}
    found.step(3)
    assert (found.created, found.turns()) == ([], {})
    assert found.condition("Progressing")[1] == "PullingImages"
    words = "the API server refuses a Job of this Job: exceeded quota"
    assert words in found.condition("Progressing")[2]


@pytest.mark.parametrize("last", [1, 2, 3, 4])
def test_a_crash_after_any_action_leads_to_the_same_end(last):
    found = world("a")
    for number in range(12):
        found.crash_after(last if number % 2 else 99)
        if PULL in found.owned and not found.owned[PULL].status.conditions:
            found.end_owned(PULL)
    found.finish()
    assert found.phase == "Succeeded"
    assert found.started == ["a"]


def test_a_job_with_too_many_images_does_not_start():
    containers = [{"name": f"c{n}", "image": f"i:{n}"} for n in range(20)]
    found = world(template={"spec": {"containers": containers}})
    before_the_start(found)
    plan = found.step()
    assert found.condition("Progressing")[:2] == ("False", "TooManyImages")
    assert [type(action) for action in plan.actions] == [WriteStatus]


def test_a_started_job_that_has_too_many_images_says_so_and_starts_no_node():
    containers = [{"name": f"c{n}", "image": f"i:{n}"} for n in range(20)]
    found = world(template={"spec": {"containers": containers}})
    found.step(3)
    assert found.condition("Progressing")[:2] == ("False", "TooManyImages")
    assert (found.created, found.turns()) == ([], {})


def test_a_preview_pulls_nothing():
    found = world()
    spec(found.cluster, suspend=True)
    before_the_start(found)
    plan = found.step()
    progress = found.cluster.job.status.rollout
    assert isinstance(progress, RolloutProgress)
    assert [batch.count for batch in progress.plan] == [3]
    assert not any(isinstance(action, CreateJob) for action in plan.actions)

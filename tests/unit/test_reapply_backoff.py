"""How often a DaemonSet that does not stay as it was applied is applied again."""

import itertools

from daemonset_job.api import names
from job_controller.core.plan import ApplyDaemonSet, Plan
from job_controller.reapply_backoff import PAUSE_SECONDS, RESET_SECONDS, ReapplyBackoff

KEY = ("default", "sample")


def action(spec="1", uid="set"):
    marks = {names.ANNOTATION_SPEC_HASH: spec, names.ANNOTATION_NODES_HASH: "n"}
    return ApplyDaemonSet({"metadata": {"annotations": marks}}, uid)


def test_what_does_not_stay_is_applied_ever_more_slowly():
    backoff, now, times = ReapplyBackoff(), 0.0, []
    for _ in range(12):
        plan = backoff.defer(KEY, Plan((action(),)), now)
        if not plan.actions:
            assert plan.requeue_after is not None
            now += plan.requeue_after
        assert backoff.defer(KEY, Plan((action(),)), now).actions
        backoff.record(KEY, action(), now)
        times.append(now)
    gaps = [b - a for a, b in itertools.pairwise(times)]
    assert gaps[:4] == [1.0, 2.0, 4.0, 8.0]
    assert gaps[-1] == PAUSE_SECONDS[1]


def test_another_spec_and_another_daemon_set_are_applied_at_once():
    backoff = ReapplyBackoff()
    backoff.record(KEY, action(), 0.0)
    assert not backoff.defer(KEY, Plan((action(),), requeue_after=0.5), 0.0).actions
    assert backoff.defer(KEY, Plan((action(),), requeue_after=0.5), 0.0).requeue_after == 0.5
    assert backoff.defer(KEY, Plan((action("2"),)), 0.0).actions
    assert backoff.defer(KEY, Plan((action(uid=""),)), 0.0).actions


def test_after_a_calm_time_the_pause_is_short_again():
    backoff = ReapplyBackoff()
    for now in (0.0, 1.0, 3.0):
        backoff.record(KEY, action(), now)
    backoff.record(KEY, action(), 7.0 + RESET_SECONDS)
    assert backoff.defer(KEY, Plan((action(),)), 7.0 + RESET_SECONDS).requeue_after == 1.0
    backoff.forget(KEY)
    assert backoff.defer(KEY, Plan((action(),)), 7.0 + RESET_SECONDS).actions

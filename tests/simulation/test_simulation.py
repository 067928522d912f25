"""Schedules of the simulation, and proof that it notices when something is wrong."""

import os
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path
from unittest.mock import patch

import pytest

from job_controller.core.state import counting as tally
from tests.simulation import (
    changed_rollouts,
    changed_schedules,
    corrections,
    crowded_rollouts,
    drains,
    drawn_disturbances,
    exit_codes,
    far_clocks,
    holds,
    intent,
    interrupted_exits,
    labelled_steps,
    lost_logs,
    orphans,
    refused_writes,
    reimages,
    scheduled_jobs,
    undone_changes,
    undone_selections,
    zones,
)
from tests.simulation.generator import generate_schedule
from tests.simulation.mutants import DECIDE, MUTANTS, deletes_without_version
from tests.simulation.oracle import INVARIANTS
from tests.simulation.parallel_runs import Findings, run_many
from tests.simulation.run import simulate
from tests.simulation.schedule import Disturbance, JobPlan, NodePlan, Schedule, Task
from tests.simulation.shrink import shrink

# `make simulate` runs many more of each kind.
SCHEDULES = 120
# Those in which something holds nodes of a rollout up: see `holds`.
HELD = range(holds.FIRST_SEED, holds.FIRST_SEED + 30)
# Those with limits of zones.
ZONED = range(zones.FIRST_SEED, zones.FIRST_SEED + 24)
# Those with a Job that a user suspends, corrects and resumes.
CORRECTED = range(corrections.FIRST_SEED, corrections.FIRST_SEED + 50)
# And those in which the user does so late, mostly after the run has failed.
CORRECTED_LATE = range(corrections.LATE_SEED, corrections.LATE_SEED + 24)
# Those in which a user takes the pods from the DaemonSet of such a Job.
ORPHANED = range(orphans.FIRST_SEED + 60, orphans.FIRST_SEED + 90)
# Those whose Jobs cordon or drain their nodes.
DRAINED = range(drains.FIRST_SEED, drains.FIRST_SEED + 50)
# Those with a ScheduledJob.
SCHEDULED = range(scheduled_jobs.FIRST_SEED, scheduled_jobs.FIRST_SEED + 60)
# Those in which much happens to each rollout.
CROWDED = range(crowded_rollouts.FIRST_SEED, crowded_rollouts.FIRST_SEED + 24)
# Those with machines that are installed again.
REIMAGED = range(reimages.FIRST_SEED, reimages.FIRST_SEED + 24)
# Those with a rule for an exit code, and tasks that end with another one after that.
EXIT_CODES = range(exit_codes.FIRST_SEED, exit_codes.FIRST_SEED + 24)
# Those with changes that are undone while a user asks for more.
UNDONE = range(undone_changes.FIRST_SEED, undone_changes.FIRST_SEED + 24)
# Those with changes of the selection, and suspensions, that are undone as fast.
UNDONE_SELECTIONS = range(undone_selections.FIRST_SEED, undone_selections.FIRST_SEED + 24)
# Those with tasks of mode Exit whose nodes are interrupted as they end.
INTERRUPTED_EXITS = range(interrupted_exits.FIRST_SEED, interrupted_exits.FIRST_SEED + 24)
# Those with changes of rollouts that are at work.
CHANGED_ROLLOUTS = range(changed_rollouts.FIRST_SEED, changed_rollouts.FIRST_SEED + 24)
# Those with edits of a ScheduledJob, and with wrong clocks.
CHANGED_SCHEDULES = range(changed_schedules.FIRST_SEED, changed_schedules.FIRST_SEED + 30)
# Those whose tasks lose their logs when they have ended.
LOST_LOGS = range(lost_logs.FIRST_SEED, lost_logs.FIRST_SEED + 24)
# Those whose steps select nodes by labels.
LABELLED_STEPS = range(labelled_steps.FIRST_SEED, labelled_steps.FIRST_SEED + 40)
# Those with refusals of writes that no other ones refuse.
REFUSED_WRITES = range(refused_writes.FIRST_SEED, refused_writes.FIRST_SEED + 30)
# Those with API servers whose clocks differ by much.
FAR_CLOCKS = range(far_clocks.FIRST_SEED, far_clocks.FIRST_SEED + 24)
# Those of CORRECTED, DRAINED, SCHEDULED and CHANGED_SCHEDULES are judged by the tests that look at
# them.
RANGES = {
    "plain": range(SCHEDULES),
    "holds": HELD,
    "zones": ZONED,
    "late corrections": CORRECTED_LATE,
    "orphans": ORPHANED,
    "crowded rollouts": CROWDED,
    "reimages": REIMAGED,
    "exit codes": EXIT_CODES,
    "undone changes": UNDONE,
    "undone selections": UNDONE_SELECTIONS,
    "interrupted exits": INTERRUPTED_EXITS,
    "changed rollouts": CHANGED_ROLLOUTS,
    "lost logs": LOST_LOGS,
    "labelled steps": LABELLED_STEPS,
    "refused writes": REFUSED_WRITES,
    "far clocks": FAR_CLOCKS,
}
# Others that have found a defect, of the product or of the model, before Jobs that stay were asked
# for more, and before tasks rebooted their nodes.
FOUND = (
    5309077,
    5315957,
    5260681,
    5269205,
    5276516,
    5438,
    21216,
    3005504,
    3006182,
    3007573,
    3018914,
    4001566,
    4004136,
    5015520,
    5033658,
    5047756,
    5057806,
    5074737,
    5092072,
    5102928,
    5122062,
    5122454,
    5155049,
    5163625,
    5181354,
    5197391,
    5220173,
    5222240,
    5224851,
    5230276,
    5244701,
    5246454,
    5252244,
    77007017,
    77008502,
    77010389,
    6001087,
    7000220,
    7000264,
    7000404,
    7000423,
    7000433,
    7000434,
    7000467,
    7100209,
    7100654,
    7100798,
    7101322,
    7101695,
    7102598,
    10003780,
    10004650,
    10007157,
    10007247,
    10008095,
    10008717,
    10008828,
    10009940,
    10021054,
    10021677,
    10021976,
    11004625,
)
# Others that have found one since.
FOUND_LATER = (
    *(64, 111, 128, 171, 193, 329, 438, 603, 793, 1213, 1440, 1551, 1998, 2243, 2455, 2519),
    *(2523, 2566, 2818, 3097, 3408, 3881, 4436, 4612, 4773, 4897, 100176, 100210, 102794),
    *(102600, 2000100333, 2000400363, 3000100413, 88000045, 9500000472),
    *(374, 6000674, 6100396, 5033, 5392, 6300214, 6303315, 6306905, 6307757, 6303489),
    *(6301471, 6303304, 6303438, 6308446, 6308849, 1000002249, 2000000430, 6000000121),
    *(3000000203, 3000000290, 4000000060, 4000000325, 7002471, 7003251, 7004232, 5000000279),
    *(1000004358, 1000003150, 1000003224, 1000010441, 1000010498, 1000010570, 1000010778),
    *(1000020163, 1000020486, 1000021142, 1000030180, 1000002540, 3000025, 7100158),
    *(1000060051, 7200387, 7200871, 7202423, 4000060012, 1000060945, 7303078, 7300872),
    *(7303721, 7301186, 7302303, 7303869, 7304011, 7305754),
    *(7307024, 7412839, 7420451, 7430611, 7484890, 7477937, 7318214, 9200412, 7317785),
    *(7400077, 7316724, 7320042, 7317435, 7321993, 7323166),
    *(1000080498, 1000080662, 1000081486, 2000080065),
    *(7326039, 7329560, 9200347, 7345432, 7343725, 7348379),
    *(7363869, 7353035, 7351715, 7359344, 7350555, 7352487),
    # A turn from before a rerun request; the step of a node that runs again for one; a node
    # that was read directly, and that the cache shows 60 s late.
    *(7373118, 7375257, 7371432),
    # Evidence that was refused, and waits although the API server takes others again; rejected
    # pods of the machine before; evidence of an earlier revision that fills a report.
    *(7493942, 7516670, 7669362),
    # Of the oracle: a node that is not Ready before it has a taint; a DaemonSet that may not be
    # deleted; a completion that is recorded as the run is complete.
    *(7527019, 7635154, 7636512),
    # Late evidence of a pod that a taint took; a rerun that only the report has; a start that is
    # taken back while a node is down.
    *(7699264, 7703912, 7707063),
    # Of the oracle: sets of nodes with equal counts; a node that is Ready again after the deletion;
    # a task that a late watch never showed.
    *(6010958, 7697215, 7708352),
    # Found with them, and fixed before.
    *(7698454, 7706284),
    # A schedule that was changed while its status was refused.
    17_000_000_484,
)
# Each of the features is in at least this number of the first ones.
FEATURED = 80
GENERATED = 800
# The mutants that no invariant names; `test_oracle` shows that the others are caught.
OTHER_MUTANTS = MUTANTS.keys() - {each.mutant for each in INVARIANTS.values()}
# Each mutant is caught within this number of schedules; these need a rare one, and begin near it.
MUTANT_SEEDS = 40
RARE = {
    "removes_gates_by_cached_ledger": 21280,
    "reads_no_previous_log": 480,
    "counts_by_name": 300,
    "forgets_failed_nodes": 100,
    "keeps_findings_of_earlier_attempts": 150,
    "keeps_results_after_gaps": 65,
    "ignores_failure_tokens": 30,
    "rolls_back_every_node": 185,
    "reports_pause_early": 2800,
    "expects_every_restart": 800,
    "counts_time_before_cause": 38,
    "counts_time_not_ready": 1202,
    "counts_time_before_retry": 443,
    "forgets_rejections_at_gate": 425,
    "suspends_nothing": holds.FIRST_SEED + 4,
    "ignores_windows": holds.FIRST_SEED + 26,
    "ends_steps_before_all_are_chosen": labelled_steps.FIRST_SEED + 33,
    "approves_steps_itself": holds.FIRST_SEED + 105,
    "continues_after_abort": holds.FIRST_SEED + 12,
    "skips_soaks": crowded_rollouts.FIRST_SEED + 20,
    "leaves_a_node_out_of_the_check": changed_rollouts.FIRST_SEED,
    "passes_nodes_without_the_script": changed_rollouts.FIRST_SEED + 330,
    "deletes_before_the_rollback": 487,
    "never_looks_for_lost_nodes": 99_600,
    "trusts_the_clocks_of_nodes": 7_744_729,
    "needs_one_node": holds.FIRST_SEED + 26,
    "ends_before_the_last_step": holds.FIRST_SEED + 178,
    "trusts_cached_lists": drains.FIRST_SEED + 12,
    "ignores_deadlines_of_starts": scheduled_jobs.FIRST_SEED + 40,
    "starts_nodes_after_failure": 22,
    "finds_daemon_set_by_name": 10,
    "records_results_of_first_node": 10,
    "sets_no_timers": 7,
    "makes_up_for_changed_schedules": changed_schedules.FIRST_SEED + 4,
    "counts_changes_from_their_reading": changed_schedules.FIRST_SEED + 2620,
    "leaves_orphans": orphans.FIRST_SEED + 86,
}


@pytest.mark.parametrize("seeds", RANGES.values(), ids=RANGES)
def test_invariants_hold_in_every_schedule(seeds):
    findings = Findings()
    for found in run_many(seeds, workers=1, keeps_going=True):
        findings.add(found)
    assert findings.count == len(seeds)
    failing = findings.failures
    assert not failing, f"{findings.kinds}, see python -m tests.simulation --seed {failing[0]}"


def test_starts_are_taken_back_in_many_of_them_and_stay_in_others():
    counts = Counter()
    for schedule in map(generate_schedule, CORRECTED):
        found = simulate(
            schedule, look=lambda world: counts.update([world.oracle.corrections.count > 0])
        )
        assert not found.violations, schedule.seed
    assert counts[True] >= 10, counts
    assert counts[False] >= 10, counts


def test_nodes_are_cordoned_and_drained_and_some_drains_fail():
    counts = Counter()

    def look(world):
        found = world.oracle.evictions.counts
        counts.update({name: 1 for name in found if found[name]})
        counts["cordons"] += world.oracle.cordons.count > 0

    for schedule in map(generate_schedule, DRAINED):
        assert not simulate(schedule, look=look).violations, schedule.seed
    assert set(counts) == {"cordons", "evictions", "DrainTimedOut", "DrainRefused"}
    assert min(counts.values()) >= 3, counts


def test_runs_of_scheduled_jobs_start_and_overlap():
    counts = Counter()

    def look(world):
        schedules = world.oracle.schedules
        counts["started"] += any(schedules.made.values())
        counts["several"] += any(len(made) > 1 for made in schedules.made.values())
        counts.update(dict.fromkeys(schedules.overlaps, 1))

    for schedule in map(generate_schedule, SCHEDULED):
        assert not simulate(schedule, look=look).violations, schedule.seed
    assert set(counts) == {"started", "several", "Allow", "Forbid", "Replace"}
    assert min(counts.values()) >= 2, counts


def test_edited_scheduled_jobs_start_as_asked_also_with_wrong_clocks():
    counts = Counter()

    def look(world):
        schedules, plan = world.oracle.schedules, world.schedule
        counts["started"] += any(schedules.made.values())
        counts["undisturbed"] += schedules.undisturbed > 0
        counts["ahead"] += min(plan.api_skews) > 0
        counts["behind"] += max(plan.api_skews) < 0
        counts.update({d.mode for d in plan.disturbances if d.kind == "edit_schedule"})

    for schedule in map(generate_schedule, CHANGED_SCHEDULES):
        assert not simulate(schedule, look=look).violations, schedule.seed
    kinds = {"started", "undisturbed", "ahead", "behind", *changed_schedules.FIELDS}
    assert set(counts) == kinds
    assert min(counts.values()) >= 2, counts


def test_zones_are_of_several_nodes_and_some_change():
    counts = Counter()
    for schedule in map(generate_schedule, range(zones.FIRST_SEED, zones.FIRST_SEED + 100)):
        zoned = Counter(node.topology_zone for node in schedule.nodes)
        counts["several nodes of a zone"] += max(zoned.values()) > 1
        counts["several zones"] += len(zoned) > 1
        counts["late"] += any(d.kind == "topology" for d in schedule.disturbances)
        limits = [job.spec["rollout"]["maxParallelPerZone"] for job in schedule.jobs]
        counts["percent"] += "50%" in limits
    assert min(counts.values()) >= 15, counts


def test_each_hold_is_in_many_of_the_schedules_with_holds():
    counts = Counter()
    for schedule in map(generate_schedule, range(holds.FIRST_SEED, holds.FIRST_SEED + 160)):
        kinds = {d.kind for d in schedule.disturbances}
        counts.update({kind: kind in kinds for kind in ("abort", "approve", "stop_all")})
        specs = [job.spec for job in schedule.jobs]
        rollouts = [spec.get("rollout", {}) for spec in specs]
        counts["after"] += any("after" in spec for spec in specs)
        counts["minCompleted"] += any("successPolicy" in spec for spec in specs)
        policies = [spec.get("failurePolicy", {}) for spec in specs]
        counts["unreachable"] += any("unreachableSeconds" in policy for policy in policies)
        counts["window"] += any("window" in rollout for rollout in rollouts)
        counts["exclusive"] += any("exclusive" in rollout for rollout in rollouts)
    assert len(counts) == len(holds.NAMES)
    assert min(counts.values()) >= 16, counts


def test_each_write_that_is_refused_there_is_refused_in_many_schedules():
    counts, first = Counter(), refused_writes.FIRST_SEED
    for schedule in map(generate_schedule, range(first, first + 160)):
        refused = {d.what for d in schedule.disturbances if d.kind == "refuse_write"}
        counts.update(refused & set(refused_writes.WRITES))
    assert set(counts) == set(refused_writes.WRITES)
    assert min(counts.values()) >= 10, counts
    others = {what for who, what in drawn_disturbances.WRITES if who == "controller"}
    assert not counts.keys() & others


def test_steps_that_select_by_labels_have_much_happen_to_them():
    counts = Counter()
    first = labelled_steps.FIRST_SEED
    for schedule in map(generate_schedule, range(first, first + 160)):
        job, happens = schedule.jobs[0], schedule.disturbances
        steps = job.spec["rollout"]["steps"]
        selectors = [step["selector"] for step in steps if "selector" in step]
        chosen = [
            {node.name for node in schedule.nodes if selects(selector, node)}
            for selector in selectors
        ]
        counts["several"] += len(selectors) > 1
        counts["beside numbers"] += any("nodes" in step for step in steps)
        counts["none"] += not all(chosen)
        counts["shared"] += any(a & b for a, b in pairwise(chosen))
        counts["approval"] += any("approval" in step for step in steps)
        counts["check"] += any("check" in step for step in steps)
        counts["rollback"] += "rollback" in job.spec
        counts["continuous"] += job.is_continuous
        counts.update(dict.fromkeys({d.kind for d in happens} & {"label", "edit", "approve"}, 1))
        counts["undone"] += any(d.kind == "label" and d.seconds for d in happens)
    assert len(counts) == 12
    assert min(counts.values()) >= 10, counts


def selects(selector, node):
    labels = {"zone": node.zone, **dict(node.labels)}
    return intent.has_labels(selector, {"metadata": {"labels": labels}})


@pytest.mark.parametrize("seed", FOUND)
def test_a_schedule_that_has_found_a_defect_holds(seed):
    assert not simulate(generate_schedule(seed, is_early=True)).violations


@pytest.mark.parametrize("seed", FOUND_LATER)
def test_a_schedule_that_found_a_defect_later_holds(seed):
    assert not simulate(generate_schedule(seed)).violations


def test_a_long_deleted_pod_counts_for_no_other_node():
    """As many nodes are desired as before the edit, and the caches have as many living pods."""
    schedule = Schedule(
        0,
        (NodePlan("n1"), NodePlan("n2", (Task("done", 3.0),))),
        (JobPlan(spec={"image": "example/task:1", "nodes": {"include": ["n2"]}}),),
        (
            Disturbance(2.0, "stall", "controller", "pods", seconds=10.0),
            Disturbance(2.0, "stall", "terminator", "pods", seconds=10.0),
            Disturbance(3.2, "edit", "default/sample", "+n1", "nodes"),
        ),
        calm=True,
    )
    assert not simulate(schedule).violations


def test_a_completed_node_stays_at_the_gate_although_the_controller_has_an_old_report():
    schedule = Schedule(
        0,
        (NodePlan("n1", (Task("done", 3.0),)), NodePlan("n2", (Task("done", 40.0),))),
        (JobPlan(spec={"image": "example/task:1"}),),
        (
            Disturbance(2.0, "stall", "controller", "jobreports", seconds=25.0),
            Disturbance(6.0, "delete_pod", what="n1"),
        ),
        calm=True,
    )
    assert not simulate(schedule).violations
    with MUTANTS["removes_gates_by_cached_ledger"]():
        assert simulate(schedule).kinds == {"started again"}


def test_a_ledger_that_is_read_in_the_moment_of_an_entry_may_lack_it():
    schedule = Schedule(
        2010,
        (NodePlan("n1"), NodePlan("n2", (Task("fail", 1.0, 1, 1),))),
        (JobPlan(spec={"image": "example/task:1"}),),
        (Disturbance(1.6, "force_delete", what="n1"),),
        calm=True,
    )
    found = simulate(schedule)
    assert not found.violations
    assert found.excused == {"started again: stale read": 1}


def away(kind, seconds, *more, spec=None):
    """Return a schedule of two nodes, one of which is away when the other one completes."""
    policy = {"failurePolicy": {"action": "Continue"}}
    return Schedule(
        0,
        (NodePlan("n1", (Task("done", 5.0),)), NodePlan("n2", (Task("done", 20.0),))),
        (JobPlan(spec={"image": "example/task:1", **policy, **(spec or {})}),),
        (Disturbance(3.0, kind, what="n2", seconds=seconds), *more),
        calm=True,
    )


def test_deleted_node_with_a_gated_pod_is_not_counted():
    """The DaemonSet controller does not receive deletions of nodes."""
    schedule = Schedule(
        0,
        (NodePlan("n1", (Task("done", 1.0),)), NodePlan("n2", (Task("done", 20.0),))),
        (JobPlan(spec={"image": "example/task:1"}),),
        (Disturbance(4.0, "delete_pod", what="n1"), Disturbance(10.0, "leave", what="n1")),
        calm=True,
    )
    assert not simulate(schedule).violations
    with patch.object(tally, "find_pods_of_deleted_nodes", lambda *_: ([], None)):
        assert simulate(schedule).kinds & {"counts", "stuck", "lifetime"}


FORCED = Disturbance(8.0, "force_delete", what="n2")


@pytest.mark.parametrize("seconds", [60.0, 0.0])
@pytest.mark.parametrize(
    "found", [("shutdown",), ("down", FORCED), ("no_network", FORCED)], ids=lambda found: found[0]
)
def test_a_node_that_is_away_and_has_no_pod_stays_desired(found, seconds):
    kind, *more = found
    schedule = away(kind, seconds, *more)
    assert not simulate(schedule).violations
    with MUTANTS["ignores_nodes_without_pod"]():
        assert simulate(schedule).kinds & {"complete", "counts", "stuck"}


def test_a_node_that_an_administrator_tainted_as_well_does_not():
    taint = Disturbance(4.0, "taint", what="n2", mode="NoSchedule")
    assert not simulate(away("shutdown", 0.0, taint)).violations


def widened_at_the_last_moment():
    """Return a schedule in which the terminator receives an edit late, then the Job's deletion."""
    spec = {
        "image": "example/task:1",
        "nodes": {"selector": {"matchLabels": {"zone": "a"}}},
        "ttlSecondsAfterFinished": 10,
    }
    watches = ("jobs", "daemonsets", "pods")
    return Schedule(
        0,
        (NodePlan("n1"), NodePlan("n2", (Task("done", 3.0),), zone="b")),
        (JobPlan(spec=spec),),
        (
            *(Disturbance(8.0, "stall", "terminator", what, seconds=30.0) for what in watches),
            Disturbance(8.5, "select", "default/sample", "*"),
        ),
        calm=True,
    )


def test_job_widened_during_the_count_is_not_deleted():
    assert not simulate(widened_at_the_last_moment()).violations
    with deletes_without_version():
        found = simulate(widened_at_the_last_moment()).violations
    assert ("deletion", "n2 has not completed, spec.nodes was changed") in {v[1:] for v in found}


def test_each_feature_is_in_many_of_the_schedules():
    counts = Counter()
    for schedule in map(generate_schedule, range(GENERATED)):
        jobs, tasks = schedule.jobs, [t for node in schedule.nodes for t in node.tasks]
        counts["exit"] += any(job.is_exit for job in jobs)
        counts["results"] += any("results" in job.spec for job in jobs)
        counts["refusals"] += any(task.kind == "refuse" for task in tasks)
        counts["shards"] += len(schedule.nodes) > schedule.shard_nodes
        counts["jobs"] += len(jobs) > 1
        kinds = {d.kind for d in schedule.disturbances}
        counts["taints"] += bool(kinds & {"taint", "drain"})
        counts["edits"] += "edit" in kinds
        counts["clocks"] += any(node.skew for node in schedule.nodes)
        counts["refusals of writes"] += "refuse_write" in kinds
        counts["namespaces"] += len({job.namespace for job in jobs}) > 1
    assert min(counts.values()) >= FEATURED, counts


def test_any_number_of_workers_finds_the_same():
    one, two = (
        list(run_many(range(8), workers=workers, keeps_going=True, block=3)) for workers in (1, 2)
    )
    assert one == two


def test_the_same_seed_gives_the_same_trace_again():
    for seed in range(6):
        first, second = (simulate(generate_schedule(seed), is_tracing=True) for _ in range(2))
        assert first.digest() == second.digest()


def test_the_same_seed_gives_the_same_trace_in_another_process():
    code = (
        "from tests.simulation.generator import generate_schedule\n"
        "from tests.simulation.run import simulate\n"
        "schedules = map(generate_schedule, range(3))\n"
        "print([simulate(each, is_tracing=True).digest() for each in schedules])\n"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": salt},
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        for salt in ("1", "2")
    }
    assert len(digests) == 1


def test_tracing_changes_nothing():
    for seed in range(20, 25):
        traced, untraced = (
            simulate(generate_schedule(seed), is_tracing=True),
            simulate(generate_schedule(seed)),
        )
        assert (traced.seconds, traced.violations) == (untraced.seconds, untraced.violations)


@pytest.mark.parametrize("name", sorted(OTHER_MUTANTS))
def test_a_defect_is_caught(name):
    """By an invariant: a mutant that ends a process, as one with wrong arguments does, is none."""
    with MUTANTS[name]():
        _, kinds = _first_failure(RARE.get(name, 0))
    assert "process" not in kinds


def test_a_failure_shrinks_to_a_readable_trace():
    with MUTANTS["completes_early"]():
        seed, _ = _first_failure(start=100)
        schedule = generate_schedule(seed)
        outcome = simulate(schedule)
        smaller, shown = shrink(schedule, outcome)
    assert shown.kinds & outcome.kinds
    assert len(smaller.disturbances) <= 1
    assert len(smaller.nodes) <= 2
    assert 0 < len(shown.trace) < 200


def _first_failure(start):
    """Return the first seed with a violation, and the kinds of those until then."""
    for seed in range(start, start + MUTANT_SEEDS):
        schedule = generate_schedule(seed)
        found = simulate(schedule, decide=DECIDE.get("decide"), stops_at=INVARIANTS)
        if found.violations:
            return seed, found.kinds
    return pytest.fail(f"no violation in {MUTANT_SEEDS} seeds from {start}")

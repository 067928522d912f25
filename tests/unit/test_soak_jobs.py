"""What a soak run draws: repeatable, valid Jobs, and disturbances at their times."""

import random
import subprocess

import pytest

from benchmarks.soak_jobs import KINDS, draw_burst, draw_wish
from benchmarks.soak_schedule import KILLING_SHARE, draw_disturbances
from benchmarks.soak_schedule import KINDS as DISTURBANCES
from benchmarks.soak_wish import SCRIPT, Place, manifest
from daemonset_job.api.job import parse_job

OPTIONS = {name for name, kind in DISTURBANCES.items() if kind.is_option}
PLACE = Place(("a", "b"), ("n0", "n1", "n2"), ("fake-0", "fake-1", "fake-2", "fake-3"))


def wish(kind, seed=1):
    return draw_wish(random.Random(seed), PLACE, 7, kind=kind)


def test_the_same_seed_draws_the_same():
    def draw():
        rng = random.Random(5)
        return [draw_wish(rng, PLACE, number) for number in range(200)]

    assert draw() == draw()
    assert {found.kind for found in draw()} == set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_a_job_that_the_controller_can_read(kind):
    found = wish(kind)
    raw = manifest(found)
    raw["metadata"] |= {"uid": "u", "generation": 1}
    spec = parse_job(raw).spec
    assert spec.mount_path
    assert (spec.completion.mode == "Exit") == kind.startswith("exit")


@pytest.mark.parametrize("kind", KINDS)
def test_a_job_that_its_user_deletes_does_not_leave_by_itself(kind):
    found = wish(kind)
    assert found.leaves_by_itself == all(step.do != "delete" for step in found.steps)
    assert found.leaves_by_itself or found.phase != "Succeeded" or found.may_fail_on_nodes


def test_edits_of_the_nodes_change_them():
    for kind in ("widen-include", "widen-exclude", "widen-selector"):
        found = wish(kind)
        assert found.spec["nodes"]
        assert found.steps[-1].patch == {"spec": {"nodes": None}}
    narrow = wish("narrow")
    (hanging,) = narrow.steps[0].patch["spec"]["nodes"]["exclude"]
    assert hanging in narrow.spec["args"]


def test_a_burst_is_many_jobs_for_few_simulated_nodes():
    found = draw_burst(random.Random(1), PLACE, 100, 20)
    assert len({one.name for one in found}) == 20
    assert all(set(one.spec["nodes"]["include"]) < set(PLACE.simulated) for one in found)


def test_disturbances_are_repeatable_in_order_and_within_the_run():
    drawn = draw_disturbances(4, 3600)
    assert drawn == draw_disturbances(4, 3600)
    assert drawn != draw_disturbances(5, 3600)
    assert [one.at for one in drawn] == sorted(one.at for one in drawn)
    assert all(0 <= one.at < 3600 and 0 <= one.pick < 1 for one in drawn)
    assert {one.kind for one in drawn} == set(DISTURBANCES) - OPTIONS


def test_leaving_a_kind_out_leaves_the_others_as_they_were():
    drawn = draw_disturbances(4, 3600)
    fewer = draw_disturbances(4, 3600, without=["quota"])
    assert fewer == [one for one in drawn if one.kind != "quota"]
    assert {one.kind for one in draw_disturbances(4, 3600, only=["node-stop"])} == {"node-stop"}


def test_processes_are_ended_at_the_beginning_only():
    for one in draw_disturbances(4, 36_000):
        if DISTURBANCES[one.kind].ends_processes:
            assert one.at < 36_000 * KILLING_SHARE


def test_a_short_run_has_disturbances_of_every_kind():
    assert {one.kind for one in draw_disturbances(1, 360)} == set(DISTURBANCES) - OPTIONS


def run(tmp_path, *args, node="n0"):
    task = SCRIPT.replace("/basetarget", str(tmp_path))
    command = ["sh", "-c", task, "task", "f", "0", *args]
    env = {"NODE_NAME": node, "PATH": "/bin:/usr/bin"}
    done = subprocess.run(command, env=env, timeout=10, check=False)
    words = [line.split()[0] for line in (tmp_path / "f").read_text().splitlines()]
    return done.returncode, words


def test_the_script_counts_its_starts_and_ends(tmp_path):
    assert run(tmp_path, "good", "*", "143") == (0, ["start", "end"])


def test_a_flaky_task_fails_once(tmp_path):
    assert run(tmp_path, "flaky", "*", "143") == (3, ["start", "failed"])
    assert run(tmp_path, "flaky", "*", "143") == (0, ["start", "failed", "start", "end"])


def test_a_broken_task_fails_until_it_is_fixed(tmp_path):
    assert run(tmp_path, "broken", "*", "143")[0] == 3
    assert run(tmp_path, "broken", "*", "143")[0] == 3
    (tmp_path / "f.fixed").touch()
    assert run(tmp_path, "broken", "*", "143")[0] == 0


def test_a_task_hangs_on_its_node_only(tmp_path):
    assert run(tmp_path, "hang", "n1", "143", node="n0") == (0, ["start", "end"])

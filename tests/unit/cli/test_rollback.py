"""Rollbacks: what is shown of them, what is proposed, and what is refused."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from daemonset_job.api.job import parse_job
from daemonset_job.api.report import parse_report
from daemonset_job.api.states import Phase
from daemonset_job.api.times import format_time
from kubectl_dsjob.errors import CliError
from kubectl_dsjob.html_page import html_page
from kubectl_dsjob.live_view import render
from kubectl_dsjob.node_tables import format_rows, history_rows, node_rows
from kubectl_dsjob.outputs import Output
from kubectl_dsjob.rollback_view import NAMES_LIMIT, is_rolled_back
from kubectl_dsjob.run_view import TEXT_LIMIT, view_run
from kubectl_dsjob.status_text import next_step, progress_line, status_screen
from kubectl_dsjob.writing import retry_patch_for, retry_words
from tests.unit.cli.views import HOSTILE, NOW, real_run

GOLDEN = Path(__file__).parent / "golden"
SPEC = {"image": "i", "rollback": {"script": "#!/bin/sh\nrm -f /basetarget/x\n"}}
GOING = {"jobs": ["sweep-rollback"], "reports": ["sweep-rollback-1"], "desired": 3, "completed": 1}
ENDED = {"startTime": format_time(NOW), "completionTime": format_time(NOW + timedelta(seconds=9))}


def condition(status, reason, message=""):
    known = {"type": "RolledBack", "status": status, "reason": reason, "message": message}
    return {**known, "lastTransitionTime": format_time(NOW)}


def job(rollback=None, conditions=(), *, annotations=None, spec=SPEC):
    """Return a Job that failed on one of five nodes, with this rollback in its status."""
    failed = {"type": "Failed", "status": "True", "reason": "MaxFailedNodesExceeded"}
    meta = {"name": "sweep", "namespace": "cli", "uid": "u", "annotations": annotations or {}}
    status = {
        "phase": "Failed",
        "startTime": format_time(NOW - timedelta(seconds=192)),
        "nodes": {"desired": 5, "completed": 2, "failed": 1, "waiting": 2},
        "conditions": [{**failed, "message": "1 of 5 nodes failed"}, *conditions],
        **({"rollback": rollback} if rollback else {}),
    }
    return parse_job({"metadata": meta, "spec": spec, "status": status})


def report(rollback, conditions=(), uid="u"):
    """Return the report of that run."""
    raw = {
        "metadata": {"name": f"sweep-{uid}", "namespace": "cli"},
        "spec": {"job": {"name": "sweep", "uid": uid}},
        "status": {
            "phase": "Failed",
            "nodes": {"desired": 5, "completed": 2, "failed": 1},
            "conditions": list(conditions),
            "nodeStates": {"n1": {"uid": "u1", "state": "Completed", "attempts": 1}},
            **({"rollback": rollback} if rollback else {}),
        },
    }
    return parse_report(raw)


PARTLY = {
    **GOING,
    **ENDED,
    "completed": 2,
    "unreachable": 1,
    "unreachableNames": "worker2",
    "requestedBy": "kubectl-dsjob",
}
MESSAGE = "2 of 3 nodes are rolled back; worker2 is unreachable"


@pytest.fixture
def partly():
    """A run whose rollback left out one node."""
    return view_run(job(PARTLY, [condition("True", "RolledBackPartly", MESSAGE)]), ())


def test_the_screen_of_a_rollback_is_as_its_golden_file(partly):
    shown = status_screen(partly, NOW, width=80)
    assert shown + "\n" == (GOLDEN / "status-rollback.txt").read_text("utf-8")


@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_no_line_but_the_next_step_is_wider_than_the_terminal(width):
    texts = {"message": HOSTILE * 20, "requestedBy": HOSTILE, "failedNames": "node-" * 90}
    view = view_run(job({**GOING, **texts}, [condition("False", "RollingBack")]), ())
    lines = status_screen(view, NOW, width=width).splitlines()[: -len(next_step(view))]
    assert all(cell_len(line) <= width for line in lines)
    console = Console(width=width, force_terminal=False, no_color=True)
    with console.capture() as capture:
        console.print(render(view, width))
    assert "rollback:" in capture.get()
    assert "\x1b" not in capture.get()
    assert "<script>" not in html_page(view)


def test_what_a_cluster_says_of_a_rollback_has_a_bound():
    long = {"jobs": ["j"] * 5000, "message": "m" * 9000, "failedNames": "f" * 9000}
    rollback = view_run(job({**GOING, **long}), ()).rollback
    assert len(rollback.jobs) == NAMES_LIMIT
    assert max(len(rollback.message), len(rollback.failed_names)) <= TEXT_LIMIT


@pytest.mark.parametrize(
    ("reason", "status", "is_ended", "code"),
    [
        ("RollbackWaiting", "False", False, 1),
        ("RollingBack", "False", False, 1),
        ("RollbackNameTaken", "False", False, 1),
        ("RollbackFailed", "False", True, 1),
        ("RolledBackPartly", "True", True, 3),
    ],
)
def test_a_run_goes_on_until_its_rollback_has_ended(reason, status, is_ended, code):
    view = view_run(job(GOING, [condition(status, reason)]), ())
    assert view.is_ended is is_ended
    assert view.rollback.exit_code == code
    assert f"rollback: {reason}: 1 of 3 nodes rolled back" in progress_line(view)


def test_all_nodes_rolled_back_is_a_success():
    view = view_run(job({**GOING, **ENDED, "completed": 3}, [condition("True", "RolledBack")]), ())
    assert view.rollback.exit_code == 0
    assert next_step(view) == []


@pytest.mark.parametrize(
    ("rollback", "reason"),
    [
        (GOING, "RollingBack"),
        ({**GOING, **ENDED, "completed": 3}, "RolledBack"),
        ({**GOING, **ENDED}, "RolledBackPartly"),
        ({**GOING, **ENDED, "failed": 1}, "RollbackFailed"),
    ],
)
def test_a_report_without_the_condition_says_it_by_its_numbers(rollback, reason):
    assert view_run(None, [report(rollback)]).rollback.reason == reason


def test_a_run_whose_rollback_is_requested_has_not_ended():
    """`wait` after `rollback` does not end before the controller has seen the request."""
    asked = {"daemonset.darkowlzz.space/rollback": "why"}
    assert view_run(job(), ()).is_ended
    assert not view_run(job(annotations=asked), ()).is_ended
    assert view_run(job(annotations=asked, spec={"image": "i"}), ()).is_ended


def test_the_command_that_answers_is_about_the_job_of_the_rollback():
    waits = view_run(job(GOING, [condition("False", "RollingBack")]), ())
    assert next_step(waits)[1] == "  kubectl dsjob status sweep-rollback -n cli --watch"
    failed = view_run(job(GOING, [condition("False", "RollbackFailed")]), ())
    assert next_step(failed)[1:] == [
        "  kubectl dsjob logs sweep-rollback -n cli --failed",
        "  kubectl dsjob retry --failed sweep-rollback -n cli",
    ]


def test_the_command_is_about_the_job_that_the_rollback_names():
    """An earlier Job fails when its node is back, while a later one is at work."""
    jobs = {**GOING, "jobs": ["sweep-rollback", "sweep-rollback-2"]}
    words = "Job sweep-rollback failed: n1 exit 2: Job sweep-rollback-2 is bad"
    failed = {**condition("False", "RollbackFailed"), "message": words}
    step = next_step(view_run(job(jobs, [failed]), ()))
    assert step[2] == "  kubectl dsjob retry --failed sweep-rollback -n cli"


def test_no_retry_is_advised_once_the_job_of_the_rollback_is_aborted_or_deleted():
    view = view_run(job({**GOING, **ENDED}, [condition("False", "RollbackCancelled")]), ())
    assert view.is_ended
    assert next_step(view) == [
        "waits for you: no retry revives the rollback, see which nodes it has not reached",
        "  kubectl dsjob report sweep -n cli",
    ]


def test_a_failed_run_that_can_be_undone_says_so():
    assert "  kubectl dsjob rollback sweep -n cli --reason TEXT" in next_step(view_run(job(), ()))
    without = view_run(job(spec={"image": "i"}), ())
    assert next_step(without) == [
        "waits for: a retry of the failed nodes",
        "  kubectl dsjob retry --failed sweep -n cli",
    ]


def test_a_request_that_is_not_possible_leaves_the_run_as_it_is():
    refused = job(None, [condition("False", "RollbackNotPossible")], spec={"image": "i"})
    view = view_run(refused, ())
    assert view.is_ended
    assert not is_rolled_back(refused)
    assert "retry" in next_step(view)[1]
    assert retry_patch_for(refused)


@pytest.mark.parametrize(
    "undone",
    [
        job(GOING),
        job(None, [condition("False", "RollbackWaiting")]),
        job(annotations={"daemonset.darkowlzz.space/rollback": "why"}),
    ],
)
def test_a_run_that_is_rolled_back_is_not_retried(undone):
    with pytest.raises(CliError, match="no retry revives it") as caught:
        retry_patch_for(undone)
    assert "kubectl delete dsj sweep -n cli" in caught.value.way_out


def test_the_report_has_a_column_for_what_became_of_each_node(partly):
    known = view_run(None, [report(PARTLY)])
    nodes = tuple(replace(node, rollback="Completed") for node in known.nodes)
    header, rows = node_rows(replace(known, nodes=nodes), is_wide=True)
    assert dict(zip(header, rows[0], strict=True))["ROLLBACK"] == "Completed"
    assert header[-1] == "RESULTS"
    assert "ROLLBACK" not in node_rows(real_run(5), is_wide=True)[0]


def test_the_history_says_which_runs_were_rolled_back():
    views = [view_run(None, [report(None, uid="a")]), view_run(None, [report(PARTLY, uid="b")])]
    lines = format_rows(*history_rows(views, NOW), Output.CSV).splitlines()
    assert lines[0] == "run,phase,rollback,desired,completed,failed,took,age"
    assert [line.split(",")[2] for line in lines[1:]] == ["", "RolledBackPartly"]
    assert "ROLLBACK" not in history_rows(views[:1], NOW)[0]


def test_the_page_has_a_section_for_it(partly):
    page = html_page(partly)
    assert "<h2>Rollback</h2>" in page
    assert MESSAGE in page
    assert "worker2" in page
    assert "<h2>Rollback</h2>" not in html_page(real_run(5))


def test_the_reason_of_a_report_is_that_of_the_run_not_of_its_rollback():
    failed = {"type": "Failed", "status": "True", "reason": "MaxFailedNodesExceeded"}
    first = condition("True", "RolledBack")
    view = view_run(None, [report(PARTLY, [first, failed])])
    assert view.reason == "MaxFailedNodesExceeded"


def test_an_aborted_run_is_not_said_to_wait_for_a_retry():
    run = view_run(job(), ())
    aborted = replace(run, is_aborted=True, is_suspended=True)
    assert next_step(aborted, " --context c") == [
        "no retry revives it: delete the Job, or roll it back",
        "  kubectl delete dsj sweep -n cli --context c",
        "  kubectl dsjob rollback sweep -n cli --context c --reason TEXT",
    ]
    assert len(next_step(replace(aborted, has_undo=False))) == 2


def test_a_retry_says_if_no_node_has_failed():
    found = job(None, [])
    assert retry_words(found) == "requested a retry of the failed nodes of sweep"
    assert found.status.nodes is not None
    none = replace(found, status=replace(found.status, nodes=replace(found.status.nodes, failed=0)))
    paused = replace(none, status=replace(none.status, phase=Phase.PAUSED))
    assert retry_words(paused).startswith("requested a retry of sweep; by its status no node")
    failed = replace(none, status=replace(none.status, phase=Phase.FAILED))
    words = "requested a retry of sweep: no node has failed, and the failed run goes on"
    assert retry_words(failed) == words

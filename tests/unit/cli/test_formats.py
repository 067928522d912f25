"""Pure formatting: what is printed of a run, by golden files and at the bounds."""

import csv
import io
import json
import re
from dataclasses import replace
from datetime import timedelta
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from rich.cells import cell_len
from rich.console import Console

from daemonset_job.api.job import parse_job
from daemonset_job.api.node_totals import NodeTotals
from daemonset_job.api.report import parse_report
from daemonset_job.api.states import NodeState, Phase
from daemonset_job.api.times import format_time
from kubectl_dsjob.html_chart import completions
from kubectl_dsjob.html_page import FAILURES_SHOWN, html_page
from kubectl_dsjob.live_view import render
from kubectl_dsjob.node_tables import (
    diff_rows,
    format_rows,
    former_results,
    node_rows,
    omitted_results,
    outdated_results,
    result_rows,
    run_rows,
)
from kubectl_dsjob.outputs import Output
from kubectl_dsjob.run_view import TEXT_LIMIT, NodeView, group_runs, view_run
from kubectl_dsjob.status_text import progress_line, status_screen
from kubectl_dsjob.tables import csv_text, duration, shorten
from tests.unit.cli.views import HOSTILE, NOW, real_run, run

GOLDEN = Path(__file__).parent / "golden"


def plain(shown, width):
    console = Console(width=width, force_terminal=False, no_color=True)
    with console.capture() as capture:
        console.print(shown)
    return "\n".join(line.rstrip() for line in capture.get().splitlines())


def texts():
    view = run()
    return {
        "status.txt": status_screen(view, NOW, width=80),
        "status-40.txt": status_screen(view, NOW, width=40),
        "status-report.txt": status_screen(run(exists=False), NOW, width=80),
        "list.txt": format_rows(*run_rows([view], NOW, has_namespace=True), Output.TABLE),
        "report.txt": format_rows(*node_rows(view, is_wide=False), Output.TABLE),
        "report-wide.txt": format_rows(*node_rows(view, is_wide=True), Output.WIDE),
        "report.csv": format_rows(*node_rows(view, is_wide=True), Output.CSV),
        "results.json": format_rows(*result_rows(view), Output.JSON),
        "results.yaml": format_rows(*result_rows(view), Output.YAML),
        "diff.txt": format_rows(*diff_rows(run(), run(text="no disk")), Output.TABLE),
        "page.html": html_page(view),
        **{
            f"live-{count}-{width}.txt": plain(render(real_run(count), width, NOW), width)
            for count in (5, 5000)
            for width in (40, 80, 200)
        },
    }


@pytest.mark.parametrize("name", sorted(texts()))
def test_a_form_of_output_is_as_its_golden_file(name):
    assert texts()[name].rstrip("\n") == (GOLDEN / name).read_text("utf-8").rstrip("\n")


def rolled_out(conditions=(), nodes=None, **progress):
    """Return a run with a rollout."""
    rollout = {"step": 1, "steps": 2, **progress}
    status = {"phase": "Paused", "rollout": rollout, "conditions": list(conditions)}
    if nodes is not None:
        status["nodes"] = nodes
    meta = {"name": "sweep", "namespace": "cli", "uid": "u"}
    return view_run(parse_job({"metadata": meta, "spec": {"image": "i"}, "status": status}), ())


def test_a_rollout_says_how_far_it_is_and_what_it_waits_for():
    view = rolled_out(waitsFor="step 1 is done: kubectl dsjob approve sweep \x1b[2J")
    for text in (status_screen(view, NOW, width=40), plain(render(view, 80, NOW), 80)):
        assert "step 1 of 2" in text
        assert "kubectl dsjob approve sweep" in text
        assert "\x1b" not in text
    assert "kubectl dsjob approve sweep" in progress_line(view)
    assert "all 2 steps are done" in status_screen(rolled_out(step=3), NOW, width=80)
    failed = rolled_out(checkFailure="node-1 is not Ready")
    assert "step 1 of 2: node-1 is not Ready" in status_screen(failed, NOW, width=80)


def test_a_paused_run_says_since_when_it_is_paused():
    """Not since its start: then it was at work."""
    paused = {"type": "Suspended", "status": "True", "reason": "WaitingForApproval", "message": ""}
    view = replace(rolled_out([paused]), started_at=NOW - timedelta(minutes=9))
    assert first_lines(view) == {"sweep: Paused", "sweep Paused"}
    at = format_time(NOW - timedelta(seconds=26))
    view = replace(rolled_out([paused | {"lastTransitionTime": at}]), started_at=view.started_at)
    assert first_lines(view) == {"sweep: Paused since 26s", "sweep Paused since 26s"}
    resumed = replace(view, phase=Phase.RUNNING)
    assert first_lines(resumed) == {"sweep: Running since 9m", "sweep Running since 9m"}


def first_lines(view):
    """Return the first line of each form of the status."""
    forms = (status_screen(view, NOW, width=80), plain(render(view, 80, NOW), 80))
    return {form.splitlines()[0].rstrip() for form in forms}


def test_a_run_that_a_check_ended_waits_for_a_retry():
    failed = {"type": "Failed", "status": "True", "reason": "CheckFailed", "message": "no"}
    view = replace(rolled_out([failed]), phase=Phase.FAILED, reason="CheckFailed")
    lines = status_screen(view, NOW, width=80).splitlines()
    assert lines[-2:] == [
        "waits for: a retry, which checks the step again",
        "  kubectl dsjob retry sweep -n cli",
    ]


@pytest.mark.parametrize("unreachable", [1, 0])
def test_a_run_that_unreachable_nodes_ended_waits_for_a_retry(unreachable):
    reason, words = "MaxFailedNodesExceeded", "1 unreachable (a)"
    failed = {"type": "Failed", "status": "True", "reason": reason, "message": words}
    nodes = {"desired": 3, "unreachable": unreachable}
    view = replace(rolled_out([failed], nodes), phase=Phase.FAILED, reason=reason)
    assert status_screen(view, NOW, width=80).splitlines()[-2:] == [
        "waits for: a retry, once the nodes that were unreachable are back",
        "  kubectl dsjob retry sweep -n cli",
    ]


@pytest.mark.parametrize(
    ("phase", "step", "steps", "line"),
    [
        ("Running", 2, 1, "the only step is done, the rest of the nodes follows"),
        ("Running", 3, 2, "all 2 steps are done, the rest of the nodes follows"),
        ("Succeeded", 2, 1, "the only step is done"),
        ("Succeeded", 3, 2, "all 2 steps are done"),
        ("Failed", 3, 2, "all 2 steps are done"),
        ("Succeeded", 2, 4, "ended in step 2 of 4"),
        ("Failed", 2, 4, "step 2 of 4"),
    ],
)
def test_nothing_follows_in_a_run_that_has_ended(phase, step, steps, line):
    status = {"phase": phase, "rollout": {"step": step, "steps": steps}}
    body = {"metadata": {"name": "sweep", "uid": "u"}, "spec": {"image": "i"}, "status": status}
    assert view_run(parse_job(body), ()).batch == line


@pytest.mark.parametrize(
    ("totals", "code"),
    [({"completed": 3}, 0), ({"failed": 1}, 3), ({"unreachable": 1}, 3), ({"skipped": 1}, 0)],
)
def test_a_run_that_left_nodes_out_has_succeeded_in_part(totals, code):
    view = replace(run(), phase=Phase.SUCCEEDED, totals=NodeTotals(desired=3, **totals))
    assert view.exit_code == code


def test_a_node_that_is_set_aside_says_so():
    record = {"uid": "u", "state": "Unreachable", "setAsideAt": "2026-01-01T11:59:00Z"}
    away = {"message": "the node has not been Ready", **record}
    back = {**record, "state": "Active", "message": "restarting"}
    body = {
        "metadata": {"name": "sweep-1", "namespace": "cli"},
        "spec": {"job": {"name": "sweep", "uid": "u"}},
        "status": {"nodeStates": {"a": record, "b": away, "c": back}},
    }
    aside = "set aside since 2026-01-01T11:59:00Z: the run does not wait for it"
    view = view_run(None, [parse_report(body)])
    line = "set aside: a,b: unreachable, the run does not wait for them"
    assert line in status_screen(view, NOW, width=80).splitlines()
    assert line in plain(render(view, 80, NOW), 80)
    assert [node.message for node in view.nodes] == [
        aside,
        f"the node has not been Ready; {aside}",
        "restarting",
    ]


def view_of(record, evidence, name="sweep-1", **meta):
    """Return a run with one node, by its report."""
    body = {
        "metadata": {"name": name, "namespace": "cli", **meta},
        "spec": {"job": {"name": "sweep", "uid": name}},
        "status": {"nodeStates": {"a": record}},
        "evidence": {"a": evidence},
    }
    return view_run(None, [parse_report(body)])


def test_a_node_has_no_results_of_a_former_node_of_its_name():
    former = {"nodeUID": "u1", "completedAt": "2026-01-01T11:59:00Z", "results": {"kernel": "5"}}
    assert view_of({"uid": "u1", "state": "Completed"}, former).nodes[0].results == {"kernel": "5"}
    view = view_of({"uid": "u2", "state": "Failed", "message": "no image"}, former)
    assert result_rows(view) == (["node"], [["a"]])


def test_the_failure_of_a_later_pod_is_not_shown_with_the_lines_of_an_earlier_one():
    lines = {"nodeUID": "u", "podUID": "p1", "lastLines": ["disk full"]}
    record = {"uid": "u", "state": "Failed", "exitCode": 2, "podUID": "p1"}
    assert "exit 2: disk full" in status_screen(view_of(record, lines), NOW, width=80)
    record |= {"podUID": "p2", "exitCode": None, "message": "cannot pull the image"}
    screen = status_screen(view_of(record, lines), NOW, width=80)
    assert "cannot pull the image" in screen
    assert "disk full" not in screen
    # Its pod is gone, and has started nothing.
    screen = status_screen(view_of({**record, "podUID": ""}, lines), NOW, width=80)
    assert "disk full" not in screen


def test_results_from_before_a_rerun_request_are_named():
    found = {"nodeUID": "u", "podUID": "p1", "completedAt": "x", "results": {"kernel": "5"}}
    record = {"uid": "u", "state": "Failed", "podUID": "p2", "earlierPods": ["p1"]}
    assert outdated_results(view_of(record, found)) == ["a"]
    assert outdated_results(view_of({**record, "state": "Completed"}, found)) == []
    assert outdated_results(view_of({**record, "earlierPods": ["p0"]}, found)) == []


def test_results_of_an_earlier_revision_are_named_once_the_job_is_deleted():
    states = {
        name: {"uid": name, "state": state, "revision": "2-b"}
        for name, state in (("a", "Completed"), ("b", "Failed"))
    }
    found = {
        name: {"nodeUID": name, "completedAt": "x", "revision": revision, "results": {"k": "5"}}
        for name, revision in (("a", "2-b"), ("b", "1-a"))
    }
    body = {
        "metadata": {"name": "sweep-1", "namespace": "cli"},
        "spec": {"job": {"name": "sweep", "uid": "u"}},
        "status": {"nodeStates": states},
        "evidence": found,
    }
    view = view_run(None, [parse_report(body)])
    words = "The results of 1 node are of an earlier revision than 2-b: b"
    assert former_results(view) == [words]
    header = ["node", "revision", "k"]
    assert result_rows(view) == (header, [["a", "2-b", "5"], ["b", "1-a", "5"]])
    assert f"<p>{words}</p>" in html_page(view)
    assert former_results(run()) == []


def test_results_that_the_report_lacks_are_named():
    found = {"nodeUID": "u", "completedAt": "x", "omittedResults": ["adress", "disk"]}
    view = view_of({"uid": "u", "state": "Completed"}, found)
    assert omitted_results(view) == (["a"], ["adress", "disk"])
    assert omitted_results(run()) == ([], [])


def test_a_report_that_was_put_back_from_a_backup_is_not_the_newest_run():
    reports = [
        parse_report(
            {
                "metadata": {"name": name, "creationTimestamp": created},
                "spec": {"job": {"name": "sweep", "uid": name}},
            }
        )
        for name, created in (
            ("sweep-20260101000000-aaaaa", "2026-02-01T00:00:00Z"),
            ("sweep-20260102000000-bbbbb", "2026-01-02T00:00:00Z"),
        )
    ]
    assert [run[0] for run in group_runs(reports)] == reports


def paused(reason, message):
    return {"type": "Suspended", "status": "True", "reason": reason, "message": message}


def test_a_canary_that_failed_waits_for_a_retry_and_then_for_its_approval():
    by = paused("MaxFailedNodesExceeded", "1 of 3 nodes failed; `kubectl dsjob retry --failed`")
    asks = {"waitsFor": "step 1 of 2: look at its nodes, then kubectl dsjob approve sweep"}
    view = rolled_out([by], {"desired": 3, "failed": 1}, **asks)
    lines = status_screen(view, NOW, width=80).splitlines()
    assert lines[-3:] == [
        "waits for: a retry of the failed nodes",
        "  kubectl dsjob retry --failed sweep -n cli",
        "then waits for you: step 1 of 2: look at its nodes, then kubectl dsjob approve sweep",
    ]
    assert "retry --failed" in progress_line(view)


@pytest.mark.parametrize("nodes", [{"desired": 3}, {"desired": 3, "failed": 1}])
def test_a_check_that_failed_waits_for_the_command_of_its_condition(nodes):
    words = "the check of step 1 of 2 failed: x; `kubectl dsjob retry sweep` has it checked again"
    view = rolled_out([paused("CheckFailed", words)], nodes, checkFailure="x")
    assert status_screen(view, NOW, width=80).splitlines()[-1] == f"waits for you: {words}"


def test_a_pause_by_unreachable_nodes_says_what_lets_the_run_go_on():
    words = "1 unreachable (a); it goes on when these nodes are back"
    view = rolled_out([paused("MaxFailedNodesExceeded", words)], {"desired": 3, "unreachable": 1})
    assert status_screen(view, NOW, width=80).splitlines()[-1] == f"waits for you: {words}"


def test_a_pause_by_failed_and_unreachable_nodes_has_the_words_of_its_condition():
    words = "1 of 3 nodes failed; 1 unreachable; `kubectl dsjob retry --failed sweep` and the rest"
    nodes = {"desired": 3, "failed": 1, "unreachable": 1}
    view = rolled_out([paused("MaxFailedNodesExceeded", words)], nodes)
    assert status_screen(view, NOW, width=80).splitlines()[-1] == f"waits for you: {words}"


@pytest.mark.parametrize(
    ("phase", "status", "is_shown"),
    [("Running", "False", True), ("Running", "True", False), ("Paused", "False", False)],
)
def test_a_line_of_progress_says_what_keeps_the_run_from_its_work(phase, status, is_shown):
    words = "cannot pull example/absent:1 on n[0-2]: not found"
    progress = {"type": "Progressing", "reason": "ImagePullFailed", "message": words}
    raw = {
        "metadata": {"name": "sweep", "namespace": "cli", "uid": "u"},
        "spec": {"task": {"image": "example/absent:1"}},
        "status": {"phase": phase, "conditions": [{**progress, "status": status}]},
    }
    assert (words in progress_line(view_run(parse_job(raw), []))) == is_shown


@pytest.mark.parametrize("nodes", [{"desired": 3}, {"desired": 3, "failed": 1}])
def test_a_stop_of_all_jobs_is_what_a_run_waits_for(nodes):
    words = "an administrator has stopped all Jobs. It ends with kubectl dsjob resume-all"
    view = rolled_out([paused("ClusterStopped", words)], nodes, waitsFor="step 1 of 2: approve")
    assert status_screen(view, NOW, width=80).splitlines()[-1] == f"waits: {words}"
    assert words in progress_line(view)
    suspended = replace(view, is_suspended=True)
    assert status_screen(suspended, NOW, width=80).splitlines()[-3:] == [
        f"waits: {words}",
        "waits for: you, because it is suspended",
        "  kubectl dsjob resume sweep -n cli",
    ]


@pytest.mark.parametrize(
    ("asked", "seen", "is_ended"), [("", "", True), ("1", "", False), ("1", "1", True)]
)
def test_a_failed_run_goes_on_once_a_retry_is_requested(asked, seen, is_ended):
    meta = {"name": "sweep", "namespace": "cli", "uid": "u"}
    annotations = {"daemonset.darkowlzz.space/retry": asked} if asked else {}
    status = {"phase": "Failed", **({"observedRetry": seen} if seen else {})}
    raw = {"metadata": {**meta, "annotations": annotations}, "spec": {"image": "i"}}
    assert view_run(parse_job({**raw, "status": status}), ()).is_ended is is_ended


@pytest.mark.parametrize("output", list(Output))
def test_no_text_of_the_cluster_controls_the_terminal(output):
    view = run(text=HOSTILE)
    shown = [
        status_screen(view, NOW, width=500),
        format_rows(*node_rows(view, is_wide=True), output),
        format_rows(*result_rows(view), output),
    ]
    for text in shown:
        assert all(c == "\n" or c.isprintable() for c in text), ascii(text)


def test_a_text_is_kept_up_to_its_bound():
    assert run(text="x" * TEXT_LIMIT).failed[0].last_line == "x" * TEXT_LIMIT
    assert len(run(text="x" * (TEXT_LIMIT + 1)).failed[0].last_line) == TEXT_LIMIT


@pytest.mark.parametrize(
    "cell",
    ["=1+1", "@SUM(A1)", "+cmd|x", "-cmd", " =1+1", "\uff1d1+1", "\uff0b1", "-inf", "+1_0", "--5"],
)
def test_no_cell_of_csv_is_a_formula(cell):
    assert csv_text(["a"], [[cell]]) == f"a\n'{cell}\n"


@pytest.mark.parametrize("separator", [";", "\t"])
@pytest.mark.parametrize(
    "text",
    [
        "a;=cmd|'/c calc'!A1",
        "a; +1;@b",
        "a;-5",
        ';\uff1d1"',
        'a;"=1+1',
        "=1;=1",
    ],
)
def test_no_cell_of_csv_is_a_formula_where_semicolons_or_tabs_separate_cells(separator, text):
    row = csv_text(["a", "b", "c"], [["node", text.replace(";", separator), "1+1"]]).splitlines()[1]
    for cell in row.split(separator):
        assert not re.match(r"[\s\"]*[=+@\-\uff1d]", cell), cell


def test_semicolons_in_csv_stay_where_no_formula_follows():
    assert csv_text(["a"], [["1;2; b-c;"]]) == "a\n1;2; b-c;\n"


def test_numbers_in_csv_stay_numbers():
    numbers = ["-5", "+1.5", "-.5", "-1e-9", " -5"]
    assert csv_text(["a"], [[each] for each in numbers]) == "\n".join(["a", *numbers, ""])


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-1, "0s"), (0, "0s"), (59, "59s"), (60, "1m"), (192, "3m12s"), (3601, "1h"), (90061, "1d1h")],
)
def test_a_duration_has_two_units(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize("text", ["x" * 50, "日本語" * 20])
def test_a_shortened_text_fits(text):
    assert cell_len(shorten(text, 10)) <= 10


class Page(HTMLParser):
    """Collects the tags and attributes of a page."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]


@pytest.mark.parametrize("count", [5, 5000])
def test_the_page_runs_nothing_and_loads_nothing(count):
    page = Page(html_page(run(count, HOSTILE)))
    cells = page.tags.count("i") - count  # the table has a mark in each row, too
    assert count <= cells <= count + len(NodeState)
    assert not {"script", "img", "link", "iframe", "object", "a"} & set(page.tags)
    names = {name for _, name, _ in page.attributes}
    assert not {name for name in names if name.startswith("on") or name in ("src", "href")}
    assert "style" not in names
    assert any("default-src 'none'" in (value or "") for _, _, value in page.attributes)


@pytest.mark.parametrize("view", [run(5, HOSTILE), run(0), real_run(5), real_run(300)])
def test_the_page_is_well_formed(view):
    """Each element is closed where it has to be: read as XML, but for what HTML writes shorter."""
    text = html_page(view).replace("<!doctype html>", "").replace("<br>", "<br/>")
    ET.fromstring(re.sub(r"<meta ([^>]*)>", r"<meta \1/>", text))


def test_equal_failures_are_shown_once_with_their_nodes():
    page = html_page(real_run(5000))
    assert page.count("mkfs.xfs: cannot open") == 1 + 6  # and in the table of all nodes
    assert "<b>ip-10-0-3,ip-10-11-244," in page
    assert "6 nodes, exit 1" in page


def test_different_failures_have_a_bound():
    nodes = tuple(
        NodeView(f"n{number}", NodeState.FAILED, message=f"cause {number}")
        for number in range(FAILURES_SHOWN + 3)
    )
    page = html_page(replace(run(), nodes=nodes))
    assert page.count("<pre>") == FAILURES_SHOWN
    assert "and 3 more nodes" in page


@pytest.mark.parametrize("count", [5, 5000])
def test_the_curve_of_completions_stays_in_its_frame(count):
    chart = completions(real_run(count))
    points = re.search(r'class="curve" points="([^"]+)"', chart)[1].split()
    pairs = [tuple(map(float, point.split(","))) for point in points]
    assert all(0 <= x <= 1000 and 0 <= y <= 100 for x, y in pairs)
    assert pairs == sorted(pairs, key=lambda pair: (pair[0], -pair[1]))
    assert len(pairs) < 1200


def test_a_node_that_was_done_before_the_start_breaks_no_curve():
    first = replace(real_run(5).nodes[0], finished_at=NOW - timedelta(days=1))
    assert "points=" in completions(replace(real_run(5), nodes=(first, *real_run(5).nodes[1:])))
    assert completions(replace(run(), started_at=None)) == ""


def test_a_count_that_no_cluster_has_is_not_drawn():
    assert len(replace(run(), totals=NodeTotals(desired=10**9)).states) == 50_000


def test_the_page_escapes_quotes_in_attributes():
    page = html_page(run(text="\"'><i onclick=x>"))
    assert "<i onclick" not in page


def test_a_long_reason_is_wrapped_and_its_end_is_shown():
    lines = status_screen(run(text="word " * 40 + "end"), NOW, width=80).splitlines()
    assert lines[4].endswith("end")
    assert len(status_screen(run(0, "x " * 512), NOW, width=40).splitlines()) <= 10


@pytest.mark.parametrize(
    "asked",
    [
        {"generation": 2},
        {"annotations": {"daemonset.darkowlzz.space/rerun": "all 7"}},
    ],
)
def test_a_continuous_job_has_not_ended_before_the_controller_has_seen_what_was_asked(asked):
    def view(**meta):
        body = {
            "metadata": {"name": "sweep", "namespace": "cli", "uid": "u", "generation": 1, **meta},
            "spec": {"image": "i", "completion": {"policy": "Continuous"}},
            "status": {"phase": "Succeeded", "observedGeneration": 1},
        }
        return view_run(parse_job(body), ())

    assert view().is_ended
    assert not view(**asked).is_ended


@pytest.mark.parametrize("value", ['{"mount": "a  b"}', " 1   /var", "x" * 1024, "", "é" * 512])
def test_a_result_is_shown_with_all_of_its_blanks(value):
    """A program may compare it, or split it by columns."""
    found = {"nodeUID": "u", "completedAt": "2026-01-01T11:59:00Z", "results": {"disk": value}}
    rows = result_rows(view_of({"uid": "u", "state": "Completed"}, found))
    assert json.loads(format_rows(*rows, Output.JSON)) == [{"node": "a", "disk": value}]
    assert list(csv.DictReader(io.StringIO(format_rows(*rows, Output.CSV)))) == [
        {"node": "a", "disk": value}
    ]


def test_a_result_has_its_own_key_whatever_its_name_is():
    results = {"Kernel": "a", "kernel": "b", "node": "c"}
    found = {"nodeUID": "u", "completedAt": "2026-01-01T11:59:00Z", "results": results}
    header, rows = result_rows(view_of({"uid": "u", "state": "Completed"}, found))
    (row,) = json.loads(format_rows(header, rows, Output.JSON, keys=header))
    assert row == {"node": "a", "Kernel": "a", "kernel": "b", "result node": "c"}

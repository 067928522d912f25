"""kubectl dsjob and an API server that refuses, is another one, or does not answer."""

import asyncio

import pytest

from daemonset_job.api import names
from daemonset_job.kube.client.errors import KubeError, Unavailable
from daemonset_job.kube.client.resource import JOB_REPORTS, JOBS, SCHEDULED_JOBS
from kubectl_dsjob import (
    patience,
    reading,
    rolling_back,
    rollout_reading,
    rollout_writing,
    writing,
)
from kubectl_dsjob.edge import as_cli_error
from kubectl_dsjob.errors import CliError
from kubectl_dsjob.exit_codes import ExitCode
from kubectl_dsjob.manifests import Wish
from kubectl_dsjob.outputs import Output
from kubectl_dsjob.target import Target


@pytest.fixture
def target(server, kubeconfig):
    return Target(kubeconfig=str(kubeconfig), namespace="default")


async def failure(verb):
    with pytest.raises((KubeError, CliError)) as caught:
        await verb
    return as_cli_error(caught.value)


async def test_a_cluster_without_the_project_is_said_to_be_one(server, target):
    server.resources = [each for each in server.resources if each.group != JOBS.group]
    verbs = (
        reading.list_runs(target, "", Output.TABLE, is_everywhere=False),
        reading.status(target, "sweep"),
        reading.diff(target, "sweep-1", "sweep-2", Output.TABLE),
        writing.suspend(target, "sweep", is_suspended=True),
    )
    for verb in verbs:
        error = await failure(verb)
        assert error.message == "the cluster has no CRD of daemonset-job"
        assert "Install" in error.way_out


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (401, "refuses your credentials"),
        (403, "you may not do this"),
        (503, "does not answer"),
        (500, "does not answer"),
    ],
)
async def test_each_refusal_has_a_sentence(server, target, status, words):
    server.fail_next("GET", "/jobs", status, times=9)
    error = await failure(reading.status(target, "sweep"))
    assert words in error.message
    assert error.way_out


async def test_a_quota_is_not_said_to_be_a_missing_right(server, target):
    words = 'jobs "sweep" is forbidden: exceeded quota: few, limited: count/jobs=1'
    server.fail_next("GET", "/jobs", 403, message=words, times=9)
    error = await failure(reading.status(target, "sweep"))
    assert error.message == words
    assert "ClusterRole" not in error.way_out


@pytest.mark.parametrize("status", [409, 410, 429])
async def test_what_may_pass_is_said_to(server, target, status):
    server.fail_next("GET", "/jobs", status, times=9)
    error = await failure(reading.status(target, "sweep"))
    assert "repeat the command" in error.way_out


@pytest.fixture
async def running(server, monkeypatch):
    """A Job that runs; `end` ends it."""
    monkeypatch.setattr(reading, "POLL_SECONDS", 0.05)
    meta = {"name": "sweep", "uid": "u"}
    job = {"metadata": meta, "spec": {"image": "i"}, "status": {"phase": "Running"}}
    server.put(JOBS, job)
    return lambda: server.patch(JOBS, "sweep", {"status": {"phase": "Succeeded"}})


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_wait_goes_on_when_the_server_is_back(server, target, running, capsys, status):
    shown = asyncio.Event()
    command = asyncio.create_task(reading.follow(target, "sweep", 30, lambda _view: shown.set()))
    await shown.wait()
    server.fail_next("GET", "/jobs/sweep", status, times=3)
    running()
    assert (await command).code == 0
    assert capsys.readouterr().err.count("trying again") == 1


async def _follow_until_deleted(server, target):
    """Return the error with which the command ends that waits for a Job, once that is deleted."""
    shown = asyncio.Event()
    command = asyncio.create_task(reading.follow(target, "sweep", None, lambda _view: shown.set()))
    await shown.wait()
    server.remove(JOBS, "sweep")
    async with asyncio.timeout(10):
        return await failure(command)


async def test_wait_ends_when_the_job_is_deleted_and_has_no_report(
    server, target, running, monkeypatch
):
    monkeypatch.setattr(patience, "MISSING_SECONDS", 0.2)
    error = await _follow_until_deleted(server, target)
    assert error.message == "the Job sweep was deleted, and no report says how its run ended"
    assert error.code == 1


async def test_wait_ends_when_the_first_report_of_a_deleted_job_is_gone(
    server, target, running, monkeypatch
):
    """The controller closes the first report of a run, and creates none for a deleted Job."""
    monkeypatch.setattr(patience, "MISSING_SECONDS", 0.2)
    labels = {names.LABEL_JOB: "sweep", names.LABEL_JOB_UID: "u"}
    body = {
        "metadata": {"name": "sweep-1-1", "labels": labels},
        "spec": {"job": {"name": "sweep", "uid": "u"}, "shard": 1},
        "status": {"nodeStates": {"a": {"uid": "a", "state": "Completed"}}},
    }
    server.put(JOB_REPORTS, body)
    error = await _follow_until_deleted(server, target)
    assert error.message == "the Job sweep was deleted, and no report says how its run ended"


async def test_the_report_of_an_earlier_run_is_not_that_of_a_job_that_is_gone(server, target):
    labels = {names.LABEL_JOB: "sweep", names.LABEL_JOB_UID: "earlier"}
    body = {
        "metadata": {"name": "sweep-1", "labels": labels},
        "spec": {"job": {"name": "sweep", "uid": "earlier"}},
        "status": {"phase": "Succeeded"},
    }
    server.put(JOB_REPORTS, body)
    assert (await reading.follow(target, "sweep", 30, lambda _view: None)).code == 0
    error = await failure(reading.follow(target, "sweep", 30, lambda _view: None, "later"))
    assert "was deleted" in error.message


@pytest.mark.parametrize(
    ("omitted", "names_shown"),
    [(["adress"], "adress"), (list("abcdefghij"), "a, b, c, d, e, f, g, h and 2 more")],
)
async def test_results_that_the_report_lacks_are_not_said_to_be_none(
    server, target, omitted, names_shown
):
    """A task may print a result that the Job does not list."""
    evidence = {"nodeUID": "u", "completedAt": "2026-01-01T00:00:00Z", "omittedResults": omitted}
    body = {
        "metadata": {"name": "sweep-1", "labels": {names.LABEL_JOB: "sweep"}},
        "spec": {"job": {"name": "sweep", "uid": "u"}},
        "evidence": {"n1": evidence},
    }
    server.put(JOB_REPORTS, body)
    answer = await reading.results(target, "sweep", Output.TABLE)
    why = "some that are too long or not listed in spec.results"
    assert answer.words == f"The results of 1 node lack {why} ({names_shown}): n1"


async def test_wait_gives_up_when_the_server_stays_away(server, target, running, monkeypatch):
    monkeypatch.setattr(patience, "LIMIT_SECONDS", 0.2)
    shown = asyncio.Event()
    command = asyncio.create_task(reading.follow(target, "sweep", 30, lambda _view: shown.set()))
    await shown.wait()
    server.fail_next("GET", "/jobs/sweep", 503, times=1000)
    with pytest.raises(Unavailable):
        await command


@pytest.mark.parametrize("is_first", [True, False])
async def test_wait_ends_after_its_timeout_also_when_the_server_hangs(
    server, target, running, monkeypatch, is_first
):
    monkeypatch.setattr(reading, "READ_SECONDS", 0.3)
    shown = asyncio.Event()
    if is_first:
        server.delay_next("GET", "/jobs/sweep", 3600, times=9)
    command = asyncio.create_task(reading.follow(target, "sweep", 0.5, lambda _view: shown.set()))
    if not is_first:
        await shown.wait()
        server.delay_next("GET", "/jobs/sweep", 3600, times=9)
    async with asyncio.timeout(5):
        assert (await command).code == ExitCode.TIMEOUT


async def test_run_follows_its_job_when_the_server_goes_away_right_after_its_creation(
    server, target, running, capsys
):
    server.fail_next("GET", "/jobs/sweep", 503, times=4)
    running()
    answer = await reading.follow(target, "sweep", 30, lambda _view: None, "u")
    assert answer.code == 0


@pytest.mark.parametrize("is_dry_run", [True, False])
async def test_a_job_whose_creation_has_no_answer_may_exist(server, target, is_dry_run):
    server.lose_answer_next("POST", "/jobs")
    wish = Wish("sweep", image="i")
    if is_dry_run:
        error = await failure(writing.dry_run(target, wish, Output.YAML, server=True))
    else:
        error = await failure(writing.run_job(target, wish, None, None))
    assert "does not answer" in error.message
    assert error.message.endswith("The Job may have been created") != is_dry_run
    assert error.code == ExitCode.FAILURE


@pytest.fixture
def stored(server):
    """Return a function that stores the Job `sweep` with these metadata, spec and status."""

    def store(meta=(), spec=(), **status):
        metadata = {"name": "sweep", "uid": "u", **dict(meta)}
        body = {"metadata": metadata, "spec": {"image": "i", **dict(spec)}, "status": status}
        created = server.put(JOBS, {**body, "metadata": {"name": "sweep", "uid": "u"}})
        if meta:  # a client cannot write that an object is being deleted
            changed = {**created, "metadata": {**created["metadata"], **metadata}}
            kind = (JOBS.group, JOBS.plural)
            server.storage.commit(kind, "MODIFIED", changed, created)

    return store


def suspended(reason, message):
    return {"type": "Suspended", "status": "True", "reason": reason, "message": message}


async def test_resume_says_what_else_a_run_waits_for(server, target, stored):
    paused = suspended("MaxFailedNodesExceeded", "2 nodes failed: retry it")
    stored(phase="Paused", conditions=[paused])
    error = await failure(writing.suspend(target, "sweep", is_suspended=False))
    assert error.code == 1
    assert "2 nodes failed: retry it" in error.message
    server.patch(JOBS, "sweep", {"spec": {"suspend": True}})
    assert (await writing.suspend(target, "sweep", is_suspended=False)).code == 0


async def test_resume_says_that_a_stop_of_all_jobs_holds_it(target, stored):
    stop = suspended("ClusterStopped", "bad\x1b[m")
    stored(spec={"suspend": True}, phase="Paused", conditions=[stop])
    answer = await writing.suspend(target, "sweep", is_suspended=False)
    assert answer.words == "sweep is no longer suspended, and waits: bad [m"


@pytest.mark.parametrize(
    ("phase", "paused", "resumed"),
    [
        ("Running", "no further node starts, and running tasks continue.", "sweep goes on."),
        ("Failed", "no further node starts, and running tasks continue.", "goes on after a retry"),
        ("Succeeded", "has succeeded: there is no further node.", "and has succeeded."),
    ],
)
async def test_a_run_that_has_ended_is_not_said_to_go_on(target, stored, phase, paused, resumed):
    stored(phase=phase)
    assert paused in (await writing.suspend(target, "sweep", is_suspended=True)).words
    is_waiting = "waits for: you" in (await reading.status(target, "sweep")).data
    assert is_waiting == (phase != "Succeeded")
    assert resumed in (await writing.suspend(target, "sweep", is_suspended=False)).words


async def test_the_last_words_about_a_run_have_its_rollback(target, stored):
    undone = {"type": "RolledBack", "status": "True", "reason": "RolledBack", "message": "m"}
    stored(phase="Succeeded", conditions=[undone])
    answer = await reading.follow(target, "sweep", 30, lambda _view: None)
    assert answer.words == "sweep: Succeeded; rollback: RolledBack"


GOING = {"deletionTimestamp": "2030-01-01T00:00:00Z", "finalizers": ["foregroundDeletion"]}


async def test_no_request_about_a_job_that_is_being_deleted_is_said_to_have_an_effect(
    server, target, stored
):
    rollout = {"steps": [{"nodes": 1, "approval": "Required"}]}
    spec = {"rollout": rollout, "rollback": {"script": "x"}}
    waits = {"step": 1, "steps": 1, "waitsFor": "you"}
    stored(GOING, spec, phase="Running", rollout=waits)
    for verb in (
        lambda: writing.suspend(target, "sweep", is_suspended=True),
        lambda: writing.suspend(target, "sweep", is_suspended=False),
        lambda: writing.retry(target, "sweep"),
        lambda: writing.rerun(target, "sweep", ()),
        lambda: rollout_writing.approve(target, "sweep", None),
        lambda: rollout_writing.promote(target, "sweep"),
        lambda: rollout_writing.abort(target, "sweep", "x"),
        lambda: rolling_back.roll_back(target, "sweep", "x", None, None),
    ):
        error = await failure(verb())
        assert error.message == "sweep is being deleted: no request is acted on any more"
        assert error.code == 1
    assert server.count("PATCH") == server.count("POST") == 0
    assert "the Job is being deleted" in (await reading.status(target, "sweep")).data


async def test_a_deleted_job_whose_end_is_not_recorded_is_not_said_to_run(server, target):
    labels = {names.LABEL_JOB: "sweep", names.LABEL_JOB_UID: "u"}
    body = {
        "metadata": {"name": "sweep-1", "labels": labels},
        "spec": {"job": {"name": "sweep", "uid": "u"}},
        "status": {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"},
    }
    server.put(JOB_REPORTS, body)
    assert "the Job is deleted, and" in (await reading.status(target, "sweep")).data
    late = await reading.follow(target, "sweep", 0, lambda _view: None)
    assert late.code == 4
    assert "within 0 seconds. Its Job is deleted." in late.words


@pytest.mark.parametrize(
    ("meta", "status", "words"),
    [
        ({}, {"phase": "Running"}, "The run goes on."),
        ({}, {"phase": "Paused"}, "The run is paused."),
        (GOING, {"phase": "Running"}, "It is being deleted."),
        (
            {},
            {"phase": "Failed", "rollback": {"jobs": ["sweep-rollback"]}},
            "Its rollback goes on.",
        ),
    ],
)
async def test_after_its_timeout_a_command_says_how_the_run_is(target, stored, meta, status, words):
    stored(meta, **status)
    late = await reading.follow(target, "sweep", 0, lambda _view: None)
    assert late.code == 4
    first, *steps = late.words.splitlines()
    assert first == f"sweep has not ended within 0 seconds. {words}"
    assert bool(steps) == (words in {"It is being deleted.", "Its rollback goes on."})


@pytest.mark.parametrize("text", ["[1]", "{", '"x"', "null", "[" * 100_000])
async def test_a_manifest_that_is_none_is_not_run_again(server, target, text):
    labels = {names.LABEL_JOB: "sweep", names.LABEL_JOB_UID: "u"}
    spec = {"job": {"name": "sweep", "uid": "u"}, "manifest": text}
    server.put(JOB_REPORTS, {"metadata": {"name": "sweep-1", "labels": labels}, "spec": spec})
    error = await failure(writing.rerun(target, "sweep", ()))
    assert error.message == "the manifest in the report of 'sweep' cannot be read"
    assert "kubectl apply" in error.way_out


async def test_a_job_without_a_report_is_not_said_to_be_another_one(target, stored):
    stored(phase="Running")
    error = await failure(reading.history(target, "sweep", Output.TABLE))
    assert error.message == "there is no report of 'sweep' in 'default'"
    assert error.way_out.startswith("Its run has no report yet.")


async def test_a_job_that_does_not_exist_is_no_usage_error(target, stored):
    stored(phase="Running")
    error = await failure(rollout_reading.plan(target, "swep", Output.TABLE))
    assert error.code == 1
    assert error.way_out == "Did you mean sweep?"


async def test_a_name_that_no_job_has_is_not_proposed(server, target):
    """The label of a long name is its beginning and a hash."""
    long = "sweep-" + "a" * 80
    body = {
        "metadata": {"name": "sweep-1", "labels": {names.LABEL_JOB: names.job_label(long)}},
        "spec": {"job": {"name": long, "uid": "u"}},
    }
    server.put(JOB_REPORTS, body)
    error = await failure(reading.status(target, long[:60]))
    assert "Did you mean" not in error.way_out


async def test_the_name_of_a_scheduled_job_is_answered_with_where_its_runs_are(server, target):
    server.put(SCHEDULED_JOBS, {"metadata": {"name": "nightly", "namespace": "default"}})
    verbs = (
        reading.status(target, "nightly"),
        writing.suspend(target, "nightly", is_suspended=True),
    )
    for verb in verbs:
        error = await failure(verb)
        label = "-l daemonset.darkowlzz.space/scheduled-job=nightly"
        assert error.way_out.startswith("nightly is a ScheduledJob. Name one of its runs: ")
        assert error.way_out.endswith(f"kubectl get dsjr -n default {label}")


async def test_a_user_who_may_not_read_scheduled_jobs_gets_the_near_names(server, target):
    server.put(JOBS, {"metadata": {"name": "nightly-1", "namespace": "default"}, "spec": {}})
    server.fail_next("GET", "/scheduledjobs/", 403, times=9)
    error = await failure(reading.status(target, "nightly"))
    assert error.way_out == "Did you mean nightly-1?"


async def test_a_report_that_cannot_be_read_is_named(server, target):
    """Another report of the Job is fine, and which one is broken is what the user has to know."""
    labels = {names.LABEL_JOB: "sweep", names.LABEL_JOB_UID: "u"}
    spec = {"job": {"name": "sweep", "uid": "u"}, "shard": 0}
    for name, status in (("sweep-1", {}), ("sweep-2", {"nodeStates": "gone"})):
        server.put(
            JOB_REPORTS,
            {"metadata": {"name": name, "labels": labels}, "spec": spec, "status": status},
        )
    for verb in (
        reading.history(target, "sweep", Output.TABLE),
        reading.status(target, "sweep"),
    ):
        error = await failure(verb)
        assert error.message.startswith("the report 'sweep-2' cannot be read: ")
        assert "kubectl get dsjr sweep-2 -n default -o yaml" in error.way_out

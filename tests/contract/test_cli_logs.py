"""kubectl dsjob logs against a scripted API server: many nodes, broken streams, refusals."""

import asyncio
import re

import pytest

from daemonset_job.api import names
from daemonset_job.kube.client.errors import Forbidden
from daemonset_job.kube.client.resource import DAEMON_SETS, JOB_REPORTS, JOBS, PODS
from kubectl_dsjob import log_follow
from kubectl_dsjob.log_sources import LogWish
from kubectl_dsjob.logs import logs
from kubectl_dsjob.target import Target

JOB_UID, SET_UID = "job-uid", "set-uid"
FOREVER = 10


def owner(kind, uid):
    return [{"apiVersion": "v1", "kind": kind, "name": "x", "uid": uid, "controller": True}]


class Run:
    """The objects of one run on the server, and what the command prints of it."""

    def __init__(self, server, kubeconfig):
        self.server = server
        self.printed = []
        self.target = Target(kubeconfig=str(kubeconfig), namespace="default")
        self.states, self.evidence = {}, {}
        self.open, self.most_open = 0, 0
        self.serve_log, server.serve_log = server.serve_log, self.counted
        job = {"metadata": {"name": "sweep", "uid": JOB_UID}, "spec": {"image": "i"}}
        server.put(JOBS, {**job, "status": {"phase": "Running"}})
        meta = {"name": "sweep-daemonset-job", "uid": SET_UID}
        server.put(DAEMON_SETS, {"metadata": {**meta, "ownerReferences": owner("Job", JOB_UID)}})

    async def counted(self, *args):
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            await asyncio.sleep(0.002)
            return await self.serve_log(*args)
        finally:
            self.open -= 1

    def report(self):
        labels = {names.LABEL_JOB: "sweep", names.LABEL_JOB_UID: JOB_UID}
        body = {
            "metadata": {"name": "sweep-1", "labels": labels},
            "spec": {"job": {"name": "sweep", "uid": JOB_UID}},
            "evidence": self.evidence,
            "status": {"phase": "Running", "nodeStates": self.states},
        }
        self.server.put(JOB_REPORTS, body)

    def node(self, name, *lines, state="Active", owner_uid=SET_UID, container="running"):
        self.states[name] = {"uid": f"uid-{name}", "state": state, "attempts": 1}
        labels = {names.LABEL_JOB_UID: JOB_UID}
        meta = {"name": f"pod-{name}", "uid": f"pod-{name}", "labels": labels}
        status = {"name": names.CONTAINER_NAME, "restartCount": 0, "state": {container: {}}}
        pod = {
            "metadata": {**meta, "ownerReferences": owner("DaemonSet", owner_uid)},
            "spec": {"nodeName": name},
            "status": {"phase": "Running", "containerStatuses": [status]},
        }
        self.server.put(PODS, pod)
        log = self.server.log(f"pod-{name}")
        log.write(*lines)
        return log

    def end(self, phase="Succeeded"):
        self.server.patch(JOBS, "sweep", {"status": {"phase": phase}})

    async def logs(self, **wish):
        self.report()
        async with asyncio.timeout(FOREVER):
            return await logs(self.target, "sweep", LogWish(**wish), self.printed.append)

    @property
    def text(self):
        return "".join(self.printed)


@pytest.fixture
async def run(server, kubeconfig, monkeypatch):
    monkeypatch.setattr(log_follow, "_LOOK_SECONDS", 0.05)
    monkeypatch.setattr(log_follow, "_QUIET_SECONDS", 0.2)
    return Run(server, kubeconfig)


async def test_a_thousand_nodes_are_printed_in_order_with_few_requests_at_a_time(run):
    for number in range(1000):
        run.node(f"n{number:04}", "one", "two")
    answer = await run.logs()
    assert run.text.splitlines() == [
        f"n{number:04}: {line}" for number in range(1000) for line in ("one", "two")
    ]
    assert answer.code == 0
    assert 1 < run.most_open <= 16


async def test_equal_outputs_of_a_thousand_nodes_are_one(run):
    for number in range(1000):
        run.node(f"n{number:04}", "odd" if number == 7 else "same")
    await run.logs(is_grouped=True)
    rule = "-" * 16
    shown = [rule, "n[0000-0006,0008-0999] (999 nodes)", rule, "same", rule, "n0007", rule, "odd"]
    assert run.text.splitlines() == shown


async def test_a_cut_log_is_said_to_be_cut(run, capsys):
    for name in ("a", "b"):
        run.node(name, *["x" * 1023] * 256, f"the end of {name}")
    await run.logs(is_grouped=True)
    assert "[a" not in run.text
    assert "a,b" in capsys.readouterr().err


async def test_the_pod_of_another_owner_is_not_read(run):
    run.node("a", "mine")
    run.node("b", "forged", owner_uid="other")
    answer = await run.logs()
    assert run.text == "a: mine\n"
    assert "b" in answer.words


async def test_a_log_that_cannot_be_read_is_named_and_the_others_are_printed(run):
    run.node("a", "mine")
    run.node("b", "lost")
    run.server.fail_next("GET", "/pods/pod-b/log", 500)
    answer = await run.logs()
    assert run.text == "a: mine\n"
    assert "b" in answer.words
    assert answer.code == 3


async def test_without_the_right_to_read_logs_that_is_said_once(run):
    for name in ("a", "b"):
        run.node(name, "x")
        run.server.fail_next("GET", f"/pods/pod-{name}/log", 403)
    with pytest.raises(ExceptionGroup) as caught:
        await run.logs()
    assert isinstance(caught.value.exceptions[0], Forbidden)


async def test_only_the_last_lines_and_with_times(run):
    run.node("a", "one", "two", "three")
    await run.logs(tail=1, has_times=True)
    assert re.fullmatch(r"a: 2030-\S+Z three\n", run.text)


async def test_following_prints_lines_as_they_come_and_ends_with_the_run(run):
    log = run.node("a", "one")
    command = asyncio.create_task(run.logs(is_followed=True, at_once=200))
    await seen(run, "a: one\n")
    log.write("two")
    await seen(run, "a: one\na: two\n")
    run.end()
    answer = await command
    assert "Succeeded" in answer.words
    assert run.text == "a: one\na: two\n"


async def test_a_broken_stream_is_opened_again_and_no_line_comes_twice(run):
    log = run.node("a", "one")
    command = asyncio.create_task(run.logs(is_followed=True, at_once=200))
    await seen(run, "a: one\n")
    log.break_followers()
    log.write("two")
    await seen(run, "a: one\na: two\n")
    log.end()
    run.end()
    await command
    assert run.text == "a: one\na: two\n"


async def test_a_node_that_is_done_makes_room_for_one_that_waits(run, capsys):
    for name in ("a", "b", "c"):
        run.node(name, f"of {name}", state="Completed")
    command = asyncio.create_task(run.logs(is_followed=True, at_once=1))
    await seen(run, "a: of a\nb: of b\nc: of c\n")
    run.end()
    await command
    assert "following 1 nodes at a time; waiting: b,c" in capsys.readouterr().err


async def test_a_node_that_joins_is_followed_too(run):
    run.node("a", "one")
    command = asyncio.create_task(run.logs(is_followed=True, at_once=200))
    await seen(run, "a: one\n")
    run.node("b", "two")
    run.report()
    await seen(run, "a: one\nb: two\n")
    run.end()
    await command


async def test_what_the_report_kept_is_printed_when_a_pod_was_never_read(run):
    run.states["a"] = {"uid": "u", "state": "Failed", "attempts": 1}
    run.evidence = {"a": {"nodeUID": "u", "lastLines": ["no space left"]}}
    command = asyncio.create_task(run.logs(is_followed=True, at_once=200))
    await seen(run, "a: no space left\n")
    run.end("Failed")
    await command
    assert run.text == "a: no space left\n"


async def seen(run, text):
    async with asyncio.timeout(FOREVER):
        while run.text != text:  # noqa: ASYNC110 - what is printed raises no event
            await asyncio.sleep(0.02)

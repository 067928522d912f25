"""What reports keep, with a real API server: history, restored reports, an upgrade in mid-run."""

import asyncio
import json

import pytest

from daemonset_job.api import names
from daemonset_job.api.names import ANNOTATION_RETRY, first_version_report_name
from daemonset_job.api.times import format_time, parse_time
from daemonset_job.kube.client.resource import DAEMON_SETS, JOB_REPORTS, JOBS, PODS
from tests.integration.harness import condition, open_harness
from tests.integration.jobs import report as make_report
from tests.integration.simulated_nodes import TaskRun

pytestmark = pytest.mark.timeout(90)

# Longer than a controller takes to close a report, with its start.
CLOSE_SECONDS = 4.0


async def run_kubectl(harness, *words, **how):
    return await asyncio.to_thread(
        harness.env.kubectl, *words, "--namespace", harness.namespace, **how
    )


async def wait_phase(harness, phase):
    async def look():
        report = await harness.report()
        return report if ((report or {}).get("status") or {}).get("phase") == phase else None

    return await harness.wait_until(look, f"report {phase}")


async def test_the_history_names_who_requested_a_retry_and_a_pause(kube_env, namespace):
    # The kubelet starts the task of the kept pod again; the third start is that of the retry.
    tries = [TaskRun(lines=("disk full",), exit_code=2), TaskRun(lines=("at work",)), TaskRun()]

    def behaviour(node, start):
        return tries[min(start, len(tries)) - 1] if node == "b" else TaskRun()

    spec = {"image": "x", "backoffLimit": 0, "ttlSecondsAfterFinished": 600}
    async with open_harness(kube_env, namespace, behaviour=behaviour) as harness:
        job = await harness.apply(spec)
        failed = await wait_phase(harness, "Failed")
        assert condition(failed["status"], "Failed")["status"] == "True"
        await run_kubectl(harness, "annotate", "dsj/sample", f"{ANNOTATION_RETRY}=1")
        report = await wait_phase(harness, "Succeeded")
        assert report["metadata"]["name"] == job_report_name(job)
        assert condition(report["status"], "Failed")["status"] == "False"
        history = report["status"]["history"]
        assert [(entry["reason"], entry.get("by", "")) for entry in history] == [
            ("Failed", ""),
            ("RetryRequested", "kubectl-annotate"),
            ("Completed", ""),
        ]
        (failure,) = (await harness.node_states())["b"]["failures"]
        assert (failure["exitCode"], failure["reason"]) == (2, "BackoffLimitExceeded")
        words = "\n".join(report["status"]["timeline"])
        first, retried = words.index(" failed: exit 2"), words.index("retry requested: 1")
        assert first < words.index("the run failed") < retried < words.index("the run succeeded")
        await run_kubectl(harness, "wait", "--for=condition=Complete", "--timeout=10s",
                          f"dsjr/{report['metadata']['name']}")  # fmt: skip


def job_report_name(job):
    meta = job["metadata"]
    digits = "".join(filter(str.isdigit, meta["creationTimestamp"]))
    return f"{meta['name']}-{digits}-{meta['uid'][:5]}"


async def test_a_suspended_job_names_its_report_before_it_starts(kube_env, namespace):
    async with open_harness(kube_env, namespace, terminator=False) as harness:
        job = await harness.apply({"image": "x", "suspend": True})
        await harness.wait_reason("Suspended", "Suspended")
        found = await harness.find(JOBS, "sample")
        assert found["status"]["report"] == job_report_name(job)
        assert await harness.report() is None


async def test_a_restored_report_stays_as_it_was_put_back(kube_env, namespace):
    async with open_harness(kube_env, namespace, controller=False) as harness:
        controller = await harness.start_controller()
        await harness.apply()
        await harness.wait_deleted(JOBS, "sample")
        before = await wait_phase(harness, "Succeeded")
        name = before["metadata"]["name"]
        saved = await run_kubectl(harness, "get", "dsjr", name, "-o", "json")
        await run_kubectl(harness, "delete", "dsjr", name)
        await run_kubectl(harness, "apply", "-f", "-", input=saved)
        restored = await harness.report()
        assert restored["evidence"] == before["evidence"]
        assert restored["metadata"]["uid"] != before["metadata"]["uid"]
        for _ in range(2):
            await asyncio.sleep(CLOSE_SECONDS)
            assert await harness.report() == restored
            # Another controller finds it at its start.
            await harness.stop(controller)
            controller = await harness.start_controller()
        assert "phase" not in (restored.get("status") or {})


async def test_a_run_that_is_cancelled_in_its_first_moments_is_closed(kube_env, namespace):
    async with open_harness(kube_env, namespace, terminator=False) as harness:
        await harness.apply()

        async def has_report():
            return await harness.report()

        await harness.wait_until(has_report, "a report")
        await harness.admin.delete(JOBS, "sample", namespace)
        report = await wait_phase(harness, "Cancelled")
        status = report["status"]
        assert condition(status, "Cancelled")["status"] == "True"
        assert status["completionTime"]
        assert status["history"][-1]["reason"] == "Cancelled"
        name = report["metadata"]["name"]
        await run_kubectl(harness, "wait", "--for=condition=Cancelled", f"dsjr/{name}")


async def test_a_run_that_the_first_version_started_goes_on_in_its_report(kube_env, namespace):
    """An upgrade in mid-run: Job and report are as version 0.1.0 left them."""
    async with open_harness(kube_env, namespace, controller=False) as harness:
        job = await harness.apply()
        uid, created = job["metadata"]["uid"], job["metadata"]["creationTimestamp"]
        name = first_version_report_name("sample", uid)
        started = format_time(parse_time(created))
        status = {"phase": "Running", "startTime": started, "report": name, "observedGeneration": 1}
        await asyncio.to_thread(kube_env.patch_status, "dsj", "sample", namespace, status)
        earlier = make_report(namespace, name)
        earlier["spec"]["job"] = {"name": "sample", "uid": uid}
        await run_kubectl(harness, "create", "-f", "-", input=json.dumps(earlier))
        body = {"phase": "Running", "startTime": started, "message": "0 of 3 nodes completed"}
        await asyncio.to_thread(kube_env.patch_status, "dsjr", name, namespace, body)
        await harness.start_controller()
        await harness.wait_deleted(JOBS, "sample")
        (report,) = await harness.all(JOB_REPORTS)
        assert report["metadata"]["name"] == name
        assert report["status"]["phase"] == "Succeeded"
        assert len(report["evidence"]) == 3
        assert [entry["reason"] for entry in report["status"]["history"]] == ["Completed"]


async def test_pods_that_the_first_version_gated_start_after_the_upgrade(
    kube_env, namespace, monkeypatch
):
    """A suspended run: the gate of its DaemonSet, and of a pod, has the name of version 0.1.0."""
    go, daemon_set = asyncio.Event(), names.daemon_set_name("sample")

    async def gates(resource, name):
        found = await harness.find(resource, name)
        spec = found["spec"] if resource == PODS else found["spec"]["template"]["spec"]
        return [each["name"] for each in spec.get("schedulingGates") or ()]

    def behaviour(node, _start):
        return TaskRun(after=go) if node == "a" else TaskRun()

    nodes = {"nodes": ("a", "b"), "controller": False}
    async with open_harness(kube_env, namespace, behaviour=behaviour, **nodes) as harness:
        with monkeypatch.context() as earlier:
            earlier.setattr(names, "START_GATE", names.FIRST_VERSION_GATE)
            controller = await harness.start_controller()
            await harness.apply()
            await harness.wait_job(lambda s: (s.get("nodes") or {}).get("completed") == 1, "b done")
            await harness.change(JOBS, "sample", {"spec": {"suspend": True}})
            await harness.wait_reason("Suspended", "Suspended")
            await harness.nodes.join("c")
            await harness.wait_job(lambda s: s["nodes"]["waiting"] == 1, "c waits")
            await harness.stop(controller)
        (pod,) = (await harness.pods())["c"]
        for resource, name in ((PODS, pod["metadata"]["name"]), (DAEMON_SETS, daemon_set)):
            assert await gates(resource, name) == [names.FIRST_VERSION_GATE]
        await harness.start_controller()
        await harness.change(JOBS, "sample", {"spec": {"suspend": False}})
        await harness.wait_started("c")
        assert await gates(DAEMON_SETS, daemon_set) == [names.START_GATE]
        go.set()
        await harness.wait_deleted(JOBS, "sample")
        assert harness.nodes.executions == {"a": 1, "b": 1, "c": 1}

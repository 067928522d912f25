"""Controller and terminator with a service account each: what each of them may do, and does.

The API server here has deploy/ with its components, unlike that of the other tests.
"""

import asyncio
import json
import os
import signal
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from daemonset_job.api.names import ANNOTATION_RETRY, JOB_KIND
from daemonset_job.api.reasons import EventReason
from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.resource import (
    DAEMON_SETS,
    EVENTS,
    JOB_REPORTS,
    JOBS,
    PODS,
    SCHEDULED_JOBS,
)
from daemonset_job.kube.recorder import EventRecorder, ObjectReference
from daemonset_job.runtime.clock import SystemClock
from job_controller.policy_check import missing_policies
from terminator.config import Options
from tests.integration.conftest import install
from tests.integration.harness import SYSTEM, Harness, Process, condition, open_harness
from tests.integration.jobs import API_VERSION, report
from tests.integration.kube_env import ROOT, KubeEnv, service_account
from tests.integration.kube_env import kube_env as run_kube_env
from tests.integration.scripts import Script, complaints, leadership, ready, run_scripts
from tests.integration.simulated_nodes import TaskRun
from tests.integration.test_scheduled import scheduled
from tests.mutation.cluster import Admin

pytestmark = pytest.mark.timeout(240)

CONTROLLER, TERMINATOR = "daemonset-job-controller", "daemonset-job-terminator"
COMPONENTS = ROOT / "deploy" / "components"
DAEMON_SET = "sample-daemonset-job"


@pytest.fixture(scope="module")
def overlay(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A kustomization as a user writes it, with all components."""
    folder = tmp_path_factory.mktemp("overlay")
    components = [COMPONENTS / "split", COMPONENTS / "control-plane"]
    content = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "sortOptions": {"order": "fifo"},
        "resources": [os.path.relpath(ROOT / "deploy", folder)],
        "components": [os.path.relpath(each, folder) for each in components],
    }
    (folder / "kustomization.yaml").write_text(json.dumps(content))
    return folder


@pytest.fixture(scope="module")
def kube_env(overlay: Path) -> Iterator[KubeEnv]:
    """An API server of this module's own."""
    with run_kube_env() as env:
        install(env, overlay)
        yield env


@pytest.fixture(scope="module")
def documents(kube_env: KubeEnv, overlay: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(kube_env.kubectl("kustomize", str(overlay))))


def named(documents: list[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    (found,) = [d for d in documents if d["kind"] == kind and d["metadata"]["name"] == name]
    return found


# --- what is built -----------------------------------------------------------------------


def test_each_program_has_a_pod_and_an_account_of_its_own(documents):
    for name in (CONTROLLER, TERMINATOR):
        deployment = named(documents, "Deployment", name)["spec"]
        pod = deployment["template"]["spec"]
        assert [each["name"] for each in pod["containers"]] == [name.removeprefix("daemonset-job-")]
        assert pod["serviceAccountName"] == name
        (binding,) = named(documents, "ClusterRoleBinding", name)["subjects"]
        assert binding["name"] == name
        affinity = pod["affinity"]["nodeAffinity"]
        assert list(affinity) == ["requiredDuringSchedulingIgnoredDuringExecution"]
    assert not named(documents, "Deployment", CONTROLLER)["spec"]["template"]["spec"].get("volumes")


def test_policies_come_before_what_they_guard(documents):
    kinds = [each["kind"] for each in documents]
    last = "CustomResourceDefinition"
    assert kinds.index("ValidatingAdmissionPolicyBinding") < kinds.index(last)
    assert kinds.index(last) < kinds.index("ClusterRole") < kinds.index("Deployment")


# --- what each may -----------------------------------------------------------------------


def granted(documents: list[dict[str, Any]], account: str) -> dict[str, set[str]]:
    """Return the verbs by resource of all roles that are bound to the account."""
    found: dict[str, set[str]] = defaultdict(set)
    for binding in documents:
        if any(subject["name"] == account for subject in binding.get("subjects", ())):
            reference = binding["roleRef"]
            for rule in named(documents, reference["kind"], reference["name"])["rules"]:
                for resource in rule["resources"]:
                    found[resource] |= set(rule["verbs"])
    return dict(found)


def used(processes: list[Process]) -> dict[str, set[str]]:
    """Return the verbs by resource of all requests that were not forbidden."""
    found: dict[str, set[str]] = defaultdict(set)
    for process in processes:
        for verb, resource, status in process.requests.calls:
            if status not in {0, 403}:
                found[resource].add(verb)
    return dict(found)


# No request of ours, but asked for by clusters with OwnerReferencesPermissionEnforcement.
FOR_OWNERS = {"jobs/finalizers": {"update"}, "scheduledjobs/finalizers": {"update"}}
# Server-side apply is a patch, and needs this too where nothing is there yet.
FOR_APPLY = {"daemonsets": {"create"}}


def merged(*tables: dict[str, set[str]]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for table in tables:
        for resource, verbs in table.items():
            found[resource] |= verbs
    return dict(found)


def behaviour_of(go: asyncio.Event, tasks: dict[str, TaskRun]) -> Any:
    """Return tasks that print the token when `go` says so, where `tasks` says nothing else."""
    return lambda node, _start: tasks.get(node) or TaskRun(after=go)


async def run_by_schedule(harness: Harness) -> None:
    """Have a ScheduledJob create a Job, which stays when it has succeeded, and is one too many."""
    template = {"image": "example/task:v1", "ttlSecondsAfterFinished": 600}
    body = scheduled(harness.namespace, template, successfulJobsHistoryLimit=0)
    await harness.admin.create(SCHEDULED_JOBS, body, harness.namespace)

    async def is_deleted() -> bool:
        found = await harness.find(SCHEDULED_JOBS, "sweep")
        has_run = "lastSuccessfulTime" in ((found or {}).get("status") or {})
        return has_run and not await harness.all(JOBS)

    await harness.wait_until(is_deleted, "the run was deleted", seconds=90)
    await harness.admin.delete(SCHEDULED_JOBS, "sweep", harness.namespace)


async def report_refusals(harness: Harness, client: KubeClient) -> None:
    """Report refused evidence as the terminator does: twice, and again after a restart."""
    about = ObjectReference(JOB_KIND, harness.namespace, "sample", "uid", API_VERSION)

    def event_count(events: list[dict[str, Any]]) -> int:
        return sum(raw["count"] for raw in events if raw["reason"] == "EvidenceRefused")

    total = 0
    for times in (2, 1):
        recorder = EventRecorder(client, component=TERMINATOR, clock=SystemClock())
        task = asyncio.create_task(recorder.run())
        for _ in range(times):
            recorder.emit(about, "Warning", EventReason.EVIDENCE_REFUSED, "refused", "Recording")
            total += 1

            async def is_counted(expected: int = total) -> bool:
                return event_count(await harness.all(EVENTS)) == expected

            await harness.wait_until(is_counted, "the event was sent", seconds=30)
        task.cancel()


async def test_every_right_that_is_granted_is_used(kube_env, namespace, documents):
    """A run with refused pods, a lost one and twice suspended, one that fails; restarts between."""
    go, tasks = asyncio.Event(), {}
    async with (
        await Admin.connect(kubeconfig=str(kube_env.kubeconfig), user_agent="world") as admin,
        open_harness(
            kube_env,
            namespace,
            behaviour=behaviour_of(go, tasks),
            controller=False,
            terminator=False,
            terminator_account=TERMINATOR,
        ) as harness,
    ):
        harness.nodes.admin = admin
        controllers = [await harness.start_controller(lease_namespace=SYSTEM, history_limit=1)]
        terminator = await harness.start_terminator(options=Options(lease_namespace=SYSTEM))

        async def suspend(value: bool) -> None:
            await harness.change(JOBS, "sample", {"spec": {"suspend": value}})
            status = "True" if value else "False"
            await harness.wait_job(
                lambda found: condition(found, "Suspended").get("status") == status,
                f"suspended: {value}",
            )

        # A pod is lost and its successor let in; an event is sent twice, and after a restart again.
        await harness.enforce("restricted")
        await harness.apply()
        await harness.wait_reason("Progressing", "FailedCreate")
        await harness.enforce("privileged")
        await harness.wait_gated(DAEMON_SET)
        await harness.wait_started("a")
        (pod,) = (await harness.pods())["a"]
        await harness.admin.delete(PODS, pod["metadata"]["name"], namespace)
        await harness.wait_started("a", 2)
        for value in (True, False, True):
            await suspend(value)
        await harness.stop(controllers[0])
        controllers.append(await harness.start_controller(history_limit=1))
        await suspend(False)
        go.set()
        await harness.wait_deleted(JOBS, "sample")
        await harness.wait_deleted(DAEMON_SETS, DAEMON_SET)
        first = await harness.report()

        assert await missing_policies(controllers[-1].client) == []

        # A node fails: its run leaves no pods, a retry makes new ones, history forgets the first.
        tasks["b"] = TaskRun(lines=("no luck",), exit_code=1, back_off=60)
        await harness.apply(
            {
                "image": "example/task:v1",
                "backoffLimit": 0,
                "failurePolicy": {"action": "Continue", "pods": "Delete"},
            }
        )
        await harness.wait_reason("Failed", "MaxFailedNodesExceeded", seconds=60)
        await harness.wait_deleted(DAEMON_SETS, DAEMON_SET)
        tasks.clear()
        await harness.change(JOBS, "sample", {"metadata": {"annotations": {ANNOTATION_RETRY: "1"}}})
        await harness.wait_deleted(JOBS, "sample", seconds=60)
        await harness.wait_deleted(JOB_REPORTS, first["metadata"]["name"])
        events = await harness.events()
        assert (await harness.report())["status"]["phase"] == "Succeeded", events

        await run_by_schedule(harness)
        await report_refusals(harness, terminator.client)

    expected = granted(documents, CONTROLLER)
    assert merged(used(controllers), FOR_OWNERS, FOR_APPLY) == expected
    assert used([terminator]) == granted(documents, TERMINATOR)
    # And nothing was tried that is not granted.
    forbidden = [
        call
        for each in (*controllers, terminator)
        for call in each.requests.calls
        if call[2] == 403
    ]
    assert forbidden == []


async def test_the_scripts_run_a_job_with_an_account_each(kube_env, namespace, documents, tmp_path):
    """As deployed: two processes that lead by a Lease each, with what their Deployments name."""
    accounts = {
        script: named(documents, "Deployment", deployment)["spec"]["template"]["spec"][
            "serviceAccountName"
        ]
        for script, deployment in (("job-controller", CONTROLLER), ("terminator", TERMINATOR))
    }
    assert len(set(accounts.values())) == 2
    async with open_harness(kube_env, namespace, controller=False, terminator=False) as harness:
        made = [
            Script(harness, name, tmp_path, account=account, everywhere=True)
            for name, account in accounts.items()
        ]
        async with run_scripts(*made):
            for script in made:
                await ready(harness, script)
            await harness.apply()
            await harness.wait_deleted(JOBS, "sample")
            report = await harness.report()
            assert report["status"]["phase"] == "Succeeded"
            assert len(report["evidence"]) == 3
            assert {state["state"] for state in report["status"]["nodeStates"].values()} == {
                "Completed"
            }
            for script in made:
                assert (await leadership(harness, script.name))[0].startswith(script.name)
                assert await script.end(signal.SIGTERM) == 0
                assert complaints(script.text()) == []


# --- the two halves of a report ----------------------------------------------------------


def asked(env: KubeEnv, account: str, namespace: str, body: dict[str, Any]) -> str:
    """Patch a report as an account of the system; return why that was refused, "" if it was not."""
    path = f"/apis/{API_VERSION}/namespaces/{namespace}/jobreports/sample-1234"
    status, answer = env.request("PATCH", path, body, service_account(SYSTEM, account))
    assert status in {200, 403}, answer
    return str(answer["message"]) if status == 403 else ""


def test_each_account_writes_its_own_half_of_a_report(kube_env, namespace):
    kube_env.kubectl("create", "-f", "-", input=json.dumps(report(namespace)))
    entry = {"nodeUID": "u", "podUID": "p", "completedAt": "2025-01-01T00:00:00Z"}
    evidence = {"evidence": {"a": entry}}
    deadline = time.monotonic() + 30
    while "only the terminator may write the evidence" not in asked(
        kube_env, CONTROLLER, namespace, evidence
    ):
        assert time.monotonic() < deadline, "the policy is not in force"
        kube_env.kubectl(
            *("patch", "dsjr", "sample-1234", "-n", namespace, "--type=merge"),
            *("-p", '{"evidence":null}'),
        )
    assert asked(kube_env, TERMINATOR, namespace, evidence) == ""
    for body in ({"evidence": None}, {"evidence": {"a": None}}, {"evidence": {"b": entry}}):
        refusal = asked(kube_env, CONTROLLER, namespace, body)
        assert "only the terminator may write" in refusal
    assert asked(kube_env, CONTROLLER, namespace, {"metadata": {"managedFields": [{}]}}) == ""
    labels = {"metadata": {"labels": {"a": "b"}}}
    assert "no label" in asked(kube_env, TERMINATOR, namespace, labels)


def test_the_terminator_cannot_start_anything(kube_env, namespace):
    user = service_account(SYSTEM, TERMINATOR)
    for resource in ("daemonsets.apps", "pods", "jobs.daemonset.darkowlzz.space"):
        for verb in ("create", "update", "patch"):
            assert not kube_env.is_allowed(user, verb, resource, namespace)

"""`kubectl dsjob doctor` and an API server that fails some of its reads."""

import asyncio
import json

import pytest

from daemonset_job.kube.client.errors import Unauthorized
from daemonset_job.kube.client.resource import LEASES
from kubectl_dsjob.doctor import program_checks
from kubectl_dsjob.doctor.doctor import examine
from kubectl_dsjob.exit_codes import ExitCode
from kubectl_dsjob.outputs import Output
from kubectl_dsjob.system.installed import CONTROLLER, TERMINATOR
from kubectl_dsjob.system.render import NAMESPACE
from kubectl_dsjob.system.resources import CRDS, DEPLOYMENTS
from kubectl_dsjob.target import Target
from tests.contract.terminator.cluster import eventually

READ_CRD = "/customresourcedefinitions/"


@pytest.fixture
def server(server):
    """Return a server that has these kinds, and nothing of the system."""
    server.resources += [CRDS, DEPLOYMENTS]
    return server


async def doctor(kubeconfig):
    """Return the exit code and the messages of all checks."""
    target = Target(kubeconfig=str(kubeconfig), namespace="default")
    answer = await examine(target, "", Output.JSON, is_everywhere=False, stuck_seconds=300)
    return answer.code, [each["message"] for each in json.loads(answer.data)["checks"]]


async def test_a_read_that_fails_is_a_problem_and_the_other_checks_go_on(server, kubeconfig):
    server.fail_next("GET", READ_CRD, 500, times=20)
    code, messages = await doctor(kubeconfig)
    assert code == ExitCode.FAILURE
    assert messages[0].startswith("this check failed: the API server does not answer: ")
    assert any("there is no Deployment" in each for each in messages)
    assert "none of 0 Jobs in namespace default is stuck" in messages


async def test_without_any_answer_the_checks_after_it_are_left_out(server, kubeconfig):
    server.reset_next("GET", READ_CRD, times=20)
    code, messages = await doctor(kubeconfig)
    assert code == ExitCode.FAILURE
    assert len(messages) == 1
    assert messages[0].endswith("; the checks after it were left out")


async def test_refused_credentials_are_said_at_once(server, kubeconfig):
    server.fail_next("GET", READ_CRD, 401, times=20)
    with pytest.raises(Unauthorized):
        await doctor(kubeconfig)


@pytest.mark.parametrize("is_renewed", [True, False])
async def test_a_lease_that_seems_to_be_lost_is_read_once_more(
    server, kubeconfig, monkeypatch, is_renewed
):
    """The clock of the user may be wrong; whether the Lease is renewed does not depend on it."""
    monkeypatch.setattr(program_checks, "RENEWAL_SECONDS", 0.5)
    containers = [{"name": "controller"}, {"name": "terminator"}]
    labels = {"app.kubernetes.io/name": "daemonset-job"}
    deployment = {
        "metadata": {"name": CONTROLLER, "namespace": NAMESPACE, "labels": labels},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"spec": {"containers": containers}},
        },
        "status": {"readyReplicas": 1},
    }
    server.put(DEPLOYMENTS, deployment)
    for name in (CONTROLLER, TERMINATOR):
        spec = {
            "holderIdentity": "p",
            "renewTime": "2020-01-01T00:00:00.000000Z",
            "leaseDurationSeconds": 15,
        }
        server.put(LEASES, {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec})

    async def renew():
        await eventually(lambda: server.count("GET", f"/leases/{CONTROLLER}") > 0)
        server.patch(
            LEASES,
            CONTROLLER,
            {"spec": {"renewTime": "2020-01-01T00:00:02.000000Z"}},
            NAMESPACE,
        )

    renewing = asyncio.create_task(renew() if is_renewed else asyncio.sleep(0))
    _, messages = await doctor(kubeconfig)
    await renewing
    found = [each for each in messages if f"the Lease {CONTROLLER}" in each]
    assert len(found) == 1
    assert ("holds the Lease" in found[0]) == is_renewed
    assert ("has not renewed" in found[0]) == (not is_renewed)

"""`kubectl dsjob doctor` and an API server that fails some of its reads."""

import json

import pytest

from daemonset_job.kube.client.errors import Unauthorized
from kubectl_dsjob.doctor.doctor import examine
from kubectl_dsjob.exit_codes import ExitCode
from kubectl_dsjob.outputs import Output
from kubectl_dsjob.system.resources import CRDS, DEPLOYMENTS
from kubectl_dsjob.target import Target

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

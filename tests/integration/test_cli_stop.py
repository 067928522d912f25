"""stop-all and resume-all against a real API server: one ConfigMap, written by who may write it."""

import pytest

from tests.integration.cli_process import call

NAME = "daemonset-job-stop"


@pytest.fixture
def dsjob(kube_env, namespace):
    """Run the plugin as a process, with the test's namespace as that of the system."""
    return lambda *args: call(kube_env.kubeconfig, *args, "--system-namespace", namespace)


def test_a_stop_is_written_and_lifted_also_without_the_config_map(dsjob, kube_env, namespace):
    def data():
        return kube_env.get("configmap", NAME, namespace)["data"]

    done = dsjob("stop-all", "--reason", "bad kernel")
    assert (done.returncode, done.stdout) == (0, "")
    assert "kubectl dsjob resume-all" in done.stderr
    assert data() == {"stop": "true", "reason": "bad kernel"}
    assert dsjob("stop-all").returncode == 0
    assert data() == {"stop": "true"}
    assert dsjob("resume-all").returncode == 0
    assert data() == {"stop": "false"}
    kube_env.kubectl("delete", "configmap", NAME, "-n", namespace)
    assert dsjob("resume-all").returncode == 0
    assert data() == {"stop": "false"}


def test_who_may_not_and_a_namespace_that_is_not_there_get_a_sentence(kube_env, namespace, dsjob):
    kube_env.kubectl("create", "serviceaccount", "person", "-n", namespace)
    account = f"--serviceaccount={namespace}:person"
    kube_env.kubectl(
        "create", "rolebinding", "person", "--clusterrole=view", account, "-n", namespace
    )
    kubeconfig = kube_env.kubeconfig_for_service_account(namespace, "person")
    done = call(kubeconfig, "stop-all", "--system-namespace", namespace)
    assert done.returncode == 1
    assert "you may not stop all Jobs" in done.stderr
    assert f"may write ConfigMap {NAME} in {namespace}" in done.stderr
    done = call(kube_env.kubeconfig, "stop-all", "--system-namespace", "not-there")
    assert done.returncode == 1
    assert "there is no namespace 'not-there'" in done.stderr
    assert "--system-namespace" in done.stderr


def test_a_stop_where_no_controller_is_does_not_claim_that_all_jobs_are_stopped(
    dsjob, kube_env, namespace
):
    done = dsjob("stop-all")
    assert done.returncode == 0
    assert "where no controller is" in done.stderr
    assert "are stopped" not in done.stderr
    assert "where no controller is" in dsjob("resume-all").stderr
    done = call(kube_env.kubeconfig, "stop-all", "--kubeconfig", str(kube_env.kubeconfig))
    assert "all Jobs of the cluster are stopped" in done.stderr
    assert f"kubectl dsjob resume-all --kubeconfig {kube_env.kubeconfig}" in done.stderr
    assert call(kube_env.kubeconfig, "resume-all").returncode == 0
    # It is that of all tests which share the API server.
    kube_env.kubectl("delete", "configmap", NAME, "-n", "daemonset-job-system")

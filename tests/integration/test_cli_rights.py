"""kubectl dsjob has the rights of its user: what kubectl may not, it may not; and it says so."""

import os
import stat
import subprocess
import sys

import pytest
import yaml

from tests.integration.cli_process import call, environment
from tests.integration.jobs import job
from tests.integration.kube_env import ROOT
from tests.integration.test_cli import add_report, finished


@pytest.fixture
def person(kube_env, namespace):
    """Return the plugin with the rights of a cluster role in one namespace."""

    def bind(role):
        kube_env.kubectl("create", "serviceaccount", role, "-n", namespace)
        account = f"--serviceaccount={namespace}:{role}"
        kube_env.kubectl(
            "create", "rolebinding", role, f"--clusterrole={role}", account, "-n", namespace
        )
        kubeconfig = kube_env.kubeconfig_for_service_account(namespace, role)
        return lambda *args: call(kubeconfig, *args, "-n", namespace)

    return bind


def test_who_may_view_reads_everything_and_changes_nothing(kube_env, namespace, person):
    dsjob = person("view")
    kube_env.apply(job(namespace, name="sweep"))
    before = kube_env.get("dsj", "sweep", namespace)
    one = add_report(kube_env, namespace, before["metadata"]["uid"], finished())
    add_report(kube_env, namespace, "other", finished(), job="past")
    for words in (
        ("list",),
        ("status", "sweep"),
        ("report", "sweep"),
        ("results", "sweep"),
        ("history", "sweep"),
        ("diff", one, one),
        ("wait", "past"),
    ):
        done = dsjob(*words)
        assert done.returncode in (0, 3), done
    assert "no log of 2 of 2 nodes" in dsjob("logs", "sweep").stderr
    for words in (
        ("run", "other", "--image", "i"),
        ("pause", "sweep"),
        ("resume", "sweep"),
        ("retry", "sweep"),
        ("rerun", "past"),
    ):
        done = dsjob(*words)
        assert done.returncode == 1, done
        assert "you may not do this" in done.stderr
        assert "administrator" in done.stderr
        assert "Traceback" not in done.stderr
    assert kube_env.get("dsj", "sweep", namespace) == before
    jobs = kube_env.kubectl("get", "dsj", "-n", namespace, "-o", "name").split()
    assert [name.rpartition("/")[2] for name in jobs] == ["sweep"]


def test_who_may_edit_runs_pauses_and_retries(kube_env, namespace, person):
    dsjob = person("edit")
    assert dsjob("run", "sweep", "--image", "i", "--no-wait").returncode == 0
    assert dsjob("pause", "sweep").returncode == 0
    assert dsjob("retry", "sweep").returncode == 0
    assert kube_env.get("dsj", "sweep", namespace)["spec"]["suspend"] is True


def test_who_may_read_no_nodes_may_rerun_those_of_the_report(kube_env, namespace, person):
    dsjob = person("edit")
    spec = {"image": "i:v1", "completion": {"policy": "Continuous"}}
    kube_env.apply(job(namespace, spec, name="agent"))
    assert dsjob("rerun", "agent", "--node", "n1").returncode == 0, "no report to look in"
    uid = kube_env.get("dsj", "agent", namespace)["metadata"]["uid"]
    add_report(kube_env, namespace, uid, finished(), job="agent")
    assert dsjob("rerun", "agent", "--node", "n2").returncode == 0
    done = dsjob("rerun", "agent", "--node", "nosuchnode")
    assert done.returncode == 2
    assert "agent has no such node: nosuchnode" in done.stderr


def test_other_namespaces_are_refused_with_a_sentence(person):
    dsjob = person("view")
    done = dsjob("list", "-A")
    assert done.returncode == 1
    assert "cluster scope" in done.stderr
    assert done.stdout == ""


def test_expired_credentials_are_named(kube_env, namespace, tmp_path):
    config = yaml.safe_load(kube_env.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": "expired"}
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    done = call(path, "list", "-n", namespace)
    assert done.returncode == 1
    assert "refuses your credentials" in done.stderr
    assert "log in" in done.stderr


def test_a_server_that_does_not_answer_is_named(kube_env, namespace, tmp_path):
    config = yaml.safe_load(kube_env.kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    done = call(path, "status", "sweep", "-n", namespace)
    assert done.returncode == 1
    assert "127.0.0.1:1" in done.stderr
    assert "kubectl cluster-info" in done.stderr


def test_an_unknown_context_is_named(kube_env):
    done = call(kube_env.kubeconfig, "list", "--context", "nowhere")
    assert done.returncode == 2
    assert "nowhere" in done.stderr
    assert "--context" in done.stderr


def test_an_unknown_name_is_answered_with_near_ones(kube_env, namespace):
    kube_env.apply(job(namespace, name="sweep-disks"))
    done = call(kube_env.kubeconfig, "status", "sweep-disk", "-n", namespace)
    assert done.returncode == 1
    assert "Did you mean sweep-disks?" in done.stderr
    done = call(kube_env.kubeconfig, "pause", "sweepdisks", "-n", namespace)
    assert "Did you mean sweep-disks?" in done.stderr


def test_a_name_in_another_namespace_is_found(kube_env, namespace):
    kube_env.apply(job(namespace, name=f"only-in-{namespace}"))
    done = call(kube_env.kubeconfig, "status", f"only-in-{namespace}", "-n", "default")
    assert f"There is one in namespace {namespace}: add -n {namespace}" in done.stderr


def test_a_field_that_the_crd_does_not_know_is_not_dropped(kube_env, namespace, tmp_path):
    done = call(kube_env.kubeconfig, "run", "x", "--image", "Not An Image", "-n", namespace)
    assert done.returncode == 1
    assert "spec.image" in done.stderr


def test_kubectl_completes_names_of_the_cluster(kube_env, namespace, tmp_path):
    kube_env.apply(job(namespace, name="sweep"))
    add_report(kube_env, namespace, "other", finished(), job="past")
    for name, module in (("kubectl_complete-dsjob", "completion"), ("kubectl-dsjob", "main")):
        program = tmp_path / name
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -m kubectl_dsjob.{module} "$@"\n')
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
    paths = f"{tmp_path}{os.pathsep}{kube_env.binaries}{os.pathsep}{os.environ['PATH']}"
    env = {**environment(kube_env.kubeconfig), "PATH": paths, "PYTHONPATH": str(ROOT)}
    command = ["kubectl", "__complete", "dsjob", "status", "-n", namespace, ""]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert lines == ["past\tdeleted, its report answers", "sweep", ":4"]

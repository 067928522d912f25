"""Writing a Job needs the right to create DaemonSets; everything else about one does not."""

import json

import pytest

from daemonset_job.api import names
from daemonset_job.api.owners import owner_reference
from daemonset_job.api.rerun import REQUEST_LIMIT
from tests.integration.jobs import job
from tests.integration.kube_env import KubeEnv, User

JOBS = "jobs.daemonset.darkowlzz.space"


def grant(env: KubeEnv, namespace: str, user: User, *rules: tuple[str, str]) -> None:
    for number, (verbs, resource) in enumerate(rules):
        name = f"{user.name}-{number}"
        env.kubectl(
            "create", "role", name, "-n", namespace, f"--verb={verbs}", f"--resource={resource}"
        )
        env.kubectl(
            "create", "rolebinding", name, "-n", namespace, f"--role={name}", f"--user={user.name}"
        )


@pytest.fixture
def writer(kube_env: KubeEnv, namespace: str) -> User:
    """A user who may do everything with Jobs and create DaemonSets."""
    user = User("writer")
    rules = ("*", JOBS), ("create", "daemonsets.apps")
    grant(kube_env, namespace, user, *rules)
    return user


@pytest.fixture
def outsider(kube_env: KubeEnv, namespace: str) -> User:
    """A user who may do everything with Jobs, and nothing else."""
    user = User("outsider")
    grant(kube_env, namespace, user, ("*", JOBS))
    return user


def test_a_job_is_created_by_who_may_create_daemonsets(kube_env: KubeEnv, namespace, writer):
    kube_env.apply(job(namespace), user=writer)
    kube_env.apply(job(namespace, {"image": "other"}), user=writer)


def test_a_job_is_refused_to_who_may_not(kube_env: KubeEnv, namespace, outsider):
    refusal = kube_env.refusal("apply", "-f", "-", input=json.dumps(job(namespace)), user=outsider)
    assert (
        "a Job runs pods on nodes, so writing one needs the right to create DaemonSets in "
        f"namespace {namespace}, which user outsider does not have: ask an administrator for the "
        "verb create on daemonsets.apps"
    ) in refusal
    assert "forbidden" in refusal


def test_the_spec_of_a_job_is_as_guarded_as_its_creation(kube_env: KubeEnv, namespace, outsider):
    kube_env.apply(job(namespace))
    for change in ({"image": "other"}, {"template": {"spec": {"hostPID": True}}}):
        refusal = kube_env.refusal(
            "patch", "dsj", "sample", "-n", namespace, "--type=merge",
            "-p", json.dumps({"spec": change}), user=outsider,
        )  # fmt: skip
        assert "the right to create DaemonSets" in refusal


def test_the_right_counts_in_the_jobs_own_namespace_only(kube_env: KubeEnv, namespace, writer):
    kube_env.kubectl("create", "namespace", f"{namespace}-b")
    grant(kube_env, f"{namespace}-b", writer, ("*", JOBS))
    refusal = kube_env.refusal(
        "apply", "-f", "-", input=json.dumps(job(f"{namespace}-b")), user=writer
    )
    assert f"DaemonSets in namespace {namespace}-b" in refusal


def test_what_starts_nothing_needs_no_such_right(kube_env: KubeEnv, namespace, outsider):
    kube_env.apply(job(namespace))
    kube_env.kubectl("label", "dsj", "sample", "a=b", "-n", namespace, user=outsider)
    kube_env.kubectl("annotate", "dsj", "sample", "a=b", "-n", namespace, user=outsider)
    # What the garbage collector does in a foreground deletion.
    for finalizers in (["foregroundDeletion"], None):
        body = json.dumps({"metadata": {"finalizers": finalizers}})
        kube_env.kubectl(
            "patch", "dsj", "sample", "-n", namespace, "--type=merge", "-p", body, user=outsider
        )
    kube_env.kubectl("delete", "dsj", "sample", "-n", namespace, user=outsider)


@pytest.mark.parametrize("request_", ["retry", "rerun", "rollback"])
def test_a_request_is_work_and_needs_the_right(
    kube_env: KubeEnv, namespace, outsider, writer, request_
):
    kube_env.apply(job(namespace))
    words = (
        "annotate",
        "dsj",
        "sample",
        "-n",
        namespace,
        f"daemonset.darkowlzz.space/{request_}=1",
    )
    assert "right to create DaemonSets" in kube_env.refusal(*words, user=outsider)
    kube_env.kubectl(*words, user=writer)


def test_a_rerun_request_that_is_too_long_is_refused(kube_env: KubeEnv, namespace):
    kube_env.apply(job(namespace))
    words = "annotate", "--overwrite", "dsj", "sample", "-n", namespace
    kube_env.kubectl(*words, f"{names.ANNOTATION_RERUN}={'a' * REQUEST_LIMIT}")
    refusal = kube_env.refusal(*words, f"{names.ANNOTATION_RERUN}={'a' * (REQUEST_LIMIT + 1)}")
    assert f"more than {REQUEST_LIMIT} characters: name fewer nodes" in refusal
    kube_env.kubectl(*words, f"{names.ANNOTATION_RERUN}-")


@pytest.mark.parametrize("kind", ["Job", "ScheduledJob"])
def test_no_user_makes_a_job_the_part_of_another_run(kube_env: KubeEnv, namespace, writer, kind):
    """It would be taken for a rollback, a check or a scheduled run."""
    reference = owner_reference(kind, "sample", "9f3c7e52-0000-4000-8000-000000000000")
    forged = job(namespace)
    forged["metadata"] |= {"name": "sample-rollback", "ownerReferences": [reference]}
    words = "only daemonset-job creates it: remove metadata.ownerReferences"
    refusal = kube_env.refusal("create", "-f", "-", input=json.dumps(forged), user=writer)
    assert words in refusal
    others = [
        {**reference, "controller": False},
        {**reference, "apiVersion": "v1", "kind": "ConfigMap", "uid": "other"},
    ]
    forged["metadata"]["ownerReferences"] = others
    kube_env.kubectl("create", "-f", "-", input=json.dumps(forged), user=writer)
    patch = "patch", "dsj", "sample-rollback", "-n", namespace, "--type=merge", "-p"
    body = json.dumps({"metadata": {"ownerReferences": [reference]}})
    assert words in kube_env.refusal(*patch, body, user=writer)
    # It stays what it is for the client that may say how a run has ended, and then for others too.
    kube_env.kubectl(*patch, body)
    kube_env.kubectl(*patch, json.dumps({"spec": {"suspend": True}}), user=writer)
    moved = json.dumps({"metadata": {"ownerReferences": [{**reference, "uid": "another"}]}})
    assert words in kube_env.refusal(*patch, moved, user=writer)
    kube_env.kubectl(*patch, json.dumps({"metadata": {"ownerReferences": None}}), user=writer)


def test_the_status_needs_no_such_right(kube_env: KubeEnv, namespace):
    keeper = User("keeper")
    grant(kube_env, namespace, keeper, ("get,patch", f"{JOBS}/status"))
    kube_env.apply(job(namespace))
    kube_env.kubectl(
        "patch", "dsj", "sample", "-n", namespace, "--subresource=status", "--type=merge",
        "-p", '{"status":{"phase":"Running"}}', user=keeper,
    )  # fmt: skip

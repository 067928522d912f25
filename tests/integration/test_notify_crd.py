"""`spec.notify`, and checks by sources: what `kubectl apply` takes, and what a report keeps."""

import json

import pytest
import yaml

from daemonset_job.api.job import parse_job
from daemonset_job.api.notifications import ALL_EVENTS, Delivery, NotifyEvent
from daemonset_job.api.report import parse_report
from daemonset_job.api.report_status import ReportStatus
from daemonset_job.api.rollout import HttpCheck, PrometheusCheck
from job_controller.core.render.report_status import build_status_patch
from job_controller.receiver_settings import SECRETS_FOLDER
from tests.integration.jobs import IMAGE, job, report, start
from tests.integration.kube_env import KubeEnv
from tests.integration.test_page_overlays import build, merge, parts
from tests.integration.test_report_crd import patch, path


def step(**check):
    return IMAGE | {"rollout": {"steps": [{"nodes": 1, "check": check}]}}


def notify(*items):
    return IMAGE | {"notify": list(items)}


def test_a_receiver_is_notified_of_everything_by_default(kube_env: KubeEnv, namespace):
    found = parse_job(kube_env.apply(job(namespace, notify({"receiver": "ops"}))))
    assert [(each.receiver, set(each.events)) for each in found.spec.notify] == [
        ("ops", set(ALL_EVENTS))
    ]


def test_receivers_may_change_after_the_start(kube_env: KubeEnv, namespace):
    kube_env.apply(job(namespace, notify({"receiver": "ops", "events": ["Failed"]})))
    start(kube_env, namespace)
    changed = kube_env.apply(job(namespace, notify({"receiver": "chat"})))
    assert [each["receiver"] for each in changed["spec"]["notify"]] == ["chat"]


def test_a_file_that_names_events_is_read_as_its_author_means_it(kube_env: KubeEnv, namespace):
    text = """
    notify:
      - receiver: ops
        events: [Started, WaitingForApproval]
    """
    found = parse_job(kube_env.apply(job(namespace, IMAGE | yaml.safe_load(text))))
    assert found.spec.notify[0].events == ("Started", "WaitingForApproval")


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (notify({"receiver": "https://evil.example/x"}), "it is not an address"),
        (notify({"receiver": "ops", "events": ["Done"]}), 'Unsupported value: "Done"'),
        (notify({"receiver": "ops", "events": []}), "should have at least 1 items"),
        (notify({"receiver": "ops"}, {"receiver": "ops"}), "Duplicate value"),
        (notify({}), "receiver: Required value"),
        (notify(*({"receiver": f"r{n}"} for n in range(9))), "must have at most 8 items"),
        (step(http={"source": "https://evil"}), "http.source in body should match"),
        (step(http={"source": "web", "path": "healthz"}), "http.path in body should match"),
        (
            step(prometheus={"source": "prom", "query": "a", "expression": "b", "below": 1}),
            "spec.rollout.steps.check.prometheus must have either query or expression",
        ),
        (
            step(prometheus={"source": "prom", "query": "a"}),
            "spec.rollout.steps.check.prometheus must have above or below",
        ),
        (
            step(prometheus={"source": "prom", "query": "a", "above": 2, "below": 1}),
            "prometheus.above must be less than below: otherwise no value passes",
        ),
        (
            step(prometheus={"source": "prom", "query": "a", "above": 0.5, "below": 0.5}),
            "prometheus.above must be less than below: otherwise no value passes",
        ),
    ],
    ids=str,
)
def test_a_mistake_is_refused(kube_env: KubeEnv, namespace, spec, words):
    refused = kube_env.refusal("apply", "-f", "-", input=json.dumps(job(namespace, spec)))
    assert words in refused


def test_the_limits_of_a_query_may_be_fractions(kube_env: KubeEnv, namespace):
    check = {
        "http": {"source": "web", "path": "/healthz"},
        "prometheus": {"source": "prom", "query": "errors", "below": 0.05, "above": -1},
    }
    kube_env.apply(job(namespace, step(prometheus=check["prometheus"] | {"below": 5}), "whole"))
    found = parse_job(kube_env.apply(job(namespace, step(**check))))
    assert found.spec.rollout is not None
    parsed = found.spec.rollout.steps[0].check
    assert parsed.http == HttpCheck("web", "/healthz")
    assert parsed.prometheus == PrometheusCheck("prom", "errors", above=-1, below=0.05)


def test_a_report_keeps_what_was_sent(kube_env: KubeEnv, namespace):
    kube_env.apply(report(namespace))
    sent = Delivery(ALL_EVENTS, NotifyEvent.PAUSED, None, 1, 1, "m" * 300)
    after = ReportStatus(notifications={f"r{n}": sent for n in range(8)})
    body = {"status": build_status_patch(ReportStatus(), after)}
    where = path(namespace, "/sample-1234/status")
    assert parse_report(patch(kube_env, where, body)).status == after
    less = ReportStatus(notifications={"r1": sent})
    body = {"status": build_status_patch(after, less)}
    assert parse_report(patch(kube_env, where, body)).status == less


def test_the_component_of_the_page_mounts_the_secret_and_the_file(tmp_path):
    receivers, *_ = parts("notify.md")
    objects = build(tmp_path, merge(parts("install.md")[0], receivers))
    config = objects["ConfigMap/daemonset-job-controller-config"]["data"]["config.yaml"]
    assert [each["name"] for each in yaml.safe_load(config)["receivers"]] == ["ops"]
    spec = objects["Deployment/daemonset-job-controller"]["spec"]["template"]["spec"]
    (controller, terminator) = spec["containers"]
    mounts = {each["name"]: each["mountPath"] for each in controller["volumeMounts"]}
    assert mounts["receivers"] == SECRETS_FOLDER
    variables = {each["name"]: each.get("value") for each in controller["env"]}
    assert variables["CONTROLLER_CONFIG"] == f"{mounts['controller-config']}/config.yaml"
    # The terminator, which reads the logs of tenants, has neither.
    assert [each["name"] for each in terminator["volumeMounts"]] == ["config"]
    (secret,) = [each["secret"] for each in spec["volumes"] if each["name"] == "receivers"]
    assert secret == {"secretName": "daemonset-job-receivers", "optional": True}

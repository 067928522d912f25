"""Whom a change concerns: the key of every Job that must be looked at, and no others."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from daemonset_job.api.affinity import REQUIRED
from daemonset_job.api.compact import compact_job
from daemonset_job.api.job import Job
from daemonset_job.api.names import START_GATE
from daemonset_job.api.node import parse_node
from daemonset_job.api.report_status import ReportStatus, parse_report_status
from daemonset_job.api.rollout import Rollout, Step
from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.unreadable import Unreadable
from job_controller import caches as caches_module
from job_controller.caches import DEBOUNCE_SECONDS, OWNED_JOBS_LIMIT, Caches
from job_controller.core.cluster_keys import make_cluster_keys
from job_controller.core.desired.daemon_set import build_daemon_set
from job_controller.core.state.ended_pods import NO_ENDED_PODS, EndedPods
from job_controller.core.state.predecessors import CHAIN_LIMIT
from job_controller.exclusive_runs import other_runs
from job_controller.snapshots import find_predecessors
from tests.clocks import FakeClock
from tests.unit.builders import NOW, SampleCluster, make_cluster, make_job, make_node, make_pod

SOON, AT_ONCE = DEBOUNCE_SECONDS, 0.0
KEY = ("default", "sample")
OTHER = ("default", "other")


class NotedCaches:
    """Caches without a cluster: objects are put in, and who is woken is noted."""

    def __init__(self, *jobs: Job, daemon_sets=(), namespaces=(), cluster_keys="") -> None:
        self.woken: list[tuple[tuple[str, str], float]] = []
        self.caches = Caches(
            KubeClient.__new__(KubeClient),
            namespaces,
            FakeClock(NOW),
            wake=lambda key, seconds: self.woken.append((key, seconds)),
            progress=lambda *_: None,
            cluster_keys=make_cluster_keys(cluster_keys.split(",") if cluster_keys else ()),
        )
        for job in jobs:
            self.caches._jobs.store.put(job)
        for found in daemon_sets:
            self.caches._daemon_sets.store.put(found)

    def keys_woken_by(
        self, change: Callable[..., None], old, new
    ) -> list[tuple[tuple[str, str], float]]:
        self.woken.clear()
        change(old, new)
        return self.woken


@pytest.fixture
def cluster() -> SampleCluster:
    return make_cluster("a", "b")


@pytest.fixture
def noted(cluster) -> NotedCaches:
    return NotedCaches(cluster.job, make_job("other"), daemon_sets=[cluster.daemon_set()])


def test_a_job_concerns_itself_at_once(noted, cluster):
    change = noted.caches._job_changed
    assert noted.keys_woken_by(change, None, cluster.job) == [(KEY, AT_ONCE)]
    assert noted.keys_woken_by(change, cluster.job, cluster.job) == [(KEY, AT_ONCE)]
    assert noted.keys_woken_by(change, cluster.job, None) == [(KEY, AT_ONCE)]


def test_a_report_concerns_the_job_of_its_name_even_if_that_is_gone(noted, cluster):
    change, report = noted.caches._report_changed, cluster.report()
    assert noted.keys_woken_by(change, None, report) == [(KEY, AT_ONCE)]
    assert noted.keys_woken_by(change, report, None) == [(KEY, AT_ONCE)]
    gone = replace(report, job_name="gone")
    assert noted.keys_woken_by(change, None, gone) == [(("default", "gone"), AT_ONCE)]


def test_a_daemon_set_concerns_the_job_that_would_have_its_name(noted, cluster):
    change, found = noted.caches._daemon_set_changed, cluster.daemon_set()
    assert noted.keys_woken_by(change, None, found) == [(KEY, AT_ONCE)]
    assert noted.keys_woken_by(change, found, found) == [(KEY, SOON)]
    assert noted.keys_woken_by(change, found, None) == [(KEY, AT_ONCE)]
    # Of an earlier run, or of another owner: the Job waits for it to go.
    assert noted.keys_woken_by(change, replace(found, owner_uid="former"), None) == [(KEY, AT_ONCE)]
    assert noted.keys_woken_by(change, None, replace(found, namespace="elsewhere")) == []


def test_a_pod_concerns_the_job_whose_daemon_set_controls_it(noted):
    change, pod = noted.caches._pod_changed, make_pod("a")
    assert noted.keys_woken_by(change, None, pod) == [(KEY, SOON)]
    assert noted.keys_woken_by(change, pod, pod) == [(KEY, SOON)]
    assert noted.keys_woken_by(change, pod, None) == [(KEY, SOON)]


def test_a_pod_that_only_has_the_labels_concerns_no_job(noted):
    assert (
        noted.keys_woken_by(noted.caches._pod_changed, None, replace(make_pod("a"), owner_uid=""))
        == []
    )
    assert (
        noted.keys_woken_by(noted.caches._pod_changed, None, replace(make_pod("a"), owner_uid="x"))
        == []
    )


NODE = make_node("a", ready_changed_at=NOW)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (None, NODE),
        (NODE, None),
        (NODE, replace(NODE, uid="another")),
        (NODE, replace(NODE, ready=False)),
        (replace(NODE, ready=False), NODE),
        (NODE, replace(NODE, ready_changed_at=NOW + timedelta(1))),
    ],
    ids=["joins", "leaves", "created again", "lost", "back", "flipped"],
)
def test_what_a_run_counts_of_nodes_concerns_every_job(noted, old, new):
    assert sorted(noted.keys_woken_by(noted.caches._node_changed, old, new)) == [
        (OTHER, SOON),
        (KEY, SOON),
    ]


def raw_node(version, beat):
    """Return a Node as its kubelet writes it with every heartbeat."""
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-02T03:04:05Z"}
    meta = {"name": "a", "uid": "a-uid", "labels": {"zone": "a"}, "annotations": {"beat": beat}}
    return {
        "metadata": {**meta, "resourceVersion": version},
        "status": {
            "conditions": [{**ready, "lastHeartbeatTime": beat}],
            "images": [{"names": [f"image:{version}"], "sizeBytes": 1}],
        },
    }


def test_a_heartbeat_concerns_no_job(cluster):
    noted = NotedCaches(cluster.job, make_job("other"), daemon_sets=[selecting(cluster)])
    old = parse_node(raw_node("1", "2026-01-02T03:04:05Z"))
    new = parse_node(raw_node("2", "2026-01-02T03:09:05Z"))
    assert noted.keys_woken_by(noted.caches._node_changed, old, new) == []


def selecting(cluster, **pod_spec):
    """Return a DaemonSet whose pods are for nodes of a zone."""
    rule = {"key": "zone", "operator": "In", "values": ["a"]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}
    spec = {"affinity": {"nodeAffinity": {REQUIRED: terms}}, **pod_spec}
    return replace(cluster.daemon_set(), spec={"template": {"spec": spec}})


ZONED = replace(NODE, labels={"zone": "a", "pool": "x"})


@pytest.mark.parametrize(
    ("labels", "woken"),
    [
        ({"zone": "b", "pool": "x"}, [(KEY, SOON)]),
        ({"pool": "x"}, [(KEY, SOON)]),
        ({"zone": "a", "pool": "y"}, []),
        ({"zone": "a", "pool": "x", "new": "1"}, []),
        ({"zone": "a", "pool": "x"}, []),
    ],
    ids=["changed", "gone", "another", "more", "none"],
)
def test_a_label_concerns_the_jobs_that_choose_nodes_by_it(cluster, labels, woken):
    noted = NotedCaches(cluster.job, make_job("other"), daemon_sets=[selecting(cluster)])
    changed = replace(ZONED, resource_version="2", labels=labels)
    assert noted.keys_woken_by(noted.caches._node_changed, ZONED, changed) == woken


def test_a_label_that_a_template_selects_by_concerns_its_job(cluster):
    noted = NotedCaches(cluster.job, daemon_sets=[selecting(cluster, nodeSelector={"pool": "x"})])
    changed = replace(ZONED, labels={"zone": "a", "pool": "y"})
    assert noted.keys_woken_by(noted.caches._node_changed, ZONED, changed) == [(KEY, SOON)]


@pytest.mark.parametrize(
    "selector",
    [
        {"matchLabels": {"pool": "y"}},
        {"matchExpressions": [{"key": "pool", "operator": "DoesNotExist"}]},
        {"matchLabels": {"pool": "y", **{f"label-{number}": "x" for number in range(40)}}},
    ],
    ids=["label", "expression", "many labels"],
)
def test_a_label_concerns_the_jobs_whose_steps_select_nodes_by_it(cluster, selector):
    """A step that waits for its approval goes on with a node that gets its label."""
    job = replace(cluster.job, spec=replace(cluster.job.spec, rollout=Rollout(steps=(Step(1),))))
    steps = (Step(1), Step(selector=selector))
    selecting_job = replace(job, spec=replace(job.spec, rollout=Rollout(steps=steps)))
    changed = replace(ZONED, labels={"zone": "a", "pool": "y"})
    for found, woken in ((job, []), (selecting_job, [(KEY, SOON)])):
        noted = NotedCaches(compact_job(found), make_job("other"))
        assert noted.keys_woken_by(noted.caches._node_changed, ZONED, changed) == woken


def test_pods_are_found_by_owner_and_not_by_label(noted, cluster):
    pods = noted.caches._pods.store
    own, forged = make_pod("a"), replace(make_pod("b"), owner_uid="x")
    pods.put(own)
    pods.put(forged)
    assert noted.caches.pods_of(cluster.daemon_set()) == (own,)


def test_pod_of_another_namespace_has_no_owner_here(noted, cluster):
    foreign = replace(make_pod("a"), namespace="elsewhere")
    noted.caches._pods.store.put(foreign)
    assert noted.caches.pods_of(cluster.daemon_set()) == ()
    assert noted.keys_woken_by(noted.caches._pod_changed, None, foreign) == []


def test_reports_are_found_by_the_name_of_their_job(noted, cluster):
    report = cluster.report()
    noted.caches._reports.store.put(report)
    noted.caches._reports.store.put(replace(report, name="x", job_name="gone"))
    assert noted.caches.reports_of(KEY) == (report,)
    assert noted.caches.reported_keys() == {KEY, ("default", "gone")}


def test_a_daemon_set_is_found_by_namespace_and_name(noted, cluster):
    name = build_daemon_set(cluster.job, gated=False, settings=cluster.snapshot().settings)[
        "metadata"
    ]["name"]
    assert noted.caches.daemon_set("default", name) == cluster.daemon_set()
    assert noted.caches.daemon_set("elsewhere", name) is None


def test_reports_of_existing_or_unreadable_jobs_are_not_closed(noted, cluster):
    report = cluster.report()
    gone = replace(report, name="x", job_name="gone", job_uid="gone")
    unread = replace(report, name="y", job_name="unread", job_uid="unread")
    for each in (report, gone, unread, replace(gone, namespace="elsewhere")):
        noted.caches._reports.store.put(each)
    meta = {"name": "unread", "namespace": "default", "uid": "unread"}
    noted.caches._jobs.store.unreadable["default", "unread"] = Unreadable.of(
        {"metadata": meta}, "x"
    )
    assert noted.caches.count_reports("default") == 3
    assert noted.caches.past_reports("default") == [gone]


def test_of_a_job_that_is_gone_summaries_are_kept(cluster):
    noted = NotedCaches(cluster.job)
    report = replace(
        cluster.report(), status=parse_report_status({"phase": "Running", "nodeStates": {"a": {}}})
    )
    noted.caches._reports.store.put(report)
    assert noted.caches.whole_reports.are_whole(cluster.job.uid)
    noted.caches._jobs.store.remove(KEY)
    noted.caches._job_changed(cluster.job, None)
    assert not noted.caches.whole_reports.are_whole(cluster.job.uid)
    assert noted.caches.reports_of(KEY)[0].status == ReportStatus(phase="Running")


# --- Jobs that a Job owns ----------------------------------------------------------------


@pytest.fixture
def alone(cluster) -> NotedCaches:
    return NotedCaches(cluster.job)


def owned(name: str, owner: Job, **changes) -> Job:
    return make_job(name, uid=f"{name}-uid", owner_uid=owner.uid, **changes)


def test_an_owned_job_concerns_the_job_that_owns_it(alone, cluster):
    change, child = alone.caches._job_changed, owned("sample-rollback", cluster.job)
    key = ("default", "sample-rollback")
    assert alone.keys_woken_by(change, None, child) == [(key, AT_ONCE), (KEY, SOON)]
    assert alone.keys_woken_by(change, child, child) == [(key, AT_ONCE), (KEY, SOON)]
    assert alone.keys_woken_by(change, child, None) == [(key, AT_ONCE), (KEY, SOON)]


def test_a_job_elsewhere_that_names_an_owner_is_not_owned(alone, cluster):
    """Its reference is forged: owners are in the same namespace."""
    forged = owned("sample-rollback", cluster.job, namespace="elsewhere")
    alone.caches._jobs.store.put(forged)
    woken = alone.keys_woken_by(alone.caches._job_changed, None, forged)
    assert woken == [(("elsewhere", "sample-rollback"), AT_ONCE)]
    assert alone.caches.jobs_owned_by(cluster.job) == ()


def test_a_job_is_read_with_the_jobs_that_it_owns_and_no_others(alone, cluster):
    names = ("sample-rollback-2", "sample-rollback")
    for name in names:
        alone.caches._jobs.store.put(owned(name, cluster.job))
    alone.caches._jobs.store.put(make_job("sample-rollback-3", uid="not-owned"))
    found = [job.name for job in alone.caches.jobs_owned_by(cluster.job)]
    assert found == sorted(names)


def test_forged_references_hide_no_job_that_a_rollout_needs(alone, cluster):
    parent = replace(
        cluster.job,
        spec=replace(cluster.job.spec, rollout=Rollout(steps=(Step(nodes=1),))),
    )
    needed = {"sample-image-pull", "sample-check-1"}
    forged = {f"sample-a{number}" for number in range(OWNED_JOBS_LIMIT)}
    for name in needed | forged:
        alone.caches._jobs.store.put(owned(name, parent))
    assert needed <= {job.name for job in alone.caches.jobs_owned_by(parent)}


def test_not_more_owned_jobs_are_read_than_a_run_can_have(alone, cluster):
    for number in range(OWNED_JOBS_LIMIT + 1):
        alone.caches._jobs.store.put(owned(f"sample-{number}", cluster.job))
    assert len(alone.caches.jobs_owned_by(cluster.job)) == OWNED_JOBS_LIMIT


def test_jobs_with_a_forged_reference_do_not_hide_those_that_a_run_has_created(alone, cluster):
    last = "sample-rollback-32"
    for name in (last, *(f"a-{number}" for number in range(OWNED_JOBS_LIMIT))):
        alone.caches._jobs.store.put(owned(name, cluster.job))
    assert alone.caches.jobs_owned_by(cluster.job)[0].name == last


@pytest.mark.parametrize(
    "spec",
    [{"rollout": Rollout()}, {"rollback": True}, {"cordon": True}, {"suspend": True}],
    ids=lambda spec: next(iter(spec)),
)
def test_a_left_pod_concerns_the_job_of_its_label_if_that_looks_at_it(cluster, spec):
    """Its DaemonSet is deleted, so that nothing but the label leads to the Job."""
    pod = make_pod("a", owner_uid="a deleted one", job_uid=cluster.job.uid)
    noted = NotedCaches(cluster.job)
    assert noted.keys_woken_by(noted.caches._pod_changed, pod, None) == []
    job = replace(cluster.job, spec=replace(cluster.job.spec, **spec))
    noted = NotedCaches(compact_job(job))  # as the cache keeps it
    assert noted.keys_woken_by(noted.caches._pod_changed, pod, None) == [(KEY, SOON)]
    elsewhere = replace(pod, namespace="elsewhere")
    assert noted.keys_woken_by(noted.caches._pod_changed, elsewhere, None) == []
    noted.caches._pods.store.put(pod)
    assert noted.caches.pods_labelled(cluster.job) == (pod,)


@pytest.mark.parametrize(
    "after",
    [
        None,
        replace(make_pod("a"), owner_uid="", daemon_set=""),
        replace(make_pod("a"), owner_uid="ds-uid", job_uid="", daemon_set="sample-daemonset-job"),
    ],
    ids=["removed by force", "released by its DaemonSet", "without its label"],
)
def test_a_pod_that_leaves_its_run_without_an_end_may_have_begun(cluster, after):
    names = {"job_uid": cluster.job.uid, "daemon_set": "sample-daemonset-job"}
    pod = make_pod("a", state="waiting", **names)
    noted = NotedCaches(cluster.job)
    noted.caches._pod_changed(None, pod)
    noted.caches._pod_changed(pod, replace(pod, phase="Running"))
    assert noted.caches.ended_pods.of(cluster.job) == NO_ENDED_PODS
    noted.caches._pod_changed(pod, after)
    assert noted.caches.ended_pods.of(cluster.job) == EndedPods(ran_on="a")


@pytest.mark.parametrize(
    "changes",
    [{"namespace": "elsewhere"}, {"daemon_set": "another"}, {"job_uid": "another"}],
    ids=["another namespace", "another DaemonSet", "another Job"],
)
def test_a_pod_of_something_else_says_nothing_of_the_run(cluster, changes):
    names = {"job_uid": cluster.job.uid, "daemon_set": "sample-daemonset-job", **changes}
    noted = NotedCaches(cluster.job)
    noted.caches._pod_changed(make_pod("a", **names), None)
    assert noted.caches.ended_pods.of(cluster.job) == NO_ENDED_PODS


def test_a_program_on_standby_forgets_the_pods_of_a_start_that_is_taken_back(cluster):
    """It decides nothing meanwhile, so it never asks for them."""
    pod = make_pod("a", job_uid=cluster.job.uid, daemon_set="sample-daemonset-job")
    noted = NotedCaches(cluster.job)
    noted.caches._pod_changed(pod, None)
    assert noted.caches.ended_pods.of(cluster.job) == EndedPods(ran_on="a")
    waiting = replace(cluster.job, status=replace(cluster.job.status, start_time=None))
    noted.caches._job_changed(cluster.job, waiting)
    noted.caches._job_changed(waiting, cluster.job)
    assert noted.caches.ended_pods.of(cluster.job) == NO_ENDED_PODS


def test_jobs_that_are_waited_for_are_not_unpacked(monkeypatch):
    """Other users own them: a reconcile looks at up to 100, each with a spec of up to 1.5 MiB."""
    chain = [
        make_job(f"job-{n}", spec=replace(make_job().spec, after=(f"job-{n + 1}",)))
        for n in range(150)
    ]
    noted = NotedCaches(*map(compact_job, chain))
    monkeypatch.setattr(caches_module, "expand_job", pytest.fail)
    found = find_predecessors(noted.caches, chain[0])
    assert list(found) == [f"job-{n + 1}" for n in range(CHAIN_LIMIT)]
    assert found["job-1"].waits_for == ("job-2",)


# --- keys rollout.exclusive --------------------------------------------------------------


def keyed(name, namespace, key):
    job = make_job(name, uid=f"{namespace}-{name}", namespace=namespace)
    return replace(job, spec=replace(job.spec, rollout=Rollout(exclusive=key)))


KEYED = [
    keyed(name, namespace, key)
    for namespace in ("team-a", "team-b")
    for name, key in (("kernel-job", "kernel"), ("disk-job", "disk-1"), ("own-job", "own"))
]


def test_a_key_holds_in_one_namespace_unless_the_administrator_names_it():
    caches = NotedCaches(*KEYED, cluster_keys="kernel,disk-*").caches
    found = {
        key: [(job.namespace, job.name) for job in caches.jobs_with_key("team-a", key)]
        for key in ("kernel", "disk-1", "own")
    }
    assert sorted(found["kernel"]) == [("team-a", "kernel-job"), ("team-b", "kernel-job")]
    assert sorted(found["disk-1"]) == [("team-a", "disk-job"), ("team-b", "disk-job")]
    assert found["own"] == [("team-a", "own-job")]
    alone = NotedCaches(*KEYED).caches
    assert [job.namespace for job in alone.jobs_with_key("team-a", "kernel")] == ["team-a"]


@pytest.mark.parametrize(
    ("key", "namespaces", "expected"),
    [
        ("own", (), ("team-a",)),
        ("own", ("team-a", "team-b"), ("team-a",)),
        ("kernel", (), (None,)),
        ("kernel", ("team-a", "team-b"), ("team-a", "team-b")),
    ],
)
def test_pods_are_listed_where_the_key_holds(key, namespaces, expected):
    caches = NotedCaches(namespaces=namespaces, cluster_keys="kernel").caches
    assert caches.key_namespaces("team-a", key) == expected


def test_a_pod_of_another_namespace_wakes_those_that_share_its_key():
    noted = NotedCaches(*KEYED, cluster_keys="kernel")
    for key, woken in (("kernel", {"team-a", "team-b"}), ("own", {"team-b"})):
        pod = replace(make_pod("a"), namespace="team-b", exclusive=key)
        found = noted.keys_woken_by(noted.caches._pod_changed, pod, None)
        assert {namespace for (namespace, _), _ in found} == woken


def test_a_forged_owner_makes_no_pod_that_of_a_job_of_another_namespace():
    cluster = make_cluster("a")
    found = cluster.daemon_set()
    theirs = replace(keyed("sample", found.namespace, "kernel"), uid=cluster.job.uid)
    noted = NotedCaches(theirs, daemon_sets=[found], cluster_keys="kernel")
    forged = replace(
        make_pod("a"), namespace="team-b", owner_uid=found.uid, exclusive="kernel", uid="forged"
    )
    noted.caches._pods.store.put(forged)
    runs = other_runs(noted.caches, keyed("mine", "team-a", "kernel"))
    assert [(run.job and run.job.name, len(run.pods)) for run in runs] == [(None, 1)]


def test_thousands_of_jobs_of_others_with_the_key_unpack_nothing(monkeypatch):
    """A Job without pods uses no node, whatever its size and its ledger."""
    cluster = make_cluster("a")
    jobs = [keyed(f"job-{number}", "team-b", "kernel") for number in range(1000)]
    found = cluster.daemon_set()
    sets = [
        replace(found, namespace="team-b", name=job.daemon_set_name, uid=f"{job.uid}-ds")
        for job in jobs
    ]
    noted = NotedCaches(*jobs, daemon_sets=sets, cluster_keys="kernel")
    for name in ("expand_daemon_set", "expand_job"):
        monkeypatch.setattr(caches_module, name, None)
    monkeypatch.setattr(Caches, "reports_of", None)
    (left,) = other_runs(noted.caches, keyed("mine", "team-a", "kernel"))
    assert (left.job, left.pods) == (None, ())


def test_only_a_change_of_use_wakes_the_jobs_that_share_a_key():
    noted = NotedCaches(*KEYED, cluster_keys="kernel")
    pod = replace(make_pod("a"), namespace="team-b", exclusive="kernel")
    change = noted.caches._pod_changed
    assert noted.keys_woken_by(change, pod, replace(pod, resource_version="8")) == []
    for after in (
        replace(pod, phase="Failed"),
        replace(pod, is_terminating=True),
        replace(pod, gates=(START_GATE,)),
        None,
    ):
        found = noted.keys_woken_by(change, pod, after)
        assert {namespace for (namespace, _), _ in found} == {"team-a", "team-b"}

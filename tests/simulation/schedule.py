"""A schedule: everything that is decided before a run begins, as data that can be reduced.

It holds the cluster, the Jobs, what their tasks do on each node, and a list of disturbances with
their times. A seed gives a schedule (see `generator`); the shrinker removes parts of it. Lags of
watches and requests are not in the list: they are drawn from the seed during the run. In a schedule
that is `calm`, they are all short.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from daemonset_job.api.shard_room import NODES_PER_SHARD
from tests.simulation.loop import EPOCH
from tests.simulation.server import Raw

FAILURE_TOKEN = "no good"
# The label of a node that says in which zone of its cloud it is.
TOPOLOGY_ZONE = "topology.kubernetes.io/zone"
# The end of the name of a Job that rolls back another one.
_ROLLBACK = re.compile(r"-rollback(-[0-9]+)?$")


@dataclass(frozen=True, slots=True)
class Task:
    """What the task does on one incarnation of a node, for a Job of mode Log or Exit.

    To succeed is to print the token and wait (Log) or to end with 0 (Exit).

    - `done`: succeeds after `after` seconds.
    - `exit`: prints the token and ends with `code`.
    - `once`: as `exit`, but from its second instance on it only waits.
    - `fail`: ends with `code` after `after` seconds, `times` times, then as `done`. From the second
      instance of a pod on it ends with `later_code`, if there is one.
    - `refuse`: prints the failure token `times` times, and then waits or ends with `code`; after
      that as `done`.
    - `never`: runs and never ends.
    - `silent`: always ends with 0 and without the token.
    - `pull`: its image cannot be pulled for `after` seconds (0: always), then as `done`.
    - `mount`: as `pull` with a volume that cannot be mounted.
    - `init`: as `pull` with another init container that fails.
    - `reject`: the kubelet rejects the pod `times` times.
    - `slow`: its image is pulled for `after` seconds; one pull fails then, the next one does not.
    - `work`: another init container is at work for `after` seconds, fails, and succeeds at its
      second attempt.
    - `again`: ends once with `code`, and its container cannot be created again for `after` seconds
      (0: always).
    - `reboot`: reboots its node after `after` seconds, `times` times, then as `done`. The node is
      away for `away` seconds each time.

    `on_term` is what it does on TERM. "" ends at once, with 143; `clean` ends with 0 after a while,
    its work undone; `deaf` works on until it is killed. It prints `noise` lines before its last
    ones, and after them a long one if it fails.
    """

    kind: str = "done"
    after: float = 1.0
    code: int = 0
    times: int = 0
    on_term: str = ""
    noise: int = 0
    away: float = 0.0
    later_code: int | None = None

    @property
    def is_good(self) -> bool:
        """Whether the task never does anything that could count as its failure."""
        return self.kind in {"done", "never"} or (self.kind in {"exit", "once"} and self.code == 0)

    def __str__(self) -> str:
        code = f" code {self.code}" if self.code else ""
        code += f" then {self.later_code}" if self.later_code is not None else ""
        times = f" x{self.times}" if self.times else ""
        times += f" noise {self.noise}" if self.noise else ""
        times += f" away {self.away:g}s" if self.away else ""
        term = f", {self.on_term} on TERM" if self.on_term else ""
        return f"{self.kind} after {self.after:g}s{code}{times}{term}"


@dataclass(frozen=True, slots=True)
class NodePlan:
    """A node that is there from the beginning, or may join; tasks by incarnation, in turn.

    `zone` and `slot` are labels, and so is `topology_zone`, that of the cloud, unless it is "".
    `labels` are more of them. Its kubelet's clock is `skew` seconds ahead of the programs'.
    """

    name: str
    tasks: tuple[Task, ...] = (Task(),)
    zone: str = "a"
    slot: str = "1"
    skew: float = 0.0
    is_initial: bool = True
    topology_zone: str = ""
    labels: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class JobPlan:
    """A Job that a user applies, its raw spec, and when.

    `tasks` by node is what its task does where that is not what the node's plan says. `owned_tasks`
    is that of the Jobs that this one owns, where it is not done at once.
    """

    name: str = "sample"
    namespace: str = "default"
    spec: Raw = field(default_factory=lambda: {"image": "example/task:1"})
    tasks: Mapping[str, Task] = field(default_factory=dict)
    created_at: float = 0.0
    owned_tasks: Mapping[str, Task] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """The namespace and name, as one word."""
        return f"{self.namespace}/{self.name}"

    @property
    def is_exit(self) -> bool:
        """Whether the exit code completes a node, and not the token."""
        return bool(self.spec.get("completion", {}).get("mode") == "Exit")

    @property
    def is_continuous(self) -> bool:
        """Whether the Job stays: policy Continuous."""
        return bool(self.spec.get("completion", {}).get("policy") == "Continuous")


def cron_of(minutes: str) -> str:
    """Return the `spec.schedule` with starts in these minutes of the first hour, "5,7"."""
    return f"{minutes} {EPOCH.hour} * * *"


def moments_of(cron: str) -> tuple[float, ...]:
    """Return the starts of a `spec.schedule` of that form, in seconds from the beginning."""
    minutes = map(int, cron.split(maxsplit=1)[0].split(","))
    return tuple(60.0 * (each - EPOCH.minute) - EPOCH.second for each in minutes)


@dataclass(frozen=True, slots=True)
class ScheduledPlan:
    """A ScheduledJob that a user applies: its raw spec but for the template, and what a run is.

    Runs start in these `minutes` of the hour in which a simulation begins, and in no other one.
    """

    name: str = "often"
    namespace: str = "default"
    minutes: tuple[int, ...] = ()
    spec: Raw = field(default_factory=dict)
    run: JobPlan = field(default_factory=JobPlan)

    @property
    def raw_spec(self) -> Raw:
        """The spec as the user applies it."""
        schedule = cron_of(",".join(map(str, self.minutes)))
        return {**self.spec, "schedule": schedule, "jobTemplate": {"spec": self.run.spec}}

    @property
    def moments(self) -> tuple[float, ...]:
        """When runs start, in seconds from the beginning of the simulation."""
        return moments_of(self.raw_spec["schedule"])


@dataclass(frozen=True, slots=True)
class Workload:
    """Pods of another client, and the controller that creates them again.

    `kind` is that of the controller: a "ReplicaSet" has `replicas` pods anywhere, a "DaemonSet" one
    on each node, "Node" is a mirror pod on each node. Pods without a controller, "", are not
    created again. A disruption budget keeps `healthy` of them healthy, None is none. Each takes
    `grace` seconds to end. Those with `tolerates_cordon` are placed on cordoned nodes, too.
    """

    name: str
    kind: str = "ReplicaSet"
    replicas: int = 1
    healthy: int | None = None
    grace: float = 1.0
    has_empty_dir: bool = False
    tolerates_cordon: bool = False

    def __str__(self) -> str:
        budget = "" if self.healthy is None else f" keep {self.healthy} healthy,"
        volume = " emptyDir," if self.has_empty_dir else ""
        kind = self.kind or "no controller"
        return f"{self.name}: {self.replicas} of {kind},{budget}{volume} end in {self.grace:g}s"


@dataclass(frozen=True, slots=True)
class Disturbance:
    """Something that happens at a time: `kind` says what, see `disturbances`.

    `who` is a process ("controller", "terminator"). For what users do to a Job it is the key of the
    Job, "" for the first one. For an edit of a ScheduledJob it is the new value of the field
    `mode`. `what` is a resource or a node, `mode` how, and `seconds` how long.
    Where that makes sense, 0 seconds means permanently.
    """

    at: float
    kind: str
    who: str = ""
    what: str = ""
    mode: str = ""
    seconds: float = 0.0

    def __str__(self) -> str:
        parts = (self.who, self.what, self.mode, f"{self.seconds:g}s" if self.seconds else "")
        return f"at {self.at:g}: {self.kind} " + " ".join(part for part in parts if part)


@dataclass(frozen=True, slots=True)
class Schedule:
    """One run, before it begins.

    `streams` is the terminator's limit, `shard_nodes` how many nodes a shard of a report holds. The
    clocks of the two API servers are `api_skews` seconds ahead of the programs'. By the first one,
    nodes have been there for `nodes_age` seconds at the beginning.
    `has_last_statuses`: a kubelet writes the last status of a deleted pod also if nothing of it has
    started, as since Kubernetes 1.27. Without it, such a pod is gone at once.
    """

    seed: int
    nodes: tuple[NodePlan, ...]
    jobs: tuple[JobPlan, ...] = (JobPlan(),)
    disturbances: tuple[Disturbance, ...] = ()
    calm: bool = False
    streams: int = 256
    shard_nodes: int = NODES_PER_SHARD
    api_skews: tuple[float, float] = (0.0, 0.0)
    nodes_age: float = 0.0
    has_last_statuses: bool = False
    workloads: tuple[Workload, ...] = ()
    scheduled: tuple[ScheduledPlan, ...] = ()

    @property
    def quiet_from(self) -> float:
        """The time after which nothing disturbs the run any more."""
        last = max((d.at + min(d.seconds, 120.0) for d in self.disturbances), default=0.0)
        return max(last, *self.start_moments, *(job.created_at for job in self.jobs)) + 5.0

    @property
    def start_moments(self) -> tuple[float, ...]:
        """When ScheduledJobs may start something, by the schedules that they have or get."""
        found = {moment for each in self.scheduled for moment in each.moments}
        for each in self.disturbances:
            if (each.kind, each.mode) == ("edit_schedule", "schedule"):
                found.update(moments_of(cron_of(each.who)))
        return tuple(sorted(found))

    def job(self, key: str) -> JobPlan | None:
        """Return the plan of the Job of that key (the first one's for ""), None for none."""
        found = next((job for job in self.jobs if key in {"", job.key}), None)
        return found or self._run_of(key) or self._rollback_of(key)

    def _run_of(self, key: str) -> JobPlan | None:
        """Return the plan of the Job of that key if it is a run of a ScheduledJob, None if not."""
        name, _, minute = key.rpartition("-")
        for each in self.scheduled:
            if f"{each.namespace}/{each.name}" == name and minute.isdigit():
                return replace(each.run, name=key.partition("/")[2], namespace=each.namespace)
        return None

    def _rollback_of(self, key: str) -> JobPlan | None:
        """Return the plan of the Job of that key if it rolls back another one, None if not.

        The product creates it; its task always succeeds.
        """
        parent = next((job for job in self.jobs if _ROLLBACK.sub("", key) == job.key), None)
        if parent is None or "rollback" not in parent.spec:
            return None
        spec = {"image": "example/task:1", "completion": parent.spec.get("completion") or {}}
        tasks = {node.name: Task("done", 0.3) for node in self.nodes}
        return JobPlan(key.partition("/")[2], parent.namespace, spec, tasks)

    def describe(self) -> list[str]:
        """Return the schedule in lines for people."""
        lines = [f"seed {self.seed}{', calm' if self.calm else ''}, streams {self.streams}"]
        if self.shard_nodes != NODES_PER_SHARD:
            lines[0] += f", {self.shard_nodes} nodes to a shard"
        for job in self.jobs:
            when = f" at {job.created_at:g}" if job.created_at else ""
            lines.append(f"job {job.key}{when} spec {job.spec}")
            lines += [f"  on {node}: {task}" for node, task in job.tasks.items()]
            lines += [f"  owned, on {node}: {task}" for node, task in job.owned_tasks.items()]
        if any(self.api_skews):
            lines.append(f"API servers' clocks ahead by {self.api_skews}")
        for node in self.nodes:
            tasks = ", then ".join(map(str, node.tasks))
            when = "" if node.is_initial else " (joins later)"
            more = f" slot {node.slot}" if node.slot != "1" else ""
            more += f" clock {node.skew:+g}s" if node.skew else ""
            more += f" in {node.topology_zone}" if node.topology_zone else ""
            more += "".join(f" {key}={value}" for key, value in node.labels)
            lines.append(f"node {node.name} zone {node.zone}{more}{when}: {tasks}")
        lines += [f"pods {workload}" for workload in self.workloads]
        lines += [f"ScheduledJob {each.name} {each.raw_spec}" for each in self.scheduled]
        lines += [str(d) for d in self.disturbances]
        return lines

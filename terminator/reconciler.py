"""Looks at one Job at a time: what is to be read, what is counted, and whether the Job may go.

Shell, thin: counting is ``ending``'s, reading the scanner's, entering the ledger's. It is
level-triggered: each look starts from the caches, whatever events came, and however often.
"""

from collections.abc import Callable

from loguru import logger

from job_controller.api.job import Job
from job_controller.api.objects import DaemonSet, Pod
from job_controller.api.report import Evidence
from job_controller.kube.client import KubeClient
from job_controller.kube.errors import Conflict, KubeError, NotFound
from job_controller.kube.resources import JOBS
from terminator.caches import Caches, JobKey
from terminator.ending import Snapshot, merge_ledger, owned_pods, speaks_for, take_count
from terminator.ledger import Ledger
from terminator.metrics import Metrics
from terminator.scanner import Scanner, Target
from terminator.tail import Findings
from terminator.token import Matcher

# Jobs of one token share a matcher, and with it what a regular expression has learnt; this many
# different ones are kept.
_MATCHERS_LIMIT = 256


class Matchers:
    """The matchers of all Jobs; None, and a warning, for a token that makes no sense."""

    def __init__(self, default_token: Callable[[], str]) -> None:
        self._default_token = default_token
        self._known: dict[tuple[str, str], Matcher] = {}
        self._refused: set[tuple[str, str]] = set()

    def of(self, job: Job) -> Matcher | None:
        """Return the Job's matcher, the same object as long as its tokens are the same."""
        completion = job.spec.completion
        key = (completion.token or self._default_token(), completion.match)
        if key not in self._known and len(self._known) >= _MATCHERS_LIMIT:
            self._known.clear()
        try:
            matcher = self._known.get(key) or Matcher.of(completion, key[0])
        except ValueError as error:
            if key not in self._refused:
                self._refused.add(key)
                logger.warning("the completion token cannot be used", error=str(error))
            return None
        self._known[key] = matcher
        return matcher


class Reconciler:
    """Acts on one Job per call."""

    def __init__(
        self,
        client: KubeClient,
        caches: Caches,
        ledger: Ledger,
        metrics: Metrics,
        token: Callable[[], str],
    ) -> None:
        self._client = client
        self._caches = caches
        self._ledger = ledger
        self._metrics = metrics
        self._matchers = Matchers(token)
        self._deleted: dict[JobKey, str] = {}
        # Set right after: the scanner needs `found`, and the reconciler needs the scanner.
        self.scanner: Scanner

    async def reconcile(self, key: JobKey) -> float | None:
        """Make what is read and what exists agree with the caches; raises KubeError.

        Returns the seconds until the next look is worth while, if no event comes first.
        """
        job = self._caches.job(key)
        if job is None:
            self._deleted.pop(key, None)
            self.scanner.set_targets(key, ())
            return None
        daemon_set = self._caches.daemon_set_of(job)
        pods = owned_pods(
            job, daemon_set, self._caches.pods_of(daemon_set) if daemon_set is not None else ()
        )
        self.scanner.set_targets(key, self._targets(job, pods))
        await self._end(key, job, daemon_set, pods)
        return None

    def found(self, key: JobKey, target: Target, findings: Findings) -> None:
        """Take what the scanner found in a pod's log: the node is completed."""
        job = self._caches.job(key)
        if job is None or job.uid != target.job_uid or not findings.completed_at:
            return
        pod = target.pod
        self._ledger.enter(
            job, pod.node_name, Evidence(target.node_uid, findings.completed_at, pod.name)
        )
        logger.bind(namespace=job.namespace, job=job.name, node=pod.node_name, pod=pod.name).debug(
            "a node printed the token"
        )
        self._hurry_if_last(job)

    # --- reading -------------------------------------------------------------------------

    def _targets(self, job: Job, pods: list[Pod]) -> list[Target]:
        matcher = self._matchers.of(job)
        if matcher is None:
            return []
        ledger, nodes = self._ledger.view(job), self._caches.nodes_of(pods)
        targets = []
        for pod in pods:
            node = nodes.get(pod.node_name)
            if node is None or not pod.bound or not speaks_for(pod, node):
                continue
            entry = ledger.get(node.name)
            if entry is None or entry.node_uid != node.uid or not entry.is_completed:
                targets.append(Target(pod, job.uid, node.uid, matcher))
        return targets

    # --- ending --------------------------------------------------------------------------

    def _hurry_if_last(self, job: Job) -> None:
        """Have the ledger written at once when what is pending completes the run."""
        daemon_set = self._caches.daemon_set_of(job)
        if daemon_set is None or not self._ledger.could_complete(job, daemon_set.desired):
            return
        pods = self._caches.pods_of(daemon_set)
        snapshot = Snapshot(
            job, daemon_set, pods, self._caches.nodes_of(pods), self._ledger.view(job)
        )
        if take_count(snapshot).all_completed:
            self._ledger.hurry(job)

    async def _end(
        self, key: JobKey, job: Job, daemon_set: DaemonSet | None, pods: list[Pod]
    ) -> None:
        self._hurry_if_last(job)
        # What is pending or just written proves nothing yet: a Job goes when its record is safe.
        entered = merge_ledger(job, self._caches.reports_of(job))
        count = take_count(Snapshot(job, daemon_set, pods, self._caches.nodes_of(pods), entered))
        if not count.may_delete:
            logger.trace("the Job stays", because=count.obstacle)
            return
        if self._deleted.get(key) == job.uid:
            return  # the cache has yet to hear of it
        await self._delete(key, job, len(count.completed))

    async def _delete(self, key: JobKey, job: Job, nodes: int) -> None:
        try:
            await self._client.delete(
                JOBS, job.name, job.namespace, uid=job.uid, propagation="Background"
            )
        except (NotFound, Conflict):
            # Gone, or another Job of that name by now: what was to be deleted does not exist.
            self._metrics.deletions.labels("gone").inc()
        except KubeError:
            self._metrics.deletions.labels("failed").inc()
            raise
        else:
            self._metrics.deletions.labels("done").inc()
            logger.info("every node is completed, deleted the Job", nodes=nodes)
        self._deleted[key] = job.uid

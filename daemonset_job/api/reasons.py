"""The reasons of conditions, nodes and events, each with its meaning.

Reasons are for programs and do not change within `v1beta1`. docs/reference/status.md has the same
sentences, which a test compares, and adds details to some of them.
"""

from __future__ import annotations

from typing import Self

from daemonset_job.api.states import TextEnum


class Reason(TextEnum):
    """A word of the API, equal to its text, and a sentence that says what it means."""

    meaning: str

    def __new__(cls, text: str, meaning: str) -> Self:
        """Return the member with this text and meaning."""
        member = str.__new__(cls, text)
        member._value_ = text
        member.meaning = meaning
        return member


class ProgressingReason(Reason):
    """The reason of `Progressing`; with status False, also of the event that says so."""

    STARTING = "Starting", "The DaemonSet is being created."
    NODES_ACTIVE = "NodesActive", "Nothing blocks the run; the message has the counts."
    COMPLETED = "Completed", "The run has ended and succeeded."
    FAILED = "Failed", "The run has ended and failed."
    ROLLOUT_SOAKING = (
        "RolloutSoaking",
        "The nodes of a step have finished, and its `soakSeconds` or its check are not over.",
    )
    INVALID_WINDOW = (
        "InvalidWindow",
        "`spec.rollout.window` cannot be read: no further node starts until it is corrected.",
    )
    OUTSIDE_WINDOW = (
        "OutsideWindow",
        "The window of the rollout is closed: no further node starts until it opens.",
    )
    PULLING_IMAGES = (
        "PullingImages",
        "With `rollout.pullImagesFirst`: the nodes pull the images, and no node starts before.",
    )
    TOO_MANY_IMAGES = (
        "TooManyImages",
        "`spec.rollout.pullImagesFirst` of a Job whose pods have more than 16 images.",
    )
    ABORTED = "Aborted", "A person aborted the run before it had started: it does not start."
    PAUSED = (
        "Paused",
        "Suspended, paused by `failurePolicy` or a step of the rollout, or all Jobs are stopped.",
    )
    INVALID_COMPLETION_TOKEN = (
        "InvalidCompletionToken",
        (
            "`spec.completion.token` or `failureToken` can never be seen, or its pattern is too "
            "large; the message says what to change."
        ),
    )
    TEMPLATE_CONFLICT = (
        "TemplateConflict",
        "By a field of `spec.template` the script would not run, or not on the host.",
    )
    SPEC_TOO_LARGE = "SpecTooLarge", "The spec without `spec.nodes` has more than 64 KiB as JSON."
    TOO_MANY_NODE_SELECTOR_TERMS = (
        "TooManyNodeSelectorTerms",
        (
            "`spec.nodes` and the node affinity of `spec.template` would make nodeSelectorTerms of "
            "more than 512 KiB."
        ),
    )
    DAEMON_SET_REFUSED = (
        "DaemonSetRefused",
        (
            "The API server does not take the DaemonSet: a value in `spec.template` it does not "
            "allow, a quota, an admission webhook, its size."
        ),
    )
    REPORT_REFUSED = (
        "ReportRefused",
        "The API server does not take the JobReport: a quota, an admission webhook, its size.",
    )
    POD_CHANGE_REFUSED = (
        "PodChangeRefused",
        (
            "The API server does not let the controller remove a scheduling gate, or delete pods; "
            "one does not hold up the other."
        ),
    )
    NODE_CHANGE_REFUSED = (
        "NodeChangeRefused",
        (
            "The API server does not let the controller change nodes as `spec.onSuccess` or "
            "`results` say: `deploy/components/node-changes` is not applied, a reserved key, a "
            "webhook."
        ),
    )
    CORDON_REFUSED = (
        "CordonRefused",
        (
            "The API server does not let the controller cordon, drain or uncordon nodes: "
            "`deploy/components/drain` is not applied, or a webhook."
        ),
    )
    WAITING_FOR_JOB = (
        "WaitingForJob",
        "`spec.after` names a Job that has not succeeded; the message says which, and its state.",
    )
    DAEMON_SET_ALTERED = (
        "DaemonSetAltered",
        (
            "Another client, or a webhook, changed on which nodes the DaemonSet's pods run, and "
            "the controller has not reverted that yet."
        ),
    )
    UNREADABLE = (
        "Unreadable",
        (
            "The controller cannot read the Job and ignores it: its JSON is nested too deep, in "
            "`metadata.managedFields` for example, which Kubernetes does not bound."
        ),
    )
    PREVIOUS_RUN_ENDING = (
        "PreviousRunEnding",
        "The DaemonSet of an earlier Job of this name is still being deleted.",
    )
    DAEMON_SET_ALREADY_EXISTS = (
        "DaemonSetAlreadyExists",
        "A DaemonSet of this name exists that does not belong to the Job.",
    )
    NO_MATCHING_NODES = (
        "NoMatchingNodes",
        ("No node matches `spec.nodes`, or the pods do not tolerate the taints of those that do."),
    )
    FAILED_CREATE = (
        "FailedCreate",
        "Pods cannot be created: quota, Pod Security, an admission webhook.",
    )
    DAEMON_SET_STALLED = (
        "DaemonSetStalled",
        (
            "For a minute the DaemonSet controller of Kubernetes has not observed the newest spec, "
            "or pods are missing and no `FailedCreate` event says why."
        ),
    )
    DRAIN_BLOCKED = (
        "DrainBlocked",
        "Pods do not leave nodes that are to be drained, for example by a PodDisruptionBudget.",
    )
    NODE_IN_USE = (
        "NodeInUse",
        (
            "Nodes are cordoned by another Job, or another Job with the same key "
            "`rollout.exclusive` runs there; the message names that Job if it is of "
            "the same namespace."
        ),
    )
    IMAGE_PULL_FAILED = (
        "ImagePullFailed",
        "Nodes cannot pull the image, for the first attempt or for a later one.",
    )
    CONTAINER_START_FAILED = (
        "ContainerStartFailed",
        (
            "Nodes cannot start the container: a missing ConfigMap, a command that does not exist, "
            "an init container of `spec.template` that fails."
        ),
    )
    POD_REJECTED = (
        "PodRejected",
        "The kubelets of nodes reject the pod: a forbidden sysctl, a device that is not there.",
    )
    TASK_NOT_STARTED = (
        "TaskNotStarted",
        (
            "The pods have been on their nodes for 45 s, and the task has not started: a "
            "volume, the sandbox, or a large image."
        ),
    )
    NOT_SCHEDULED = (
        "NotScheduled",
        (
            "For 45 s no scheduler has looked at pods: kube-scheduler is away, or none has the "
            "`schedulerName` in `spec.template`."
        ),
    )
    FOREIGN_SCHEDULING_GATE = "ForeignSchedulingGate", "Pods have scheduling gates of others."
    UNSCHEDULABLE = "Unschedulable", "Nodes have no room for the pod."
    NODES_UNREACHABLE = (
        "NodesUnreachable",
        "Nodes are not Ready, or another condition of theirs keeps their pods off.",
    )
    TASK_FAILING = "TaskFailing", "The task is failing on some nodes."
    NODES_FAILED = (
        "NodesFailed",
        "Policy `Continuous`: more nodes have failed than `maxFailedNodes` allows.",
    )


class CompleteReason(Reason):
    """The reason of `Complete`."""

    ALL_NODES_COMPLETED = (
        "AllNodesCompleted",
        "Every node that was desired at the end of the run is completed.",
    )
    COMPLETED_WITHIN_FAILURE_LIMIT = (
        "CompletedWithinFailureLimit",
        "Every node finished; the failures are within `maxFailedNodes`.",
    )
    MIN_COMPLETED_REACHED = (
        "MinCompletedReached",
        "As many nodes are completed as `successPolicy.minCompleted` asks for; others are not.",
    )
    NODES_ADDED = (
        "NodesAdded",
        "`spec.nodes` was changed and selects further nodes; the run goes on with them.",
    )
    NODES_DUE = (
        "NodesDue",
        "Policy `Continuous`: a node has joined, or has to run the task again.",
    )


class FailedReason(Reason):
    """The reason of `Failed`."""

    MAX_FAILED_NODES_EXCEEDED = (
        "MaxFailedNodesExceeded",
        (
            "More nodes failed, or are unreachable, than `maxFailedNodes` or `maxUnreachableNodes` "
            "allows."
        ),
    )
    DEADLINE_EXCEEDED = "DeadlineExceeded", "`activeDeadlineSeconds` have passed."
    CHECK_FAILED = "CheckFailed", "A check of a step of the rollout has failed."
    IMAGE_PULL_FAILED = (
        "ImagePullFailed",
        (
            "With `rollout.pullImagesFirst`: more nodes cannot pull the images than "
            "`failurePolicy` allows."
        ),
    )
    ABORTED = "Aborted", "A person ended the run with the abort annotation; no retry revives it."
    ROLLBACK_REQUESTED = (
        "RollbackRequested",
        "A person ended the run with the rollback annotation; no retry revives it.",
    )
    RETRYING = "Retrying", "The failed run goes on; the message says by what."
    START_TAKEN_BACK = (
        "StartTakenBack",
        "The run had failed, no task had begun, and its start was taken back to be corrected.",
    )


class RolledBackReason(Reason):
    """The reason of `RolledBack`; also of the event that says so."""

    ROLLBACK_WAITING = (
        "RollbackWaiting",
        (
            "The rollback has not begun: tasks are at work or may still start, or the end of the "
            "run is not recorded."
        ),
    )
    ROLLING_BACK = "RollingBack", "The rollback is at work; `status.rollback` names its Jobs."
    ROLLBACK_FAILED = (
        "RollbackFailed",
        "The rollback failed on a node, and has stopped.",
    )
    ROLLBACK_CANCELLED = (
        "RollbackCancelled",
        "The rollback's Job was aborted or deleted; the rollback is over, and no retry revives it.",
    )
    ROLLBACK_NAME_TAKEN = (
        "RollbackNameTaken",
        "A Job that is not of this one has the name of the rollback's Job.",
    )
    ROLLBACK_REFUSED = (
        "RollbackRefused",
        "The API server does not take the Job of the rollback: a quota, an admission webhook.",
    )
    ROLLBACK_NOT_POSSIBLE = (
        "RollbackNotPossible",
        "A rollback was requested of a Job that has no `spec.rollback`.",
    )
    ROLLED_BACK = "RolledBack", "Every node whose task had started is rolled back."
    ROLLED_BACK_PARTLY = (
        "RolledBackPartly",
        (
            "The rollback has ended, and some nodes are not rolled back: they are away, tainted or "
            "gone, or there may be no further Job."
        ),
    )


class SuspendedReason(Reason):
    """The reason of `Suspended`."""

    SUSPENDED = "Suspended", "`spec.suspend` is true."
    START_TAKEN_BACK = (
        "StartTakenBack",
        "`spec.suspend` is true, and no task had begun: every field can be changed again.",
    )
    CLUSTER_STOPPED = (
        "ClusterStopped",
        "An administrator has stopped all Jobs of the cluster, or it is not known whether one has.",
    )
    MAX_FAILED_NODES_EXCEEDED = (
        "MaxFailedNodesExceeded",
        (
            "`failurePolicy.action: Pause`, and more nodes failed or are unreachable than "
            "`maxFailedNodes` allows."
        ),
    )
    WAITING_FOR_APPROVAL = (
        "WaitingForApproval",
        "A step of the rollout is done and has `approval: Required`; the message has the command.",
    )
    CHECK_INCONCLUSIVE = (
        "CheckInconclusive",
        "Nothing shows whether a step of the rollout went well; a person decides.",
    )
    CHECK_FAILED = (
        "CheckFailed",
        "A check of a step has failed, and `failurePolicy.action` is not `FailFast`.",
    )
    RESUMED = "Resumed", "The run was resumed."


class AlteredReason(Reason):
    """The reason of `DaemonSetAltered`."""

    DAEMON_SET_ALTERED = (
        "DaemonSetAltered",
        (
            "Another client set fields in the spec of the DaemonSet; the message names the client "
            "and the fields."
        ),
    )


class ReconcilingReason(Reason):
    """The reason of `Reconciling`."""

    RUN_IN_PROGRESS = "RunInProgress", "The run has not ended; `Progressing` says more."
    RUN_ENDED = "RunEnded", "The run has succeeded or failed."


class StalledReason(Reason):
    """The reason of `Stalled`."""

    RUN_FAILED = "RunFailed", "The run has failed, and nothing happens without a retry."
    NODES_FAILED = "NodesFailed", "Policy `Continuous`: only nodes that have failed are left."
    RUN_CONTINUED = "RunContinued", "The failed run goes on after a retry."


class CancelledReason(Reason):
    """The reason of `Cancelled`, a condition of a JobReport."""

    JOB_DELETED = "JobDeleted", "The Job was deleted before the run had ended."


class HistoryReason(Reason):
    """The reason of an entry in `status.history` of a JobReport."""

    RETRY_REQUESTED = "RetryRequested", "The retry annotation of the Job was changed."
    RERUN_REQUESTED = (
        "RerunRequested",
        "The rerun annotation of the Job was changed; the message has the nodes that it names.",
    )
    SPEC_CHANGED = "SpecChanged", "The spec of the Job was changed; the message has its generation."
    PAUSED = "Paused", "The phase became `Paused`, or nodes or a check failed while it was."
    WAITING_FOR_APPROVAL = (
        "WaitingForApproval",
        "A step of the rollout began to wait until a person approves it or decides on its check.",
    )
    RESUMED = "Resumed", "The phase was `Paused`, and the run goes on."
    STEP_STARTED = "StepStarted", "The next step of the rollout began."
    STEP_APPROVED = "StepApproved", "A person approved a step of the rollout."
    PROMOTED = "Promoted", "A person let the rollout go on without soaks and approvals."
    NODES_ADDED = "NodesAdded", "A change of `spec.nodes` opened a completed run again."
    FAILED = "Failed", "The run failed, or a failed run was aborted."
    START_TAKEN_BACK = (
        "StartTakenBack",
        "An earlier start failed before any task had begun, and was taken back to be corrected.",
    )
    COMPLETED = "Completed", "The run succeeded."
    CANCELLED = "Cancelled", "The Job was deleted before the run had ended."
    DAEMON_SET_ALTERED = "DaemonSetAltered", "Another client changed the spec of the DaemonSet."
    ROLLBACK_REQUESTED = "RollbackRequested", "A person requested the rollback of the run."
    ROLLBACK_STARTED = "RollbackStarted", "The rollback of the run began."
    ROLLBACK_FAILED = "RollbackFailed", "The rollback failed, and has stopped."
    ROLLED_BACK = "RolledBack", "The rollback has ended; the message names nodes that it left out."


class NodeReason(Reason):
    """The reason of a node's state, in its record."""

    SCHEDULING_GATED = "SchedulingGated", "The pod is gated by the controller."
    DRAINING = "Draining", "The node's pods are evicted before its turn."
    DRAIN_BLOCKED = (
        "DrainBlocked",
        "The API server does not evict a pod of the node now; the message says why.",
    )
    NODE_IN_USE = (
        "NodeInUse",
        (
            "The node waits for another Job, which has cordoned the node, or has the same key "
            "`rollout.exclusive`."
        ),
    )
    POD_TAKEN_BACK = (
        "PodTakenBack",
        (
            "The start of the run is taken back: the pod is deleted, and it is not known yet "
            "whether it has started anything."
        ),
    )
    DISRUPTED = (
        "Disrupted",
        (
            "The pod was evicted, preempted or drained, its kubelet does not admit it after a "
            "restart, or its sandbox has ended; a new pod or sandbox follows."
        ),
    )
    IMAGE_PULL_FAILED = (
        "ImagePullFailed",
        (
            "The kubelet cannot pull the image: `ErrImagePull`, `ImagePullBackOff`, "
            "`ErrImageNeverPull`, `InvalidImageName`, `ImageInspectError`, `RegistryUnavailable` "
            "or `SignatureValidationFailed`."
        ),
    )
    CONTAINER_START_FAILED = (
        "ContainerStartFailed",
        (
            "The kubelet cannot start the container: `CreateContainerConfigError`, "
            "`CreateContainerError`, `RunContainerError` or `PostStartHookError`; or an init "
            "container of `spec.template` fails."
        ),
    )
    POD_REJECTED = (
        "PodRejected",
        (
            "The kubelet rejects the pod: `SysctlForbidden`, `AppArmor`, "
            "`UnexpectedAdmissionError` and the like."
        ),
    )
    TASK_NOT_STARTED = (
        "TaskNotStarted",
        "The pod is on its node, its task has not started for 45 s, and nothing says why.",
    )
    NOT_SCHEDULED = (
        "NotScheduled",
        (
            "For 45 s no scheduler has looked at the pod: kube-scheduler is away, or none has the "
            "`schedulerName` in `spec.template`."
        ),
    )
    FOREIGN_SCHEDULING_GATE = (
        "ForeignSchedulingGate",
        (
            "The pod waits at a scheduling gate that is not this system's, such as one in "
            "`spec.template`."
        ),
    )
    UNSCHEDULABLE = "Unschedulable", "The scheduler finds no room for the pod on its node."
    RESTARTING = "Restarting", "The task ended without completing the node, and is being restarted."
    TASK_EXITED = (
        "TaskExited",
        "The task printed the token and exited, and the kubelet starts it again.",
    )
    LEFT_SELECTION = (
        "LeftSelection",
        "Policy `Continuous`: the node was completed, and its labels then left the selection.",
    )
    RESULT_NOT_SET = (
        "ResultNotSet",
        (
            "The node is completed, and a result could not be set on it as a label or annotation; "
            "the message says which."
        ),
    )
    RESULT_TOO_LONG = (
        "ResultTooLong",
        (
            "The node is completed, and the report lacks results that are too long, or for which "
            "it has no room; the message names them."
        ),
    )
    RESULT_NOT_LISTED = (
        "ResultNotListed",
        "The node is completed, and its task printed a result that `results` does not list.",
    )
    BACKOFF_LIMIT_EXCEEDED = "BackoffLimitExceeded", "Failed more often than `backoffLimit` allows."
    FAILURE_POLICY_RULE = "FailurePolicyRule", "A rule with `Fail` lists its exit code."
    FAILURE_TOKEN = "FailureToken", "The task printed the failure token."
    DEADLINE_EXCEEDED = "DeadlineExceeded", "`nodeDeadlineSeconds` have passed."
    DRAIN_TIMED_OUT = (
        "DrainTimedOut",
        "Pods had not left the node after `drain.timeoutSeconds`; it was uncordoned.",
    )
    DRAIN_REFUSED = (
        "DrainRefused",
        (
            "The node has pods that the drain must not evict, without `drain.force` or "
            "`drain.deleteEmptyDirData`; none was evicted."
        ),
    )
    NODE_NOT_READY = "NodeNotReady", "The node has not been Ready for a minute."
    NODE_TAINTED = (
        "NodeTainted",
        (
            "The node is Ready, but for a minute a taint for a condition of it, such as "
            "`node.kubernetes.io/network-unavailable`, has kept its pod off."
        ),
    )
    NODE_REMOVED = (
        "NodeRemoved",
        ("The node left the cluster or the selection before its task had finished or was retried."),
    )
    UNTOLERATED_TAINT = (
        "UntoleratedTaint",
        (
            "The node lost its pod with a taint that an administrator chose, before its task had "
            "finished or was retried."
        ),
    )


class EventReason(Reason):
    """The reason of an event on the Job; `ProgressingReason` has the others."""

    STARTED = "Started", "The run begins; the message names its report."
    COMPLETED = "Completed", "`Complete` becomes true."
    FAILED = "Failed", "`Failed` becomes true."
    PAUSED = "Paused", "`Suspended` becomes true."
    RESUMED = "Resumed", "The run was resumed after a pause, or a blocker has ended."
    RETRYING = "Retrying", "Failed nodes, and those that wait in a back-off, are tried again."
    NOTHING_TO_RETRY = (
        "NothingToRetry",
        "A retry was requested, and no node has failed or waits in a back-off.",
    )
    RERUN_IGNORED = (
        "RerunIgnored",
        "A rerun request is too long, or names nodes that the Job does not have.",
    )
    NODES_ADDED = "NodesAdded", "`Complete` becomes false: `spec.nodes` selects further nodes."
    TASK_EXITED = (
        "TaskExited",
        "A task printed the token and exited, and the kubelet started it again; once in a run.",
    )
    NODE_FAILED = "NodeFailed", "A node failed after the run had completed."
    NOTIFICATION_NOT_SENT = (
        "NotificationNotSent",
        "A receiver of `spec.notify` was not notified; the message says why.",
    )
    EVIDENCE_REFUSED = (
        "EvidenceRefused",
        "The API server has refused for a minute to record what nodes have completed.",
    )
    DAEMON_SET_RECREATED = (
        "DaemonSetRecreated",
        (
            "The DaemonSet was deleted during the run; it is created again, and completed nodes do "
            "not run again."
        ),
    )
    DAEMON_SET_ALTERED = (
        "DaemonSetAltered",
        "Another client changed the spec of the DaemonSet; the controller reverts it.",
    )

"""The reasons in conditions and events of a ScheduledJob, each with its meaning."""

from __future__ import annotations

from daemonset_job.api.reasons import Reason


class SchedulingReason(Reason):
    """The reason of `Scheduling`."""

    SCHEDULED = "Scheduled", "Runs start as scheduled."
    SUSPENDED = "Suspended", "`spec.suspend` is true."
    CLUSTER_STOPPED = (
        "ClusterStopped",
        "An administrator has stopped all Jobs of the cluster, or it is not known whether one has.",
    )
    INVALID_SCHEDULE = "InvalidSchedule", "`spec.schedule` or `spec.timeZone` has a mistake."
    WAITING_FOR_RUN = (
        "WaitingForRun",
        (
            "A start is due, and waits until the run before has ended "
            "(`concurrencyPolicy: Forbid`) or is rolled back (`Replace`)."
        ),
    )
    TOO_MANY_RUNS = "TooManyRuns", "A start is due, and 50 runs have not ended."
    START_MISSED = "StartMissed", "The last start is later than `startingDeadlineSeconds` allows."
    JOB_REFUSED = (
        "JobRefused",
        (
            "The API server refuses the Job or the deletion of one that it replaces, or has had "
            "errors for 30 s. It is tried again."
        ),
    )
    JOB_NAME_TAKEN = (
        "JobNameTaken",
        "Another Job had the name of the last run, which was left out.",
    )


class ScheduleEventReason(Reason):
    """The reason of an event on a ScheduledJob; `SchedulingReason` has the others."""

    RUN_STARTED = "RunStarted", "A Job was created for a start."
    RUN_REPLACED = "RunReplaced", "`concurrencyPolicy: Replace` deleted a run that had not ended."

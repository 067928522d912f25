"""Finds the attempt whose log a read of the end has returned.

Pure. Between the end of a task and the read, the kubelet may have started the task again.
"""

from datetime import timedelta

from daemonset_job.api.container import Container, ended_count
from terminator.logs.log_parser import Cursor
from terminator.logs.read_policy import ShortRead

# Lines printed later than this after the end of an instance are of another instance.
END_MARGIN = timedelta(seconds=1)


def ended_attempt(
    step: ShortRead,
    container: Container,
    newest: Container | None,
    earliest_at: str,
    *,
    has_succeeded: bool = False,
) -> int:
    """Return the attempt, from 1, whose log a read of the end has returned; 0 if it is uncertain.

    `container` is the state before the read, `newest` the one after it, and `earliest_at` the
    earliest time of a line. If the task was started again before the read, the log is that of
    another attempt: all its lines are later than the end. Both times are of the node's one clock,
    which the task itself may have set back. An empty log counts as that of the ended attempt: most
    failing tasks print nothing, and a doubt would delay each of them.

    `has_succeeded`: the task has ended with 0 in mode Exit. Only a new sandbox starts it again,
    which takes longer than END_MARGIN.

    A container that is about to be started again may have its next restart count already.
    """
    if newest is None or newest.restart_count != container.restart_count:
        return 0
    finished_at = container.last_finished_at
    if not step.previous:
        finished_at = container.finished_at or finished_at
    attempt = container.restart_count if step.previous else ended_count(container)
    began_at = Cursor(earliest_at).since
    if began_at is None:
        return attempt
    if finished_at is None:
        return attempt if step.previous else 0
    # Both are cut to whole seconds, and the last lines may be stamped after the end.
    margin = END_MARGIN if step.previous or has_succeeded else timedelta()
    return attempt if began_at <= finished_at + margin else 0

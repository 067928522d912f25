"""Numbers that pages quote are those of the code.

To hold another one, add a row: the page, a pattern with a group for the number as it is printed,
and the constant. White space in a pattern matches line breaks.
"""

import re
from typing import NamedTuple

import pytest

from daemonset_job.api.line_limits import (
    LAST_LINE_BYTES,
    LAST_LINES_BYTES,
    LAST_LINES_NODES,
    LONG_LINE_NODES,
    SHORT_LINE_BYTES,
)
from daemonset_job.api.names import ADMISSION_POLICIES
from daemonset_job.api.pod import GATES_LIMIT
from daemonset_job.api.result_limits import RESULT_BYTES, RESULTS_BYTES
from daemonset_job.api.shard_room import NODES_PER_ROLLOUT_SHARD, NODES_PER_SHARD
from daemonset_job.api.tokens import REGEX_LINE_BYTES
from daemonset_job.kube import recorder
from daemonset_job.kube.cache.reflector import DISCONNECTED_SECONDS
from daemonset_job.kube.client.reads import WATCH_IDLE_SECONDS
from daemonset_job.kube.client.request import DEFAULT_TIMEOUT_SECONDS
from daemonset_job.kube.client.streams import EVENT_LIMIT_BYTES
from daemonset_job.kube.leaderelection.elector import LeaderElectionConfig
from daemonset_job.runtime import debounce, write_pacer
from job_controller import warning_events
from job_controller.caches import DEBOUNCE_LIMIT_SECONDS
from job_controller.config import Config as ControllerConfig
from job_controller.core.desired.limits import SPEC_LIMIT_BYTES, TERMS_LIMIT_BYTES
from job_controller.core.desired.owned_job import BATCH_NODES
from job_controller.core.owned_jobs.failure_lines import FAILURE_LINES_GRACE
from job_controller.core.owned_jobs.rollback_jobs import BATCHES_LIMIT
from job_controller.core.render import shard_size
from job_controller.core.render.node_failures import (
    FAILURES_KEPT,
    FAILURES_LIMIT_BYTES,
    MESSAGE_LIMIT,
)
from job_controller.core.render.record_texts import MESSAGE_LIMITS
from job_controller.core.render.run_history import FIRST_KEPT, NEWEST_KEPT
from job_controller.core.rollout.rollout_state import FIRST_PODS_SECONDS
from job_controller.core.scheduled import decide as scheduled
from job_controller.core.state.last_lines import LAST_LINES_GRACE
from job_controller.core.state.node_changes import ANNOTATION_VALUE_LIMIT, RESULTS_GRACE
from job_controller.core.state.node_exits import (
    EXIT_LINES_GRACE,
    READ_LOG_GRACE,
    UNREAD_LOG_GRACE,
)
from job_controller.core.state.node_pods import NODE_GONE_AFTER
from job_controller.metrics import JOBS_LIMIT
from job_controller.notify.line import RECEIVER_BACKOFF_SECONDS
from job_controller.source_checks import QUICK_AT_ONCE, SLOW_AT_ONCE
from terminator.config import Config as TerminatorConfig
from terminator.deleter import RESULTS_WAIT_SECONDS
from terminator.deletion_decision import OVERDUE_SECONDS
from terminator.ledger.progress_notes import MAX_PAUSE_SECONDS, NOTE_SECONDS
from terminator.logs.backward_read import BACKWARD_BYTES
from terminator.logs.log_parser import LINE_LIMIT
from terminator.logs.read_budget import BUDGET_BYTES, BUDGET_BYTES_PER_SECOND, SHARED_BYTES
from terminator.logs.read_policy import CHECK_SECONDS, POLL_SECONDS
from terminator.logs.read_slots import QUEUE_SLOT_SECONDS
from terminator.logs.result_search import SEARCHES
from terminator.logs.stream_state import (
    REOPEN_UNUSED_SECONDS,
    STREAM_BYTES,
    STREAM_BYTES_PER_SECOND,
)
from terminator.logs.tail_read import TAIL_BYTES, TAIL_LINES
from tests.simulation.oracle.quiet import QUIET_SECONDS as SIMULATION_QUIET_SECONDS
from tests.unit.language import MAX_WORDS, ROOT

KIB, MIB = 1024, 1024 * 1024
MINUTE = 60
ARCHITECTURE = "docs/explanation/architecture.md"
JOB = "docs/reference/job.md"
REPORT = "docs/reference/jobreport.md"
PROTOCOL = "docs/reference/task-protocol.md"
PERFORMANCE = "docs/explanation/performance.md"
MEASURED = "docs/reference/performance.md"
INSTALL = "docs/how-to/install.md"
RUNBOOKS = "docs/how-to/runbooks.md"
GUARANTEES = "docs/explanation/guarantees.md"


class Quoted(NamedTuple):
    """A number that a page prints, in units of the constant that it is."""

    page: str
    pattern: str
    value: float
    unit: float = 1


QUOTED = (
    Quoted(INSTALL, "(N) admission policies, a NetworkPolicy", len(ADMISSION_POLICIES)),
    Quoted(INSTALL, "there are (N) policies", len(ADMISSION_POLICIES)),
    Quoted(INSTALL, "policies and (N) bindings", len(ADMISSION_POLICIES)),
    Quoted(JOB, "The Job owns them, (N) at most", BATCHES_LIMIT),
    Quoted(JOB, "`NAME-rollback` for (N) nodes at most", BATCH_NODES),
    Quoted(ARCHITECTURE, "A report holds (N) nodes", NODES_PER_SHARD),
    Quoted(ARCHITECTURE, "at most every (N) s, in large", TerminatorConfig().flush_interval),
    Quoted(ARCHITECTURE, "in large runs at most every (N) s", write_pacer.MAX_SECONDS),
    Quoted(ARCHITECTURE, r"\((N) lines,", TAIL_LINES),
    Quoted(ARCHITECTURE, "lines, (N) KiB at most", TAIL_BYTES, KIB),
    Quoted(ARCHITECTURE, r"one of `maxStreams` \((N)\)", TerminatorConfig().max_streams),
    Quoted(ARCHITECTURE, r"`shortReads` \((N)\)", TerminatorConfig().short_reads),
    Quoted(ARCHITECTURE, "is read again after (N) s", POLL_SECONDS[0]),
    Quoted(ARCHITECTURE, "at growing distances up to (N) s", POLL_SECONDS[1]),
    Quoted(ARCHITECTURE, "does not answer within (N) s", QUEUE_SLOT_SECONDS),
    Quoted(ARCHITECTURE, "pauses that grow to (N) s", REOPEN_UNUSED_SECONDS),
    Quoted(ARCHITECTURE, "stream may read (N) KiB plus", STREAM_BYTES, KIB),
    Quoted(ARCHITECTURE, "plus (N) KiB/s", STREAM_BYTES_PER_SECOND, KIB),
    Quoted(ARCHITECTURE, "streams share: (N) MiB", SHARED_BYTES, MIB),
    Quoted(ARCHITECTURE, "(N) MiB if it is alone", BUDGET_BYTES, MIB),
    Quoted(ARCHITECTURE, "refilled at (N) MiB/s", BUDGET_BYTES_PER_SECOND, MIB),
    Quoted(ARCHITECTURE, "About every (N) s a short read", CHECK_SECONDS),
    Quoted(ARCHITECTURE, "longer than (N) KiB are cut", LINE_LIMIT, KIB),
    Quoted(ARCHITECTURE, r"only the \[first (N) bytes\]", REGEX_LINE_BYTES),
    Quoted(ARCHITECTURE, "searched in up to (N) MiB", BACKWARD_BYTES, MIB),
    Quoted(ARCHITECTURE, r"\. (N) such searches run", SEARCHES),
    Quoted(
        JOB,
        "a change waits up to (N) seconds for results",
        RESULTS_GRACE.total_seconds(),
    ),
    Quoted(JOB, "a value has (N) characters at most", ANNOTATION_VALUE_LIMIT),
    Quoted(PERFORMANCE, "writes progress again, it waits (N) times", write_pacer.DURATION_FACTOR),
    Quoted(PERFORMANCE, r"last write, at most (N) s\. It writes ends", write_pacer.MAX_SECONDS),
    Quoted(PERFORMANCE, "batches evidence for (N) times", write_pacer.DURATION_FACTOR),
    Quoted(PERFORMANCE, r"waits up to (N) \*t\*", debounce.DURATION_FACTOR),
    Quoted(PERFORMANCE, r"\*t\*, at most (N) s", DEBOUNCE_LIMIT_SECONDS),
    Quoted(MEASURED, "beyond the limit of (N) KiB", SPEC_LIMIT_BYTES, KIB),
    Quoted("docs/reference/status.md", "has more than (N) KiB as JSON", SPEC_LIMIT_BYTES, KIB),
    Quoted("docs/reference/status.md", "of more than (N) KiB", TERMS_LIMIT_BYTES, KIB),
    Quoted("docs/reference/job.md", "may have (N) KiB as JSON", SPEC_LIMIT_BYTES, KIB),
    Quoted(REPORT, "more than (N) nodes has several", NODES_PER_SHARD),
    Quoted(REPORT, r"The newest (N) are kept\. A node", FAILURES_KEPT),
    Quoted(REPORT, "shortened to (N) bytes", MESSAGE_LIMIT),
    Quoted(REPORT, "the newest last: the first (N) entries", FIRST_KEPT),
    Quoted(REPORT, "entries between the first (N) and", FIRST_KEPT),
    Quoted(REPORT, "entries and the newest (N)", NEWEST_KEPT),
    Quoted(REPORT, "If the failures of a shard have more than (N) KiB", FAILURES_LIMIT_BYTES, KIB),
    Quoted(REPORT, "or the shard more than (N) KiB", shard_size.FAILURES_LIMIT_BYTES, KIB),
    Quoted(REPORT, "the first (N) failed nodes have", LAST_LINES_NODES),
    Quoted(REPORT, "failed nodes have up to (N) KiB", LAST_LINES_BYTES, KIB),
    Quoted(REPORT, "has its last line: (N) of them", LONG_LINE_NODES),
    Quoted(REPORT, "of them one of up to (N) bytes", LAST_LINE_BYTES),
    Quoted(REPORT, "all others (N) bytes", SHORT_LINE_BYTES),
    Quoted(REPORT, "once they have no room, to (N) bytes", MESSAGE_LIMITS[0]),
    Quoted(REPORT, "At worst it is to (N)", MESSAGE_LIMITS[-1]),
    Quoted(REPORT, "In a shard of more than (N) nodes, messages", NODES_PER_SHARD),
    Quoted(
        "docs/explanation/security.md", "If (N) nodes of the report have several", LAST_LINES_NODES
    ),
    Quoted(
        "docs/explanation/security.md",
        "each other node has one line of at most (N) bytes",
        LAST_LINE_BYTES,
    ),
    Quoted("docs/explanation/security.md", "has a line of at most (N) bytes", SHORT_LINE_BYTES),
    Quoted("docs/explanation/security.md", "If (N) nodes have such a line", LONG_LINE_NODES),
    Quoted(REPORT, "would have more than (N) KiB", shard_size.LIST_LIMIT_BYTES, KIB),
    Quoted(REPORT, r"names that the Job lists; (N) bytes a value", RESULT_BYTES),
    Quoted(REPORT, "bytes a value, (N) bytes a node", RESULTS_BYTES),
    Quoted(PROTOCOL, r"one value \| (N) bytes", RESULT_BYTES),
    Quoted(PROTOCOL, r"values of a node \| (N) bytes", RESULTS_BYTES),
    Quoted(PROTOCOL, "It is written (N) s after", NOTE_SECONDS),
    Quoted(PROTOCOL, "run at most once in (N) s", NOTE_SECONDS),
    Quoted(PROTOCOL, "the pause is longer, up to (N) s", MAX_PAUSE_SECONDS),
    Quoted("docs/reference/metrics.md", "of (N) Jobs at most", JOBS_LIMIT),
    *(
        Quoted(page, pattern, WATCH_IDLE_SECONDS + DISCONNECTED_SECONDS)
        for page, pattern in (
            ("docs/reference/configuration.md", "of a resource for (N) seconds"),
            ("docs/reference/metrics.md", "From (N) seconds on the program is"),
            (RUNBOOKS, "From (N) seconds on the program is"),
        )
    ),
    Quoted("docs/reference/task-protocol.md", "line of more than (N) KiB", LINE_LIMIT, KIB),
    Quoted(
        "docs/how-to/history.md",
        "has more than (N) reports",
        ControllerConfig().history_namespace_limit,
    ),
    Quoted("docs/explanation/security.md", "cuts them at (N) KiB", LINE_LIMIT, KIB),
    Quoted(
        "docs/explanation/simulation.md", "nothing is written for (N) s", SIMULATION_QUIET_SECONDS
    ),
    Quoted("CONTRIBUTING.md", "at most (N) words", MAX_WORDS),
    Quoted(GUARANTEES, "deletion waits for that pod, for (N) minutes", OVERDUE_SECONDS, MINUTE),
    Quoted(GUARANTEES, "or is unreachable, it waits (N) minutes", OVERDUE_SECONDS, MINUTE),
    Quoted(GUARANTEES, "it was recorded is no longer desired after (N) s", NODE_GONE_AFTER.seconds),
    Quoted(GUARANTEES, "A run with more than (N) nodes", NODES_PER_ROLLOUT_SHARD),
    Quoted(GUARANTEES, "So has one with more than (N) nodes", NODES_PER_SHARD),
    Quoted(GUARANTEES, "line is read within (N) s", FAILURE_LINES_GRACE.seconds),
    Quoted(GUARANTEES, "Job for (N) s after its end", scheduled.READ_SECONDS),
    Quoted(GUARANTEES, "left to the terminator for (N) minutes", scheduled.DELETED_SECONDS, MINUTE),
    Quoted(GUARANTEES, "failure: the newest (N) of each node", FAILURES_KEPT),
    Quoted(GUARANTEES, "history the first (N) entries", FIRST_KEPT),
    Quoted(GUARANTEES, r"entries and the newest (N) are kept", NEWEST_KEPT),
    Quoted(GUARANTEES, "judges an exit (N) s after", READ_LOG_GRACE.seconds),
    Quoted(GUARANTEES, r"to its end, and after (N) s otherwise", UNREAD_LOG_GRACE.seconds),
    Quoted(GUARANTEES, "lines of the log for (N) s at most", EXIT_LINES_GRACE.seconds),
    Quoted(GUARANTEES, r"log are on record, after (N) s at most", LAST_LINES_GRACE.seconds),
    Quoted(GUARANTEES, "try again every (N) s", warning_events.PAUSE_SECONDS[1]),
    Quoted(GUARANTEES, r"\. (N) logs are searched at a time", SEARCHES),
    Quoted(GUARANTEES, "token through up to (N) MiB", BACKWARD_BYTES, MIB),
    Quoted(GUARANTEES, "Job waits up to (N) seconds for them", RESULTS_WAIT_SECONDS),
    Quoted(GUARANTEES, "among the last (N) lines", TAIL_LINES),
    Quoted(GUARANTEES, "or longer than (N) MiB", EVENT_LIMIT_BYTES, MIB),
    Quoted(GUARANTEES, "pod with more than (N) scheduling gates", GATES_LIMIT),
    Quoted(GUARANTEES, "until they time out, after (N) s", DEFAULT_TIMEOUT_SECONDS),
    Quoted(GUARANTEES, "wait in one queue of (N)", recorder.QUEUE_LIMIT),
    Quoted(GUARANTEES, "events are listed, (N) at a time", warning_events.PAGE_EVENTS),
    Quoted(GUARANTEES, "source is asked (N) questions", QUICK_AT_ONCE + SLOW_AT_ONCE),
    Quoted(GUARANTEES, "is tried at least every (N) s", RECEIVER_BACKOFF_SECONDS[1]),
    Quoted(GUARANTEES, "created within (N) s of the start", FIRST_PODS_SECONDS),
    Quoted(
        GUARANTEES,
        "released, or (N) s after its last",
        LeaderElectionConfig().lease_duration_seconds,
    ),
)


def numbers(quoted: Quoted, text: str) -> list[float]:
    """Return the numbers that a text gives where the pattern matches."""
    pattern = quoted.pattern.replace("(N)", r"(\d[\d,]*(?:\.\d+)?)").replace(" ", r"\s+")
    return [float(found.replace(",", "")) for found in re.findall(pattern, text)]


@pytest.mark.parametrize("quoted", QUOTED, ids=lambda q: f"{q.page}: {q.pattern}")
def test_a_number_in_a_page_is_that_of_the_code(quoted):
    found = numbers(quoted, (ROOT / quoted.page).read_text(encoding="utf-8"))
    assert found, "the sentence has changed: change the pattern as well"
    assert set(found) == {quoted.value / quoted.unit}


def test_another_number_is_found():
    quoted = Quoted("", "holds (N) nodes", 1000)
    assert numbers(quoted, "It holds 2,500\nnodes.") == [2500.0]

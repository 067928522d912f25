"""The state that the ledger keeps of one run in memory, above all the evidence to write.

Reads no cache and no clock: the event loop's time is given.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from daemonset_job.api.evidence import Evidence
from daemonset_job.api.job import Job
from daemonset_job.api.report import JobReport
from daemonset_job.runtime.backoff import exponential_seconds
from daemonset_job.runtime.write_pacer import WritePacer
from terminator.ledger.evidence import combine_evidence
from terminator.ledger.progress_notes import ProgressNotes
from terminator.ledger.unwritten import UnwrittenEvidence
from terminator.ledger.written_reports import WrittenReports

# Delays before evidence is sent again that the server refused for its content, or for the size of
# its report: the first, and the longest one. The first is shorter than the time after which the
# controller assesses a log that was not read.
REFUSED_SECONDS = (20.0, 60.0)


@dataclass(slots=True)
class RunBuffer:
    """One run: the evidence to write, and its reports after our own patches.

    Attributes:
        pending: The evidence to write, by node.
        progress: The progress of tasks at work, not due yet.
        written: The reports after our own patches.
        unconfirmed: By node, the report that a patch without an answer was sent to.
        refused: By node, when refused evidence may be sent again, in the loop's time.
        refused_alone: Nodes whose evidence was refused in a patch of its own. They are sent after
            all others.
        full: By report, until when it takes no more nodes, in the loop's time.
        refusals: How many writes in a row had something refused in them.
        is_urgent: Whether the next write skips the pacer's pause.
        refused_with: What the API server answered when it last refused evidence.
        unwritten: For how long evidence has been refused.
    """

    job: Job
    pending: dict[str, Evidence] = field(default_factory=dict)
    progress: ProgressNotes = field(default_factory=ProgressNotes)
    written: WrittenReports = field(default_factory=WrittenReports)
    unconfirmed: dict[str, str] = field(default_factory=dict)
    refused: dict[str, float] = field(default_factory=dict)
    refused_alone: set[str] = field(default_factory=set)
    full: dict[str, float] = field(default_factory=dict)
    refusals: int = 0
    pacer: WritePacer = field(default_factory=WritePacer)
    is_urgent: bool = False
    refused_with: str = ""
    unwritten: UnwrittenEvidence = field(default_factory=UnwrittenEvidence)

    def add(self, node: str, evidence: Evidence) -> None:
        """Add evidence that was not recorded before; it is sent even if older one was refused."""
        self.pending[node] = combine_evidence(self.pending.get(node), evidence)
        self.refused.pop(node, None)
        self.refused_alone.discard(node)

    def add_due_progress(self, nodes: int, now: float) -> None:
        """Add the progress that is due to what is written next; the run has `nodes` nodes."""
        for node, evidence in self.progress.take_due(nodes, now).items():
            self.pending[node] = combine_evidence(self.pending.get(node), evidence)

    def discard_progress(self) -> None:
        """Drop progress that could not be written: what is written next is newer."""
        self.discard([node for node, entry in self.pending.items() if entry.is_only_progress])

    def sendable(self, now: float) -> dict[str, Evidence]:
        """Return the pending evidence that is not postponed, by node."""
        return {
            node: entry
            for node, entry in self.pending.items()
            if self.refused.get(node, now) <= now
        }

    def discard(self, nodes: Iterable[str]) -> None:
        """Drop the pending evidence about these nodes."""
        for node in nodes:
            self.pending.pop(node, None)

    def drop_earlier_tries(self, reports: Iterable[JobReport]) -> None:
        """Drop evidence about pods that no longer count: by now their nodes are due again."""
        if not self.job.revision_hash:
            return
        records = [report.records for report in reports]
        self.discard(
            [
                node
                for node, entry in self.pending.items()
                if any(
                    node in each and entry.pod_uid in each[node].earlier_pods for each in records
                )
            ]
        )

    def postpone(
        self, nodes: Iterable[str], report: JobReport, now: float, *, is_full: bool
    ) -> None:
        """Postpone evidence that `report` refused.

        If it is full, only nodes that it already has wait: the others go to another report.
        """
        until = now + exponential_seconds(self.refusals, *REFUSED_SECONDS)
        if is_full:
            self.full[report.name] = until
            nodes = [node for node in nodes if node in report.evidence]
        self.refused.update(dict.fromkeys(nodes, until))

    def accept(self, nodes: Iterable[str]) -> None:
        """Note that a report took the evidence of these nodes.

        If it had refused one of them alone, what it refuses has changed: all may be sent again.
        """
        if not self.refused_alone.isdisjoint(nodes):
            self.refused_alone.difference_update(nodes)
            self.refused.clear()

    def drop_past_refusals(self, now: float) -> None:
        """Drop the refusals whose time is over, and those of evidence that is no longer pending."""
        self.refused = {
            node: until
            for node, until in self.refused.items()
            if node in self.pending and until > now
        }
        self.refused_alone &= self.pending.keys()

    def find_full(self, now: float) -> set[str]:
        """Return the names of the reports that take no more nodes, and drop the others."""
        self.full = {name: until for name, until in self.full.items() if until > now}
        return set(self.full)

"""When evidence that the API server refuses is reported, and in which words."""

from collections.abc import Iterable
from dataclasses import dataclass

from daemonset_job.api.fold_names import fold
from daemonset_job.kube.client.errors import KubeError, NotFound

# A refusal may end by itself, as when a policy is corrected.
REPORTED_AFTER_SECONDS = 60.0
REPORTED_AGAIN_SECONDS = 600.0
# Characters of node names, and of the answer of the API server, in the message.
_NAMES_LIMIT = 300
_ANSWER_LIMIT = 500


@dataclass(slots=True)
class UnwrittenEvidence:
    """For how long the evidence of one run has been refused; times are the loop's, in seconds."""

    since: float | None = None
    reported_at: float | None = None

    def note(self, refusal: str, nodes: Iterable[str], now: float) -> str:
        """Note the outcome of a write, and return what is to be reported, "" for nothing.

        `refusal` is the answer of the API server, "" if nothing is refused now. `nodes` are those
        with evidence that is not written.
        """
        if not refusal:
            self.since = self.reported_at = None
            return ""
        if self.since is None:
            self.since = now
        if now - self.since < REPORTED_AFTER_SECONDS:
            return ""
        if self.reported_at is not None and now - self.reported_at < REPORTED_AGAIN_SECONDS:
            return ""
        self.reported_at = now
        return _message(refusal, sorted(nodes))


def refusal_of(error: BaseException | None) -> str:
    """Return the answer with which the API server refused a write, "" if it did not refuse it.

    A report that has changed or is gone is no refusal. Nor is an API server that does not answer,
    which all clients see.
    """
    if not isinstance(error, KubeError) or error.is_retryable:
        return ""
    return "" if isinstance(error, NotFound) else str(error)


def _message(refusal: str, nodes: list[str]) -> str:
    count = f"{len(nodes)} nodes" if len(nodes) != 1 else "1 node"
    return (
        f"the API server refuses to record what {count} reported ({fold(nodes, limit=_NAMES_LIMIT)}"
        f"): {refusal[:_ANSWER_LIMIT]}; until it is recorded, completed nodes do not count as "
        "completed, and failed tasks may run again"
    )

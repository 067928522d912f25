"""Reads a run again and again, also while the API server is away for a moment."""

from __future__ import annotations

import time
from typing import Final

from daemonset_job.api.node_totals import NodeTotals
from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.errors import Gone, Throttled, Unavailable
from daemonset_job.kube.client.messages import clean_text
from kubectl_dsjob.cluster import read_run
from kubectl_dsjob.edge import say
from kubectl_dsjob.errors import CliError
from kubectl_dsjob.proposals import at_job
from kubectl_dsjob.run_view import TEXT_LIMIT, RunView

# An API server that is restarted or replaced is back by then.
LIMIT_SECONDS: Final = 300.0
# A controller that was creating the report of a Job when that was deleted has done so by then.
MISSING_SECONDS: Final = 30.0


class PatientReader:
    """Reads one run. A server that does not answer is asked again, for five minutes."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._failing_since: float | None = None
        self._missing_since: float | None = None

    async def read_first(self, namespace: str, name: str, uid: str) -> RunView:
        """Return the run of a Job that was just written; CliError if it does not exist any more.

        A server that does not answer is asked again by `read`.
        """
        try:
            found = await read_run(self._client, namespace, name, uid)
        except (Unavailable, Throttled, Gone):
            return RunView(namespace, name, uid, True, None, False, NodeTotals())
        if found is None:
            # An earlier run of that name says nothing of this one.
            raise missing_run(name, namespace)
        return found

    async def read(self, view: RunView) -> RunView:
        """Return the run as it is now, or `view` if that cannot be read at the moment.

        A Job that is deleted a moment after its start has no report for some moments. One that is
        deleted before its start never has one: CliError after MISSING_SECONDS. The same holds if
        only reports are left that do not say how the run is, as when the first one is deleted.
        """
        try:
            found = await read_run(self._client, view.namespace, view.name, view.uid)
        except (Unavailable, Throttled, Gone) as error:
            now = time.monotonic()
            if self._failing_since is None:
                self._failing_since = now
                why = clean_text(error.message, TEXT_LIMIT)
                say(f"the API server does not answer, trying again: {why}")
            if now - self._failing_since > LIMIT_SECONDS:
                raise
            return view
        self._failing_since = None
        if found is not None and (found.exists or found.phase is not None):
            self._missing_since = None
            return found
        now = time.monotonic()
        if self._missing_since is None:
            self._missing_since = now
        if now - self._missing_since > MISSING_SECONDS:
            raise missing_run(view.name, view.namespace)
        return found or view


def missing_run(name: str, namespace: str) -> CliError:
    """Return the error about a run of which there is neither a Job nor a report any more."""
    return CliError(
        f"the Job {name} was deleted, and no report says how its run ended",
        f"See the other runs of that name: kubectl dsjob history {at_job(name, namespace)}",
    )

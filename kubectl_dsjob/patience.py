"""Reads a run again and again, also while the API server is away for a moment."""

from __future__ import annotations

import time
from typing import Final

from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.errors import Gone, Throttled, Unavailable
from daemonset_job.kube.client.messages import clean_text
from kubectl_dsjob.cluster import read_run
from kubectl_dsjob.edge import say
from kubectl_dsjob.run_view import TEXT_LIMIT, RunView

# An API server that is restarted or replaced is back by then.
LIMIT_SECONDS: Final = 300.0


class PatientReader:
    """Reads one run. A server that does not answer is asked again, for five minutes."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._failing_since: float | None = None

    async def read(self, view: RunView) -> RunView:
        """Return the run as it is now, or `view` if that cannot be read at the moment.

        A Job that is deleted a moment after its start has no report for some moments.
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
        return found or view

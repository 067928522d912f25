"""The words of commands that the plugin proposes: where they say which Job and which cluster."""

from __future__ import annotations

from typing import Final

# Where a command that is proposed names its cluster: `Target.name_cluster` puts --context and
# --kubeconfig of the user's command there. Without them it would go to another cluster.
CLUSTER: Final = "{cluster}"


def at_job(name: str, namespace: str) -> str:
    """Return the arguments that name a Job or a run, with its namespace and cluster."""
    return f"{name} -n {namespace}{CLUSTER}"

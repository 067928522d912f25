"""Where a command looks: cluster, namespace and user, by the options that kubectl has."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any

import yaml

from daemonset_job.kube.client.client import KubeClient
from kubectl_dsjob.errors import CliError
from kubectl_dsjob.exit_codes import ExitCode
from kubectl_dsjob.proposals import CLUSTER

DEFAULT_NAMESPACE = "default"
USER_AGENT = "kubectl-dsjob"
_POD_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


@dataclass(frozen=True, slots=True)
class Target:
    """The options of kubectl: "" for those that are not set."""

    context: str = ""
    namespace: str = ""
    kubeconfig: str = ""

    @property
    def paths(self) -> str:
        """The kubeconfig files, "" if there is none: then the account of a pod is used."""
        named = self.kubeconfig or os.environ.get("KUBECONFIG") or ""
        default = Path.home() / ".kube" / "config"
        return named or (str(default) if default.exists() else "")

    def find_namespace(self) -> str:
        """Return the namespace: the option, else that of the context, else `default`."""
        if self.namespace:
            return self.namespace
        if not self.paths:
            return _POD_NAMESPACE.read_text().strip() if _POD_NAMESPACE.exists() else "default"
        return namespace_of(list(map(_read, self.paths.split(os.pathsep))), self.context)

    async def connect(self) -> KubeClient:
        """Return a client with the rights of the user; ConfigurationError if there is none."""
        return await KubeClient.connect(
            kubeconfig=self.paths or None, context=self.context or None, user_agent=USER_AGENT
        )

    def cluster_flags(self) -> str:
        """Return the options that name the cluster, for a command that has the namespace."""
        return Target(self.context, "", self.kubeconfig).flags()

    def name_cluster(self, text: str) -> str:
        """Return a text whose proposed commands name this cluster."""
        return text.replace(CLUSTER, self.cluster_flags())

    def flags(self) -> str:
        """Return the options as text, to repeat them in a command that is proposed."""
        named = {"--context": self.context, "-n": self.namespace, "--kubeconfig": self.kubeconfig}
        return "".join(f" {option} {quote(text)}" for option, text in named.items() if text)


def namespace_of(files: Sequence[Mapping[str, Any]], context: str = "") -> str:
    """Return the namespace of a context in kubeconfig files; the first file that has it counts."""
    current = context or next(
        (str(f["current-context"]) for f in files if f.get("current-context")), ""
    )
    for entry in (each for file in files for each in _listed(file.get("contexts"))):
        if isinstance(entry, Mapping) and entry.get("name") == current:
            found = entry.get("context")
            named = found.get("namespace") if isinstance(found, Mapping) else ""
            return str(named or DEFAULT_NAMESPACE)
    return DEFAULT_NAMESPACE


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def _read(path: str) -> Mapping[str, Any]:
    if not path:
        return {}
    try:
        found = yaml.safe_load(Path(path).expanduser().read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RuntimeError, yaml.YAMLError) as error:
        way = "Correct the file, or name another one with --kubeconfig."
        raise CliError(
            f"cannot read the kubeconfig {path}: {error}", way, ExitCode.USAGE
        ) from error
    return found if isinstance(found, Mapping) else {}

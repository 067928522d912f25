"""Reads objects from the API server without kubectl.

Tests poll, and each start of kubectl takes 0.1 s of CPU. On two cores that was half of the work of
this ring.
"""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

from kubernetes.client import ApiClient
from kubernetes.config import new_client_from_config

_TIMEOUT_SECONDS = 60
_OURS = "/apis/daemonset.darkowlzz.space/v1beta1"
# The collection, and whether its objects are in namespaces, by what tests write for kubectl.
_COLLECTIONS = {
    "configmap": ("/api/v1", "configmaps", True),
    "daemonset": ("/apis/apps/v1", "daemonsets", True),
    "deployment": ("/apis/apps/v1", "deployments", True),
    "dsj": (_OURS, "jobs", True),
    "dsjr": (_OURS, "jobreports", True),
    "dsjs": (_OURS, "scheduledjobs", True),
    "events": ("/api/v1", "events", True),
    "jobreports": (_OURS, "jobreports", True),
    "lease": ("/apis/coordination.k8s.io/v1", "leases", True),
    "node": ("/api/v1", "nodes", False),
    "nodes": ("/api/v1", "nodes", False),
    "pdb": ("/apis/policy/v1", "poddisruptionbudgets", True),
    "pod": ("/api/v1", "pods", True),
    "pods": ("/api/v1", "pods", True),
    "resourcequota": ("/api/v1", "resourcequotas", True),
}


class ApiReader:
    """Gets objects and lists as JSON, with the credentials of a kubeconfig."""

    def __init__(self, kubeconfig: str) -> None:
        self._api: ApiClient = new_client_from_config(config_file=kubeconfig)

    def read(self, *args: str) -> dict[str, Any] | None:
        """Return the object or list that `kubectl get ARGS -o json` shows, None for not found.

        `args`: the kind, a name or none, `-n` with a namespace or `-A`, `-l` with a selector.
        Raises AssertionError if the API server refuses the request, and what urllib3 raises if
        there is no answer.
        """
        response = self._api.call_api(
            "GET",
            self._api.configuration.host + _path(args),
            header_params={"Accept": "application/json"},
            _request_timeout=_TIMEOUT_SECONDS,
        )
        body = response.read()
        if response.status == 404:
            return None
        assert response.status == 200, f"get {' '.join(args)}: {response.status} {body[:300]!r}"
        found: dict[str, Any] = json.loads(body)
        return found


def _path(args: tuple[str, ...]) -> str:
    """Return the path and query of a request."""
    kind, rest, options = args[0], list(args[1:]), {"-n": "default", "-l": ""}
    names: list[str] = []
    while rest:
        word = rest.pop(0)
        if word == "-A":
            options["-n"] = ""
        elif word in options:
            options[word] = rest.pop(0)
        else:
            names.append(word)
    group, plural, is_namespaced = _COLLECTIONS[kind]
    namespace = f"/namespaces/{options['-n']}" if is_namespaced and options["-n"] else ""
    name = f"/{names[0]}" if names else ""
    query = f"?{urlencode({'labelSelector': options['-l']})}" if options["-l"] else ""
    return f"{group}{namespace}/{plural}{name}{query}"

"""Requests that a real API server and the model of tests/fakekube answer, and what is compared.

A text such as "$uid" in a body is replaced by what the object has at that moment: its UID,
its "$version", or its "$first" resourceVersion.
"""

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from daemonset_job.kube.client.resource import (
    CONFIG_MAPS,
    DAEMON_SETS,
    JOBS,
    LEASES,
    NODES,
    PODS,
    Resource,
)
from tests.clocks import FakeClock
from tests.contract.fake_storage import Storage, Write
from tests.fakekube.apply import Apply
from tests.fakekube.refusals import Refused
from tests.integration.kube_env import KubeEnv

Raw = dict[str, Any]

MERGE, JSON = "application/merge-patch+json", "application/json-patch+json"
APPLY = "application/apply-patch+yaml"
RESOURCES = {each.plural: each for each in (CONFIG_MAPS, DAEMON_SETS, JOBS, LEASES, NODES, PODS)}
# What is compared of an object. What is empty or zero is as if it was not there: defaults.
FACTS = (
    *("metadata.generation", "metadata.labels", "metadata.annotations.example", "data"),
    *("metadata.finalizers", "metadata.deletionGracePeriodSeconds", "spec.suspend", "spec.nodes"),
    *("spec.minReadySeconds", "spec.schedulingGates", "spec.unschedulable", "spec.holderIdentity"),
    *("status.phase", "status.desiredNumberScheduled"),
)


@dataclass(frozen=True, slots=True)
class Ask:
    """One request about an object. Of a PATCH, `type` is its content type; of an apply, who."""

    method: str
    body: Any = None
    type: str = ""
    manager: str = "tester"
    force: bool = False
    subresource: str = ""
    # Beside the answer's code: the object's name, if it is another one than the scenario's.
    name: str = ""


def merge(body: Any, subresource: str = "") -> Ask:
    return Ask("PATCH", body, MERGE, subresource=subresource)


def apply(manager: str, body: Raw, *, force: bool = False, subresource: str = "") -> Ask:
    return Ask("PATCH", body, APPLY, manager, force, subresource)


@dataclass(slots=True)
class Known:
    """What is known of the object on one server, between two requests."""

    resource: Resource
    name: str
    namespace: str | None
    texts: dict[str, str] = field(default_factory=dict)

    def complete(self, ask: Ask) -> Any:
        """Return the body of a request, as this server has to get it."""
        body = ask.body
        if isinstance(body, dict) and (ask.method in {"POST", "PUT"} or ask.type == APPLY):
            meta = {"name": ask.name or self.name, **body.get("metadata", {})}
            kind = {"apiVersion": self.resource.api_version, "kind": self.resource.kind}
            body = {**kind, **body, "metadata": meta}
        text = json.dumps(body)
        for key, value in self.texts.items():
            text = text.replace(f'"{key}"', f'"{value}"')
        return json.loads(text)

    def facts(self, code: int, found: Raw | None) -> Raw:
        """Return what is compared after a request: its code, and the object as it is now."""
        if found is None:
            self.texts.clear()
            return {"code": code, "exists": False}
        meta = found["metadata"]
        is_changed = self.texts.get("$version") != meta["resourceVersion"]
        self.texts |= {"$uid": meta["uid"], "$version": meta["resourceVersion"]}
        self.texts.setdefault("$first", meta["resourceVersion"])
        values = {path: _value_at(found, path) for path in FACTS}
        return {
            "code": code,
            "is_changed": is_changed,
            "is_deleting": "deletionTimestamp" in meta,
            **{path: value for path, value in values.items() if value},
        }


class RealServer:
    """Sends requests to the API server."""

    def __init__(self, env: KubeEnv) -> None:
        self._env = env

    def send(self, known: Known, ask: Ask) -> int:
        """Send one request and return the code of the answer."""
        name = None if ask.method == "POST" else known.name
        resource = known.resource.with_subresource(ask.subresource)
        path = resource.path(known.namespace, name) + f"?fieldManager={ask.manager}"
        if ask.method == "DELETE":
            path = path.partition("?")[0]
        if ask.force:
            path += "&force=true"
        body = known.complete(ask)
        code, _ = self._env.request(ask.method, path, body, content_type=ask.type)
        return code

    def find(self, known: Known) -> Raw | None:
        code, found = self._env.request("GET", known.resource.path(known.namespace, known.name))
        return found if code == 200 else None


class ModelledServer:
    """Carries requests out by the rules of tests/fakekube, on the store of the contract ring."""

    def __init__(self) -> None:
        self.storage = Storage(FakeClock(datetime(2030, 1, 1, tzinfo=UTC)))

    def send(self, known: Known, ask: Ask) -> int:
        """Carry one request out and return the code of the answer."""
        key = (known.namespace or "", known.name)
        is_new = self.find(known) is None
        try:
            self._send(known, ask, key)
        except Refused as refused:
            return refused.status
        return 201 if ask.method == "POST" or (ask.type == APPLY and is_new) else 200

    def _send(self, known: Known, ask: Ask, key: tuple[str, str]) -> None:
        storage, resource, body = self.storage, known.resource, known.complete(ask)
        write = Write(ask.manager, ask.subresource)
        match ask.method:
            case "POST":
                storage.create(resource, body, key[0], write.owner)
            case "PUT":
                storage.replace(resource, key, body, write)
            case "DELETE":
                storage.delete(resource, key, body or {})
            case _ if ask.type == APPLY:
                how = Apply(ask.manager, ask.force, ask.subresource)
                storage.apply(resource, key, body, how)
            case _:
                storage.patch(resource, key, body, ask.type, write)

    def find(self, known: Known) -> Raw | None:
        kind = (known.resource.group, known.resource.plural)
        return self.storage.all(kind).get((known.namespace or "", known.name))


def answers(server: RealServer | ModelledServer, known: Known, asks: tuple[Ask, ...]) -> list[Raw]:
    """Return the facts after each request to a server, in order."""
    return [known.facts(server.send(known, ask), server.find(known)) for ask in asks]


def _value_at(raw: Raw, path: str) -> Any:
    node: Any = raw
    for part in path.split("."):
        node = node.get(part) if isinstance(node, dict) else None
    return node

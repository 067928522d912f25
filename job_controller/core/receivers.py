"""Receivers of notifications: the administrator names them, and says which namespaces use them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from daemonset_job.api.states import TextEnum


class MessageFormat(TextEnum):
    """The form in which a receiver takes a notification."""

    JSON = "JSON"
    SLACK = "Slack"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The files that have the address of an HTTP server, and what is needed to talk to it.

    `url_file` has the URL, which may be a secret. `token_file` has a bearer token and `ca_file` the
    certificates of the authorities to trust; "" for none, which means those of the system.
    """

    url_file: str
    token_file: str = ""
    ca_file: str = ""


@dataclass(frozen=True, slots=True)
class Receiver:
    """Where notifications may go. `namespaces` has names, `*`, or beginnings such as `team-*`."""

    name: str
    endpoint: Endpoint
    namespaces: tuple[str, ...]
    message_format: MessageFormat = MessageFormat.JSON


def may_use(namespaces: Iterable[str], namespace: str) -> bool:
    """Return whether a namespace is one of these, each a name, `*`, or `beginning*`."""
    return any(
        namespace.startswith(each[:-1]) if each.endswith("*") else namespace == each
        for each in namespaces
    )


def find_receiver(receivers: Iterable[Receiver], name: str, namespace: str) -> Receiver | None:
    """Return the receiver of that name, None if there is none that the namespace may use."""
    found = next((each for each in receivers if each.name == name), None)
    return found if found is not None and may_use(found.namespaces, namespace) else None


def unknown_message(name: str, namespace: str) -> str:
    """Return what a user reads who names a receiver that he cannot use.

    It is the same for one that does not exist, so no user learns of the receivers of others.
    """
    return (
        f"spec.notify names the receiver {name!r}, and there is none of that name that Jobs in "
        f"namespace {namespace} may use; an administrator adds it to `receivers` in the "
        f"controller's configuration"
    )

"""Reads `receivers` of the configuration file: names, namespaces, and files with their secrets."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from job_controller.core.receivers import Endpoint, MessageFormat, Receiver

N = TypeVar("N")

RECEIVERS_LIMIT: Final = 32
# Where deploy/components/notifications mounts the Secret.
SECRETS_FOLDER: Final = "/etc/daemonset-job/receivers"
_NAME: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")
_NAMESPACES: Final = re.compile(r"\*|[a-z0-9][-a-z0-9]{0,62}\*?")
_ENDPOINT_KEYS: Final = frozenset({"name", "namespaces", "urlFile", "tokenFile", "caFile"})


def read_receivers(raw: object) -> tuple[Receiver, ...]:
    """Return the receivers in their order; raises ValueError with the place and the fix."""
    return read_named("receivers", raw, frozenset({"format"}), _read_receiver)


def read_named(
    field: str,
    raw: object,
    own_keys: frozenset[str],
    read: Callable[[str, Mapping[str, Any]], N],
) -> tuple[N, ...]:
    """Return the items of a list of endpoints with names, each as `read(place, item)` makes it.

    The messages do not repeat values: one that is written in the wrong place may be a secret.
    """
    if not isinstance(raw, list) or not all(isinstance(each, dict) for each in raw):
        raise ValueError(f"write a list of {field}, each with a name and namespaces")
    if len(raw) > RECEIVERS_LIMIT:
        raise ValueError(f"write at most {RECEIVERS_LIMIT} {field}")
    found, names = [], set()
    known = _ENDPOINT_KEYS | own_keys
    for index, item in enumerate(raw):
        place = f"{field}[{index}]"
        name = _read_name(place, item.get("name"))
        if name in names:
            raise ValueError(f"{place}.name is that of another one: give each its own")
        names.add(name)
        unknown = [str(key) for key in item if key not in known]
        if unknown:
            raise ValueError(
                f"{place} has {', '.join(sorted(unknown))}, which does not exist; "
                f"use {', '.join(sorted(known))}"
            )
        found.append(read(place, item))
    return tuple(found)


def read_endpoint(place: str, item: Mapping[str, Any]) -> Endpoint:
    """Return the files of an endpoint; the URL is by default in `NAME.url` of the Secret."""
    return Endpoint(
        url_file=_read_path(f"{place}.urlFile", item.get("urlFile"))
        or f"{SECRETS_FOLDER}/{item['name']}.url",
        token_file=_read_path(f"{place}.tokenFile", item.get("tokenFile")),
        ca_file=_read_path(f"{place}.caFile", item.get("caFile")),
    )


def read_patterns(place: str, item: Mapping[str, Any]) -> tuple[str, ...]:
    """Return which namespaces may use an endpoint. There is no default: someone has to decide."""
    raw = item.get("namespaces")
    if (
        not isinstance(raw, list)
        or not raw
        or not all(isinstance(each, str) and _NAMESPACES.fullmatch(each) for each in raw)
    ):
        raise ValueError(
            f"{place}.namespaces must list the namespaces that may use it, such as "
            f"[team-a, 'infra-*'], or ['*'] for all"
        )
    return tuple(raw)


def _read_receiver(place: str, item: Mapping[str, Any]) -> Receiver:
    raw = item.get("format", MessageFormat.JSON)
    if raw not in tuple(MessageFormat):
        raise ValueError(f"{place}.format must be one of {', '.join(MessageFormat)}")
    return Receiver(
        name=item["name"],
        endpoint=read_endpoint(place, item),
        namespaces=read_patterns(place, item),
        message_format=MessageFormat(raw),
    )


def _read_name(place: str, raw: object) -> str:
    if not isinstance(raw, str) or not _NAME.fullmatch(raw):
        raise ValueError(f"{place}.name must be small letters, digits and '-', 63 at most")
    return raw


def _read_path(place: str, raw: object) -> str:
    if raw is None:
        return ""
    if not isinstance(raw, str) or not raw.startswith("/") or "\0" in raw:
        raise ValueError(f"{place} must be the full path of a file, such as {SECRETS_FOLDER}/x")
    return raw

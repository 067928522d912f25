"""Reads `receivers` of the configuration file: names, namespaces, and files with their secrets."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from daemonset_job.process.readers import MistakesError
from job_controller.core.receivers import Endpoint, MessageFormat, Receiver

N = TypeVar("N")
T = TypeVar("T")

RECEIVERS_LIMIT: Final = 32
# Where deploy/components/notifications mounts the Secret.
SECRETS_FOLDER: Final = "/etc/daemonset-job/receivers"
_NAME: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")
_NAMESPACES: Final = re.compile(r"\*|[a-z0-9][-a-z0-9]{0,62}\*?")
_ENDPOINT_KEYS: Final = frozenset({"name", "namespaces", "urlFile", "tokenFile", "caFile"})
# Without a blank after the colon, YAML takes `url:https://host/secret` for a key.
_SHOWN_KEY: Final = re.compile(r"[A-Za-z]{1,32}")


class Parts:
    """Reads the parts of a setting, and gathers what is wrong with them."""

    def __init__(self) -> None:
        self.mistakes: list[str] = []

    def read(self, read: Callable[[str, object], T], place: str, raw: object, instead: T) -> T:
        """Return `read(place, raw)`; `instead` if it is wrong, which is never used."""
        try:
            return read(place, raw)
        except ValueError as error:
            self.mistakes.append(str(error))
            return instead


def read_receivers(raw: object) -> tuple[Receiver, ...]:
    """Return the receivers in their order; raises MistakesError with each place and the fix."""
    return read_named("receivers", raw, frozenset({"format"}), _read_receiver)


def read_named(
    field: str,
    raw: object,
    own_keys: frozenset[str],
    read: Callable[[str, Mapping[str, Any], Parts], N],
) -> tuple[N, ...]:
    """Return the items of a list of endpoints with names, each as `read` makes it.

    It gets the place, the item, and where to put mistakes. The messages do not repeat values: one
    that is written in the wrong place may be a secret.
    """
    if not isinstance(raw, list) or not all(isinstance(each, dict) for each in raw):
        raise ValueError(f"write a list of {field}, each with a name and namespaces")
    if len(raw) > RECEIVERS_LIMIT:
        raise ValueError(f"write at most {RECEIVERS_LIMIT} {field}")
    parts = Parts()
    found: list[N] = []
    names: set[str] = set()
    for index, item in enumerate(raw):
        place = f"{field}[{index}]"
        name = parts.read(_read_name, f"{place}.name", item.get("name"), "")
        if name in names:
            parts.mistakes.append(f"{place}.name is that of another one: give each its own")
        if name:
            names.add(name)
        if unknown := _unknown(item, _ENDPOINT_KEYS | own_keys):
            known = ", ".join(sorted(_ENDPOINT_KEYS | own_keys))
            parts.mistakes.append(f"{place} has {unknown}, which does not exist; use {known}")
        found.append(read(place, {**item, "name": name}, parts))
    if parts.mistakes:
        raise MistakesError(parts.mistakes)
    return tuple(found)


def read_endpoint(place: str, item: Mapping[str, Any], parts: Parts) -> Endpoint:
    """Return the files of an endpoint; the URL is by default in `NAME.url` of the Secret."""
    url_file, token_file, ca_file = (
        parts.read(_read_path, f"{place}.{key}", item.get(key), "")
        for key in ("urlFile", "tokenFile", "caFile")
    )
    return Endpoint(
        url_file=url_file or f"{SECRETS_FOLDER}/{item['name']}.url",
        token_file=token_file,
        ca_file=ca_file,
    )


def read_patterns(place: str, item: Mapping[str, Any], parts: Parts) -> tuple[str, ...]:
    """Return which namespaces may use an endpoint. There is no default: someone has to decide."""
    return parts.read(_read_patterns, f"{place}.namespaces", item.get("namespaces"), ())


def _read_patterns(place: str, raw: object) -> tuple[str, ...]:
    if (
        not isinstance(raw, list)
        or not raw
        or not all(isinstance(each, str) and _NAMESPACES.fullmatch(each) for each in raw)
    ):
        raise ValueError(
            f"{place} must list the namespaces that may use it, such as "
            f"[team-a, 'infra-*'], or ['*'] for all"
        )
    return tuple(raw)


def _read_receiver(place: str, item: Mapping[str, Any], parts: Parts) -> Receiver:
    default = MessageFormat.JSON
    return Receiver(
        name=item["name"],
        endpoint=read_endpoint(place, item, parts),
        namespaces=read_patterns(place, item, parts),
        message_format=parts.read(
            _read_format, f"{place}.format", item.get("format", default), default
        ),
    )


def _unknown(item: Mapping[Any, Any], known: frozenset[str]) -> str:
    """Return the keys of an item that do not exist, "" for none."""
    keys = {str(key) for key in item if key not in known}
    shown = {key if _SHOWN_KEY.fullmatch(key) else "a key of more than letters" for key in keys}
    return ", ".join(sorted(shown))


def _read_format(place: str, raw: object) -> MessageFormat:
    found = next((each for each in MessageFormat if each == raw), None)
    if found is None:
        raise ValueError(f"{place} must be one of {', '.join(MessageFormat)}")
    return found


def _read_name(place: str, raw: object) -> str:
    if not isinstance(raw, str) or not _NAME.fullmatch(raw):
        raise ValueError(f"{place} must be small letters, digits and '-', 63 at most")
    return raw


def _read_path(place: str, raw: object) -> str:
    if raw is None:
        return ""
    if not isinstance(raw, str) or not raw.startswith("/") or not raw.isprintable():
        raise ValueError(f"{place} must be the full path of a file, such as {SECRETS_FOLDER}/x")
    return raw

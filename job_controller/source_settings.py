"""Reads `sources` of the configuration file: what checks of rollouts may ask, and where."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from job_controller.core.sources import Source
from job_controller.receiver_settings import Parts, read_endpoint, read_named, read_patterns

_QUERIES_LIMIT: Final = 100
_QUERY_BYTES: Final = 4096
_PATHS_LIMIT: Final = 20
_NAME: Final = re.compile(r"[a-zA-Z0-9](?:[-a-zA-Z0-9_.]{0,61}[a-zA-Z0-9])?")
_PATH: Final = re.compile(r"(?:/[A-Za-z0-9_~:@!$'()*+,;=-][A-Za-z0-9._~:@!$'()*+,;=-]*)+/?")
_OWN_KEYS: Final = frozenset({"paths", "queries", "allowExpressions"})


def read_sources(raw: object) -> tuple[Source, ...]:
    """Return the sources in their order; raises MistakesError with each place and the fix."""
    return read_named("sources", raw, _OWN_KEYS, _read_source)


def _read_source(place: str, item: Mapping[str, Any], parts: Parts) -> Source:
    return Source(
        name=item["name"],
        endpoint=read_endpoint(place, item, parts),
        namespaces=read_patterns(place, item, parts),
        paths=parts.read(_read_paths, f"{place}.paths", item.get("paths"), ()),
        queries=parts.read(_read_queries, f"{place}.queries", item.get("queries"), {}),
        allows_expressions=parts.read(
            _read_allows, f"{place}.allowExpressions", item.get("allowExpressions", False), False
        ),
    )


def _read_allows(place: str, raw: object) -> bool:
    if not isinstance(raw, bool):
        raise ValueError(f"{place} must be true or false")  # noqa: TRY004 - its text is for the author of the setting
    return raw


def _read_paths(place: str, raw: object) -> tuple[str, ...]:
    if raw is None:
        return ()
    if (
        not isinstance(raw, list)
        or len(raw) > _PATHS_LIMIT
        or not all(isinstance(each, str) and _PATH.fullmatch(each) for each in raw)
    ):
        raise ValueError(
            f"{place} must list at most {_PATHS_LIMIT} paths such as /healthz, without a query"
        )
    return tuple(raw)


def _read_queries(place: str, raw: object) -> Mapping[str, str]:
    if raw is None:
        return {}
    if not isinstance(raw, dict) or len(raw) > _QUERIES_LIMIT:
        raise ValueError(f"{place} must be at most {_QUERIES_LIMIT} lines `name: PromQL`")
    for name, text in raw.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ValueError(f"{place} must have names of letters, digits, '-', '_' and '.'")
        if not _is_query(text):
            raise ValueError(f"{place}.{name} must be PromQL of at most {_QUERY_BYTES} bytes")
    return dict(raw)


def _is_query(text: object) -> bool:
    if not isinstance(text, str) or not text.strip():
        return False
    # Half a character of JSON has no bytes.
    raw = text.encode("utf-8", "ignore")
    return len(raw) <= _QUERY_BYTES and raw.decode() == text

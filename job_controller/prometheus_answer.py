"""Reads the answer of Prometheus to an instant query: one number, or why there is none.

What is in an answer apart from the number is not quoted: it may be about other tenants. What is
wrong with an expression of the Job itself is, since its author is to correct it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import orjson

from job_controller.core.text.sanitize import DETAIL_LIMIT, single_line
from job_controller.outbound import Answer

_TEXT_LIMIT: Final = 64
# The `errorType` of a query that cannot be parsed.
_BAD_QUERY: Final = "bad_data"
_NOT_A_NUMBER: Final = "answered with something other than a number"


def read_value(answer: Answer, *, is_of_job: bool = False) -> float | str:
    """Return the one number in an answer, or words that say why there is none.

    `is_of_job`: the query is an expression of the Job, and not one of the configuration.
    """
    body = _read_body(answer)
    if not 200 <= answer.status < 300:
        return f"answered with HTTP {answer.status}{_mistake(body, is_of_job=is_of_job)}"
    data = body.get("data")
    return _value_of(data) if isinstance(data, dict) else _NOT_A_NUMBER


def _read_body(answer: Answer) -> Mapping[str, Any]:
    """Return the object in an answer, an empty one if there is none."""
    try:
        body = None if answer.is_cut else orjson.loads(answer.body)
    except orjson.JSONDecodeError:
        body = None
    return body if isinstance(body, dict) else {}


def _mistake(body: Mapping[str, Any], *, is_of_job: bool) -> str:
    """Return what is wrong with the query, "" if the answer is not about that."""
    if body.get("errorType") != _BAD_QUERY:
        return ""
    if not is_of_job:
        return ": it cannot read the query; an administrator corrects it in `sources`"
    error = body.get("error")
    words = single_line(error, DETAIL_LIMIT) if isinstance(error, str) else ""
    return f": {words}" if words else ""


def _value_of(data: Mapping[str, Any]) -> float | str:
    kind, result = data.get("resultType"), data.get("result")
    if not isinstance(result, list) or kind not in {"vector", "scalar"}:
        return _NOT_A_NUMBER
    if kind == "vector":
        if len(result) != 1:
            return f"answered with {len(result)} series; the query has to give one"
        result = result[0].get("value") if isinstance(result[0], dict) else None
    return _number(result[1]) if isinstance(result, list) and len(result) == 2 else _NOT_A_NUMBER


def _number(text: Any) -> float | str:
    try:
        value = float(text) if isinstance(text, str) and len(text) < _TEXT_LIMIT else math.nan
    except ValueError:
        value = math.nan
    return "answered with no number (NaN)" if math.isnan(value) else value

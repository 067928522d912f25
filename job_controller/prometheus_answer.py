"""Reads the answer of Prometheus to an instant query: one number, or why there is none.

What is in an answer apart from the number is never quoted: it may be about other tenants.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import orjson

from job_controller.outbound import Answer

_TEXT_LIMIT: Final = 64
_NOT_A_NUMBER: Final = "answered with something other than a number"


def read_value(answer: Answer) -> float | str:
    """Return the one number in an answer, or words that say why there is none."""
    if not 200 <= answer.status < 300:
        return f"answered with HTTP {answer.status}"
    try:
        body = None if answer.is_cut else orjson.loads(answer.body)
    except orjson.JSONDecodeError:
        body = None
    data = body.get("data") if isinstance(body, dict) else None
    return _value_of(data) if isinstance(data, dict) else _NOT_A_NUMBER


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

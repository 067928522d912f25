"""What the answers of sources mean for a check, and what Jobs may ask of them."""

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from job_controller.core.receivers import Endpoint
from job_controller.core.sources import (
    AnswerState,
    Source,
    SourceQuery,
    find_request,
    judge_status,
    judge_value,
    unreachable,
)
from job_controller.outbound import Answer
from job_controller.prometheus_answer import read_value

T0 = datetime(2026, 11, 24, tzinfo=UTC)
PROM = Source(
    "prom",
    Endpoint("/url"),
    ("team-a",),
    paths=("/healthz",),
    queries={"errors": 'sum(errors{namespace="{{namespace}}",job="{{job}}"})'},
)


def asked(**fields):
    return SourceQuery("prom", T0, **fields)


def request(query, namespace="team-a", source=PROM):
    return find_request([source], query, namespace, "patch")


def vector(*values):
    result = [{"metric": {"secret": "tenant-b"}, "value": [1, text]} for text in values]
    return {"status": "success", "data": {"resultType": "vector", "result": result}}


def read(body, status=200):
    return read_value(Answer(status, json.dumps(body).encode()))


def test_a_query_has_the_names_of_the_job_and_nothing_else_of_it():
    found = request(asked(query="errors"))
    assert not isinstance(found, str)
    assert found.path == "/api/v1/query"
    assert found.query == (("query", 'sum(errors{namespace="team-a",job="patch"})'),)


@pytest.mark.parametrize(
    ("query", "namespace", "words"),
    [
        (asked(query="other"), "team-a", "the source 'prom' has no query 'other'"),
        (asked(expression="up"), "team-a", "does not allow expressions of Jobs"),
        (asked(path="/admin"), "team-a", "does not allow the path '/admin'"),
        (asked(path="/healthz/../admin"), "team-a", "does not allow the path"),
        (asked(query="errors"), "team-b", "no source 'prom' that Jobs in namespace team-b may use"),
        (SourceQuery("other", T0), "team-a", "no source 'other'"),
    ],
)
def test_what_the_administrator_has_not_named_is_not_asked(query, namespace, words):
    found = request(query, namespace)
    assert isinstance(found, str)
    assert words in found


def test_an_administrator_can_allow_expressions_and_paths():
    free = Source("prom", Endpoint("/url"), ("*",), allows_expressions=True)
    found = request(asked(expression="up"), source=free)
    assert not isinstance(found, str)
    assert found.query == (("query", "up"),)
    found = request(asked(path="/healthz"))
    assert not isinstance(found, str)
    assert (found.path, found.query) == ("/healthz", ())
    assert not isinstance(request(asked()), str)


@pytest.mark.parametrize(
    ("status", "state"),
    [
        (200, AnswerState.PASS),
        (204, AnswerState.PASS),
        (302, AnswerState.UNKNOWN),
        (404, AnswerState.UNKNOWN),
        (500, AnswerState.FAIL),
        (503, AnswerState.FAIL),
    ],
)
def test_the_status_of_an_endpoint(status, state):
    assert judge_status("web", status, T0).state is state


@pytest.mark.parametrize(
    ("text", "limits", "state"),
    [
        ("0.01", {"below": 0.05}, AnswerState.PASS),
        ("0.05", {"below": 0.05}, AnswerState.FAIL),
        ("5", {"above": 4}, AnswerState.PASS),
        ("4", {"above": 4}, AnswerState.FAIL),
        ("+Inf", {"below": 1}, AnswerState.FAIL),
        ("+Inf", {"above": 1}, AnswerState.PASS),
        ("3", {"above": 2, "below": 4}, AnswerState.PASS),
        ("NaN", {"below": 1}, AnswerState.UNKNOWN),
        ("one", {"below": 1}, AnswerState.UNKNOWN),
        ("1" * 100, {"above": 1}, AnswerState.UNKNOWN),
    ],
)
def test_the_value_of_a_query_and_its_limits(text, limits, state):
    found = judge_value(asked(query="errors", **limits), read(vector(text)), T0)
    assert found.state is state
    assert "tenant-b" not in found.message


@pytest.mark.parametrize(
    "body",
    [
        vector(),
        vector("1", "2"),
        {"status": "error", "error": "secret"},
        {"data": None},
        {"data": {"resultType": "matrix", "result": []}},
        {"data": {"resultType": "vector", "result": [None]}},
        {"data": {"resultType": "vector", "result": [{"value": [1]}]}},
        {"data": {"resultType": "scalar", "result": [1, 2]}},
        [],
        "1",
        None,
    ],
    ids=str,
)
def test_only_one_number_is_an_answer(body):
    found = judge_value(asked(query="errors", above=-1e9), read(body), T0)
    assert found.state is AnswerState.UNKNOWN
    assert "secret" not in found.message


def refused(error, kind="bad_data"):
    return Answer(400, json.dumps({"status": "error", "errorType": kind, "error": error}).encode())


def test_what_is_wrong_with_an_expression_of_the_job_is_said_on_one_line():
    words = 'invalid parameter "query": 1:5: parse error: unclosed left parenthesis'
    found = read_value(refused(f"{words}\n\x1b[31m"), is_of_job=True)
    assert found == f"answered with HTTP 400: {words} [31m"
    long = read_value(refused("a" * 9000 + "<&>" * 9000), is_of_job=True)
    assert isinstance(long, str)
    assert len(json.dumps(long)) < 400


def test_what_is_wrong_with_a_query_of_the_administrator_is_not_quoted():
    found = read_value(refused("1:5: parse error: secret"))
    assert found == (
        "answered with HTTP 400: it cannot read the query; an administrator corrects it in "
        "`sources`"
    )


@pytest.mark.parametrize(
    "answer",
    [
        refused("secret", "execution"),
        refused(["secret"]),
        refused(None),
        Answer(400, refused("secret").body, is_cut=True),
        Answer(400, b"<p>secret"),
        Answer(400, b"[]"),
    ],
)
def test_no_other_error_is_quoted(answer):
    assert read_value(answer, is_of_job=True) == "answered with HTTP 400"


def test_a_scalar_is_a_number():
    body = {"data": {"resultType": "scalar", "result": [1, "7"]}}
    assert read(body) == 7


@given(st.binary(max_size=200), st.integers(100, 599), st.booleans())
def test_no_bytes_raise_or_pass_but_one_number(raw, status, cut):
    found = read_value(Answer(status, raw, is_cut=cut))
    assert isinstance(found, str)


def test_no_answer_is_never_a_pass():
    assert unreachable("prom", "it cannot be connected to", T0).state is AnswerState.UNKNOWN
    assert read_value(Answer(503, b"")) == "answered with HTTP 503"

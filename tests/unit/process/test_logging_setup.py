"""What a log line looks like. Not here: what is logged, and when."""

import io
import json
import logging

import pytest
from loguru import logger

from daemonset_job.kube.client.errors import ConfigurationError
from daemonset_job.process.logging_setup import (
    FIELD_LIMIT,
    TRACEBACK_LIMIT,
    configure_logging,
)


@pytest.fixture
def restored():
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    logger.remove()
    root.handlers[:] = handlers
    root.setLevel(level)


def lines(stream):
    return stream.getvalue().splitlines()


def test_json_has_context_and_fields(restored):
    out = io.StringIO()
    configure_logging("info", json=True, stream=out)
    with logger.contextualize(job="a", namespace="n", reconcile_id="7"):
        logger.info("node completed", node="node-1", count=3)
    record = json.loads(out.getvalue())
    assert record["message"] == "node completed"
    assert record["level"] == "INFO"
    assert (record["namespace"], record["job"], record["reconcile_id"]) == ("n", "a", "7")
    assert (record["node"], record["count"]) == ("node-1", 3)


def test_a_field_never_replaces_what_every_line_has(restored):
    out = io.StringIO()
    configure_logging("info", json=True, stream=out)
    logger.bind(message="forged", level="forged").info("true")
    assert json.loads(out.getvalue())["message"] == "true"
    assert json.loads(out.getvalue())["level"] == "INFO"


def test_human_line_stays_one_line(restored):
    out = io.StringIO()
    configure_logging("INFO", json=False, stream=out)
    logger.info("read", line="a\nb\x1b[31m", job="j", plain="x", empty="")
    (line,) = lines(out)
    assert line.endswith(r'read job=j line="a\nb\u001b[31m" plain=x empty=""')


def test_a_long_field_is_bounded(restored):
    out = io.StringIO()
    configure_logging("INFO", json=True, stream=out)
    logger.info("read", line="x" * (FIELD_LIMIT + 1), error=ValueError("no"), flag=True)
    record = json.loads(out.getvalue())
    assert len(record["line"]) == FIELD_LIMIT
    assert (record["error"], record["flag"]) == ("no", True)


HOSTILE = "a\nb\r\x1b[31m\x85\u2028\u202e{x}\ud800"


@pytest.mark.parametrize("as_json", [True, False])
def test_a_text_from_outside_ends_no_line_and_commands_no_terminal(restored, as_json):
    out = io.StringIO()
    configure_logging("INFO", json=as_json, stream=out)
    logger.info("read", line=HOSTILE, values=[HOSTILE])
    logging.getLogger("library").warning("%s", HOSTILE)
    assert len(lines(out)) == 2
    assert all(line.isprintable() for line in lines(out))
    if as_json:
        assert json.loads(lines(out)[0])["line"] == HOSTILE


@pytest.mark.parametrize("as_json", [True, False])
def test_a_long_message_of_a_library_is_bounded(restored, as_json):
    out = io.StringIO()
    configure_logging("INFO", json=as_json, stream=out)
    logging.getLogger("library").warning("x" * 100_000)
    assert len(out.getvalue()) < FIELD_LIMIT + 200


@pytest.mark.parametrize("as_json", [True, False])
def test_the_text_of_an_exception_looks_like_no_record_and_is_bounded(restored, as_json):
    out = io.StringIO()
    configure_logging("INFO", json=as_json, stream=out)
    text = "x" * 100_000 + "\n2030-01-01 00:00:00.000 INFO deleted the Job\x1b[2J"
    logger.opt(exception=ValueError(text)).error("pass failed")
    assert len(out.getvalue()) < TRACEBACK_LIMIT + 500
    assert "deleted the Job" in out.getvalue()
    first, *rest = lines(out)
    assert "pass failed" in first
    assert all(line.startswith("  ") and line.isprintable() for line in rest)


@pytest.mark.parametrize("as_json", [True, False])
def test_an_exception_comes_with_its_traceback(restored, as_json):
    out = io.StringIO()
    configure_logging("INFO", json=as_json, stream=out)
    try:
        int("what went wrong")
    except ValueError:
        logger.exception("pass failed")
    assert "Traceback" in out.getvalue()
    assert "what went wrong" in out.getvalue()


def test_levels_filter_and_can_be_changed(restored):
    out = io.StringIO()
    configure_logging("warning", json=False, stream=out)
    logger.info("quiet")
    configure_logging("debug", json=False, stream=out)
    logger.debug("loud")
    assert len(lines(out)) == 1


def test_unknown_level_is_named_with_the_choice():
    with pytest.raises(ConfigurationError, match=r"'loud' does not exist.*DEBUG, INFO"):
        configure_logging("loud", json=False)


def test_standard_logging_arrives_with_braces_untouched(restored):
    out = io.StringIO()
    configure_logging("INFO", json=True, stream=out)
    logging.getLogger("aiohttp.client").warning("odd {thing} %s", "here")
    record = json.loads(out.getvalue())
    assert record["message"] == "odd {thing} here"
    assert record["logger"] == "aiohttp.client"


def test_standard_logging_below_warning_is_dropped(restored):
    out = io.StringIO()
    configure_logging("INFO", json=True, stream=out)
    logging.getLogger("aiohttp.client").info("chatter")
    assert out.getvalue() == ""

"""What a log line looks like. Not here: what is logged, and when."""

import io
import json
import logging

import pytest
from loguru import logger

from daemonset_job.kube.client.errors import ConfigurationError
from daemonset_job.process.logging_setup import FIELD_LIMIT, configure_logging


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

"""What the ConfigMap says that stops all Jobs: clear, unclear, and foreign texts."""

import pytest

from daemonset_job.api.stop import parse_stop, stop_message


def order(**data):
    return parse_stop({"metadata": {"name": "daemonset-job-stop", "uid": "u"}, "data": data})


@pytest.mark.parametrize("text", ["true", "True", " yes ", "on", "1"])
def test_it_stops(text):
    assert "has stopped all Jobs of this cluster (fire)" in stop_message(
        order(stop=text, reason="fire")
    )


@pytest.mark.parametrize("text", ["false", "No", "off", "0", "", " "])
def test_it_lifts(text):
    assert stop_message(order(stop=text, reason="fire")) == ""


def test_nothing_is_stopped_without_it():
    assert stop_message(None) == ""
    assert stop_message(order()) == ""


def test_a_value_that_is_unclear_stops_and_is_shown():
    message = stop_message(order(stop="ture"))
    assert 'data.stop is "ture": write "true" or "false"' in message


def test_the_reason_is_one_bounded_line_without_control_characters():
    message = stop_message(order(stop="true", reason="a\x1b[31m\nb\u202e" + "x" * 1_000_000))
    assert "(a [31m b xxx" in message
    assert len(message) < 600
    assert message.isprintable()


def test_another_type_is_refused():
    with pytest.raises(ValueError, match="data"):
        parse_stop({"metadata": {}, "data": {"stop": True}})

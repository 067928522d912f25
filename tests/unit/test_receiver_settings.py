"""`receivers` in the controller's file: what is read, and the texts about mistakes."""

import pytest

from daemonset_job.process.settings import ConfigError
from job_controller.config import parse_config
from job_controller.core.receivers import Endpoint, MessageFormat, Receiver
from job_controller.receiver_settings import RECEIVERS_LIMIT

FOLDER = "/etc/daemonset-job/receivers"


def parse(text):
    return parse_config([], {}, "host", text)


def test_a_receiver_needs_a_name_and_namespaces_and_has_its_url_in_the_secret():
    found = parse(
        """
        clusterName: prod
        receivers:
          - {name: ops, namespaces: ['*'], format: Slack}
          - name: team-a
            namespaces: [team-a, 'team-a-*']
            urlFile: /x/url
            tokenFile: /x/token
            caFile: /x/ca
        """
    )
    assert found.cluster_name == "prod"
    assert found.receivers == (
        Receiver("ops", Endpoint(f"{FOLDER}/ops.url"), ("*",), MessageFormat.SLACK),
        Receiver("team-a", Endpoint("/x/url", "/x/token", "/x/ca"), ("team-a", "team-a-*")),
    )
    assert parse("receivers: []").receivers == ()
    assert parse("").receivers == ()


@pytest.mark.parametrize(
    ("item", "problem"),
    [
        ("https://hooks/SECRET", "write a list of receivers, each with a name and namespaces"),
        ("{namespaces: ['*']}", "receivers[0].name must be small letters"),
        ("{name: 'a/../b', namespaces: ['*']}", "receivers[0].name must be small letters"),
        ("{name: ops}", "receivers[0].namespaces must list the namespaces"),
        ("{name: ops, namespaces: []}", "receivers[0].namespaces must list the namespaces"),
        ("{name: ops, namespaces: ['a*b']}", "receivers[0].namespaces must list"),
        ("{name: ops, namespaces: ['*'], format: XML}", "format must be one of JSON, Slack"),
        ("{name: ops, namespaces: ['*'], format: []}", "format must be one of JSON, Slack"),
        ("{name: ops, namespaces: ['*'], urlFile: x}", "urlFile must be the full path"),
        ("{name: ops, namespaces: ['*'], url: 'https://hooks/SECRET'}", "has url, which does not"),
        ("{name: ops, namespaces: ['*']}, {name: ops, namespaces: ['*']}", "receivers[1].name is"),
    ],
)
def test_a_mistake_names_its_place_and_does_not_repeat_what_may_be_a_secret(item, problem):
    with pytest.raises(ConfigError) as raised:
        parse(f"receivers: [{item}]")
    (text,) = raised.value.problems
    assert text.startswith("receivers: the value is not valid; ")
    assert problem in text
    assert "SECRET" not in text


def test_all_mistakes_are_shown_at_once():
    with pytest.raises(ConfigError) as raised:
        parse(
            """
            receivers:
              - {name: Ops, urlFile: x, format: XML}
              - {name: ops, namespaces: ['*']}
              - {name: ops, namespaces: ['*'], url: x}
            sources:
              - {name: web, paths: healthz, queries: {a: ""}, allowExpressions: 1}
            """
        )
    words = [text.split("; ", 1)[1].split(" ")[0] for text in raised.value.problems]
    assert words == [
        "receivers[0].name",
        "receivers[0].urlFile",
        "receivers[0].namespaces",
        "receivers[0].format",
        "receivers[2].name",
        "receivers[2]",
        "sources[0].namespaces",
        "sources[0].paths",
        "sources[0].queries.a",
        "sources[0].allowExpressions",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "receivers: [{name: ops, namespaces: ['*'], url:https://hooks/SECRET}]",
        "receivers:\n- name: ops\n  url:https://hooks/SECRET\n  namespaces: ['*']",
        "receivers: [{name: ops, url: https://hooks/SECRET, url: https://hooks/SECRET}]",
        "receivers: [{name: ops, urlFile: 'https://hooks/SECRET]",
        "receivers: [{name: ops, urlFile: \"/SECRET\\ud800\", namespaces: ['*']}]",
        "sources: [{name: a, namespaces: ['*'], queries: {a: \"SECRET\\ud800\"}}]",
    ],
)
def test_what_yaml_takes_for_something_else_does_not_have_a_secret_logged(text):
    with pytest.raises(ConfigError) as raised:
        parse(text)
    assert "SECRET" not in str(raised.value)


def test_the_number_of_receivers_is_bounded():
    def items(count):
        return ",".join(f"{{name: r{number}, namespaces: ['*']}}" for number in range(count))

    assert len(parse(f"receivers: [{items(RECEIVERS_LIMIT)}]").receivers) == RECEIVERS_LIMIT
    with pytest.raises(ConfigError, match="at most 32 receivers"):
        parse(f"receivers: [{items(RECEIVERS_LIMIT + 1)}]")


@pytest.mark.parametrize("name", ["''", '"a\\tb"', f"'{'c' * 64}'", "[x]"])
def test_the_name_of_the_cluster_is_one_short_line(name):
    with pytest.raises(ConfigError, match="clusterName"):
        parse(f"clusterName: {name}")

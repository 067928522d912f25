"""Foreign texts on one line, within a number of bytes."""

from hypothesis import example, given
from hypothesis import strategies as st

from daemonset_job.api.json_text import json_bytes
from job_controller.core.text.sanitize import single_line

REFUSAL = (
    'DaemonSet.apps "x" is invalid: spec.template.spec.containers[0].securityContext: Invalid '
    "value: {" + '"Capabilities":null,' * 50 + "}: cannot set `allowPrivilegeEscalation` to false "
    "and `privileged` to true"
)


def test_a_long_text_loses_its_middle():
    line = single_line(REFUSAL, 200)
    assert line.startswith('DaemonSet.apps "x" is invalid')
    assert line.endswith("`allowPrivilegeEscalation` to false and `privileged` to true")
    assert json_bytes(line) <= 200


def test_a_text_within_the_limit_stays_as_it_is():
    assert single_line("no space left on device", 23) == "no space left on device"


def test_a_huge_text_is_not_read_whole():
    assert single_line("a" * 10_000_000 + "b", 20) == "a" * 8 + "…" + "a" * 8 + "b"


@given(st.text(max_size=200), st.integers(4, 60))
@example("<" * 30, 13)
@example("a\n\t b" * 30, 9)
def test_a_line_is_printable_and_within_its_limit(text, limit):
    line = single_line(text, limit)
    assert line.isprintable()
    assert json_bytes(line) <= limit

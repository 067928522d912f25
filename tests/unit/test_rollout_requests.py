"""What the annotations of a Job ask of its rollout."""

import pytest

from daemonset_job.api.names import ANNOTATION_APPROVE
from daemonset_job.api.rollout_requests import APPROVAL_LIMIT, parse_requests


@pytest.mark.parametrize(
    ("value", "step", "other"),
    [
        ("1", 1, ""),
        (" 2\n", 2, ""),
        ("", 0, ""),
        ("0", 0, ""),
        ("yes", 0, "yes"),
        ("1.0", 0, "1.0"),
        ("-1", 0, "-1"),
        ("\u0661", 0, "\u0661"),
        ("9999999", 0, "9999999"),
        ("x" * 5000, 0, "x" * APPROVAL_LIMIT),
    ],
)
def test_an_approval_is_the_number_of_a_step(value, step, other):
    found = parse_requests({"annotations": {ANNOTATION_APPROVE: value}})
    assert (found.approved_step, found.other_approval) == (step, other)

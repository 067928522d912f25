"""Which completion tokens can be used; how lines are compared is tested with the terminator."""

import pytest

from daemonset_job.api.job_spec import Completion
from daemonset_job.api.tokens import check_tokens

LARGE = "\\pL{900}"


@pytest.mark.parametrize(
    "completion",
    [
        Completion(),
        Completion(token="all done"),
        Completion(token="all\tdone", match="Contains"),
        Completion(token="^all .*$", match="Regex", failure_token="^no$"),
        Completion(mode="Exit", failure_token="no"),
    ],
)
def test_tokens_that_can_be_used(completion):
    assert check_tokens(completion, "done") == ""


@pytest.mark.parametrize(
    ("completion", "words"),
    [
        (Completion(token=LARGE, match="Regex"), "spec.completion.token: pattern too large"),
        (Completion(token=LARGE, match="Regex"), "write a smaller one"),
        (Completion("Exit", None, "Regex", LARGE), "spec.completion.failureToken: pattern too"),
        (Completion(token="(", match="Regex"), "correct the regular expression"),
        (Completion(token="x*", match="Regex"), "write one that needs at least one character"),
        (Completion(token=" \u00a0\u200b"), "spec.completion.token must not be blank"),
        (Completion(failure_token="\ufeff"), "spec.completion.failureToken must not be blank"),
        (Completion(token="a\u2028b"), "must not contain line breaks"),
        (Completion(token="a", match="Glob"), "'Glob' does not exist"),
    ],
)
def test_tokens_that_cannot_be_used(completion, words):
    assert words in check_tokens(completion, "done")


def test_the_configured_word_serves_a_job_that_names_none():
    assert "must not be blank" in check_tokens(Completion(), " ")
    assert check_tokens(Completion(mode="Exit"), " ") == ""

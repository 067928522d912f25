"""How large results may be, and what they take in a report."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemonset_job.api.evidence import Evidence
from daemonset_job.api.result_limits import (
    RESULT_BYTES,
    RESULTS_BYTES,
    RESULTS_LIMIT,
    bounded_results,
    is_too_long,
    most_stored_bytes,
    stored_bytes,
)
from tests.unit.terminator.test_report_limits import go_bytes

NAMES = st.text("abc", min_size=1, max_size=63)
VALUES = st.one_of(
    st.none(),
    st.text(max_size=1100),
    st.sampled_from(["x" * 1024, '"' * 1024, "<" * 341, "<" * 342, "\N{LOBSTER}" * 256]),
)


def test_four_results_of_a_kibibyte_fit():
    results = dict.fromkeys("abcd", "x" * RESULT_BYTES)
    assert bounded_results(results) == (results, ())
    assert bounded_results(results | {"e": "1"}) == (results, ("e",))
    as_json = json.dumps({"key": "v" * 500, "list": ["w"] * 90})
    assert bounded_results(dict.fromkeys("abcd", as_json))[1] == ()


@pytest.mark.parametrize(
    ("value", "too_long"),
    [
        ("x" * 1024, False),
        ("x" * 1025, True),
        ('"' * 1024, False),
        ("\u00e9" * 512, False),
        ("\u00e9" * 513, True),
        ("<" * 341, False),
        ("<" * 342, True),
    ],
)
def test_a_value_at_its_bound(value, too_long):
    assert is_too_long(value) == too_long
    assert bounded_results({"a": value, "b": "1"})[1] == (("a",) if too_long else ())


@given(st.dictionaries(NAMES, VALUES, max_size=20))
def test_each_result_is_kept_or_named(results):
    kept, omitted = bounded_results(results)
    assert kept.items() <= results.items()
    assert not kept.keys() & set(omitted)
    if len(results) <= RESULTS_LIMIT:
        assert kept.keys() | set(omitted) == results.keys()
    assert len(kept) <= RESULTS_LIMIT
    assert len(omitted) <= RESULTS_LIMIT
    assert sum(len(value.encode()) for value in kept.values()) <= RESULTS_BYTES
    assert bounded_results(kept) == (kept, ())
    entry = Evidence("uid", results=kept, omitted_results=omitted)
    assert entry.results_bytes == stored_bytes(kept, omitted)
    assert stored_bytes(kept) <= most_stored_bytes(len(kept))
    if len(results) <= RESULTS_LIMIT:
        assert entry.results_bytes <= most_stored_bytes(len(results))


@given(st.dictionaries(NAMES, st.text(max_size=50), max_size=16))
def test_the_stored_size_is_that_of_json_as_go_writes_it(results):
    text = ",".join(f'"{go_bytes(k) * "k"}":"{go_bytes(v) * "v"}"' for k, v in results.items())
    assert stored_bytes(results) >= len(text)

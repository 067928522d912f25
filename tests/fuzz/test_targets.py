"""Each target with a few hundred inputs, always the same ones, and with all that was ever found.

`make fuzz` goes on where this ends: guided by coverage, for `SECONDS`.
"""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from loguru import logger

from tests.fuzz.find import CORPUS, cases, load_check, target_names

# Long enough for a few choices; what is longer than that is made of them (see Source).
SHORT, LONG = 40, 400


@pytest.fixture(autouse=True, scope="module")
def quiet():
    """Each object that cannot be read is a warning, and here that is nearly every one."""
    logger.disable("daemonset_job")
    yield
    logger.enable("daemonset_job")


@pytest.mark.parametrize("target", target_names())
@settings(
    max_examples=150,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.large_base_example],
)
@given(st.binary(max_size=SHORT) | st.binary(min_size=SHORT, max_size=LONG))
def test_target_holds_for_any_bytes(target, data):
    load_check(target)(data)


CASES = [(target, path) for target in target_names() for path in cases(target)]


@pytest.mark.parametrize(("target", "path"), CASES, ids=[f"{t}/{p.name}" for t, p in CASES])
def test_what_was_found_once_holds(target, path):
    load_check(target)(path.read_bytes())


def test_each_folder_of_cases_is_that_of_a_target():
    folders = {path.name for path in CORPUS.iterdir() if path.is_dir()}
    assert folders <= set(target_names())

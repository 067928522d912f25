"""What the ledger keeps of a run, and what it costs to enter a node."""

import pytest

from job_controller.api.report import Evidence
from terminator.ledger import Ledger
from terminator.metrics import Metrics
from tests.unit.terminator.builders import done, make_job, make_report

pytestmark = pytest.mark.looptime(end=1000)


class Unread(dict):
    """Entries that can be looked up by node, and not be gone through."""

    def __iter__(self):
        raise AssertionError("all nodes of a report were gone through")

    items = keys = values = __iter__


def make_ledger(reports):
    return Ledger(None, Metrics(), reports_of=lambda _job: list(reports), flush_seconds=0.5)


async def test_to_enter_a_node_no_other_node_is_looked_at():
    reports = [make_report(Unread(a=done("a"))), make_report(Unread(b=done("b")), shard=1)]
    ledger = make_ledger(reports)
    assert ledger.enter(make_job(), "c", done("c"))
    assert not ledger.enter(make_job(), "b", done("b"))


async def test_a_node_that_a_higher_shard_completes_is_not_entered_again():
    reports = [
        make_report({"a": Evidence("a-uid", last_lines=("x",))}),
        make_report({"a": done("a")}, shard=1),
    ]
    assert not make_ledger(reports).enter(make_job(), "a", done("a"))


async def test_a_report_elsewhere_says_nothing():
    ledger = make_ledger([make_report({"a": done("a")}, namespace="elsewhere")])
    assert ledger.view(make_job()) == {}
    assert ledger.enter(make_job(), "a", done("a"))
    assert ledger.view(make_job()) == {"a": done("a")}

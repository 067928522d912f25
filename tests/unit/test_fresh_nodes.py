"""What was read of single nodes, laid over what a cache holds."""

from dataclasses import replace

import pytest

from job_controller.fresh_nodes import NodeRead, with_fresh_nodes
from tests.unit.builders import make_node

AWAY = make_node("a", ready=False, resource_version="3")
BACK = replace(AWAY, ready=True, resource_version="7")


@pytest.mark.parametrize("version", ["3", "5", "9"])
def test_fresh_read_counts_unless_the_cache_is_newer(version):
    cached = replace(AWAY, resource_version=version)
    reads = {"a": NodeRead(AWAY, BACK, 0.0, version="8")}
    assert with_fresh_nodes({"a": cached}, reads) == {"a": cached if version == "9" else BACK}


def test_deleted_node_is_left_out_although_the_cache_is_stale():
    cached = replace(AWAY, resource_version="5")
    assert with_fresh_nodes({"a": cached}, {"a": NodeRead(AWAY, None, 0.0, version="8")}) == {}


def test_a_node_that_came_again_after_it_was_read_is_there():
    again = replace(AWAY, uid="another", resource_version="9")
    reads = {"a": NodeRead(AWAY, None, 0.0, version="8")}
    assert with_fresh_nodes({"a": again}, reads) == {"a": again}


def test_without_a_version_what_the_cache_received_since_counts():
    cached = replace(AWAY, resource_version="5")
    assert with_fresh_nodes({"a": cached}, {"a": NodeRead(AWAY, BACK, 0.0)}) == {"a": cached}

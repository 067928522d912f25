"""Whether a DaemonSet chooses the nodes that its Job asks for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemonset_job.api.affinity import REQUIRED
from daemonset_job.api.job_spec import NodeSelection
from job_controller.core.desired.node_affinity import needs_linux, node_terms
from terminator.node_selection import NodeMatcher, find_unselected_node
from tests.simulation import intent
from tests.unit.terminator.builders import make_daemon_set, make_job, make_node

NODES = [make_node("a", labels={"zone": "x"}), make_node("b", labels={"zone": "y"})]


def affinity(terms):
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}


def found(daemon_pod_spec, template=None, **nodes):
    template = {"spec": template} if template is not None else {}
    job = make_job(spec={"nodes": NodeSelection(**nodes), "template": template})
    daemon_set = make_daemon_set(2, spec={"template": {"spec": daemon_pod_spec}})
    return find_unselected_node(job, daemon_set, NODES)


def test_a_daemon_set_that_chooses_every_node_leaves_none_out():
    assert not found({})
    assert not found({}, include=("a",))
    assert not found({"nodeSelector": {"zone": "x"}}, selector={"matchLabels": {"zone": "x"}})


def test_narrower_daemon_set_is_found_by_an_unselected_node():
    rule = {"key": "metadata.name", "operator": "In", "values": ["a"]}
    narrow = {"affinity": affinity([{"matchFields": [rule]}])}
    assert found(narrow) == "its DaemonSet does not choose b, which the Job asks for"
    assert found(narrow, include=("a", "b"))
    assert not found(narrow, include=("a",))
    assert not found(narrow, exclude=("b",))
    assert found({"nodeSelector": {"zone": "x"}})


def test_what_the_template_asks_of_a_node_narrows_the_choice_rightly():
    narrow = {"nodeSelector": {"zone": "x"}}
    assert not found(narrow, template=narrow)
    assert found(narrow, template={"nodeSelector": {"zone": "y"}})
    assert not found({}, template={"affinity": None})


def test_a_toleration_that_was_taken_away_is_found():
    toleration = {"key": "a", "operator": "Exists", "value": ""}
    stored = {"key": "a", "operator": "Exists"}
    template = {"tolerations": [toleration]}
    assert not found({"tolerations": [stored, {"key": "b"}]}, template=template)
    assert found({}, template=template) == "its DaemonSet lacks a toleration of spec.template"
    assert not found({"tolerations": [stored]})


values = st.lists(st.sampled_from("xy"), min_size=1, max_size=2, unique=True)
rules = st.one_of(
    st.builds(
        lambda operator, found: {"key": "zone", "operator": operator, "values": found},
        st.sampled_from(["In", "NotIn"]),
        values,
    ),
    st.builds(
        lambda operator: {"key": "zone", "operator": operator},
        st.sampled_from(["Exists", "DoesNotExist"]),
    ),
)
selectors = st.fixed_dictionaries(
    {},
    optional={
        "matchLabels": st.fixed_dictionaries({}, optional={"zone": st.sampled_from("xy")}),
        "matchExpressions": st.lists(rules, max_size=2),
    },
)
some_names = st.lists(st.sampled_from("abc"), max_size=2, unique=True)


@given(selectors, some_names, some_names, st.sampled_from("abc"), st.sampled_from([None, "x", "y"]))
def test_it_reads_a_selection_as_the_model_and_as_the_controller_do(
    selector, include, exclude, name, zone
):
    labels = {"zone": zone} if zone else {}
    nodes = NodeSelection(selector, tuple(include), tuple(exclude))
    ours = NodeMatcher(make_job(spec={"nodes": nodes})).selects(name, labels)
    raw = {"selector": selector, "include": include, "exclude": exclude}
    assert ours == intent.selects(raw, {"metadata": {"name": name, "labels": labels}})
    # What the controller makes of it chooses the node as well.
    job = make_job(spec={"nodes": nodes})
    terms = node_terms(nodes)
    placed = make_daemon_set(
        1, spec={"template": {"spec": {"affinity": affinity(terms)} if terms else {}}}
    )
    assert not find_unselected_node(job, placed, [make_node(name, labels=labels)])


@pytest.mark.parametrize(
    ("spec", "selects"),
    [
        ({}, False),
        ({"selector": {"matchLabels": {"zone": "x"}}}, False),
        ({"exclude": ("a",)}, False),
        ({"include": ("w",)}, True),
        ({"selector": {"matchLabels": {"kubernetes.io/os": "windows"}}}, True),
        (
            {"selector": {"matchExpressions": [{"key": "kubernetes.io/os", "operator": "Exists"}]}},
            True,
        ),
    ],
)
def test_a_job_that_names_no_operating_system_does_not_select_windows(spec, selects):
    """Both counts have to leave the same nodes out, or a deletion waits ten minutes."""
    labels = {"kubernetes.io/os": "windows", "zone": "x"}
    job = make_job(spec={"nodes": NodeSelection(**spec)})
    assert NodeMatcher(job).selects("w", labels) == selects
    assert needs_linux(job.spec) != selects


def test_a_template_that_names_an_operating_system_may_select_windows():
    for pod_spec in (
        {"os": {"name": "windows"}},
        {"nodeSelector": {"kubernetes.io/os": "windows"}},
    ):
        job = make_job(spec={"template": {"spec": pod_spec}})
        assert NodeMatcher(job).selects("w", {"kubernetes.io/os": "windows"})
        assert not needs_linux(job.spec)

"""Whether daemon pods tolerate a taint."""

from hypothesis import given
from hypothesis import strategies as st

from daemonset_job.api.taints import Tolerations, parse_taints
from tests.fakekube.daemon_sets import placement

KEYS = ("a", "b", "node.kubernetes.io/unschedulable", "node.kubernetes.io/network-unavailable")
EFFECTS = ("NoSchedule", "NoExecute", "PreferNoSchedule")
taints = st.fixed_dictionaries(
    {"key": st.sampled_from(KEYS), "effect": st.sampled_from(EFFECTS)},
    optional={"value": st.sampled_from("12")},
)
tolerations = st.fixed_dictionaries(
    {},
    optional={
        "key": st.sampled_from(KEYS),
        "effect": st.sampled_from(EFFECTS),
        "operator": st.sampled_from(["Exists", "Equal"]),
        "value": st.sampled_from("12"),
    },
)


@given(st.lists(taints, max_size=3), st.lists(tolerations, max_size=3), st.booleans())
def test_it_agrees_with_the_model_of_the_daemon_set_controller(found, tolerated, host_network):
    spec = {"tolerations": tolerated, "hostNetwork": host_network}
    node = {"metadata": {"name": "n", "labels": {}}, "spec": {"taints": found}}
    ours = not Tolerations(spec).untolerated(parse_taints(found))
    assert ours == placement({"spec": spec}, node).should_run

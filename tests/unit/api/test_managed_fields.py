import tracemalloc
from datetime import UTC, datetime

import pytest

from daemonset_job.api import names
from daemonset_job.api.managed_fields import (
    find_alteration,
    find_annotation_manager,
    find_spec_manager,
    find_spec_time,
    has_own_entry,
    take_ownership,
)

OURS = {
    "manager": names.FIELD_MANAGER,
    "operation": "Apply",
    "fieldsV1": {"f:metadata": {"f:labels": {}}, "f:spec": {"f:template": {"f:a": {}}}},
}
STATUS = {
    "manager": "kube-controller-manager",
    "operation": "Update",
    "subresource": "status",
    "fieldsV1": {"f:status": {"f:desired": {}}},
}
LABELS = {"manager": "x", "operation": "Update", "fieldsV1": {"f:metadata": {"f:labels": {}}}}


def theirs(fields, manager="kubectl-patch", operation="Update"):
    return {"manager": manager, "operation": operation, "fieldsV1": {"f:spec": fields}}


@pytest.mark.parametrize("entries", [[], [OURS], [OURS, STATUS], [OURS, STATUS, LABELS]])
def test_nothing_is_altered_by_us_by_the_status_or_by_labels(entries):
    assert find_alteration({"managedFields": entries}) == ""


def test_the_clients_and_their_fields_are_reported():
    item = {"f:template": {'k:{"name":"x"}': {".": {}, "f:args": {}}, "f:hostPID": {}}}
    meta = {"managedFields": [OURS, theirs(item), theirs({"f:b": {}}, names.FIELD_MANAGER)]}
    assert find_alteration(meta) == (
        'kubectl-patch: template[{"name":"x"}].args, template.hostPID; daemonset-job-controller: b'
    )


def test_what_is_reported_is_bounded():
    meta = {"managedFields": [OURS, theirs({f"f:{'x' * 100}{number}": {} for number in range(99)})]}
    assert len(find_alteration(meta)) == 400


def test_error_of_deep_fields_is_no_larger_than_the_object():
    fields, depth, size = {}, 900, 1_300_000
    for _ in range(depth):
        fields = {"f:" + "x" * (size // depth): fields}
    meta = {"managedFields": [OURS, theirs(fields)]}
    tracemalloc.start()
    try:
        found = find_alteration(meta)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found.startswith("kubectl-patch: xxx")
    assert len(found) == 400
    assert peak_bytes < 2 * size  # whole paths take 588 MB


def test_owners_without_us_are_an_alteration():
    assert find_alteration({"managedFields": [STATUS]}) == "metadata.managedFields"
    assert not has_own_entry({"managedFields": [STATUS]})
    assert has_own_entry({"managedFields": [STATUS, OURS]})


def test_all_fields_of_the_spec_become_ours_and_no_others():
    other = {**theirs({"f:template": {"f:b": {}}}), "time": "now"}
    other["fieldsV1"] = {**other["fieldsV1"], "f:metadata": {"f:annotations": {}}}
    taken = take_ownership([OURS, STATUS, LABELS, other, theirs({"f:c": {}})])
    assert taken == [
        {
            **OURS,
            "fieldsV1": {
                "f:metadata": {"f:labels": {}},
                "f:spec": {"f:template": {"f:a": {}, "f:b": {}}, "f:c": {}},
            },
        },
        STATUS,
        LABELS,
        {**other, "fieldsV1": {"f:metadata": {"f:annotations": {}}}},
    ]
    assert find_alteration({"managedFields": taken}) == ""


def entry(manager, time, fields, **changes):
    return {"manager": manager, "operation": "Update", "time": time, "fieldsV1": fields, **changes}


ANNOTATION = {"f:metadata": {"f:annotations": {".": {}, "f:x/retry": {}}}}
WRITERS = {
    "managedFields": [
        entry("kubectl-create", "2026-01-01T00:00:00Z", {"f:spec": {"f:image": {}}}),
        entry("argocd", "2026-01-01T00:00:09Z", {"f:spec": {"f:suspend": {}}}),
        entry("kubectl-annotate", "2026-01-01T00:00:20Z", ANNOTATION),
        entry("c", "2026-01-01T00:00:30Z", {"f:spec": {}, **ANNOTATION}, subresource="status"),
    ]
}


def test_the_client_that_last_wrote_spec_or_annotation_is_found():
    assert find_spec_manager(WRITERS) == "argocd"
    assert find_annotation_manager(WRITERS, "x/retry") == "kubectl-annotate"
    assert find_annotation_manager(WRITERS, "y/retry") == ""
    assert find_spec_manager({}) == ""


def test_the_time_of_the_last_write_of_the_spec_is_found():
    assert find_spec_time(WRITERS) == datetime(2026, 1, 1, 0, 0, 9, tzinfo=UTC)
    assert find_spec_time({}) is None
    odd = {"managedFields": [entry("a", "soon", {"f:spec": {"f:image": {}}})]}
    assert find_spec_time(odd) is None


@pytest.mark.parametrize(
    "fields", [None, {"f:metadata": None}, {"f:metadata": {"f:annotations": 7}}, {"f:spec": "x"}]
)
def test_odd_fields_name_nobody(fields):
    meta = {"managedFields": [{"manager": "m" * 1000, "fieldsV1": fields}]}
    assert find_spec_manager(meta) == find_annotation_manager(meta, "x/retry") == ""


def test_the_name_of_a_client_is_bounded():
    meta = {"managedFields": [{"manager": "m" * 1000, "fieldsV1": {"f:spec": {"f:image": {}}}}]}
    assert find_spec_manager(meta) == "m" * 128

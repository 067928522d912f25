"""Files and directories of the node in the task's container."""

from daemonset_job.api.job_spec import parse_spec
from job_controller.core.desired.daemon_set import build_pod_template
from job_controller.core.settings import Settings
from tests.unit.builders import make_job

SPEC = {
    "image": "a",
    "mountPath": "/tmp",
    "mounts": [
        {"hostPath": "/var/log", "mountPath": "/logs", "readOnly": True},
        {"hostPath": "/etc/hosts", "mountPath": "/etc/node-hosts", "readOnly": False},
    ],
}


def pod_of(raw):
    job = make_job("sample", spec=parse_spec(raw))
    return build_pod_template(job, gated=False, settings=Settings())["spec"]


def test_each_mount_is_a_volume_of_its_own_beside_that_of_mount_path():
    pod = pod_of(SPEC)
    paths = {
        each["name"]: each["hostPath"]["path"] for each in pod["volumes"] if "hostPath" in each
    }
    assert paths == {
        "basetarget": "/tmp",
        "daemonset-job-mount-0": "/var/log",
        "daemonset-job-mount-1": "/etc/hosts",
    }
    mounts = {each["name"]: each for each in pod["containers"][0]["volumeMounts"]}
    assert mounts["daemonset-job-mount-0"] == {
        "name": "daemonset-job-mount-0",
        "mountPath": "/logs",
        "readOnly": True,
    }
    assert mounts["daemonset-job-mount-1"] == {
        "name": "daemonset-job-mount-1",
        "mountPath": "/etc/node-hosts",
    }
    assert mounts["basetarget"]["mountPath"] == "/basetarget"


def test_in_mode_exit_the_task_has_them_and_the_pause_container_has_not():
    pod = pod_of({**SPEC, "completion": {"mode": "Exit"}})
    (task,), (pause,) = pod["initContainers"], pod["containers"]
    assert {"/logs", "/etc/node-hosts"} < {each["mountPath"] for each in task["volumeMounts"]}
    assert "volumeMounts" not in pause


def test_without_mounts_there_is_no_path_of_the_node():
    assert [each["name"] for each in pod_of({"image": "a"})["volumes"]] == ["daemonset-job-state"]

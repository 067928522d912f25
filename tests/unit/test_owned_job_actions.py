"""How the Jobs that a Job owns are created and deleted."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from daemonset_job.kube.client.errors import AlreadyExists, Conflict, NotFound
from job_controller.actions.errors import RefusedError
from job_controller.actions.owned_jobs import OwnedJobActions
from job_controller.core.desired.owned_job import build_owned_job
from job_controller.core.job_actions import CreateJob, DeleteJob
from job_controller.core.plan import RefusedWrite
from tests.unit.builders import make_job

PARENT = make_job(raw_spec={"image": "x"})
KEY = ("default", "sample")
BODY = build_owned_job(PARENT, "rollback", {"image": "x"})
NAME = BODY["metadata"]["name"]


class Server:
    """The metadata of the Jobs that are there, by name; writes are noted."""

    def __init__(self, *there: dict[str, Any]) -> None:
        self.jobs = {meta["name"]: meta for meta in there}
        self.created: list[str] = []
        self.expected: list[str] = []
        self.client = SimpleNamespace(create=self._create, delete=self._delete)

    async def find_job(self, key: tuple[str, str]) -> dict[str, Any] | None:
        return self.jobs.get(key[1])

    def expect_version(self, key, _resource, written) -> None:
        assert key == KEY
        self.expected.append(written["metadata"]["resourceVersion"])

    async def _create(self, _resource, body, namespace):
        assert namespace == "default"
        name = body["metadata"]["name"]
        if name in self.jobs:
            raise AlreadyExists(f'jobs "{name}" already exists')
        self.created.append(name)
        return {"metadata": {**body["metadata"], "resourceVersion": "9"}}

    async def _delete(self, _resource, name, _namespace, *, uid):
        if name not in self.jobs:
            raise NotFound(name)
        if self.jobs[name]["uid"] != uid:
            raise Conflict(name)
        del self.jobs[name]
        return {"metadata": {"resourceVersion": "10"}}


def execute(server: Server, action) -> None:
    asyncio.run(OwnedJobActions(server).execute(KEY, PARENT, action))


def owner(**changes: Any) -> dict[str, Any]:
    return {"name": "sample", "uid": PARENT.uid, **changes}


def test_a_created_job_is_waited_for_by_the_cache():
    server = Server(owner())
    execute(server, CreateJob(BODY))
    assert (server.created, server.expected) == ([NAME], ["9"])


def test_a_job_of_the_name_that_is_owned_counts_as_created():
    server = Server(owner(), {**BODY["metadata"], "uid": "child"})
    execute(server, CreateJob(BODY))
    assert server.created == []


@pytest.mark.parametrize(
    "owners", [[], [{"controller": True, "kind": "Job", "apiVersion": "x/v1", "uid": PARENT.uid}]]
)
def test_a_name_that_another_job_has_is_told(owners):
    server = Server(owner(), {"name": NAME, "uid": "theirs", "ownerReferences": owners})
    with pytest.raises(RefusedError) as raised:
        execute(server, CreateJob(BODY))
    assert raised.value.write == RefusedWrite.OWNED_JOB_NAME


@pytest.mark.parametrize(
    "there",
    [(), (owner(uid="a later one"),), (owner(deletionTimestamp="2026-01-01T00:00:00Z"),)],
    ids=["deleted", "replaced", "being deleted"],
)
def test_nothing_is_created_for_a_job_that_is_gone(there):
    server = Server(*there)
    execute(server, CreateJob(BODY))
    assert server.created == []


def test_only_the_very_job_is_deleted():
    server = Server(owner(), {"name": NAME, "uid": "child"})
    execute(server, DeleteJob(NAME, "an earlier one"))
    assert NAME in server.jobs
    execute(server, DeleteJob(NAME, "child"))
    assert NAME not in server.jobs
    execute(server, DeleteJob(NAME, "child"))
    assert server.expected == ["10"]

"""A sample of `make mutate`: edges of the API's fields, and mutations of valid Jobs.

Each Job is refused by a message that names the field, or completes, or says in its conditions how
it is with it; neither program raises, and a Job of another namespace completes all the while.
"""

import pytest

from tests.mutation.cases import change_cases, edge_cases, mutation
from tests.mutation.cluster import open_cluster
from tests.mutation.runner import Runner

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

# One of 32 edges and changes is tried: all of them take several minutes.
STRIDE = 32
MUTATIONS = 20


async def test_every_job_ends_in_a_state_that_it_reports(kube_env):
    # Side by side, since a Job that is silent is watched for a minute.
    cases = [
        *list(edge_cases())[::STRIDE],
        *list(change_cases())[::STRIDE],
        *(mutation(1, number) for number in range(MUTATIONS)),
    ]
    async with open_cluster(kube_env) as cluster:
        runner = Runner(cluster)
        results = await runner.run(cases)
    failed = [result.describe() for result in (*results, *runner.controls) if result.new]
    assert not failed, "\n".join(failed)

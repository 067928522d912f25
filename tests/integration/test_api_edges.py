"""A sample of `make mutate`: edges of the API's fields, and mutations of valid Jobs.

Each Job is refused by a message that names the field, or completes, or says in its conditions how
it is with it; neither program raises, and a Job of another namespace completes all the while.
"""

import pytest

from tests.mutation.cases import edge_cases, mutation
from tests.mutation.cluster import open_cluster
from tests.mutation.runner import Runner

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

# Every so many edges of those that there are, so that each run of the ring takes part of every
# field; all of them take several minutes.
STRIDE = 12
MUTATIONS = 60


@pytest.mark.parametrize("kind", ["edges", "mutations"])
async def test_every_job_ends_in_a_state_that_its_user_is_told(kube_env, kind):
    cases = list(edge_cases())[::STRIDE]
    if kind == "mutations":
        cases = [mutation(1, number) for number in range(MUTATIONS)]
    async with open_cluster(kube_env) as cluster:
        runner = Runner(cluster)
        results = await runner.run(cases)
    failed = [result.describe() for result in (*results, *runner.controls) if result.new]
    assert not failed, "\n".join(failed)

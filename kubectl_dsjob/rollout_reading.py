"""The verb about rollouts that reads: plan."""

from __future__ import annotations

from daemonset_job.api.job import Job
from daemonset_job.kube.client.messages import clean_text
from kubectl_dsjob.cluster import find_job, find_near
from kubectl_dsjob.edge import Answer
from kubectl_dsjob.errors import CliError
from kubectl_dsjob.exit_codes import ExitCode
from kubectl_dsjob.node_tables import format_rows
from kubectl_dsjob.outputs import Output
from kubectl_dsjob.plan_text import plan_words
from kubectl_dsjob.proposals import at_job
from kubectl_dsjob.run_view import NAME_LIMIT
from kubectl_dsjob.target import Target

_HEADER = ["STEP", "NODES", "NAMES"]


async def plan(target: Target, name: str, output: Output) -> Answer:
    """Return which nodes have their turn in which step, for a Job that has not started.

    The words say what would run there.
    """
    namespace = target.find_namespace()
    async with await target.connect() as client:
        job = await find_job(client, namespace, name)
        if job is None:
            way = await find_near(client, namespace, name)
            raise CliError(f"there is no Job {name!r} in {namespace!r}", way)
    return Answer(format_rows(_HEADER, _rows(job), output), plan_words(job))


def _rows(job: Job) -> list[list[str]]:
    progress = job.status.rollout
    if progress is None or not progress.plan:
        way = (
            "A plan is made for a Job with spec.rollout that is suspended before it starts: apply "
            f"it with suspend: true. See how far it is: kubectl dsjob status "
            f"{at_job(job.name, job.namespace)}"
        )
        raise CliError(f"there is no plan of {job.name!r}", way, ExitCode.USAGE)
    rows = []
    for batch in progress.plan:
        names = ",".join(clean_text(node, NAME_LIMIT) for node in batch.nodes)
        more = batch.count - len(batch.nodes)
        step = str(batch.step) if batch.step <= progress.steps else "rest"
        rows.append([step, str(batch.count), f"{names} and {more} more" if more > 0 else names])
    return rows

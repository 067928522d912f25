"""What happens to a Job while it runs: patches of its spec, requests of a person, deletions."""

from dataclasses import dataclass
from random import Random
from typing import Any

from daemonset_job.api import names
from tests.mutation.schema import part

Raw = dict[str, Any]


@dataclass(frozen=True)
class Change:
    """Something that happens to a Job while it runs: a merge patch, or a deletion.

    `after` seconds since the one before, and not before `when`: "" at once, "at work" when a task
    runs, "gated" when the template has the gate. `what` is patch, pod, pods, daemonset or report:
    what is patched or deleted.
    """

    after: float
    what: str = "patch"
    body: Any = None
    when: str = ""


_HUGE = 2**63 - 1
# The annotations by which a person asks for something.
_REQUESTS = (
    *3 * (names.ANNOTATION_RETRY,),
    names.ANNOTATION_RERUN,
    names.ANNOTATION_APPROVE,
    names.ANNOTATION_PROMOTE,
    names.ANNOTATION_ABORT,
    names.ANNOTATION_ROLLBACK,
)
# Ways to choose nodes, as merge patches that leave nothing of the way before. The API server
# refuses the last ones: as a Job, as a DaemonSet.
SELECTIONS: tuple[Any, ...] = (
    None,
    {"include": ["node-a"], "exclude": None, "selector": None},
    {"include": None, "exclude": ["node-a"], "selector": None},
    {"include": ["node-a", "node-b"], "exclude": ["node-c"]},
    {"selector": {"matchLabels": {"zone": "y"}}, "include": None, "exclude": None},
    {"selector": {"matchLabels": {"zone": "x"}}, "include": None, "exclude": None},
    {"selector": {"matchLabels": {"os-version": "1.1"}}, "include": None, "exclude": None},
    {"selector": {"matchLabels": {"os-version": "1.10"}}, "include": None, "exclude": None},
    {"selector": {"matchLabels": {"zone": "nowhere"}}, "include": None, "exclude": None},
    {"include": ["node..2"], "exclude": None, "selector": None},
    {"exclude": ["node..2"], "include": None, "selector": None},
    {"selector": {}, "include": [], "exclude": []},
)
PATCHES: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("nodes", SELECTIONS),
    ("suspend", (True, False, False, None)),
    ("ttlSecondsAfterFinished", (0, 1, 3600, _HUGE, None)),
    ("activeDeadlineSeconds", (1, 3, 3600, _HUGE, None)),
    ("nodeDeadlineSeconds", (1, 3, 3600, _HUGE, None)),
    ("nodeUnreachableSeconds", (1, 3, 3600, _HUGE, None)),
    ("backoffLimit", (0, 1, 3, 1000, None)),
    (
        "failurePolicy",
        (
            None,
            {"action": "Pause"},
            {"action": "Continue"},
            {"action": "FailFast"},
            {"maxFailedNodes": 0},
            {"maxFailedNodes": "100%"},
            {"maxFailedNodes": 2**31 - 1},
            {"pods": "Delete"},
            {"rules": [{"exitCodes": [1], "action": "Ignore"}]},
            {"rules": [{"exitCodes": [1, 3], "action": "Fail"}]},
        ),
    ),
    ("failureLogLines", (0, 20, None)),
    ("results", ([], None, [{"name": f"r{index}"} for index in range(16)])),
    ("image", ("example/task:v2",)),
    ("completion", ({"token": "other"},)),
    ("mountPath", ("/other", None)),
    (
        "rollout",
        (
            None,
            {"maxParallel": 1},
            {"maxParallel": "100%", "maxParallelPerZone": 1, "order": "Random"},
            {"steps": []},
            {"steps": [{"nodes": 1, "approval": "Required"}]},
            {"steps": [{"nodes": "100%", "check": {"http": {"source": "unknown"}}}]},
            {"steps": [{"selector": {"matchLabels": {"zone": "nowhere"}}, "soakSeconds": 1}]},
            {"window": {"start": "0 0 30 2 *", "duration": "1s"}},
            {"window": {"start": "* * * * *", "duration": "1h", "timeZone": "Nowhere/City"}},
            {"exclusive": "other"},
            {"pullImagesFirst": True},
        ),
    ),
    ("successPolicy", (None, {"minCompleted": 1}, {"minCompleted": "100%"})),
    ("after", (None, [], ["no-such-job"])),
    ("notify", (None, [{"receiver": "chat"}], [{"receiver": "unknown"}])),
    ("onSuccess", (None, {"labels": {"example.com/k": "v"}}, {"removeTaints": ["a"]})),
    ("rollback", (None, {"args": ["undo"]}, {"image": "example/undo:v1", "args": ["x"]})),
    ("drain", (None, {"timeoutSeconds": 1}, {"podSelector": {"matchLabels": {"a": "b"}}})),
    ("cordon", (True, False)),
)

assert {key for key, _ in PATCHES} <= set(part("jobs", "spec")["properties"])


def draw_change(random: Random, base: Raw) -> Change:
    """Return something that happens to a mutation of this valid Job while it runs."""
    after = random.choice((0.0, 0.0, 0.1, 0.3, 0.7, 1.5, 3.0))
    when = random.choice(("", "", "at work", "gated"))
    if random.random() < 0.12:
        return Change(after, random.choice(("pod", "pods", "daemonset", "report")), None, when)
    if "nodes" in base and random.random() < 0.5:
        return Change(after, body={"spec": {"nodes": random.choice(SELECTIONS)}}, when=when)
    if random.random() < 0.25:
        token = random.choice(("1", "2", "", "x" * 256, "x" * 257, "\N{LOBSTER}" * 5000, None))
        notes = {"annotations": {random.choice(_REQUESTS): token}}
        return Change(after, body={"metadata": notes}, when=when)
    key, values = random.choice(PATCHES)
    return Change(after, body={"spec": {key: random.choice(values)}}, when=when)

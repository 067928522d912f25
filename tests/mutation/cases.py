"""What is tried: the edges of every field, and mutations of valid Jobs, by seed.

Specs name nodes by their short names, `node-a`; the runner puts in the real ones.
"""

import copy
import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

from daemonset_job.api import names
from tests.mutation.changes import PATCHES, SELECTIONS, Change, draw_change
from tests.mutation.schema import Field, fields
from tests.mutation.tasks import REGEX_EXAMPLES, Task
from tests.mutation.valid_jobs import BASES, IMAGE, POD_SPECS
from tests.mutation.values import draw, edges

Raw = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A Job to apply, what its task does, and what happens to it meanwhile.

    `touched` are the words of which a refusal has to name one, and `field` is the path of the one
    field at fault, where there is one.
    """

    label: str
    spec: Any
    touched: frozenset[str]
    metadata: Raw = dataclasses.field(default_factory=dict)
    task: Task = dataclasses.field(default_factory=Task)
    changes: tuple[Change, ...] = ()
    field: str = ""


# --- edges of every field ----------------------------------------------------------------------


def edge_cases() -> Iterator[Case]:
    """Yield a Case for each edge of each field, and for what no single field shows."""
    for each in fields():
        for word, value in edges(each.path, each.schema):
            spec, task = _completed(each.path, each.spec_with(value))
            yield Case(f"{each.path} {word}", spec, _names_of(each), task=task, field=each.path)
    yield from _metadata_cases()
    yield from _pairs()


# What a Job needs beside a field: the start of the field's path, the rest of the spec, its task.
# An image, where none is named.
_WITH: tuple[tuple[str, Raw, Task], ...] = (
    ("spec.script", {}, Task()),
    ("spec.hostExec", {"script": "exit 0"}, Task()),
    (
        "spec.rollback",
        {"image": IMAGE, "backoffLimit": 0, "failurePolicy": {"action": "Rollback"}},
        Task(failures=1),
    ),
    (
        "spec.failurePolicy.action",
        {"image": IMAGE, "backoffLimit": 0, "rollback": {"args": ["undo"]}},
        Task(failures=1),
    ),
)


def _completed(path: str, spec: Any) -> tuple[Any, Task]:
    """Return the spec with what its Job needs beside the field, and the task of the Job."""
    if not isinstance(spec, dict):
        return spec, Task()
    for start, rest, task in _WITH:
        if path.startswith(start):
            return {**rest, **spec}, task
    return {"image": IMAGE, **spec}, Task()


def _names_of(each: Field) -> frozenset[str]:
    """Return the field's name and its parent's: for an item or a key, the list's or map's."""
    path = each.path.replace("[]", "").replace("{}", "").split(".")
    return frozenset(path[-2:])


def _metadata_cases() -> Iterator[Case]:
    for length in (0, 1, 255, 256, 257, 10_000, 200_000):
        for character in ("x", "\N{LOBSTER}"):
            notes = {names.ANNOTATION_RETRY: (character * length)[: 200_000 // 4]}
            yield Case(
                f"retry annotation, {length} times {character!r}",
                {"image": IMAGE},
                frozenset({"annotations"}),
                {"annotations": notes},
            )
    for name in ("a", "a" * 63, "a" * 64, "a." * 126 + "a", "a" * 44 + "." + "b" * 200):
        yield Case(f"name of {len(name)}", {"image": IMAGE}, frozenset({"name"}), {"name": name})


def _pairs() -> Iterator[Case]:
    def case(label: str, spec: Raw, *touched: str, **how: Any) -> Case:
        return Case(label, {"image": IMAGE, **spec}, frozenset(touched), **how)

    odd = ("(", "x*", "a{1001}", "(?i)d\u00f6ne", "\\b", "[[:alpha:]]{900}")
    for token in (*REGEX_EXAMPLES, *odd):
        for key in ("token", "failureToken"):
            completion = {"match": "Regex", "token": "^ok$", key: token}
            yield case(f"regex {key} {token!r}", {"completion": completion}, key)
    for match in ("Line", "Contains"):
        for token in ("\u00a0", "\ufeffdone", "done\u200b", "a\u2028b", "\x85", "a\tb", "\\S"):
            completion = {"match": match, "token": token}
            yield case(f"{match} token {token!r}", {"completion": completion}, "token")
    many = [f"ip-10-0-{index}.eu-central-1.compute.internal" for index in range(2000)]
    for include, exclude in ((300, 100), (1000, 20), (1000, 1000)):
        nodes = {"include": many[:include], "exclude": many[-exclude:]}
        yield case(f"include {include}, exclude {exclude}", {"nodes": nodes}, "nodes")
    yield case("args of 700 kB", {"args": ["x" * 700] * 1000}, "args")
    yield case("args of 700 kB of <", {"args": ["<" * 700] * 1000}, "args")
    yield case(
        "Exit with a failure token",
        {"completion": {"mode": "Exit", "failureToken": "no"}},
        "completion",
        task=Task(failures=1, says=True),
    )
    for hopeless in ("InvalidImageName", "ErrImagePull", "CreateContainerError"):
        yield case(f"waits: {hopeless}", {}, "image", task=Task(waiting=hopeless))
    for pod_spec in POD_SPECS:
        yield case(f"template {pod_spec!r:.60}", {"template": {"spec": pod_spec}}, "template")
    placed = {"nodes": {"selector": {"matchLabels": {"zone": "x"}}}}
    affinities: tuple[Any, ...] = ("x", 7, [], {"nodeAffinity": "x"}, {"nodeAffinity": []})
    for affinity in affinities:
        template = {"template": {"spec": {"affinity": affinity}}}
        yield case(f"affinity {affinity!r} and nodes", {**placed, **template}, "affinity")


# --- mutations of valid Jobs --------------------------------------------------------------------


def mutation(seed: int, number: int) -> Case:
    """Return mutation `number` of a seed; always the same one."""
    random = Random(f"{seed}/{number}")
    base, task = random.choice(BASES)
    spec: Any = {"image": IMAGE, **copy.deepcopy(base)}
    touched: set[str] = set()
    done = []
    # A third is left valid, so that what happens to it while it runs is seen to the end.
    for _ in range(random.choice((0, 1, 1, 1, 2, 3))):
        spec, word, field_names = _mutate(random, spec)
        touched |= field_names
        done.append(word)
    changes: tuple[Change, ...] = ()
    if not done or random.random() < 0.5:
        changes = tuple(draw_change(random, base) for _ in range(random.randint(1, 4)))
        task = dataclasses.replace(task, holds=random.random() < 0.6)
    notes = {names.ANNOTATION_RETRY: "0"} if random.random() < 0.1 else {}
    return Case(
        f"seed {seed}, number {number}: {'; '.join(done) or 'valid'}",
        spec,
        frozenset(touched),
        {"annotations": notes} if notes else {},
        task,
        changes,
    )


def _places(value: Any, path: str = "spec") -> Iterator[tuple[str, Any, Any]]:
    """Yield every place within a spec: its schema path, its container, and its key there."""
    if isinstance(value, dict):
        for key in value:
            yield f"{path}.{key}", value, key
            yield from _places(value[key], f"{path}.{key}")
    if isinstance(value, list):
        for index in range(len(value)):
            yield f"{path}[]", value, index
            yield from _places(value[index], f"{path}[]")


def _mutate(random: Random, spec: Raw) -> tuple[Raw, str, frozenset[str]]:
    """Return the spec with one thing changed, words for it, and the names of what was changed."""
    if random.random() < 0.35 or not spec:
        each = random.choice(fields())
        value = random.choice(list(edges(each.path, each.schema)))[1]
        return _merged(spec, each.spec_with(value)), f"{each.path} = {value!r:.80}", _names_of(each)
    path, container, key = random.choice(list(_places(spec)))
    known = next((f for f in fields() if f.path == path), None)
    word, change = random.choice(_OPERATIONS)
    old = container[key]
    new = change(random, old, known, spec)
    if new is _GONE:
        del container[key]
    else:
        container[key] = new
    words = frozenset(path.replace("[]", "").split(".")[-2:])
    return spec, f"{word} {path} ({old!r:.40} -> {new!r:.80})", words


_GONE = object()


def _merged(old: Any, new: Any) -> Any:
    if isinstance(old, dict) and isinstance(new, dict):
        return {**old, **{key: _merged(old.get(key), value) for key, value in new.items()}}
    return new


def _doubled(_random: Random, old: Any, *_: Any) -> Any:
    return old * 2 if isinstance(old, list | str) else [old, old]


def _neighbour(random: Random, _old: Any, _known: Any, spec: Raw) -> Any:
    _, container, key = random.choice(list(_places(spec)))
    return copy.deepcopy(container[key])


def _other_type(random: Random, old: Any, *_: Any) -> Any:
    return random.choice([str(old), [old], {"a": old}, None, 0, True, 1.5])


def _reversed(_random: Random, old: Any, *_: Any) -> Any:
    return old[::-1] if isinstance(old, list | str) else _GONE


def _edge(random: Random, old: Any, known: Field | None, _spec: Raw) -> Any:
    return random.choice(list(edges(known.path, known.schema)))[1] if known else old


def _drawn(random: Random, old: Any, known: Field | None, _spec: Raw) -> Any:
    return draw(random, known.path, known.schema) if known else old


_OPERATIONS: tuple[tuple[str, Callable[..., Any]], ...] = (
    ("drop", lambda *_: _GONE),
    ("double", _doubled),
    ("take a neighbour's value for", _neighbour),
    ("change the type of", _other_type),
    ("reverse", _reversed),
    ("empty", lambda _random, old, *_: type(old)()),
    ("edge of", _edge),
    ("draw", _drawn),
)


# --- what happens to a Job while it runs --------------------------------------------------------


def change_cases() -> Iterator[Case]:
    """Yield a running Job for each way to change its selection, there and back, and all else."""
    for old in SELECTIONS[:-2]:
        for new in SELECTIONS:
            if new == old:
                continue
            there = Change(0, body={"spec": {"nodes": new}}, when="gated")
            back = Change(1, body={"spec": {"nodes": old}})
            spec = {"image": IMAGE, **({"nodes": old} if old else {})}
            for label, changes in (("", (there,)), (" and back", (there, back))):
                yield Case(
                    f"change nodes {old!r:.60} to {new!r:.60}{label}",
                    _without_null(spec),
                    frozenset({"nodes"}),
                    task=Task(holds=True),
                    changes=changes,
                )
    for key, values in PATCHES:
        for value in values if key != "nodes" else ():
            for task in (Task(holds=True), Task(holds=True, failures=2)):
                yield Case(
                    f"change {key} to {value!r:.40}, {task.failures} failures",
                    {"image": IMAGE, "backoffLimit": 0},
                    frozenset({key}),
                    task=task,
                    changes=(Change(0, body={"spec": {key: value}}, when="at work"),),
                )


def _without_null(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_null(each) for key, each in value.items() if each is not None}
    return value

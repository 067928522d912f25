"""A schedule: everything that is decided before a run begins, as data that can be cut down.

The cluster, the Job, what the task does on each node, and a list of disturbances with the time at
which each strikes. A seed gives a schedule (see `draw`); the shrinker takes parts of it away. Lags
of watches and requests are not in the list: they come from the seed while the run goes on, unless
the schedule is `calm`, and then they are all short.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Task:
    """What the task does on one incarnation of a node.

    `done`: prints the token `after` seconds and waits. `exit`: prints it and ends with `code`.
    `once`: as `exit`, but from its second instance on it only waits. `fail`: ends with `code` after
    `after` seconds, `times` times, then as `done`. `never`: runs for ever. `silent`: ends with 0
    and without the token, always. `pull`: its image cannot be pulled for `after` seconds (0: ever),
    then as `done`.
    """

    kind: str = "done"
    after: float = 1.0
    code: int = 0
    times: int = 0

    @property
    def completes(self):
        """Whether the task prints the token if left alone for long enough."""
        return self.kind in {"done", "exit", "once", "fail"} or (
            self.kind == "pull" and self.after > 0
        )

    @property
    def is_good(self):
        """Whether the task never does anything that could count as its failure."""
        return self.kind in {"done", "never"} or (self.kind in {"exit", "once"} and self.code == 0)


@dataclass(frozen=True, slots=True)
class NodePlan:
    """A node that is there from the beginning, or may join; tasks by incarnation, in turn."""

    name: str
    tasks: tuple[Task, ...] = (Task(),)
    zone: str = "a"
    is_initial: bool = True


@dataclass(frozen=True, slots=True)
class Disturbance:
    """Something that happens at a time: `kind` says what, see `weather` and `users`.

    `who` is a process ("controller", "terminator"), `what` a resource or a node, `mode` how, and
    `seconds` how long (0 for ever, where that makes sense).
    """

    at: float
    kind: str
    who: str = ""
    what: str = ""
    mode: str = ""
    seconds: float = 0.0

    def __str__(self):
        parts = (self.who, self.what, self.mode, f"{self.seconds:g}s" if self.seconds else "")
        return f"at {self.at:g}: {self.kind} " + " ".join(part for part in parts if part)


@dataclass(frozen=True, slots=True)
class Schedule:
    """One run, before it begins. `spec` is the Job's raw spec; `streams` the terminator's limit."""

    seed: int
    nodes: tuple[NodePlan, ...]
    spec: dict = field(default_factory=dict)
    disturbances: tuple[Disturbance, ...] = ()
    calm: bool = False
    streams: int = 256

    @property
    def quiet_from(self):
        """The time after which nothing disturbs the run any more."""
        return max((d.at + min(d.seconds, 120.0) for d in self.disturbances), default=0.0) + 5.0

    def describe(self):
        """Return the schedule in lines for people."""
        lines = [f"seed {self.seed}{', calm' if self.calm else ''}, streams {self.streams}"]
        lines.append(f"spec {self.spec}")
        for node in self.nodes:
            tasks = ", then ".join(
                f"{t.kind} after {t.after:g}s"
                + (f" code {t.code}" if t.code else "")
                + (f" x{t.times}" if t.times else "")
                for t in node.tasks
            )
            when = "" if node.is_initial else " (joins when told)"
            lines.append(f"node {node.name} zone {node.zone}{when}: {tasks}")
        lines += [str(d) for d in self.disturbances]
        return lines

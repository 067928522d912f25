"""What an invariant is: a sentence that must always hold, and what shows that it is checked."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Invariant:
    """A sentence about what the user asked for, which must hold at every moment of a run.

    Attributes:
        name: The name of its violations.
        holds: The sentence.
        mutant: A deliberate defect of the product (`mutants`, `defects`) that breaks it.
        seed: A schedule in which the mutant does so; `test_oracle` runs it.
        excuses: Cases in which it cannot hold, each with the reason why no program could do better.
    """

    name: str
    holds: str
    mutant: str
    seed: int
    excuses: Mapping[str, str] = field(default_factory=dict)

"""What a run came to: the result of each case, and of all of them."""

import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.mutation.cases import Case
from tests.mutation.known import finding

if TYPE_CHECKING:
    from tests.mutation.runner import Runner

# Violations of one case that are shown; what raises in each pass is much the same each time.
SHOWN = 3


@dataclass
class Result:
    """The result of a case: the outcome in a word, the state that the Job reported, violations."""

    case: Case
    name: str
    outcome: str = ""
    state: str = ""
    seconds: float = 0.0
    violations: list[str] = field(default_factory=list)

    @property
    def new(self) -> list[str]:
        """The violations that are no known defects."""
        return [words for words in self.violations if not finding(words)]

    def describe(self) -> str:
        """Return all that is needed to see the violation again."""
        manifest = {"metadata": {"name": self.name, **self.case.metadata}, "spec": self.case.spec}
        lines = [f"--- {self.case.label}", f"manifest: {short(manifest)}"]
        lines += [f"task: {self.case.task}"]
        lines += [
            f"then after {change.after} s: {change.what} {short(change.body)}"
            for change in self.case.changes
        ]
        lines += [f"reported after {self.seconds:.0f} s ({self.outcome}): {self.state}"]
        for words in self.violations[:SHOWN]:
            lines.append(f"VIOLATED ({finding(words) or 'new'}): {words}")
        if len(self.violations) > SHOWN:
            lines.append(f"and {len(self.violations) - SHOWN} more")
        return "\n".join(lines)


def short(value: Any) -> str:
    """Return JSON with what repeats itself left out."""
    text = json.dumps(value, ensure_ascii=True)
    text = re.sub(r"(.{1,12}?)\1{20,}", r"\1…(many)…", text)
    return text if len(text) <= 3000 else f"{text[:3000]}… ({len(text)} characters)"


def without_case(words: str) -> Result:
    """Return a violation that belongs to no case."""
    case = Case("logged about no Job", {}, frozenset())
    return Result(case, "", violations=[words])


def never_accepted(results: Iterable[Result]) -> list[str]:
    """Return the fields of which every value was refused, within them too: these were not tried."""
    tried = {result.case.field for result in results if result.case.field}
    taken = {result.case.field for result in results if result.outcome != "refused"}
    within = tuple(f"{field}{end}" for field in tried for end in ".[{")
    reached = {start[:-1] for start in within if any(each.startswith(start) for each in taken)}
    return sorted(tried - taken - reached)


def summary(runner: "Runner") -> list[str]:
    """Return what a run came to, a line each."""
    results = [*runner.results, *runner.controls]
    cases = (*runner.results, *runner.others)
    outcomes = Counter(result.outcome or "not reported" for result in cases)
    known = Counter(finding(words) for result in results for words in result.violations)
    known.pop("", None)
    lines = [f"{count:5} {outcome}" for outcome, count in outcomes.most_common()]
    seconds = [result.seconds for result in runner.controls if result.name]
    lines.append(f"control Jobs: {len(seconds)}, the slowest took {max(seconds, default=0):.1f} s")
    lines.append(f"the event loop was blocked for {runner.longest_stall:.1f} s at most")
    lines += [f"known: {name}: {count}" for name, count in known.most_common()]
    if never := never_accepted(runner.results):
        lines.append(f"no value was accepted for: {', '.join(never)}")
    warnings = Counter(
        re.sub(r"[0-9a-f]{4,}|\d+", "#", words)[:160]
        for each in runner.cluster.complaints.warnings.values()
        for words in each
    )
    lines += [f"warned: {count} times: {words}" for words, count in warnings.most_common(12)]
    return lines

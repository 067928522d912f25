"""What the doctor found, as values, as text and as JSON. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Final

from daemonset_job.kube.client.messages import clean_text

_TEXT_LIMIT: Final = 1024


class Level(StrEnum):
    """How a check ended. Only a problem makes the exit code 1."""

    OK = "ok"
    # Something that the user should know and that keeps nothing from working.
    NOTE = "note"
    # The user may not read it.
    UNKNOWN = "unknown"
    PROBLEM = "problem"


class Area(StrEnum):
    """What a check is about."""

    CRDS = "CRDs"
    PROGRAMS = "programs"
    POLICIES = "admission policies"
    RIGHTS = "your rights"
    JOBS = "Jobs"


_MARKS: Final = {Level.OK: "ok", Level.NOTE: "note", Level.UNKNOWN: "?", Level.PROBLEM: "PROBLEM"}


@dataclass(frozen=True, slots=True)
class Finding:
    """One sentence about the system, and for a problem the way out."""

    area: Area
    level: Level
    message: str
    way_out: str = ""

    def __post_init__(self) -> None:
        """Clean the texts: they may have been written by tenants."""
        object.__setattr__(self, "message", clean_text(self.message, _TEXT_LIMIT))
        object.__setattr__(self, "way_out", clean_text(self.way_out, _TEXT_LIMIT))


def is_well(findings: Sequence[Finding]) -> bool:
    """Return whether there is no problem."""
    return all(each.level != Level.PROBLEM for each in findings)


def format_findings(findings: Sequence[Finding]) -> str:
    """Return the findings by area, each in a line, and the way out below it."""
    lines: list[str] = []
    for area in Area:
        found = [each for each in findings if each.area == area]
        if found:
            lines.append(f"{area}:")
        for each in found:
            lines.append(f"  {_MARKS[each.level]:<8} {each.message}")
            if each.way_out:
                lines.append(f"  {'':<8} Way out: {each.way_out}")
    count = sum(each.level == Level.PROBLEM for each in findings)
    unknown = sum(each.level == Level.UNKNOWN for each in findings)
    end = {0: "No problem found", 1: "1 problem found"}.get(count, f"{count} problems found")
    if unknown:
        checks = "1 check needs" if unknown == 1 else f"{unknown} checks need"
        end += f"; {checks} rights that you do not have"
    return "\n".join([*lines, f"{end}."])


def format_json(findings: Sequence[Finding]) -> str:
    """Return the findings as one JSON object."""
    checks = [
        {**{key: str(value) for key, value in asdict(each).items() if key != "way_out"}}
        | ({"wayOut": each.way_out} if each.way_out else {})
        for each in findings
    ]
    return json.dumps({"healthy": is_well(findings), "checks": checks}, indent=2)

"""Writes the schema of `spec.jobTemplate.spec` in scheduledjobs.yaml: that of a Job's spec.

`python -m crds.generate_scheduled`, also as the second part of `make schema`. What a Job's spec
says holds for each Job that a ScheduledJob creates. So it is refused when the ScheduledJob is
applied, and not at night. Messages name the field where it is there.
"""

import re
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

JOBS = Path(__file__).with_name("jobs.yaml")
SCHEDULED_JOBS = Path(__file__).with_name("scheduledjobs.yaml")
BEGIN = "# Generated from jobs.yaml from here on (crds/generate_scheduled.py)."
END = "# Generated from jobs.yaml up to here."
# "spec.image", but neither "spec" alone nor the second part of "spec.template.spec.hostPID".
_FIELD = re.compile(r"(?<![\w.])spec\.(?=[a-z])")
# What users read when a rule is broken.
_TEXTS = ("message", "messageExpression")
_PLACE = "spec.jobTemplate.spec."


def template_spec(jobs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of `spec` in the CRD of Jobs, with the messages of a template."""
    (version,) = jobs["spec"]["versions"]
    spec: dict[str, Any] = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    changed = _with_messages(spec)
    assert isinstance(changed, dict)
    return changed


def _with_messages(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_with_messages(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: _FIELD.sub(_PLACE, value)
        if key in _TEXTS and isinstance(value, str)
        else _with_messages(value)
        for key, value in schema.items()
    }


def generated(text: str, jobs: Mapping[str, Any]) -> str:
    """Return the text of scheduledjobs.yaml with the schema of the Jobs' CRD."""
    found = re.search(rf"(?ms)\A(.*^( *){re.escape(BEGIN)}\n)(.*?)(^ *{re.escape(END)}.*)\Z", text)
    if found is None:
        raise SystemExit(f"{SCHEDULED_JOBS}: the marks of the generated part are missing")
    # What has nothing inside itself is one line.
    rendered = yaml.safe_dump(
        {"spec": template_spec(jobs)},
        default_flow_style=None,
        sort_keys=False,
        width=10_000,
        allow_unicode=True,
    )
    return found[1] + textwrap.indent(rendered, found[2]) + found[4]


def main() -> None:
    """Write scheduledjobs.yaml again."""
    jobs = yaml.safe_load(JOBS.read_text())
    SCHEDULED_JOBS.write_text(generated(SCHEDULED_JOBS.read_text(), jobs))


if __name__ == "__main__":
    main()

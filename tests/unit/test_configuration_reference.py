"""docs/reference/configuration.md against the tables of settings: every row, and no other."""

import re
from pathlib import Path
from typing import Any

import pytest

from daemonset_job.process.settings import Setting
from job_controller import config as controller
from terminator import config as terminator

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "configuration.md"
TABLES: list[tuple[str, tuple[Setting, ...], Any]] = [
    ("Controller", controller.SETTINGS, controller.Config()),
    ("Terminator", terminator.OPTIONS, terminator.Options()),
    ("Terminator", terminator.SETTINGS, terminator.Config()),
]
# Of a process that is given nothing it is the host's name, which the dataclass does not know.
UNKNOWN = {"identity"}
COLUMNS = {"Argument": "flag", "In the file": "key", "Environment": "variable"}


def bare(cell: str) -> str:
    return cell.strip("`")


def rows(program: str) -> list[dict[str, str]]:
    """Return the rows of the tables of one program, by the heading of the column."""
    section = PAGE.read_text().split(f"\n## {program}\n")[1].split("\n## ")[0]
    found: list[dict[str, str]] = []
    heading: list[str] = []
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if not cells:
            heading = []
        elif not heading:
            heading = cells
        elif not re.fullmatch(r"-+", cells[0]):
            found.append(dict(zip(heading, cells, strict=True)))
    return found


def as_row(setting: Setting) -> dict[str, str]:
    return {
        "flag": setting.flag,
        "key": setting.key,
        "variable": setting.variable,
        "default": setting.default,
    }


@pytest.mark.parametrize("program", ["Controller", "Terminator"])
def test_the_reference_has_every_setting_and_no_other(program):
    listed = [
        {field: bare(row.get(column, "")) for column, field in COLUMNS.items()}
        | {"default": bare(row["Default"])}
        for row in rows(program)
    ]
    known = [as_row(each) for name, table, _ in TABLES if name == program for each in table]
    assert sorted(listed, key=str) == sorted(known, key=str)


@pytest.mark.parametrize(
    ("setting", "defaults"),
    [
        pytest.param(setting, defaults, id=f"{program}-{setting.field}")
        for program, table, defaults in TABLES
        for setting in table
        if setting.field not in UNKNOWN
    ],
)
def test_the_default_in_the_reference_is_that_of_the_program(setting, defaults):
    used = getattr(defaults, setting.field)
    printed = {row["Default"] for name in ("Controller", "Terminator") for row in rows(name)}
    if f"`{setting.default}`" in printed:
        assert setting.read(setting.default) == used
    else:
        assert used in {None, "", ()}


@pytest.mark.parametrize("parse", [controller.parse_config, terminator.parse_options])
def test_the_help_has_every_flag_with_its_default(capsys, parse):
    table = controller.SETTINGS if parse is controller.parse_config else terminator.OPTIONS
    with pytest.raises(SystemExit):
        parse(["--help"], {}, "host")
    # Lines are broken at hyphens too.
    shown = "".join(capsys.readouterr().out.split())
    for setting in table:
        assert setting.flag in shown
        if setting.flag:
            variable = f"${setting.variable}, " if setting.variable else ""
            assert f"default:{variable}{setting.default}".replace(" ", "") in shown

"""The settings of a program as one table: where each can be written, and how it is read.

From the table come the command line and its help, the environment and the configuration file. The
values are for a dataclass of the program, which has the defaults. Every value is checked, also one
that another source overrides, and all problems are found at once.
"""

import argparse
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from daemonset_job.process.readers import MistakesError, Reader
from daemonset_job.process.yaml_file import read_yaml

# Characters of a wrong text that its message repeats.
_SHOWN = reprlib.Repr()
_SHOWN.maxstring = 200
_LARGEST_SHOWN = 10**20
_COLLECTIONS = (list, tuple, dict, set)


class ConfigError(ValueError):
    """The configuration is invalid; one line per problem with its place, and the fix."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__("; ".join(problems))


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting. `field` is that of the program's dataclass.

    It can be written as an argument (`flag`), an environment `variable`, and under `key` in the
    configuration file; empty: not there. `default` is for the help and the reference: the text that
    means the same as the dataclass's default, or words such as "all". An empty or blank variable is
    as good as none, unless the setting `takes_blank` for its reader to refuse. `old_variable` is
    the variable's earlier name, which is not read any more: see `renamed_variables`. A value that
    `may_be_secret` is not repeated when it is wrong.
    """

    field: str
    read: Reader[Any]
    default: str
    flag: str = ""
    variable: str = ""
    key: str = ""
    help: str = ""
    takes_blank: bool = False
    old_variable: str = ""
    may_be_secret: bool = False


Table = Sequence[Setting]


def read_arguments(
    table: Table, arguments: Sequence[str], *, program: str, description: str
) -> dict[str, Any]:
    """Return the values of the arguments, by field.

    Exits with code 2 and a usage message for arguments that cannot be used, as argparse does.
    """
    parser = argparse.ArgumentParser(prog=program, description=description)
    flags = [setting for setting in table if setting.flag]
    for setting in flags:
        source = f"${setting.variable}, " if setting.variable else ""
        parser.add_argument(
            setting.flag,
            dest=setting.field,
            metavar=setting.flag.lstrip("-").replace("-", "_").upper(),
            help=f"{setting.help}; default: {source}{setting.default}",
        )
    given = parser.parse_args(arguments)
    values = _Values()
    for setting in flags:
        raw = getattr(given, setting.field)
        if raw is not None:
            values.take(setting, raw, f"argument {setting.flag}")
    if values.problems:
        parser.error("\n".join(values.problems))
    return values.found


def read_settings(
    table: Table,
    environ: Mapping[str, str],
    *,
    text: str | None = None,
    arguments: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the values that are set, by field: arguments over the file over the environment.

    `text` is that of the configuration file, None for no file; `arguments` are already read.
    Raises ConfigError with every problem there is, not only the first.
    """
    values = _Values()
    for setting in table:
        raw = environ.get(setting.variable, "") if setting.variable else ""
        if raw.strip() or (raw and setting.takes_blank):
            values.take(setting, raw, f"environment variable {setting.variable}")
    keys = {setting.key: setting for setting in table if setting.key}
    for key, value in _file_values(text, values.problems).items():
        if key not in keys:
            values.problems.append(f"{key}: there is no such setting; use one of {', '.join(keys)}")
        elif value is not None:
            values.take(keys[key], value, key)
    if values.problems:
        raise ConfigError(values.problems)
    return {**values.found, **(arguments or {})}


def renamed_variables(table: Table, environ: Mapping[str, str]) -> list[str]:
    """Return a text for each variable that is set by its earlier name; its value is not used.

    The value may have another unit now, so the user has to write it again.
    """
    return [
        f"{setting.old_variable} is not read any more: use {setting.variable}"
        for setting in table
        if setting.old_variable and environ.get(setting.old_variable, "").strip()
    ]


class _Values:
    """What was found so far, by field, and what is wrong with the rest."""

    def __init__(self) -> None:
        self.found: dict[str, Any] = {}
        self.problems: list[str] = []

    def take(self, setting: Setting, raw: object, where: str) -> None:
        try:
            self.found[setting.field] = setting.read(raw)
        except ValueError as error:
            value = "the value" if setting.may_be_secret else _show(raw)
            texts = error.texts if isinstance(error, MistakesError) else (str(error),)
            self.problems += [f"{where}: {value} is not valid; {text}" for text in texts]


def _show(raw: object) -> str:
    """Return a value as a message repeats it, or words for one that may be of any length.

    A short text can make a YAML collection of millions of items, and Python writes no integer of
    more than 4,300 digits.
    """
    is_long = isinstance(raw, int) and abs(raw) > _LARGEST_SHOWN
    return "the value" if is_long or isinstance(raw, _COLLECTIONS) else _SHOWN.repr(raw)


def _file_values(text: str | None, problems: list[str]) -> Mapping[str, Any]:
    if text is None:
        return {}
    try:
        values = read_yaml(text)
    except ValueError as error:
        problems.append(f"the file is not YAML: {error}")
        return {}
    if values is None:
        return {}
    if not isinstance(values, dict):
        problems.append("the file must hold settings, one `name: value` per line")
        return {}
    return {key if isinstance(key, str) else _show(key): value for key, value in values.items()}

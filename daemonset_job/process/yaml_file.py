"""Reads the text of a configuration file as YAML.

What is wrong is shown with its place, and without the text there: it may be a secret.
"""

from typing import Any

import yaml

_UNREADABLE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


class _Loader(yaml.SafeLoader):
    """Refuses a name that is there twice, and values that make PyYAML raise what it likes."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        names = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if (key.tag, key.value) in names:
                problem = "this name is there twice; remove one of them"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
            names.add((key.tag, key.value))
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except _UNREADABLE:
            problem = "this value looks like a number or a time, and is none; write it in quotes"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark) from None


def read_yaml(text: str) -> Any:
    """Return what is in a text; raises ValueError with the first mistake and its place."""
    try:
        # A SafeLoader, as `yaml.safe_load` has.
        return yaml.load(text, _Loader)  # noqa: S506
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
        raise ValueError(f"{place}{error.problem}") from None
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None
    except RecursionError:
        raise ValueError("it is nested too deep") from None

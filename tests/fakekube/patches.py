"""The two kinds of patches that know no schema: RFC 7386 (merge) and RFC 6902 (JSON patch)."""

from collections.abc import Mapping, Sequence
from typing import Any

from tests.fakekube.refusals import Refused, bad_request

Raw = Mapping[str, Any]


def merge_patch(old: Raw, patch: object) -> dict[str, Any]:
    """Return an object with an RFC 7386 merge patch applied; 400 for a patch that is no map."""
    if not isinstance(patch, Mapping):
        raise bad_request("error decoding patch: a merge patch is a map")
    return _merge(old, patch)


def json_patch(old: Raw, patch: object) -> dict[str, Any]:
    """Return an object with an RFC 6902 patch applied.

    400 for a patch that is no list; 422 for an operation that fails or that is not known.
    """
    if not isinstance(patch, Sequence):
        raise bad_request("error decoding patch: a JSON patch is a list")
    new: Any = old
    for operation in patch:
        try:
            new = _operate(new, operation)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            message = f"the patch cannot be applied: {operation!r}: {error!r}"
            raise Refused(422, "Invalid", message) from error
    if not isinstance(new, Mapping):
        raise Refused(422, "Invalid", "the patch leaves no object")
    return dict(new)


def _merge(old: Raw, patch: Raw) -> dict[str, Any]:
    new = dict(old)
    for key, value in patch.items():
        if value is None:
            new.pop(key, None)
        elif isinstance(value, dict):
            before = new.get(key)
            new[key] = _merge(before if isinstance(before, dict) else {}, value)
        else:
            new[key] = value
    return new


def _operate(root: Any, operation: Raw) -> Any:
    path = _parts(operation["path"])
    match operation["op"]:
        case "test":
            if _value_at(root, path) != operation["value"]:
                raise ValueError("another value")
            return root
        case "add":
            return _edited(root, path, "add", operation["value"])
        case "replace":
            # The API server's library takes a missing key of a map, unlike RFC 6902.
            if isinstance(_value_at(root, path[:-1]), list):
                _value_at(root, path)
            return _edited(root, path, "replace", operation["value"])
        case "remove":
            return _edited(root, path, "remove", None)
        case "copy":
            return _edited(root, path, "add", _value_at(root, _parts(operation["from"])))
        case "move":
            begin = _parts(operation["from"])
            return _edited(
                _edited(root, begin, "remove", None), path, "add", _value_at(root, begin)
            )
    raise ValueError("the operation is not known")


def _parts(pointer: str) -> list[str]:
    """Return the parts of a JSON pointer (RFC 6901)."""
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]


def _value_at(node: Any, path: Sequence[str]) -> Any:
    for part in path:
        node = node[int(part)] if isinstance(node, list) else node[part]
    return node


def _edited(node: Any, path: Sequence[str], how: str, value: Any) -> Any:
    """Return a node of the object with the value at a path below it added, replaced or removed."""
    if not path:
        return value
    copied = node.copy()
    key: Any = path[0]
    if isinstance(node, list):
        key = len(node) if key == "-" else int(key)
    if len(path) > 1:
        copied[key] = _edited(node[key], path[1:], how, value)
    elif how == "remove":
        del copied[key]
    elif how == "add" and isinstance(node, list):
        if key > len(node):
            raise IndexError(key)
        copied.insert(key, value)
    else:
        copied[key] = value
    return copied

"""What docstrings, comments and pages name as code exists: modules, paths, functions, classes."""

import ast
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.unit.language import ROOT, checked_files, name_of

PRODUCT = ("daemonset_job", "job_controller", "terminator")
PAGES = [path for path in checked_files() if path.suffix == ".md" and path.name != "CHANGELOG.md"]
SOURCES = [path for path in checked_files() if path.suffix == ".py"]

PATH = re.compile(r"[\w.-]+(?:/[\w.*-]+)*/[\w.*-]*|[\w-]+\.(?:py|md|toml)")
DOTTED = re.compile(r"(?:\w+\.)+\w+(?:\(\))?")
CALL = re.compile(r"\w+\(\)")
SNAKE = re.compile(r"_*[a-z]\w*_\w+|[A-Z]+_[A-Z_]+")
CAMEL = re.compile(r"[A-Z][a-z]+(?:[A-Z][a-z0-9]+)+")

# Names of others: Kubernetes, Python and what it brings, tools.
FOREIGN = {
    *("ControllerRevision", "ControllerRevisions", "RoleBinding", "StatefulSet", "ReplicaSet"),
    "UnexpectedAdmissionError",
    *("NodeShouldRunDaemonPod", "CreatePodTemplate", "ReplaceDaemonSetPodNodeNameNodeAffinity"),
}


def tracked() -> list[str]:
    return subprocess.run(
        ["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.splitlines()


@cache
def paths() -> frozenset[str]:
    """Return every file and folder, and each path's ends: a page may leave out where it begins."""
    found = set()
    for name in tracked():
        parts = name.split("/")
        for end in range(1, len(parts) + 1):
            found.update("/".join(parts[begin:end]) for begin in range(end))
    return frozenset(found)


def is_docstring(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def words_of_module(text: str) -> Iterator[str]:
    """Yield every name and every word of a text in a module's code, not in its docstrings."""
    docstrings = set()
    for node in ast.walk(ast.parse(text)):
        if is_docstring(node):
            docstrings.add(id(node.value))
        match node:
            case ast.Constant(value=str()) if id(node) not in docstrings:
                yield from re.findall(r"\w+", node.value)
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                yield name
            case ast.keyword(arg=str(name)) | ast.alias(name=str(name)):
                yield from name.split(".")
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name


@cache
def words() -> frozenset[str]:
    """Return every word that code, manifests, scripts and file names of the repository contain."""
    found = set()
    for name in tracked():
        path = ROOT / name
        if path == Path(__file__):
            continue  # it names what does not exist
        found.update(re.findall(r"\w+", name))
        if path.suffix == ".py":
            found.update(words_of_module(path.read_text(encoding="utf-8")))
        elif path.suffix in {".yaml", ".toml", ".go", ""} and not name.startswith("tests/fuzz/"):
            found.update(re.findall(r"\w+", path.read_text(encoding="utf-8")))
    return frozenset(found)


@cache
def modules() -> dict[tuple[str, ...], frozenset[str]]:
    """Return the words of each module and package of the product, by its path."""
    found: dict[tuple[str, ...], frozenset[str]] = {}
    for name in tracked():
        if name.startswith(PRODUCT) and name.endswith(".py"):
            parts = tuple(name.removesuffix(".py").removesuffix("/__init__").split("/"))
            text = (ROOT / name).read_text(encoding="utf-8")
            found[parts] = frozenset(words_of_module(text))
    return found


def is_unresolved(parts: list[str]) -> bool:
    """Return whether a dotted name begins with a module or package and leads nowhere in it.

    The path may leave out where it begins: `core.decide` is `job_controller.core.decide`.
    """
    begins = False
    for path, contents in modules().items():
        for begin, part in enumerate(path):
            if part != parts[0]:
                continue
            begins = True
            inner = path[begin:]
            rest = parts[len(inner) :]
            if list(inner) == parts[: len(inner)] and all(part in contents for part in rest):
                return False
    return begins


def is_defined(name: str) -> bool:
    """Return whether a module of the product defines a function or a class of this name."""
    pattern = re.compile(rf"(?m)^ *(?:async )?(?:def|class) {name}\b")
    return any(pattern.search(path.read_text(encoding="utf-8")) for path in SOURCES)


def is_missing(name: str) -> bool:
    """Return whether a name looks like one of this repository's and is none."""
    if "*" in name or "<" in name or re.search(r"/[A-Z]+\b", name):
        return False  # with a placeholder
    if PATH.fullmatch(name):
        is_ours = "/" not in name or name.split("/", maxsplit=1)[0] in paths()
        return is_ours and not {name.rstrip("/"), f"{name}.py"} & paths()
    if DOTTED.fullmatch(name):
        return is_unresolved(name.removesuffix("()").split("."))
    if CALL.fullmatch(name) or SNAKE.fullmatch(name) or CAMEL.fullmatch(name):
        # A metric's name has a prefix, and a counter's has _total at its end.
        plain = name.removesuffix("()").removesuffix("_total")
        plain = plain.removeprefix("dsj_")
        return not {name.removesuffix("()"), plain} & (words() | FOREIGN)
    return False


def missing(text: str, quoted: str) -> list[str]:
    return sorted({name for name in re.findall(quoted, text) if is_missing(name)})


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_what_a_page_names_as_code_exists(page):
    prose = re.sub(r"(?ms)^ *```.*?^ *```$", "", page.read_text(encoding="utf-8"))
    assert missing(prose, r"(?<!`)`([^`\s]+)`(?!`)") == []


@pytest.mark.parametrize("source", SOURCES, ids=name_of)
def test_a_module_that_a_docstring_points_to_exists(source):
    """What follows "see" or "in" is a module, a function, or a name of the same file."""
    text = source.read_text(encoding="utf-8")
    stems = {path.stem for path in SOURCES} | {path.parent.name for path in SOURCES}
    known = set(words_of_module(text)) | stems
    named = set(re.findall(r"\b(?:see|in) `{1,2}([a-z_]+)`{1,2}", text))
    assert {name for name in named - known if not is_defined(name)} == set()


@pytest.mark.parametrize("source", SOURCES, ids=name_of)
def test_what_a_docstring_or_comment_names_as_code_exists(source):
    text = source.read_text(encoding="utf-8")
    assert missing(text, r"(?<!`)`{1,2}([^`\s]+)`{1,2}(?!`)") == []


@pytest.mark.parametrize(
    "name",
    [
        "core.no_such_module",
        "terminator.logs.no_such()",
        "no_such_function()",
        "no_such_name",
        "NoSuchClass",
        "docs/no-such-page.md",
        "no_such_module.py",
    ],
)
def test_a_name_that_is_gone_is_found(name):
    assert is_missing(name)


@pytest.mark.parametrize(
    "name",
    ["core.decide", "read_policy.py", "Reflector", "decide()", "docs/explanation/", "kubectl"],
)
def test_a_name_that_exists_is_not(name):
    assert not is_missing(name)

"""The prose of the project against its rules: words to avoid, and sentences that are too long.

Prose is the documentation, docstrings and comments of the product and of the tests, and texts that
users see. In `test_*.py` sentences may be longer.
`python -m tests.unit.language [FILE...]` lists violations, of all files if none is named.
"""

import argparse
import ast
import inspect
import re
import sys
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WORDS_FILE = ROOT / "tests" / "unit" / "language_words.toml"
MAX_WORDS = 28

PAGES = ("*.md", "docs/**/*.md", "examples/**/*.md", "hack/**/*.md", "benchmarks/*.md")
MODULES = (
    *("daemonset_job/**/*.py", "job_controller/**/*.py", "terminator/**/*.py"),
    *("crds/*.py", "hack/**/*.py", "benchmarks/*.py"),
    # Tests, their libraries, and programs that find defects.
    "tests/**/*.py",
)
# Files of which the comments are prose, and in crds/ the descriptions.
OTHERS = (
    *("crds/*.yaml", "deploy/**/*.yaml", "examples/**/*.yaml", "images/**/*"),
    *("Makefile", "pyproject.toml"),
)

# A sentence ends at a full stop that a space or the end follows, but not within "e.g.".
_END = re.compile(r"(?<!\be\.g)(?<!\bi\.e)(?<!\bcf)[.!?][\"')*_]*(?:\s+|$)")
_CODE = re.compile(r"(`+).+?\1", re.DOTALL)
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)|<?https?://\S+")
_ITEM = re.compile(r"\s*(?:[-*+]|\d+\.)\s+|\s*\|")
_NO_SENTENCE = re.compile(r"\s*(?:>>>|<!--|[│├└┌─])")
_NOT_PROSE = re.compile(r"#+[ !]?(?:noqa|type:|ruff:|pragma|mypy:|syntax=|shellcheck|/)|# ?-{3,}")
_COMMENT = re.compile(r"^(?P<indent>\s*)#(?P<own>.*)$|^.*?\s{2}# (?P<trailing>.*)$")
_DESCRIPTION = re.compile(r"^(?P<indent> *)description: (?P<text>.*)$")


@dataclass(frozen=True, slots=True)
class Violation:
    """One place that breaks a rule: its line, and what to do."""

    line: int
    message: str


# --- the rules ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rules:
    """What holds for a file: words to avoid, each with what to write instead, and a length."""

    words: Sequence[tuple[re.Pattern[str], str]]
    limits_sentences: bool = True


def read_words() -> list[tuple[re.Pattern[str], str]]:
    """Return the words to avoid, each with what to write instead."""
    listed = tomllib.loads(WORDS_FILE.read_text(encoding="utf-8"))
    return [
        (re.compile(rf"\b(?:{word})\b", re.IGNORECASE), instead)
        for word, instead in listed["words"].items()
    ]


RULES = Rules(read_words())
TEST_RULES = replace(RULES, limits_sentences=False)


def check(line: int, paragraph: str, rules: Rules = RULES) -> Iterator[Violation]:
    """Yield the violations of one paragraph that begins in a line."""
    text = _CODE.sub("X", _LINK.sub(r"\1", paragraph))
    for pattern, instead in rules.words:
        for match in pattern.finditer(text):
            yield Violation(line, f'"{match[0]}": write {instead}')
    if text.lstrip().startswith("|") or not rules.limits_sentences:
        return  # a row of a table is no sentence
    for sentence in _END.split(text):
        count = len(re.findall(r"[\w'/.,-]*\w[\w'/.,-]*", sentence))
        if count > MAX_WORDS:
            start = " ".join(sentence.split()[:6])
            yield Violation(line, f"{count} words in a sentence (at most {MAX_WORDS}): {start} ...")


# --- where prose is ----------------------------------------------------------------------


def paragraphs(lines: list[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Yield paragraphs with their first line: blank lines, list items and headings begin one."""
    start, found = 0, list[str]()
    is_fenced = is_item = False
    for number, line in [*lines, (0, "")]:
        if line.lstrip().startswith("```"):
            is_fenced, is_item = not is_fenced, is_item and line[0] == " "
            line = ""  # noqa: PLW2901 - a fence ends the paragraph before it
        is_heading = line.startswith("#")
        if found and (is_fenced or not line.strip() or is_heading or _ITEM.match(line)):
            yield start, " ".join(found)
            found = []
        is_indented = not found and not is_item and line.startswith("    ")
        if is_fenced or is_indented or _NO_SENTENCE.match(line):
            continue
        if line.strip() and not found:
            start, is_item = number, (is_item and line[0] == " ") or bool(_ITEM.match(line))
        if is_heading:
            yield start, line
        elif line.strip():
            found.append(line.strip())


def of_page(text: str) -> Iterator[tuple[int, str]]:
    """Yield the paragraphs of a page in Markdown; released sections of a changelog stay."""
    text = re.split(r"(?m)^## \[\d", text, maxsplit=1)[0]
    yield from paragraphs(list(enumerate(text.splitlines(), 1)))


def of_comments(text: str) -> Iterator[tuple[int, str]]:
    """Yield the comments of a file whose comments begin with #, those of one block as one."""
    block = list[tuple[int, str]]()
    before = None
    for number, line in enumerate(text.splitlines(), 1):
        match = _COMMENT.match(line) if "#" in line else None
        is_own = match is not None and match["own"] is not None
        indent = match["indent"] if match is not None and is_own else None
        if indent is None or indent != before:
            yield from paragraphs(block)
            block = []
        before = indent
        if match is None or _NOT_PROSE.match(line[line.index("#") :]):
            continue
        if is_own:
            block.append((number, match["own"].removeprefix(" ")))
        else:
            yield number, match["trailing"]
    yield from paragraphs(block)


def of_module(text: str) -> Iterator[tuple[int, str]]:
    """Yield the comments, docstrings and texts of a Python module."""
    yield from of_comments(text)
    docstrings = set[int]()
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Module() | ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef() if (
                node.body and isinstance(node.body[0], ast.Expr)
            ):
                value = node.body[0].value
                if isinstance(value, ast.Constant) and isinstance(value.value, str):
                    docstrings.add(id(value))
                    found = enumerate(_sections(value.value).splitlines(), value.lineno)
                    yield from paragraphs(list(found))
            case ast.JoinedStr():
                docstrings.update(id(part) for part in node.values)
                parts = [
                    part.value if isinstance(part, ast.Constant) else "X" for part in node.values
                ]
                yield from _message(node.lineno, "".join(map(str, parts)))
            case ast.Constant(value=str() as text) if id(node) not in docstrings:
                yield from _message(node.lineno, text)


def _sections(docstring: str) -> str:
    """Return a docstring without its indentation, each entry of an Args section as an item."""
    return re.sub(r"(?m)^ +(?=\w+(?: \([^)]*\))?: )", "- ", inspect.cleandoc(docstring))


def _message(line: int, text: str) -> Iterator[tuple[int, str]]:
    """Yield a text if it is one for people: three words, and no code of another language."""
    if len(text.split()) > 2 and not re.search(r"[{}<>;$\\]|::|\n *\n", text):
        yield line, " ".join(text.split())


def of_manifest(text: str) -> Iterator[tuple[int, str]]:
    """Yield the comments and the descriptions of our own fields in YAML."""
    yield from of_comments(text)
    inside, skip = list[tuple[int, str]](), None
    deeper = -1
    for number, line in enumerate(text.splitlines(), 1):
        indent = len(line) - len(line.lstrip())
        if skip is not None and line.strip() and indent <= skip:
            skip = None
        # What a pod's spec may hold is described by Kubernetes.
        if line.strip() == "template:" and skip is None and number > 1:
            skip = indent
        if inside and line.strip() and indent <= deeper:
            yield inside[0][0], " ".join(part for _, part in inside).strip()
            inside = []
        if skip is not None:
            continue
        match = _DESCRIPTION.match(line)
        if match:
            deeper = len(match["indent"])
            inside = [(number, match["text"].strip("|->\"' "))]
        elif inside:
            inside.append((number, line.strip()))
    if inside:
        yield inside[0][0], " ".join(part for _, part in inside).strip()


def violations(path: Path) -> list[Violation]:
    """Return the violations of one file, by line."""
    text = path.read_text(encoding="utf-8")
    readers = {".md": of_page, ".py": of_module, ".yaml": of_manifest}
    found = readers.get(path.suffix, of_comments)(text)
    rules = TEST_RULES if path.name.startswith("test_") else RULES
    return sorted(
        (each for line, words in found for each in check(line, words, rules)), key=lambda v: v.line
    )


def checked_files() -> list[Path]:
    """Return the files that the rules hold for."""
    globs = (*PAGES, *MODULES, *OTHERS)
    found = {path for glob in globs for path in ROOT.glob(glob) if path.is_file()}
    return sorted(path for path in found if "__pycache__" not in path.parts)


def name_of(path: Path) -> str:
    """Return a file's path in the repository."""
    return path.resolve().relative_to(ROOT).as_posix()


def main(arguments: list[str]) -> int:
    """Return 0 if no violation is listed."""
    parser = argparse.ArgumentParser(prog="python -m tests.unit.language", description=__doc__)
    parser.add_argument("files", nargs="*", type=Path, help="list these only")
    options = parser.parse_args(arguments)
    count = 0
    for path in options.files or checked_files():
        for found in violations(path):
            print(f"{name_of(path)}:{found.line}: {found.message}")  # noqa: T201 - a tool prints
            count += 1
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

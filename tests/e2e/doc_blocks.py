"""What a page of the documentation shows as code: its blocks, and the steps that they are.

Pure. CONTRIBUTING has the conventions for authors; `test_pages` runs the steps on a real cluster.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).resolve().parents[2]
RUN_LANGUAGES = ("console", "sh")

_NOT_RUN = re.compile(r"\s*<!-- not run: (?P<reason>[^\n]*\S) -->\s*")
_PAGE_NOT_RUN = re.compile(r"(?m)^<!-- page not run: (?P<reason>[^\n]*\S) -->$")
# The last name in back quotes, or the last link, of a paragraph that ends with a colon.
_FILE = re.compile(r"(?s)(?:.*[`\[])(?P<file>examples/[\w./-]+|[\w.-]+\.\w+)(?:`|\]\([^)]*\)):")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block.

    Attributes:
        line: where its fence begins, counted from 1.
        not_run: the reason why it is not run, empty if it has none.
        file: the file whose text it is, as the paragraph before it says; empty if it is none.
    """

    language: str
    text: str
    line: int
    not_run: str = ""
    file: str = ""

    @property
    def is_run(self) -> bool:
        """Return whether it has commands that are run."""
        return self.language in RUN_LANGUAGES and not self.not_run and not self.file

    @property
    def is_written(self) -> bool:
        """Return whether the user writes it to a file. Those of examples/ are there already."""
        return bool(self.file) and not self.not_run and not self.file.startswith("examples/")


@dataclass(frozen=True, slots=True)
class Command:
    """A command with the output that the page prints for it.

    `output` is None for a block of language sh: it prints no output, and has to succeed.
    """

    line: int
    text: str
    output: tuple[str, ...] | None

    @property
    def must_succeed(self) -> bool:
        """Return whether nothing is printed that could show a failure."""
        return self.output is None or set(self.output) <= {"..."}

    @property
    def is_watch(self) -> bool:
        """Return whether it runs until a user ends it."""
        return self.output is not None and bool(re.search(r" (?:-w|--watch)\b", self.text))

    @property
    def is_read(self) -> bool:
        """Return whether it only shows what is there, so that it can be repeated."""
        return self.output is not None and bool(
            re.fullmatch(r"kubectl (?:get|describe|logs)\b[^|;&>]*", self.text)
        )


@dataclass(frozen=True, slots=True)
class File:
    """A file that a page has the user write."""

    line: int
    name: str
    text: str


Step = Command | File


def doc_pages() -> list[Path]:
    """Return the pages whose commands are run: README, tutorials, how-to guides."""
    folders = (ROOT / "docs" / "tutorial", ROOT / "docs" / "how-to")
    return [ROOT / "README.md", *sorted(page for f in folders for page in f.rglob("*.md"))]


def page_name(page: Path) -> str:
    """Return a page's path in the repository."""
    return page.relative_to(ROOT).as_posix()


def blocks(text: str) -> list[Block]:
    """Return the fenced blocks of a page, in order, also those within list items."""
    whole_page = _PAGE_NOT_RUN.search(text)
    found = list[Block]()
    not_run = file = ""
    for token in MarkdownIt("commonmark").parse(text):
        match token.type:
            case "html_block":
                comment = _NOT_RUN.fullmatch(token.content)
                not_run = comment["reason"] if comment else not_run
            case "inline":
                name = _FILE.fullmatch(token.content)
                not_run, file = "", name["file"] if name else ""
            case "fence":
                language = token.info.strip()
                line = token.map[0] + 1 if token.map else 0
                reason = whole_page["reason"] if whole_page else not_run
                # The output of a command is never a file's text.
                named = "" if language == "console" else file
                found.append(Block(language, token.content, line, reason, named))
                not_run = file = ""
            case _:
                pass
    return found


def steps(text: str) -> list[Step]:
    """Return what a reader of the page does, in order.

    Raises:
        ValueError: a console block does not begin with a command.
    """
    return [step for block in blocks(text) for step in _steps_of(block)]


def _steps_of(block: Block) -> Iterator[Step]:
    if block.is_run and block.language == "console":
        yield from commands(block)
    elif block.is_run:
        yield Command(block.line, block.text, None)
    elif block.is_written:
        yield File(block.line, block.file, block.text)


def commands(block: Block) -> list[Command]:
    """Return the commands of a console block.

    A line with `$ ` begins a command, `> ` continues it, all others are its output.
    """
    found = list[Command]()
    for number, line in enumerate(block.text.splitlines(), block.line + 1):
        if line.startswith("$ "):
            found.append(Command(number, line.removeprefix("$ "), ()))
            continue
        if not found:
            raise ValueError(f"line {number}: a console block begins with a command: `$ ...`")
        last = found[-1]
        if line.startswith("> ") and not last.output:
            found[-1] = replace(last, text=f"{last.text}\n{line.removeprefix('> ')}")
        else:
            found[-1] = replace(last, output=(*(last.output or ()), line))
    return found

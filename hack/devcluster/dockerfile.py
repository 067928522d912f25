"""Reading a Dockerfile: what it builds on and what it copies. Pure, no engine needed."""

import re
import shlex
from dataclasses import dataclass

OPTION = re.compile(r"^--\S+$")


@dataclass(frozen=True, slots=True)
class Dockerfile:
    """What a build depends on."""

    bases: tuple[str, ...]
    """The images named in FROM lines, other stages of the same file left out."""
    sources: tuple[str, ...]
    """The context paths that COPY and ADD take in."""


def parse(text: str) -> Dockerfile:
    """Read a Dockerfile; build arguments with a default are put in where FROM uses them."""
    bases: list[str] = []
    stages: set[str] = set()
    sources: list[str] = []
    arguments: dict[str, str] = {}
    for line in _lines(text):
        verb, _, rest = line.partition(" ")
        if verb.upper() == "ARG" and "=" in rest and not bases:
            name, _, value = rest.strip().partition("=")
            arguments[name] = value.strip("\"'")
        elif verb.upper() == "FROM":
            words = [word for word in rest.split() if not OPTION.match(word)]
            base = _fill(words[0], arguments)
            if base not in stages and base != "scratch":
                bases.append(base)
            if len(words) == 3:
                stages.add(words[2])
        elif verb.upper() in {"COPY", "ADD"} and "--from=" not in rest:
            words = [word for word in _words(rest) if not OPTION.match(word)]
            sources += words[:-1]
    return Dockerfile(tuple(dict.fromkeys(bases)), tuple(dict.fromkeys(sources)))


def full_name(image: str) -> str:
    """Return an image's full name without its digest: `python:3.11` is docker.io/library's."""
    name = image.partition("@")[0]
    first, slash, _ = name.partition("/")
    if not slash:
        name = f"docker.io/library/{name}"
    elif not ("." in first or ":" in first or first == "localhost"):
        name = f"docker.io/{name}"
    return name if ":" in name.rpartition("/")[2] else f"{name}:latest"


def with_bases(text: str, names: dict[str, str]) -> str:
    """Return the text with base images replaced: local ones have no registry's digest."""
    for old, new in names.items():
        pattern = (
            rf"(?m)^(\s*(?:FROM\s+(?:--\S+\s+)*|ARG\s+\w+=[\"']?)){re.escape(old)}(?=[\s\"']|$)"
        )
        text = re.sub(pattern, rf"\g<1>{new}", text)
    return text


def _lines(text: str) -> list[str]:
    joined = re.sub(r"\\\s*\n", " ", re.sub(r"(?m)^\s*#.*\n?", "", text))
    return [line.strip() for line in joined.splitlines() if line.strip()]


def _words(rest: str) -> list[str]:
    if rest.strip().startswith("["):
        return [word.strip("\"' ") for word in rest.strip(" []").split(",")]
    return shlex.split(rest)


def _fill(name: str, arguments: dict[str, str]) -> str:
    for key, value in arguments.items():
        name = name.replace(f"${{{key}}}", value).replace(f"${key}", value)
    return name

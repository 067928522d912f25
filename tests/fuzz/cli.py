"""Fuzzes each target for some time with atheris (libFuzzer), in a process of its own.

Inputs that reach new code are kept in build/fuzz/TARGET/corpus, and a later run begins with them.
A finding ends the run of its target, and is a file in build/fuzz/TARGET.
"""

import argparse
import subprocess
import sys
from pathlib import Path

from tests.fuzz.find import BUILD, cases, load_check, target_names

# A single input that takes more time or memory than this is a finding.
INPUT_SECONDS = 10
MEMORY_MIB = 2048
INPUT_BYTES = 1024


def main(arguments: list[str]) -> int:
    """Return 1 if something was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(target_names()))
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="run one TARGET with one input")
    options = parser.parse_args(arguments)
    unknown = set(options.targets) - set(target_names())
    if unknown:
        parser.error(f"no such target: {', '.join(sorted(unknown))}")
    if options.replay is not None:
        if len(options.targets) != 1:
            parser.error("--replay needs one TARGET")
        load_check(options.targets[0])(options.replay.read_bytes())
        return 0
    found = [fuzz(target, options.seconds) for target in options.targets or target_names()]
    return 1 if any(found) else 0


def fuzz(target: str, seconds: int) -> bool:
    """Fuzz one target; print findings, and return whether there are any."""
    place = BUILD / target
    corpus = place / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    before = set(_findings(place))
    for case in cases(target):
        (corpus / case.name).write_bytes(case.read_bytes())
    print(f"== {target}: {seconds} s", flush=True)  # noqa: T201 - a command-line tool prints
    command = [sys.executable, "-m", "tests.fuzz.engine", target, str(corpus)]
    command += [f"-max_total_time={seconds}", f"-artifact_prefix={place}/", "-print_final_stats=1"]
    command += [f"-max_len={INPUT_BYTES}", "-len_control=0", f"-timeout={INPUT_SECONDS}"]
    command += [f"-rss_limit_mb={MEMORY_MIB}", "-verbosity=1"]
    done = subprocess.run(command, check=False)
    fresh = sorted(set(_findings(place)) - before)
    for path in fresh:
        print(f"FOUND {path}; again: .venv/bin/python -m tests.fuzz --replay {path} {target}")  # noqa: T201
    if done.returncode and not fresh:
        print(f"{target}: the fuzzer ended with {done.returncode}")  # noqa: T201
    return bool(done.returncode or fresh)


def _findings(place: Path) -> list[Path]:
    return [path for path in place.glob("*-*") if path.is_file()]

"""Compares the output that a page prints with the real one, as far as it is stable. Pure."""

import re

# What differs from run to run, and from machine to machine.
_UNSTABLE = (
    # A test has a namespace of its own, and a page that of its reader.
    (re.compile(r"-n (?:default|e2e-[0-9a-f]{8})\b"), "-n NAMESPACE"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z"), "TIME"),
    # A report's name: the Job's, and the beginning of the Job's UID.
    (re.compile(r"-(?:\d{14}-)?(?:[0-9a-f]{8}|(?<=\d{14}-)[0-9a-f]{5})\b"), "-UID"),
    (re.compile(r"\bdaemonset-job-[a-z0-9]{5}\b"), "daemonset-job-POD"),
    (re.compile(r"\bdsj-[0-9a-f]{6}\b"), "CLUSTER"),
    (re.compile(r"\b(?:\d+[smhd]){1,2}\b(?: \(x\d+ over (?:\d+[smhd])+\))?"), "AGE"),
    (re.compile(r"\bDuration Seconds: +\d+"), "Duration Seconds: N"),
    (re.compile(r"\bcpus=\d+"), "cpus=N"),
    # Of a kernel, of Kubernetes.
    (re.compile(r"\bv?\d+\.\d+\.\d+(?:[-+][\w.+-]+)?(?=\s|$)"), "VERSION"),
)
# Columns of numbers that differ from run to run, or from machine to machine.
_UNSTABLE_COLUMNS = ("SECONDS", "SWAPPINESS")
_HEADER = re.compile(r"[A-Z][A-Z -]*\S(?:\s{2,}[A-Z][A-Z -]*)+")
_GAP = re.compile(r"\s{2,}")


def normalise(text: str, cluster: str = "") -> list[str]:
    """Return the lines of an output without what is not stable, and without empty lines.

    Args:
        text: the output.
        cluster: what the names of the real nodes begin with.
    """
    found = list[str]()
    header = list[str]()
    for line in text.replace(cluster or "\0", "dsj-000000").splitlines():
        if not line.strip():
            header = []
            continue
        cells = _GAP.split(line.strip())
        if _HEADER.fullmatch(line.strip()):
            header = cells
        elif header and "..." not in line:
            names = header[: len(cells)]
            unstable = [i for i, name in enumerate(names) if name in _UNSTABLE_COLUMNS]
            for index in unstable:
                cells[index] = "N"
        stable = " ".join(cells)
        for pattern, instead in _UNSTABLE:
            stable = pattern.sub(instead, stable)
        found.append(" ".join(stable.split()))
    return found


def is_same(printed: str, real: str, cluster: str = "") -> bool:
    """Return whether an output is what a page prints.

    In what the page prints, a line `...` is any number of lines, and `...` within a line is any
    text.
    """
    pattern = "".join(
        r"(?:[^\n]*\n)*?" if line == "..." else _line_pattern(line) for line in normalise(printed)
    )
    lines = "".join(f"{line}\n" for line in normalise(real, cluster))
    return re.fullmatch(pattern, lines) is not None


def _line_pattern(line: str) -> str:
    return r"[^\n]*".join(re.escape(part) for part in line.split("...")) + r"\n"

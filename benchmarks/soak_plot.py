"""The summary of a soak run, and one HTML file with every series of it, drawn as SVG.

    python -m benchmarks.soak_plot build/soak-…/soak.jsonl > soak.html

draws the file again, for example while the run is still going on.
"""

import html
import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.soak_verdict import PROGRAMS, SERIES, Finding, Point, judge_programs, series_points

WIDTH, HEIGHT, LEFT, BOTTOM = 880, 150, 60, 18
COLOURS = {"controller": "#1f6feb", "terminator": "#d1570a", "cluster": "#2da44e"}
_STYLE = """
body { font: 14px system-ui, sans-serif; margin: 2em; max-width: 960px; }
svg { background: #fafafa; display: block; margin-bottom: 1.2em; }
td, th { text-align: left; padding: 1px 10px 1px 0; font-size: 13px; vertical-align: top; }
.bad { color: #b00020; font-weight: bold; } .good { color: #1a7f37; }
h2 { font-size: 15px; margin: 0.4em 0; }
"""


def page(lines: Sequence[Mapping[str, Any]]) -> str:
    """Return the page for the lines of a run."""
    samples = [line for line in lines if line["type"] == "sample"]
    start = samples[0]["at"] if samples else 0.0
    marks = [(line["at"] - start, line["kind"]) for line in lines if line["type"] == "disturbance"]
    body = [f"<h1>{html.escape(_title(lines))}</h1>", _verdict(judge_programs(samples))]
    body += _problems(lines)
    cluster = {"cluster": [{"at": s["at"], **s["cluster"]} for s in samples]}
    for key in sorted({key for sample in samples for key in sample["cluster"]}):
        body.append(_chart(f"cluster: {key}", _curves(cluster, key, start), marks))
    programs = {name: _processes(samples, name) for name in PROGRAMS}
    for series in SERIES:
        curves = _curves(programs, series.key, start)
        if any(curves.values()):
            body.append(_chart(series.title, curves, marks))
    return f"<!doctype html><meta charset=utf-8><title>soak</title><style>{_STYLE}</style>" + (
        "\n".join(body)
    )


def chart(curves: Mapping[str, Sequence[Sequence[Point]]], marks: Iterable[Point]) -> str:
    """Return an SVG of curves, each a list of unbroken pieces; times are seconds from 0."""
    points = [point for pieces in curves.values() for piece in pieces for point in piece]
    if not points:
        return ""
    longest = max(x for x, _ in points) or 1.0
    low, high = min(0.0, *(y for _, y in points)), max(y for _, y in points)
    span = (high - low) or 1.0

    def place(x: float, y: float) -> str:
        across = LEFT + x / longest * (WIDTH - LEFT - 5)
        return f"{across:.1f},{(1 - (y - low) / span) * (HEIGHT - BOTTOM - 8) + 6:.1f}"

    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}">']
    for x, _ in marks:
        across = LEFT + min(x / longest, 1) * (WIDTH - LEFT - 5)
        parts.append(
            f'<line x1="{across:.1f}" x2="{across:.1f}" y1="{HEIGHT - BOTTOM}" '
            f'y2="{HEIGHT - BOTTOM + 4}" stroke="#999"/>'
        )
    for value in (low, low + span / 2, low + span):
        y = place(0, value).split(",")[1]
        parts.append(
            f'<line x1="{LEFT}" x2="{WIDTH - 5}" y1="{y}" y2="{y}" stroke="#ddd"/>'
            f'<text x="{LEFT - 5}" y="{y}" font-size="11" text-anchor="end" dy="4">{value:g}</text>'
        )
    for name, pieces in curves.items():
        for piece in pieces:
            line = " ".join(place(x, y) for x, y in piece)
            parts.append(
                f'<polyline points="{line}" fill="none" stroke="{COLOURS[name]}" '
                'stroke-width="1.3"/>'
            )
    parts.append(
        f'<text x="{WIDTH - 5}" y="{HEIGHT - 3}" font-size="11" text-anchor="end">'
        f"{longest / 60:.0f} min</text></svg>"
    )
    return "".join(parts)


def _chart(
    title: str, curves: Mapping[str, Sequence[Sequence[Point]]], marks: Sequence[tuple[float, str]]
) -> str:
    names = ", ".join(
        f'<span style="color:{COLOURS[name]}">{name}</span>'
        for name, found in curves.items()
        if found
    )
    drawn = chart(curves, [(x, 0.0) for x, _ in marks])
    return f"<h2>{html.escape(title)} ({names})</h2>{drawn}"


def _curves(
    sources: Mapping[str, Sequence[Mapping[str, Any]]], key: str, start: float
) -> dict[str, list[list[Point]]]:
    """Return the curves by source, broken where a process gave way to another."""
    curves: dict[str, list[list[Point]]] = {}
    for name, samples in sources.items():
        lives: dict[Any, list[Mapping[str, Any]]] = {}
        for sample in samples:
            lives.setdefault(sample.get("life"), []).append(sample)
        pieces = [series_points(life, key) for life in lives.values()]
        curves[name] = [[(x - start, y) for x, y in piece] for piece in pieces if piece]
    return curves


def _processes(samples: Iterable[Mapping[str, Any]], program: str) -> list[dict[str, Any]]:
    return [
        {**process, "at": sample["at"]}
        for sample in samples
        for process in sample["processes"]
        if process["program"] == program
    ]


def _title(lines: Sequence[Mapping[str, Any]]) -> str:
    first = next((line for line in lines if line["type"] == "start"), {})
    jobs = sum(line["type"] == "job" for line in lines)
    return f"soak: {first.get('hours', '?')} h, seed {first.get('seed', '?')}, {jobs} Jobs ended"


def _verdict(findings: Iterable[Finding]) -> str:
    rows = "".join(
        f'<tr><td>{f.program}</td><td>{html.escape(f.series)}</td><td class="{f.result}">'
        f"{f.result}</td><td>{html.escape(f.words)}</td></tr>"
        for f in findings
    )
    return f"<table><tr><th>program<th>series<th>result<th>numbers</tr>{rows}</table>"


def _problems(lines: Iterable[Mapping[str, Any]]) -> list[str]:
    rows = [
        f"<li>{html.escape(line.get('job', ''))}: {html.escape(problem)}</li>"
        for line in lines
        for problem in line.get("problems", ())
    ]
    return [f"<h2>Problems ({len(rows)})</h2><ul>{''.join(rows)}</ul>"]


def summarise(lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the summary of a run: whether it passed, and its main numbers."""
    jobs = [line for line in lines if line["type"] == "job"]
    samples = [line for line in lines if line["type"] == "sample"]
    findings = judge_programs(samples)
    problems = [
        f"{line.get('job', '')}: {problem}"
        for line in lines
        for problem in line.get("problems", ())
    ]
    start = next(line for line in lines if line["type"] == "start")
    return {
        "what": "A long run of many Jobs with disturbances: does anything grow, or end wrongly?",
        **{key: start[key] for key in ("hours", "seed", "real", "simulated")},
        "minutes": round((lines[-1]["at"] - start["at"]) / 60, 1),
        "jobs": dict(Counter(job["kind"] for job in jobs)),
        "disturbances": dict(
            Counter(line["kind"] for line in lines if line["type"] == "disturbance")
        ),
        "samples": len(samples),
        "good": not problems and not any(f.result == "bad" for f in findings),
        "series": [f"{f.program} {f.series}: {f.result}, {f.words}" for f in findings],
        "problems": problems,
    }


def read_lines(file: Path) -> list[dict[str, Any]]:
    """Return the lines of a run; a last one that is still being written is left out."""
    if not file.exists():
        return []
    return [json.loads(line) for line in file.read_text().split("\n")[:-1]]


if __name__ == "__main__":
    print(page(read_lines(Path(sys.argv[1]))))

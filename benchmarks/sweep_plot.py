"""The results of a sweep as one SVG: CPU by process for each kind of run, and time.

    python -m benchmarks.sweep_plot results.json > results.svg
    python -m benchmarks.sweep_plot 200.json 1000.json 5000.json > by-nodes.svg

One file is drawn as bars, one for each kind of run. Several files are drawn as curves over the
number of nodes, one for each kind.
"""

import html
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

WIDTH: Final = 880
LABEL: Final = 130
RIGHT: Final = 215
BAR: Final = 26
OTHERS: Final = "others"
# Fixed, so that a process has the same colour in every plot.
COLOURS: Final = {
    "controller": "#d1570a",
    "terminator": "#f2a65a",
    "kube-apiserver": "#1f6feb",
    "etcd": "#5aa9e6",
    "kube-controller-manager": "#2da44e",
    "kube-scheduler": "#7fc8a9",
    "kubelet": "#8957e5",
    "containerd": "#bc8cff",
    OTHERS: "#b0b7bf",
}
_CURVES: Final = ("#57606a", *COLOURS.values())


def cpu_by_process(found: Mapping[str, Any]) -> dict[str, float]:
    """Return the seconds of CPU of one kind of run by process; they add up to those of everything.

    `found` is a summary of `benchmarks.pairs`. Simulation and benchmark are among the others.
    """
    known = {name: float(found["cpu_seconds"].get(name, 0.0)) for name in COLOURS if name != OTHERS}
    return {**known, OTHERS: max(found["cpu_seconds_all"] - sum(known.values()), 0.0)}


def bars(results: Mapping[str, Any]) -> str:
    """Return an SVG with a bar for each kind of run."""
    summary: Mapping[str, Mapping[str, Any]] = results["summary"]
    most = max((found["cpu_seconds_all"] for found in summary.values()), default=0.0) or 1.0
    scale = (WIDTH - LABEL - RIGHT) / most
    parts = [_text(LABEL, 16, _title([results], "seconds of CPU of everything"), size=13)]
    top = 30.0
    for kind, found in sorted(summary.items(), key=lambda each: each[1]["cpu_seconds_all"]):
        left = float(LABEL)
        parts.append(_text(LABEL - 8, top + BAR / 2 + 4, kind, anchor="end"))
        for name, seconds in cpu_by_process(found).items():
            parts.append(
                f'<rect x="{left:.1f}" y="{top:.1f}" width="{seconds * scale:.1f}" height="{BAR}" '
                f'fill="{COLOURS[name]}"><title>{name}: {seconds:.1f} s</title></rect>'
            )
            left += seconds * scale
        parts.append(_text(left + 6, top + BAR / 2 + 4, _numbers(found)))
        top += BAR + 10
    parts += _legend(top + 14)
    return _svg(parts, top + 52)


def curves(all_results: Sequence[Mapping[str, Any]]) -> str:
    """Return an SVG with time and CPU over the number of nodes, a curve for each kind of run."""
    ordered = sorted(all_results, key=_nodes)
    kinds = list(dict.fromkeys(kind for each in ordered for kind in each["summary"]))
    parts = [_text(LABEL, 16, _title(ordered, "by the number of nodes"), size=13)]
    top = 30.0
    for key, words in (("seconds", "s"), ("cpu_seconds_all", "s of CPU of everything")):
        parts += _chart(ordered, kinds, key, words, top)
        top += 190
    return _svg(parts, top)


def _chart(
    ordered: Sequence[Mapping[str, Any]], kinds: Sequence[str], key: str, words: str, top: float
) -> list[str]:
    height, width = 160.0, float(WIDTH - LABEL - RIGHT)
    widest = _nodes(ordered[-1]) or 1
    highest = max(found[key] for each in ordered for found in each["summary"].values()) or 1.0
    parts = [
        _text(LABEL - 8, top + 10, f"{highest:.0f} {words}", anchor="end", size=10),
        _text(LABEL - 8, top + height, "0", anchor="end"),
        f'<path d="M{LABEL},{top}V{top + height}H{LABEL + width}" fill="none" stroke="#999"/>',
    ]
    for number, kind in enumerate(kinds):
        places = [
            (
                LABEL + _nodes(each) / widest * width,
                top + height - each["summary"][kind][key] / highest * height,
            )
            for each in ordered
            if kind in each["summary"]
        ]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        colour = _CURVES[number % len(_CURVES)]
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.append(_text(places[-1][0] + 6, places[-1][1] + 4, kind, colour=colour))
    return parts


def _nodes(results: Mapping[str, Any]) -> int:
    return int(results["nodes"]["simulated"]) + int(results["nodes"]["real"])


def _title(all_results: Sequence[Mapping[str, Any]], what: str) -> str:
    machine = all_results[0]["machine"]
    nodes = ", ".join(f"{_nodes(each):,}" for each in all_results)
    return (
        f"{nodes} nodes: {what}; {machine['processors']} cores, Kubernetes {machine['kubernetes']}"
    )


def _numbers(found: Mapping[str, Any]) -> str:
    words = f"{found['cpu_seconds_all']:.1f} s CPU, {found['seconds']:.1f} s"
    ratio = found.get("cpu_ratio")
    return f"{words} ({ratio['median']} times the floor)" if ratio else words


def _legend(top: float) -> list[str]:
    parts, left = [], float(LABEL)
    for name, colour in COLOURS.items():
        if left + 11 + 7 * len(name) > WIDTH:
            left, top = float(LABEL), top + 18
        parts.append(f'<rect x="{left}" y="{top - 9}" width="10" height="10" fill="{colour}"/>')
        parts.append(_text(left + 14, top, name, size=11))
        left += 30 + 6.4 * len(name)
    return parts


def _text(
    x: float,
    y: float,
    words: str,
    *,
    anchor: str = "start",
    size: int = 12,
    colour: str = "#24292f",
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" '
        f'fill="{colour}">{html.escape(words)}</text>'
    )


def _svg(parts: Sequence[str], height: float) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" '
        f'font-family="system-ui, sans-serif"><rect width="100%" height="100%" fill="#fff"/>'
        f"{''.join(parts)}</svg>"
    )


def main(arguments: Sequence[str]) -> int:
    """Print the plot of the named files."""
    if not arguments:
        print("usage: python -m benchmarks.sweep_plot RESULTS.json...", file=sys.stderr)
        return 2
    found = [json.loads(Path(name).read_text()) for name in arguments]
    print(bars(found[0]) if len(found) == 1 else curves(found))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

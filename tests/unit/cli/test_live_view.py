"""The live view, rendered at several widths, and in a pseudo-terminal."""

import fcntl
import io
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from daemonset_job.api.node_totals import NodeTotals
from daemonset_job.api.states import NodeState
from kubectl_dsjob.command_lines import wrap_command
from kubectl_dsjob.live_view import lines_to, named_nodes, node_grid, render
from kubectl_dsjob.run_view import NodeView
from kubectl_dsjob.status_text import failure_lines, set_aside_lines
from kubectl_dsjob.target import Target
from tests.unit.cli.views import HOSTILE, NOW, real_run, run

ROOT = Path(__file__).parents[3]
SHOW = """
import sys
from tests.unit.cli.views import run
from kubectl_dsjob.live_view import shown_live
with shown_live() as show:
    show(run(int(sys.argv[1])))
"""
FOLLOW = """
import asyncio
from tests.unit.cli.views import run
from kubectl_dsjob import edge
from kubectl_dsjob.live_view import shown_live
async def verb():
    show(run(5))
    await asyncio.sleep(3600)
with shown_live() as show:
    edge.run(verb)
"""


@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize("count", [0, 5, 5000])
def test_the_view_is_no_wider_and_no_longer_than_a_screen(width, count):
    console = Console(width=width, force_terminal=False, no_color=True)
    with console.capture() as capture:
        console.print(render(run(count), width))
    lines = capture.get().splitlines()
    assert all(cell_len(line) <= width for line in lines)
    assert len(lines) <= 32


@pytest.mark.parametrize(
    ("count", "per_cell"), [(5, 1), (480, 1), (481, 1), (960, 1), (961, 2), (5000, 6)]
)
def test_a_cell_stands_for_as_many_nodes_as_needed(count, per_cell):
    lines, found = node_grid(run(count).states, 80)
    assert found == per_cell
    assert len(lines) <= 12
    assert all(cell_len(line.plain) <= 80 for line in lines)


def test_a_cell_has_the_worst_state_of_its_nodes():
    lines, _ = node_grid(run(5000).states, 80)
    assert set(lines[0].plain) == {"✗"}
    assert [node.state for node in run().failed] == [NodeState.FAILED]


@pytest.mark.parametrize("width", [20, 40, 80, 200])
@pytest.mark.parametrize("count", [1, 5, 30])
def test_few_nodes_have_their_names(width, count):
    lines = [line.plain for line in named_nodes(real_run(count).nodes, width)]
    assert all(cell_len(line) <= width for line in lines)
    assert sum(line.count("worker-") for line in lines) == count


def test_a_terminal_that_has_only_ascii_gets_only_ascii():
    console = Console(width=80, force_terminal=False)
    for count in (5, 5000):
        with console.capture() as capture:
            console.print(render(real_run(count), 80, NOW, is_ascii=True))
        assert capture.get().isascii()


@pytest.mark.parametrize("width", [20, 40, 80, 200])
@pytest.mark.parametrize(
    "totals",
    [
        NodeTotals(),
        NodeTotals(desired=5000, completed=4999, failed=1),
        NodeTotals(desired=3, completed=9, failed=9, active=9, unreachable=9),
        NodeTotals(desired=10**9, completed=10**9),
    ],
)
def test_the_bar_fits_and_shows_one_failure_of_thousands(width, totals):
    console = Console(width=width, force_terminal=True, color_system="standard")
    with console.capture() as capture:
        console.print(render(replace(run(0), totals=totals), width))
    bar = next(line for line in capture.get().splitlines() if "%" in line)
    assert cell_len(re.sub(r"\x1b\[[0-9;]*m", "", bar)) <= min(width, 60)
    if totals == NodeTotals(desired=5000, completed=4999, failed=1):
        assert "\x1b[1;91m" in bar


def test_equal_failures_are_one_line_with_the_names_of_their_nodes():
    lines = failure_lines(real_run(5000).failed, 200)
    assert len(lines) == 2
    assert "4 more: exit 1: mkfs.xfs" in lines[1]


CLOUD = "ip-10-0-{}-45.eu-central-1.compute.internal"


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("width", [80, 4096])
def test_a_failed_node_with_a_long_name_is_named(width, count):
    names = [CLOUD.format(100 + i * 7) for i in range(count)]
    nodes = [NodeView(name, NodeState.FAILED, last_lines=("disk full",)) for name in names]
    (_, line) = failure_lines(nodes, width)
    assert line.startswith(f"  {names[0][:25]}")
    assert line.endswith("disk full")
    assert (" and 2 more: " in line) == (count == 3)
    assert cell_len(line) <= width
    assert names[0][:10] in set_aside_lines(names, width)[0]


def test_markup_and_escapes_of_the_cluster_are_only_text():
    console = Console(width=200, force_terminal=True, color_system="standard")
    with console.capture() as capture:
        console.print(render(run(text=HOSTILE), 200))
    plain = re.sub(r"\x1b\[[0-9;]*m", "", capture.get())
    assert "[red]" in plain
    assert "\x1b" not in plain


def test_without_a_terminal_each_change_is_one_line():
    written = []
    show = lines_to(written.append)
    for count in (5, 5, 10):
        show(run(count))
    assert len(written) == 2


@pytest.mark.parametrize("colour", [True, False])
@pytest.mark.parametrize("width", [40, 80, 200])
def test_a_terminal_shows_it(width, colour):
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    env = {**os.environ, "TERM": "xterm-256color", "PYTHONPATH": str(ROOT)}
    env = {k: v for k, v in env.items() if k not in ("NO_COLOR", "COLUMNS", "LINES")}
    env |= {} if colour else {"NO_COLOR": "1"}
    process = subprocess.Popen(
        [sys.executable, "-c", SHOW, "5000"], stdin=slave, stdout=slave, cwd=ROOT, env=env
    )
    os.close(slave)
    shown = b""
    while True:
        try:
            chunk = os.read(master, 65536)
        except OSError:  # the other side is closed
            break
        if not chunk:
            break
        shown += chunk
    os.close(master)
    assert process.wait(20) == 0
    text = shown.decode()
    assert (re.search(r"\x1b\[[0-9;]*3[0-9]m", text) is not None) is colour
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)
    assert "nodes a cell" in plain
    assert all(cell_len(line) <= width for line in re.split(r"[\r\n]+", plain))


def test_a_view_that_is_ended_by_term_gives_the_cursor_back():
    master, slave = pty.openpty()
    env = {**os.environ, "TERM": "xterm-256color", "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([sys.executable, "-c", FOLLOW], stdout=slave, cwd=ROOT, env=env)
    shown = b""
    while b"node-0004" not in shown:
        shown += os.read(master, 65536)
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 128 + signal.SIGTERM
    os.close(slave)
    with suppress(OSError):  # the other side is closed
        while chunk := os.read(master, 65536):
            shown += chunk
    os.close(master)
    assert shown.rindex(b"\x1b[?25h") > shown.rindex(b"\x1b[?25l")


@pytest.mark.parametrize("width", [40, 80])
def test_a_low_terminal_shows_the_command_that_answers(width):
    """What a terminal has no room for is left out above it, not below."""
    nodes = tuple(replace(node, last_lines=(node.name,)) for node in real_run(5000).nodes)
    words = "approve it: `kubectl dsjob approve grow-disk -n storage`"
    view = replace(real_run(5000), nodes=nodes, waits_for=words, is_ended=False, exists=True)
    console = Console(width=width, file=io.StringIO())
    console.print(render(view, width, NOW, height=24))
    lines = console.file.getvalue().splitlines()
    assert len(lines) < 24
    assert "approve grow-disk" in " ".join(lines[-2:])


BASH = 'kubectl() { printf "%s\\n" "$@" --; }; '


@pytest.mark.parametrize("width", [24, 40, 60, 80, 200])
@pytest.mark.parametrize("context", ["prod-eu-central-1", "the lab", "arn:aws:eks:eu:1:cluster/x"])
def test_a_command_that_is_copied_from_a_narrow_terminal_is_whole(width, context):
    """A shell would run the first of two lines alone: without namespace and cluster."""
    view = replace(run(5), name="disable-huge-pages", namespace="maintenance")
    flags = Target(context, "", "").flags()
    console = Console(width=width, file=io.StringIO())
    console.print(render(view, width, NOW, flags=flags))
    lines = console.file.getvalue().splitlines()
    first = next(i for i, line in enumerate(lines) if line.strip().startswith("kubectl"))
    copied = "\n".join(lines[first:])
    done = subprocess.run(["bash", "-c", BASH + copied], capture_output=True, text=True, check=True)
    words = ["dsjob", "retry", "--failed", view.name, "-n", view.namespace, "--context", context]
    assert done.stdout.splitlines() == [*words, "--"]
    assert done.stderr == ""


def test_a_command_within_a_sentence_is_whole_and_the_sentence_has_no_backslash():
    text = "waits for you: approve it: `kubectl dsjob approve grow-disk -n storage` or abort it now"
    assert wrap_command(text, 40) == [
        "waits for you: approve it: `kubectl \\",
        "  dsjob approve grow-disk -n storage` or",
        "abort it now",
    ]

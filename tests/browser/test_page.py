"""The page of a run in headless Chromium: `make test-browser`."""

import re

import pytest

from kubectl_dsjob.html_page import html_page
from tests.browser.chromium import PICTURES, ROOT, colours, picture, rows, run
from tests.unit.cli.views import HOSTILE, real_run, undone_run
from tests.unit.cli.views import run as hostile_run

# As in the style of the page, with light colours.
COMPLETED, FAILED, ACTIVE = (0x2A, 0x9D, 0x6F), (0xD1, 0x35, 0x2B), (0x2F, 0x6F, 0xDE)
BACKGROUND, DARK_BACKGROUND = (0xF6, 0xF7, 0xF9), (0x12, 0x17, 0x1D)


@pytest.fixture
def page(tmp_path):
    def write(view):
        path = tmp_path / "page.html"
        path.write_text(html_page(view), "utf-8")
        return path

    return write


@pytest.mark.parametrize("count", sorted(PICTURES))
def test_the_states_of_the_nodes_are_seen(page, tmp_path, count):
    shown = tmp_path / "page.png"
    log = picture(page(real_run(count)), shown, (800, 900))
    assert "CONSOLE" not in log
    found = colours(shown)
    assert found[COMPLETED] > found[FAILED] > 0
    assert (found[ACTIVE] > 0) is (count == 5000)


@pytest.mark.parametrize("count", sorted(PICTURES))
def test_the_document_has_a_cell_for_each_node(page, count):
    document, log = run(page(real_run(count)), "--dump-dom")
    grid = re.search(r'<div class="grid.*?</div>', document, re.DOTALL)[0]
    assert grid.count("<i ") == count
    assert "CONSOLE" not in log


def test_what_a_task_printed_stays_text(page):
    document, log = run(page(hostile_run(5, HOSTILE)), "--dump-dom")
    assert "<script" not in document
    assert "&lt;script&gt;alert(1)" in document
    assert "CONSOLE" not in log


@pytest.mark.parametrize("count", sorted(PICTURES))
def test_a_narrow_window_shows_all_of_its_width(page, tmp_path, count):
    """A page that is wider than its window is cut: then something is at its right end."""
    shown = tmp_path / "narrow.png"
    picture(page(real_run(count)), shown, (500, 900))
    assert {colour for row in rows(shown) for colour in row[-10:]} == {BACKGROUND}


def test_a_rollback_is_seen_in_a_narrow_window(page, tmp_path):
    written = page(undone_run())
    document, _ = run(written, "--dump-dom")
    assert "<h2>Rollback</h2>" in document
    shown = tmp_path / "narrow.png"
    picture(written, shown, (500, 900))
    assert {colour for row in rows(shown) for colour in row[-10:]} == {BACKGROUND}


def test_a_dark_screen_gets_dark_colours(page, tmp_path):
    shown = tmp_path / "dark.png"
    picture(page(real_run(5)), shown, (800, 900), "--blink-settings=preferredColorScheme=0")
    assert colours(shown).most_common(1)[0][0] in (DARK_BACKGROUND, (0x1B, 0x22, 0x2B))


@pytest.mark.parametrize("count", sorted(PICTURES))
def test_the_picture_in_the_documentation_is_there(count):
    assert (ROOT / "docs" / f"report-{count}.png").stat().st_size > 10_000

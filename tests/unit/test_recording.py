"""The picture in README is drawn from a real recording, and shows README's first example."""

import pytest

from hack.recording.__main__ import CAST, COMMANDS, EXAMPLE, PICTURE, TITLE
from hack.recording.cast import COLUMNS, Line, read, write
from hack.recording.svg import PROMPT, draw
from tests.unit.language import ROOT

LINES = [Line(0.0, "$ kubectl get 'a' <b> & c"), Line(1.5, "  über")]


def test_the_picture_is_drawn_from_the_recording():
    recording = read(CAST.read_text(encoding="utf-8"))
    assert PICTURE.read_text(encoding="utf-8") == draw(recording, TITLE)


def test_the_recording_is_of_the_commands_and_fits_the_picture():
    recording = read(CAST.read_text(encoding="utf-8"))
    assert [line.text for line in recording if line.text.startswith(PROMPT)] == [
        PROMPT + command for command in COMMANDS
    ]
    assert [line.text for line in recording if len(line.text) > COLUMNS] == []
    assert [line.seconds for line in recording] == sorted(line.seconds for line in recording)


def test_the_picture_shows_the_first_example_of_the_readme():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert EXAMPLE in readme
    assert PICTURE.relative_to(ROOT).as_posix() in readme


def test_a_recording_is_read_as_it_was_written():
    assert read(write(LINES)) == LINES


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"version": 1}\n', "not asciicast v2"),
        ('{"version": 2}\n[0, "o", "part"]\n', "not one line of output"),
        ('{"version": 2}\n[0, "o", "a\\nb\\r\\n"]\n', "not one line of output"),
        ('{"version": 2}\n[0, "i", "a\\r\\n"]\n', "not one line of output"),
    ],
)
def test_another_recording_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        read(text)


def test_a_line_is_escaped_and_appears_at_its_time():
    drawn = draw(LINES, "a & b")
    assert "<title>a &amp; b</title>" in drawn
    assert '1.50s">  über</text>' in drawn
    assert "&lt;b&gt; &amp; c" in drawn
    assert drawn.count('class="command"') == 1

"""The picture in README is drawn from a real recording, and shows README's first commands."""

from xml.etree import ElementTree as ET

import pytest

from hack.recording.__main__ import CAST, COMMANDS, PICTURE, TITLE
from hack.recording.cast import COLUMNS, Output, read, write
from hack.recording.screen import Span, Version, versions
from hack.recording.svg import PROMPT, draw
from tests.unit.language import ROOT

OUTPUTS = [Output(0.0, "$ kubectl get 'a' <b> & c\r\n"), Output(1.5, "  über\r\n")]


def recording():
    return read(CAST.read_text(encoding="utf-8"))


def test_the_picture_is_drawn_from_the_recording():
    assert PICTURE.read_text(encoding="utf-8") == draw(recording(), TITLE)


def test_the_recording_is_of_the_commands_and_fits_the_picture():
    commands = [each.text for each in recording() if each.text.startswith(PROMPT)]
    assert [text.removeprefix(PROMPT).split() for text in commands] == [
        command.split() for command in COMMANDS
    ]
    for version in versions(recording()):
        assert sum(len(span.text) for span in version.spans) <= COLUMNS
    assert [each.seconds for each in recording()] == sorted(each.seconds for each in recording())


def test_the_picture_shows_the_first_commands_of_the_readme():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for command in COMMANDS:
        assert " ".join(command.replace("\\\n", " ").split()) in readme
    assert PICTURE.relative_to(ROOT).as_posix() in readme


def test_a_recording_is_read_as_it_was_written():
    assert read(write(OUTPUTS)) == OUTPUTS


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"version": 1}\n', "not asciicast v2"),
        ('{"version": 2}\n[0, "i", "a\\r\\n"]\n', "not output"),
    ],
)
def test_another_recording_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        read(text)


def test_a_row_that_is_written_again_has_two_versions():
    live = [Output(0.5, "one\r\n"), Output(1.0, "\x1b[1A\r\x1b[2K\x1b[1;32mtwo\x1b[0m!\r\n")]
    assert versions(live) == [
        Version(0, (Span("one"),), 0.5, 1.0),
        Version(0, (Span("two", ("1", "32")), Span("!")), 1.0, None),
    ]


@pytest.mark.parametrize("text", ["\x1b[2J", "\x1bc", "\x1b"])
def test_a_sequence_that_is_not_known_is_an_error(text):
    with pytest.raises(ValueError, match="unknown"):
        versions([Output(0, text)])


def test_a_line_is_escaped_and_appears_at_its_time():
    drawn = draw(OUTPUTS, "a & b")
    assert "<title>a &amp; b</title>" in drawn
    assert 'appear 1ms 1.50s both">  über</text>' in drawn
    assert "&lt;b&gt; &amp; c" in drawn
    assert drawn.count('class="command"') == 1
    ET.fromstring(drawn)


def test_without_animations_only_the_end_is_seen():
    drawn = draw([Output(0, "old\r"), Output(1, "\x1b[2Knew")], "t")
    assert 'class="past" style="animation: appear 1ms 0.00s both, vanish 1ms 1.00s' in drawn
    assert drawn.count('class="past"') == 1

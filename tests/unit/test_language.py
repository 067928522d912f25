"""The texts of the project keep its rules of language."""

import pytest

from tests.unit.language import (
    MAX_WORDS,
    checked_files,
    name_of,
    of_comments,
    of_manifest,
    of_module,
    of_page,
    violations,
)
from tests.unit.language import check as check_paragraph

AVOIDED = "anew"


@pytest.mark.parametrize("path", checked_files(), ids=name_of)
def test_texts_keep_the_rules_of_language(path):
    listed = [f"{name_of(path)}:{each.line}: {each.message}" for each in violations(path)]
    assert not listed, "\n".join(listed)


def messages(paragraph):
    return [each.message for each in check_paragraph(1, paragraph)]


def test_a_word_to_avoid_is_found_with_its_replacement_but_not_in_code():
    assert messages(f"It is made {AVOIDED}.") == [f'"{AVOIDED}": write again']
    assert messages(f"It runs `{AVOIDED}`, see [this]({AVOIDED}.md).") == []


def test_a_test_avoids_the_same_words_but_may_have_long_sentences(tmp_path):
    path = tmp_path / "test_it.py"
    path.write_text(f'"""Made {AVOIDED}.\n\nIt is {"word " * 40}"""\n')
    assert [(each.line, each.message) for each in violations(path)] == [
        (1, f'"{AVOIDED}": write again')
    ]


def test_a_long_sentence_is_found_but_not_in_a_table():
    words = " ".join(["word"] * MAX_WORDS)
    assert messages(f"{words}. {words}!") == []
    assert messages(f"{words}, e.g. more.") != []
    assert messages(f"| {words} more |") == []


def test_prose_of_a_page_is_all_but_its_code():
    page = (
        "# Head\n\nA line\nof two.\n- one\n- two\n\n```sh\ncode\n```\n\n    code\n\n## [0.1.0]\nold"
    )
    assert list(of_page(page)) == [
        (1, "# Head"),
        (3, "A line of two."),
        (5, "- one"),
        (6, "- two"),
    ]


def test_prose_of_a_module_is_its_comments_docstrings_and_messages():
    module = (
        '"""Doc."""\n# One\n# two.\nx = 1  # three\ny = f"a {x} is bad"\nz = "key"\n# noqa: X\n'
    )
    assert sorted(of_module(module)) == [
        (1, "Doc."),
        (2, "One two."),
        (4, "three"),
        (5, "a X is bad"),
    ]


def test_prose_of_a_manifest_is_its_comments_and_descriptions():
    manifest = "a: 1\nb:\n  description: >-\n    Two\n    lines.\n  type: x\n# Why.\n"
    assert sorted(of_manifest(manifest)) == [(3, "Two lines."), (7, "Why.")]
    assert list(of_comments("# a\n# b\n\n# c\n")) == [(1, "a b"), (4, "c")]

"""README, tutorials and how-to guides: their commands are run, and print what the page prints."""

from contextlib import nullcontext

import pytest

from tests.e2e.doc_blocks import doc_pages, page_name, steps
from tests.e2e.doc_runner import PageRunner
from tests.e2e.doc_surroundings import ALONE, SURROUNDINGS

PAGES = {
    page_name(page): found
    for page in doc_pages()
    if (found := steps(page.read_text(encoding="utf-8")))
}
# Guides that take most of a minute, and whose features other tests use on nodes.
LONG = {
    f"docs/how-to/{name}.md"
    for name in (
        "correct-a-job",
        "gitops",
        "nodes-that-join",
        "one-run-at-a-time",
        "preview-a-rollout",
        "pull-images-first",
        "retry-and-rerun",
        "roll-out-in-steps",
    )
}
MARKED = [
    pytest.param(
        name,
        marks=[
            *([pytest.mark.alone] if name in ALONE else []),
            *([pytest.mark.on_demand] if name in LONG else []),
        ],
        id=name,
    )
    for name in PAGES
]
assert set(PAGES) >= LONG


@pytest.mark.parametrize("name", MARKED)
def test_commands_of_a_page_print_what_it_prints(cluster, namespace, tmp_path, name):
    assert len(cluster.nodes) == 3, "the pages show a cluster of three nodes: NODES=3"
    surroundings = SURROUNDINGS.get(name)
    with surroundings(cluster) if surroundings else nullcontext():
        PageRunner(cluster, namespace, tmp_path).run(PAGES[name])

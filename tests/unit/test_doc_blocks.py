"""Every command of README, tutorials and how-to guides is run, or the page says why it is not."""

import pytest

from tests.e2e.cluster import TASK_IMAGE
from tests.e2e.doc_blocks import (
    ROOT,
    RUN_LANGUAGES,
    Block,
    Command,
    File,
    blocks,
    commands,
    doc_pages,
    page_name,
    steps,
)
from tests.e2e.doc_output import is_same, normalise
from tests.e2e.doc_runner import real_names
from tests.e2e.doc_surroundings import ALONE, SURROUNDINGS

PAGES = doc_pages()


def text_of(page):
    return page.read_text(encoding="utf-8")


# --- the pages ---------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_every_command_of_a_page_is_run_or_has_a_reason(page):
    run = {step.line for step in steps(text_of(page))}
    left = [
        block.line
        for block in blocks(text_of(page))
        if block.language in RUN_LANGUAGES
        and not block.file
        and not block.not_run
        # A console block is as many steps as it has commands, from its second line on.
        and not run & set(range(block.line, block.line + block.text.count("\n") + 1))
    ]
    assert left == []


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_a_comment_that_keeps_a_block_from_being_run_is_right_above_it(page):
    text = text_of(page)
    reasons = [block.not_run for block in blocks(text) if block.not_run]
    whole = text.count("<!-- page not run: ")
    assert whole or len(reasons) == text.count("<!-- not run: ")
    assert all(block.language in RUN_LANGUAGES for block in blocks(text) if block.not_run) or whole


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_an_example_that_a_page_shows_is_the_file(page):
    shown = [block for block in blocks(text_of(page)) if block.file.startswith("examples/")]
    wrong = [b.file for b in shown if (ROOT / b.file).read_text(encoding="utf-8") != b.text]
    assert wrong == []


def test_every_example_is_run():
    """By a page that names it in a command, or by a test of its own."""
    by_tests = {
        *("01-cleanup", "02-script-image", "03-selected-nodes", "14-cleanup-sweep"),
        *("15-image-prepull", "16-disk-report", "17-kubelet-config-drift", "18-host-script"),
        *("19-node-reboot", "20-sysctl-and-taint", "21-node-labels", "22-ca-certificates"),
        *("23-nightly-sweep", "24-canary-then-promote", "25-drain-and-patch"),
        "26-sweep-in-a-window",
    }
    commands_ = "".join(
        step.text for page in PAGES for step in steps(text_of(page)) if isinstance(step, Command)
    )
    examples = {folder.name for folder in (ROOT / "examples").iterdir() if folder.is_dir()}
    assert {name for name in examples - by_tests if f"examples/{name}" not in commands_} == set()


def test_surroundings_are_those_of_pages_that_exist():
    assert {*SURROUNDINGS, *ALONE} <= {page_name(page) for page in PAGES}


# --- blocks ------------------------------------------------------------------------------

PAGE = """# Page

<!-- not run: makes a cluster -->

```sh
make cluster
```

Text, `hello.yaml`:

```yaml
kind: Job
```

[examples/01/job.yaml](../examples/01/job.yaml):

```yaml
kind: Job
```

- item

  ```console
  $ kubectl apply -f hello.yaml
  created
  $ cat <<END
  > a
  > END
  a
  ```

```yaml
spec: {}
```
"""


def test_blocks_have_their_reason_their_file_and_their_line():
    assert blocks(PAGE)[:3] == [
        Block("sh", "make cluster\n", 5, "makes a cluster"),
        Block("yaml", "kind: Job\n", 11, "", "hello.yaml"),
        Block("yaml", "kind: Job\n", 17, "", "examples/01/job.yaml"),
    ]
    assert [block.language for block in blocks(PAGE)[3:]] == ["console", "yaml"]


def test_steps_are_files_and_commands_with_their_output():
    assert steps(PAGE) == [
        File(11, "hello.yaml", "kind: Job\n"),
        Command(24, "kubectl apply -f hello.yaml", ("created",)),
        Command(26, "cat <<END\na\nEND", ("a",)),
    ]


def test_a_reason_holds_for_the_next_block_only_and_for_no_text_between():
    comment = "<!-- not run: why -->\n\n"
    block = "```sh\ntrue\n```\n\n"
    assert [b.not_run for b in blocks(comment + block + block)] == ["why", ""]
    assert [b.not_run for b in blocks(comment + "Text.\n\n" + block)] == [""]
    assert [b.not_run for b in blocks("# P\n\n<!-- page not run: all -->\n\n" + block * 2)] == [
        "all",
        "all",
    ]


def test_a_block_of_sh_is_one_command_without_output():
    assert steps("```sh\nfalse\ntrue\n```\n") == [Command(1, "false\ntrue\n", None)]


def test_a_console_block_begins_with_a_command():
    with pytest.raises(ValueError, match="line 2: a console block begins with a command"):
        commands(Block("console", "output\n", 1))


def test_only_what_reads_is_repeated_and_only_a_watch_is_ended():
    read, watch, write = (
        Command(1, text, ()) for text in ("kubectl get dsj", "kubectl get dsj -w", "kubectl apply")
    )
    assert [c.is_read for c in (read, watch, write)] == [True, True, False]
    assert [c.is_watch for c in (read, watch, write)] == [False, True, False]
    assert not Command(1, "kubectl get dsj\n", None).is_read
    assert not Command(1, "kubectl get dsj -o json | kubectl create -f -", ()).is_read


@pytest.mark.parametrize(
    ("output", "expected"),
    [(None, True), ((), True), (("...",), True), (("error",), False), (("...", "error"), False)],
)
def test_what_prints_nothing_that_is_compared_must_succeed(output, expected):
    assert Command(1, "kubectl wait --for=delete dsj/a", output).must_succeed is expected


# --- output ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("printed", "real"),
    [
        ("job-44b3ca9d", "job-0123abcd"),
        ("job-20261121152240-44b3c", "job-20261122000000-0123a"),
        ("x-daemonset-job-wbs4r", "x-daemonset-job-85t5q"),
        ("at 2026-11-21T15:22:40Z", "at 2027-01-01T00:00:00.123Z"),
        ("+1s done in 3m5s", "+2s done in 10s"),
        ("Warning  3s (x2 over 8s)  x", "Warning  12s  x"),
        ("kernel=6.18.44\ncpus=2", "kernel=5.10.0-8-amd64\ncpus=64"),
        ("on dsj-f2af6c-worker2", "on mine-worker2"),
        ("JOB   SECONDS   AGE\na     1         8s", "JOB   SECONDS   AGE\na     17        1m"),
        (
            "NAME       AGE\na          8s",
            "NAME                    AGE\na                       8s",
        ),
        ("a\n...\nd", "a\nb\n\nc\nd"),
        ("a\n...", "a"),
        ("1 of 3 ... 'full'", "1 of 3 nodes failed: 'full'"),
        ("a.b*c", "a.b*c"),
    ],
)
def test_what_is_not_stable_is_not_compared(printed, real):
    assert is_same(printed, real, "mine")


@pytest.mark.parametrize(
    ("printed", "real"),
    [
        ("", "error"),
        ("a", "a\nb"),
        ("a\n...\nd", "a\nb"),
        ("a.b", "axb"),
        ("3 of 3 nodes", "2 of 3 nodes"),
        ("JOB   FAILED   AGE\na     0        8s", "JOB   FAILED   AGE\na     1        8s"),
        ("JOB   AGE\na     8s", "JOB   AGE\nb     8s"),
        ("on dsj-f2af6c-worker", "on mine-worker2"),
    ],
)
def test_everything_else_is(printed, real):
    assert not is_same(printed, real, "mine")


def test_columns_of_numbers_are_masked_by_their_header_until_a_blank_line():
    assert normalise("NAME   SECONDS\na      3\n\na      3") == ["NAME SECONDS", "a N", "a 3"]


def test_a_page_names_nodes_and_images_that_the_cluster_has():
    text = "exec dsj-f2af6c-worker; image: busybox:1.37"
    assert real_names(text, "dsj-abcdef") == f"exec dsj-abcdef-worker; image: {TASK_IMAGE}"

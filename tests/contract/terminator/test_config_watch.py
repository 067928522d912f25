"""The configuration file as the kubelet mounts it: links into a directory that is swapped."""

import asyncio
from functools import partial

import pytest
from loguru import logger

from daemonset_job.process import config_watch as reload
from daemonset_job.process.config_watch import SIZE_LIMIT, follow_file, read_text
from daemonset_job.process.reload import Reloader
from terminator.config import Config, load_config
from terminator.metrics import Metrics
from tests.contract.terminator.cluster import eventually


class Mount:
    """A ConfigMap volume, updated as pkg/volume/util/atomic_writer.go does."""

    def __init__(self, root):
        self.root, self.serial = root, 0
        self.path = root / "config.yaml"
        self.write("terminationWord: done\n")
        self.path.symlink_to("..data/config.yaml")

    def write(self, text):
        self.serial += 1
        directory = self.root / f"..2026_{self.serial}"
        directory.mkdir()
        (directory / "config.yaml").write_text(text)
        link = self.root / "..data_tmp"
        link.symlink_to(directory.name)
        link.replace(self.root / "..data")


@pytest.fixture
def mount(tmp_path):
    return Mount(tmp_path)


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(reload, "DEBOUNCE_SECONDS", 0.02)


@pytest.fixture
async def follow(quick):
    """Start following a file; returns the texts seen and the errors."""
    tasks = []

    async def start(path):
        texts, errors = [], []
        known = read_text(path)
        tasks.append(asyncio.create_task(follow_file(path, known, texts.append, errors.append)))
        await asyncio.sleep(0.05)
        return texts, errors

    yield start
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_swapped_link_is_noticed(mount, follow):
    texts, errors = await follow(mount.path)
    mount.write("terminationWord: fini\n")
    await eventually(lambda: texts)
    mount.write("terminationWord: ready\n")
    await eventually(lambda: len(texts) == 2)
    assert texts == ["terminationWord: fini\n", "terminationWord: ready\n"]
    assert errors == []


async def test_the_same_text_again_is_no_change(mount, follow):
    texts, _ = await follow(mount.path)
    mount.write("terminationWord: done\n")
    await asyncio.sleep(0.1)
    assert texts == []


async def test_a_file_that_goes_and_comes(tmp_path, follow):
    path = tmp_path / "config.yaml"
    texts, _ = await follow(path)
    path.write_text("maxStreams: 1\n")
    await eventually(lambda: texts == ["maxStreams: 1\n"])
    path.unlink()
    await eventually(lambda: texts == ["maxStreams: 1\n", None])


async def test_unreadable_file_is_an_error_and_the_next_good_one_is_used(mount, follow):
    texts, errors = await follow(mount.path)
    mount.write("x" * (SIZE_LIMIT + 1))
    await eventually(lambda: errors)
    assert "it is no configuration" in str(errors[0])
    mount.write("maxStreams: 2\n")
    await eventually(lambda: texts == ["maxStreams: 2\n"])


async def test_a_file_that_stays_unreadable_is_one_error(mount, follow, monkeypatch):
    monkeypatch.setattr(reload, "POLL_SECONDS", 0.02)
    texts, errors = await follow(mount.path)
    mount.write("x" * (SIZE_LIMIT + 1))
    await eventually(lambda: errors)
    await asyncio.sleep(0.3)
    assert len(errors) == 1
    mount.write("maxStreams: 2\n")
    await eventually(lambda: texts)
    mount.write("x" * (SIZE_LIMIT + 1))
    await eventually(lambda: len(errors) == 2)


async def test_a_directory_that_cannot_be_watched_is_looked_at_now_and_then(
    tmp_path, follow, monkeypatch
):
    monkeypatch.setattr(reload, "POLL_SECONDS", 0.05)
    path = tmp_path / "later" / "config.yaml"
    texts, _ = await follow(path)
    path.parent.mkdir()
    path.write_text("maxStreams: 3\n")
    await eventually(lambda: texts == ["maxStreams: 3\n"])


def test_bytes_that_are_no_text(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=r"config\.yaml is not text in UTF-8: .*, byte 0$"):
        read_text(path)


# --- what a new text does ---------------------------------------------------------------


@pytest.fixture
def reloader(monkeypatch):
    levels = []
    monkeypatch.setattr(
        "daemonset_job.process.reload.configure_logging", lambda *args: levels.append(args)
    )
    applied, metrics = [], Metrics()
    load = partial(load_config, {"TERMINATION_WORD": "fini"})
    reloader = Reloader(load, applied.append, metrics.reloads)
    reloader.levels, reloader.applied, reloader.registry = levels, applied, metrics.registry
    return reloader


def errors_of(reloader):
    labels = {"component": "terminator"}
    return reloader.registry.get_sample_value("dsj_config_reload_errors_total", labels)


def test_a_good_text_is_applied(reloader):
    reloader.apply_text("maxStreams: 5\nlogLevel: debug\nlogFormat: json\n")
    (config,) = reloader.applied
    assert (config.max_streams, config.termination_word) == (5, "fini")
    assert reloader.levels == [("DEBUG", True)]
    assert errors_of(reloader) == 0


def test_a_file_that_is_gone_leaves_the_environment(reloader):
    reloader.apply_text(None)
    assert reloader.applied == [Config(termination_word="fini")]


def test_a_bad_text_changes_nothing_and_says_why(reloader):
    said = []
    sink = logger.add(lambda message: said.append(message.record))
    reloader.apply_text("maxStreams: many\nlogLevel: loud\n")
    logger.remove(sink)
    assert reloader.applied == []
    assert reloader.levels == []
    assert errors_of(reloader) == 1
    problems = [record["extra"]["problem"] for record in said]
    assert problems[0] == "maxStreams: 'many' is not valid; write a whole number from 0 to 4000"
    assert problems[1].startswith("logLevel: 'loud' is not valid; write one of TRACE")

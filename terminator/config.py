"""The terminator's configuration, and the options of its process.

The configuration is the file over the environment, and can change while the process runs; the
options are arguments over the environment. Connects to nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from daemonset_job.api import names
from daemonset_job.process.process_options import process_settings
from daemonset_job.process.readers import (
    duration,
    line,
    number,
    read_label_selector,
    read_log_format,
    read_log_level,
    read_namespaces,
    read_text,
)
from daemonset_job.process.settings import Setting, read_arguments, read_settings

DEFAULT_PATH = "/etc/terminator/config.yaml"
LEASE_NAME = "daemonset-job-terminator"
_DAY_SECONDS = 86400.0


@dataclass(frozen=True, slots=True)
class Config:
    """The configuration. Times in seconds.

    `namespaces` empty: all. `termination_word`: the token of Jobs that name none. `max_streams`:
    logs followed at a time. `short_reads`: reads of a log's end at a time. `flush_interval`: how
    long evidence waits for more of it before it is written. `resync_period`: how often every Job
    is reconciled without an event.
    """

    namespaces: tuple[str, ...] = ()
    pod_label_selector: str = names.MANAGED_SELECTOR
    termination_word: str = names.DEFAULT_TOKEN
    resync_period: float = 30.0
    max_streams: int = 256
    short_reads: int = 16
    flush_interval: float = 0.5
    log_level: str = "INFO"
    log_format: str = "human"

    @property
    def log_json(self) -> bool:
        """Return whether lines of the log are JSON."""
        return self.log_format == "json"


@dataclass(frozen=True, slots=True)
class Options:
    """The options of the process: `ProcessOptions`, and the configuration file to follow."""

    kubeconfig: str | None = None
    context: str | None = None
    path: Path = Path(DEFAULT_PATH)
    identity: str = "terminator"
    lease_namespace: str = ""
    lease_name: str = LEASE_NAME
    probe_host: str | None = None
    probe_port: int = 8081


# The first four variables have the names of this project's first version.
SETTINGS = (
    Setting("namespaces", read_namespaces, "all", variable="NAMESPACE", key="namespaces"),
    Setting(
        "pod_label_selector",
        read_label_selector,
        names.MANAGED_SELECTOR,
        variable="POD_LABEL_SELECTOR",
        key="podLabelSelector",
    ),
    Setting(
        "termination_word",
        line("write a word, in quotes if YAML takes it for something else"),
        names.DEFAULT_TOKEN,
        variable="TERMINATION_WORD",
        key="terminationWord",
    ),
    Setting(
        "resync_period",
        duration(1.0, _DAY_SECONDS),
        "30s",
        variable="TICKER_DURATION",
        key="resyncPeriod",
    ),
    Setting("max_streams", number(0, 4000), "256", key="maxStreams"),
    Setting("short_reads", number(1, 64), "16", key="shortReads"),
    Setting("flush_interval", duration(0.0, _DAY_SECONDS), "500ms", key="flushInterval"),
    Setting("log_level", read_log_level, "INFO", variable="LOG_LEVEL", key="logLevel"),
    Setting("log_format", read_log_format, "human", variable="LOG_FORMAT", key="logFormat"),
)
OPTIONS = (
    *process_settings(probe_port=8081),
    Setting(
        "path",
        lambda raw: Path(read_text(raw)),
        DEFAULT_PATH,
        flag="--config",
        variable="TERMINATOR_CONFIG",
        help="file to follow",
    ),
    Setting("lease_name", read_text, LEASE_NAME, flag="--lease-name", help="name of the Lease"),
)


def load_config(environ: Mapping[str, str], text: str | None) -> Config:
    """Return the configuration: the file's `text` over the environment over the defaults.

    Raises ConfigError with every problem there is, not only the first.
    """
    return Config(**read_settings(SETTINGS, environ, text=text))


def parse_options(arguments: Sequence[str], environ: Mapping[str, str], hostname: str) -> Options:
    """Return the options: arguments over environment over defaults.

    Exits with code 2 and a usage message for arguments that it does not understand. Raises
    ConfigError for variables that cannot be used.
    """
    given = read_arguments(
        OPTIONS,
        arguments,
        program="terminator",
        description="Reads the logs of Jobs' tasks, enters completed nodes in their JobReports and "
        "deletes the Jobs (daemonset.darkowlzz.space) that every node has completed.",
    )
    values = read_settings(OPTIONS, environ, arguments=given)
    return Options(**{"identity": hostname} | values)

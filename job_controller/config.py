"""The controller's settings: its command line, its configuration file and its environment.

It reads, checks, and reports what is wrong; it connects to nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from daemonset_job.api import names
from daemonset_job.process.process_options import process_settings
from daemonset_job.process.readers import (
    duration,
    line,
    number,
    read_log_format,
    read_log_level,
    read_namespaces,
    read_text,
    zero_is_none,
)
from daemonset_job.process.settings import Setting, read_arguments, read_settings
from job_controller.core.cluster_keys import read_cluster_keys
from job_controller.core.receivers import Receiver
from job_controller.core.sources import Source
from job_controller.receiver_settings import read_receivers
from job_controller.source_settings import read_sources

# As for durations in a Job's spec.
_LONGEST_SECONDS = 315_360_000.0


@dataclass(frozen=True, slots=True)
class Config:
    """The controller's configuration, and its `ProcessOptions` with it.

    `namespaces`: those whose Jobs it looks after, empty for all. `cluster_keys`: the keys
    `rollout.exclusive` that hold over all namespaces. `lease_namespace`: where the
    leader election's Lease lives; empty means no election, for a controller run by hand.
    `workers`: Jobs that are worked on at the same time. `pod_start_timeout_seconds` and
    `node_unreachable_grace_period_seconds`: see `core.settings.Timeouts`. `history_limit`,
    `history_max_age_seconds` and `history_namespace_limit` (None: no limit), `receivers`, `sources`
    and `cluster_name`: see `core.settings.Settings`. `node_name`: the node that runs this program,
    "" if it is not known. `path`: the configuration file to follow, None for none; what the file
    can hold may change while the program runs.
    """

    namespaces: tuple[str, ...] = ()
    cluster_keys: tuple[str, ...] = ()
    kubeconfig: str | None = None
    context: str | None = None
    token: str = names.DEFAULT_TOKEN
    identity: str = "job-controller"
    lease_namespace: str = ""
    lease_name: str = "daemonset-job-controller"
    workers: int = 4
    pause_image: str = names.DEFAULT_PAUSE_IMAGE
    task_image: str = names.DEFAULT_TASK_IMAGE
    pod_start_timeout_seconds: float = 300.0
    node_unreachable_grace_period_seconds: float = 60.0
    history_limit: int = 10
    history_max_age_seconds: float | None = 2_592_000.0
    history_namespace_limit: int | None = 500
    receivers: tuple[Receiver, ...] = ()
    sources: tuple[Source, ...] = ()
    cluster_name: str = ""
    node_name: str = ""
    path: Path | None = None
    probe_host: str | None = None
    probe_port: int = 8080
    log_level: str = "INFO"
    log_json: bool = False


def _read_token(raw: object) -> str:
    token = read_text(raw)
    if not token.strip() or token != token.strip() or not token.isprintable():
        raise ValueError("write a word without blanks around it, such as done")
    return token


def _read_image(raw: object) -> str:
    image = read_text(raw)
    if not image.isprintable() or image.split() != [image]:
        raise ValueError("write the reference of an image, without blanks")
    return image


_UNKNOWN_NODE = "unknown"
_read_duration = duration(0.0, _LONGEST_SECONDS)

_read_line = line("write a name of one line, such as prod-eu")


def _read_cluster_name(raw: object) -> str:
    name = _read_line(raw)
    if len(name) > 63:
        raise ValueError("write at most 63 characters")
    return name


_PATH = Setting(
    "path",
    lambda raw: Path(read_text(raw)) if raw else None,
    "none",
    flag="--config",
    variable="CONTROLLER_CONFIG",
    help="file to follow",
)
SETTINGS = (
    *process_settings(probe_port=8080),
    _PATH,
    Setting(
        "namespaces",
        read_namespaces,
        "all",
        flag="--namespaces",
        variable="WATCH_NAMESPACES",
        help="namespaces of Jobs, such as a,b",
    ),
    Setting(
        "cluster_keys",
        read_cluster_keys,
        "none",
        flag="--cluster-exclusive-keys",
        variable="CLUSTER_EXCLUSIVE_KEYS",
        help="keys rollout.exclusive that hold over all namespaces, such as kernel,disk-*",
    ),
    Setting(
        "token",
        _read_token,
        names.DEFAULT_TOKEN,
        flag="--completion-token",
        variable="TERMINATION_WORD",
        key="completionToken",
        help="completion token of Jobs that name none",
        takes_blank=True,
    ),
    Setting(
        "workers",
        number(1),
        "4",
        flag="--workers",
        variable="WORKERS",
        help="Jobs of one namespace that are reconciled at a time",
    ),
    Setting(
        "pause_image",
        _read_image,
        names.DEFAULT_PAUSE_IMAGE,
        flag="--pause-image",
        variable="PAUSE_IMAGE",
        old_variable="HOLD_IMAGE",
        key="pauseImage",
        help="image of the second container of a pod in mode Exit, which keeps the pod running",
    ),
    Setting(
        "task_image",
        _read_image,
        names.DEFAULT_TASK_IMAGE,
        flag="--task-image",
        variable="TASK_IMAGE",
        key="taskImage",
        help="image of Jobs that have a script and no image",
    ),
    Setting(
        "pod_start_timeout_seconds",
        _read_duration,
        "5m",
        flag="--pod-start-timeout",
        variable="POD_START_TIMEOUT",
        old_variable="START_PATIENCE_SECONDS",
        key="podStartTimeout",
        help="how long a pod may fail to start (image, volume, room) before its node fails",
    ),
    Setting(
        "node_unreachable_grace_period_seconds",
        _read_duration,
        "60s",
        flag="--node-unreachable-grace-period",
        variable="NODE_UNREACHABLE_GRACE_PERIOD",
        old_variable="UNREACHABLE_PATIENCE_SECONDS",
        key="nodeUnreachableGracePeriod",
        help="how long a node may be not Ready before it counts as unreachable",
    ),
    Setting(
        "history_limit",
        number(0),
        "10",
        flag="--history-limit",
        variable="HISTORY_LIMIT",
        key="historyLimit",
        help="reports of finished runs that are kept for each Job name",
    ),
    Setting(
        "history_max_age_seconds",
        zero_is_none(_read_duration),
        "720h",
        flag="--history-max-age",
        variable="HISTORY_MAX_AGE",
        old_variable="HISTORY_SECONDS",
        key="historyMaxAge",
        help="how long they are kept at most, 0: no limit",
    ),
    Setting(
        "history_namespace_limit",
        zero_is_none(number(0)),
        "500",
        flag="--history-namespace-limit",
        variable="HISTORY_NAMESPACE_LIMIT",
        key="historyNamespaceLimit",
        help="reports of finished runs that are kept in each namespace, 0: no limit",
    ),
    Setting("receivers", read_receivers, "none", key="receivers", may_be_secret=True),
    Setting("sources", read_sources, "none", key="sources", may_be_secret=True),
    Setting("cluster_name", _read_cluster_name, "none", key="clusterName"),
    Setting(
        "node_name",
        lambda raw: "" if raw == _UNKNOWN_NODE else read_text(raw),
        _UNKNOWN_NODE,
        flag="--node-name",
        variable="NODE_NAME",
        help="the node that runs the controller: it comes last in rollouts",
    ),
    Setting(
        "log_level",
        read_log_level,
        "INFO",
        flag="--log-level",
        variable="LOG_LEVEL",
        key="logLevel",
        help="the lowest level that is logged",
    ),
    Setting(
        "log_json",
        lambda raw: read_log_format(raw) == "json",
        "human",
        flag="--log-format",
        variable="LOG_FORMAT",
        key="logFormat",
        help="human or json",
    ),
)


def parse_config(
    arguments: Sequence[str], environ: Mapping[str, str], hostname: str, text: str | None = None
) -> Config:
    """Return the configuration: arguments over the file's `text` over environment over defaults.

    Exits with code 2 and a usage message for arguments it does not understand, as argparse does.
    Raises ConfigError, naming each place and its fix, for a file or an environment that makes no
    sense.
    """
    values = read_settings(SETTINGS, environ, text=text, arguments=_read_arguments(arguments))
    return Config(**{"identity": hostname} | values)


def find_file(arguments: Sequence[str], environ: Mapping[str, str]) -> Path | None:
    """Return the path of the configuration file, None if there is to be none."""
    values = read_settings((_PATH,), environ)
    path: Path | None = (values | _read_arguments(arguments)).get("path")
    return path


def _read_arguments(arguments: Sequence[str]) -> dict[str, Any]:
    return read_arguments(
        SETTINGS,
        arguments,
        program="job-controller",
        description="Turns Jobs (daemonset.darkowlzz.space) into DaemonSets, records runs.",
    )

"""What the controller is told by its environment and command line.

Layer: beside api. Reads, checks, and says what is wrong; connects to nothing.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from daemonset_job.api import names
from daemonset_job.process.durations import parse_duration

_HIGHEST_PORT = 65535
# As for durations in a Job's spec.
_LONGEST_SECONDS = 315_360_000.0
# RFC 1123 label, which is what names a namespace.
_NAMESPACE = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Config:
    """The controller's settings.

    `namespaces`: those whose Jobs it looks after, empty for all. `lease_namespace`: where the
    leader election's Lease lives; empty means no election, for a controller run by hand.
    `workers`: Jobs that are worked on at the same time. `pod_start_timeout_seconds` and
    `node_unreachable_grace_period_seconds`: see `core.settings.Timeouts`. `history_limit`,
    `history_max_age_seconds` and `history_namespace_limit` (None: no limit): see
    `core.settings.Settings`.
    """

    namespaces: tuple[str, ...] = ()
    kubeconfig: str | None = None
    context: str | None = None
    token: str = names.DEFAULT_TOKEN
    identity: str = "job-controller"
    lease_namespace: str = ""
    lease_name: str = "daemonset-job-controller"
    workers: int = 4
    pause_image: str = names.DEFAULT_PAUSE_IMAGE
    pod_start_timeout_seconds: float = 300.0
    node_unreachable_grace_period_seconds: float = 60.0
    history_limit: int = 10
    history_max_age_seconds: float | None = 2_592_000.0
    history_namespace_limit: int | None = 500
    probe_host: str | None = None
    probe_port: int = 8080
    log_level: str = "INFO"
    log_json: bool = False


def parse_config(arguments: Sequence[str], environ: Mapping[str, str], hostname: str) -> Config:
    """Return the configuration: arguments over environment over defaults.

    Exits with code 2 and a usage message for arguments it does not understand, as argparse does.
    Raises ValueError, naming the variable and the fix, for an environment that makes no sense.
    """
    parser = argparse.ArgumentParser(
        prog="job-controller",
        description="Turns Jobs (daemonset.darkowlzz.space) into DaemonSets, records runs.",
    )
    add = parser.add_argument
    add("--kubeconfig", default=environ.get("KUBECONFIG"), help="default: $KUBECONFIG, in-cluster")
    add("--context", default=None, help="context of the kubeconfig")
    add("--namespaces", default=environ.get("WATCH_NAMESPACES", ""), help="a,b; default: all")
    add("--completion-token", default=environ.get("TERMINATION_WORD") or names.DEFAULT_TOKEN)
    add("--lease-namespace", default=environ.get("POD_NAMESPACE", ""), help="empty: no election")
    add("--workers", type=_positive, default=_number(environ, "WORKERS", 4, lowest=1))
    probe_port = _number(environ, "PROBE_PORT", 8080, highest=_HIGHEST_PORT)
    add("--probe-host", default="", help="default: all addresses, IPv4 and IPv6")
    add("--probe-port", type=_port, default=probe_port, help="0: any")
    add(
        "--pause-image",
        default=environ.get("PAUSE_IMAGE") or names.DEFAULT_PAUSE_IMAGE,
        help="image of the second container of a pod in mode Exit, which keeps the pod running",
    )
    add(
        "--pod-start-timeout",
        type=_duration,
        default=_seconds(environ, "POD_START_TIMEOUT", 300.0),
        help="how long a pod may fail to start (image, volume, room) before its node fails; 5m",
    )
    add(
        "--node-unreachable-grace-period",
        type=_duration,
        default=_seconds(environ, "NODE_UNREACHABLE_GRACE_PERIOD", 60.0),
        help="how long a node may be NotReady before it counts as unreachable; 60s",
    )
    add(
        "--history-limit",
        type=_whole,
        default=_number(environ, "HISTORY_LIMIT", 10),
        help="reports of finished runs kept for each Job name",
    )
    add(
        "--history-max-age",
        type=_duration,
        default=_seconds(environ, "HISTORY_MAX_AGE", 2_592_000.0),
        help="how long they are kept at most, such as 720h; 0: no limit",
    )
    add(
        "--history-namespace-limit",
        type=_whole,
        default=_number(environ, "HISTORY_NAMESPACE_LIMIT", 500),
        help="reports of finished runs kept in each namespace; 0: no limit",
    )
    add("--log-level", default=environ.get("LOG_LEVEL", "INFO"))
    add("--log-format", choices=("human", "json"), default=environ.get("LOG_FORMAT", "human"))
    args = parser.parse_args(arguments)
    if args.log_format not in {"human", "json"}:
        raise ValueError(f"LOG_FORMAT is {args.log_format!r}: write human or json")
    if not args.completion_token.strip() or args.completion_token != args.completion_token.strip():
        raise ValueError("TERMINATION_WORD must be a word without blanks around it, such as done")
    return Config(
        namespaces=_namespaces(args.namespaces),
        kubeconfig=args.kubeconfig or None,
        context=args.context,
        token=args.completion_token,
        identity=environ.get("POD_NAME") or hostname,
        lease_namespace=args.lease_namespace,
        workers=args.workers,
        pause_image=args.pause_image,
        pod_start_timeout_seconds=args.pod_start_timeout,
        node_unreachable_grace_period_seconds=args.node_unreachable_grace_period,
        history_limit=args.history_limit,
        history_max_age_seconds=args.history_max_age or None,
        history_namespace_limit=args.history_namespace_limit or None,
        probe_host=args.probe_host or None,
        probe_port=args.probe_port,
        log_level=args.log_level,
        log_json=args.log_format == "json",
    )


def _namespaces(text: str) -> tuple[str, ...]:
    names_ = sorted({name.strip() for name in text.split(",") if name.strip()})
    for name in names_:
        if not _NAMESPACE.fullmatch(name):
            raise ValueError(
                f"WATCH_NAMESPACES or --namespaces: {name!r} is not the name of a namespace; "
                "write names with commas between them"
            )
    return tuple(names_)


def _number(
    environ: Mapping[str, str], name: str, default: int, *, lowest: int = 0, highest: int = 10**9
) -> int:
    """Return the number in a variable; argparse leaves a default that is no text unchecked."""
    text = environ.get(name, "")
    if not text:
        return default
    if not text.isdecimal() or not lowest <= int(text) <= highest:
        raise ValueError(f"{name} is {text!r}: write a whole number, {lowest} to {highest}")
    return int(text)


def _seconds(environ: Mapping[str, str], name: str, default: float) -> float:
    """Return the seconds of the duration in a variable."""
    try:
        return _read_duration(environ.get(name, "")) if environ.get(name) else default
    except ValueError as error:
        raise ValueError(f"{name} is {environ[name]!r}: {error}") from error


def _duration(text: str) -> float:
    try:
        return _read_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from error


def _read_duration(text: str) -> float:
    seconds = parse_duration(text.strip())
    if seconds > _LONGEST_SECONDS:
        raise ValueError("write a duration of at most 10 years, such as 720h")
    return seconds


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: write a whole number from 1 up")
    return int(text)


def _whole(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r}: write a whole number")
    return int(text)


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > _HIGHEST_PORT:
        raise argparse.ArgumentTypeError(f"{text!r}: write a port, 0 to 65535")
    return int(text)

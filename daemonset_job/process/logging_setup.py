"""Logging for both processes: loguru, one line per record, human or JSON, configured only here.

Libraries that log on their own are redirected to it. Code says
``logger.info("constant message", field=value)`` and, around one piece of work,
``logger.contextualize(job=…, namespace=…, reconcile_id=…)``; how that looks is decided here.
"""

import logging
import sys
from collections.abc import Mapping
from json import dumps
from typing import TYPE_CHECKING, Any, TextIO

from loguru import logger

from daemonset_job.kube.client.errors import ConfigurationError

if TYPE_CHECKING:
    from loguru import Message, Record

LEVELS = ("TRACE", "DEBUG", "INFO", "SUCCESS", "WARNING", "ERROR", "CRITICAL")
# These come first on every line, in this order, so that the eye and `grep` find them.
CONTEXT_FIELDS = ("namespace", "job", "reconcile_id")
# What a log of a task, a server or a user wrote may end in a field; this bounds one of them.
FIELD_LIMIT = 2048
# Of an exception, whose text may come from outside. The end says what it was.
TRACEBACK_LIMIT = 16 * 1024


def configure_logging(level: str, json: bool, stream: TextIO | None = None) -> None:
    """Send every record of `level` and above to `stream` (stderr), as JSON or for humans.

    Calling it again replaces the configuration, which is how a reload changes the level. Records
    of the standard library's logging (asyncio, aiohttp, kubernetes) arrive too, from WARNING up.
    Raises ConfigurationError for a level that does not exist.
    """
    name = level.upper()
    if name not in LEVELS:
        raise ConfigurationError(
            f"log level {level!r} does not exist; use one of {', '.join(LEVELS)}"
        )
    target = sys.stderr if stream is None else stream
    form = _json_line if json else _human_line

    def sink(message: "Message") -> None:
        target.write(form(message.record))
        target.flush()

    logger.remove()
    # diagnose would print the values of variables, credentials among them, into tracebacks.
    logger.add(sink, level=name, format="{message}", diagnose=False, backtrace=False)
    logging.basicConfig(handlers=[_ToLoguru()], level=logging.WARNING, force=True)


class _ToLoguru(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        level = record.levelname if record.levelname in LEVELS else record.levelno
        # The text is an argument, not the message: it may contain braces.
        logger.opt(exception=record.exc_info).bind(logger=record.name).log(
            level, "{}", record.getMessage()
        )


def _json_line(record: "Record") -> str:
    line: dict[str, Any] = {
        "time": record["time"].isoformat(timespec="milliseconds"),
        "level": record["level"].name,
        "message": _bounded(record["message"]),
        "module": record["name"],
    }
    # A field never replaces one of the four above, whatever it is called.
    line = dict(_fields(record["extra"])) | line
    if record["exception"] is not None:
        line["exception"] = _traceback(record)
    text = dumps(line, ensure_ascii=False, default=str)
    # Some readers also end a line at a character such as U+2028, or obey it.
    return (text if text.isprintable() else dumps(line, default=str)) + "\n"


def _human_line(record: "Record") -> str:
    fields = "".join(
        f" {key}={_readable(value)}" for key, value in _fields(record["extra"]).items()
    )
    # The message too is kept on one line: it can come from a library.
    message = str(_bounded(record["message"]))
    if not message.isprintable():
        message = dumps(message)[1:-1]
    # Indented, so that no line of a text from outside looks like a record.
    trace = _traceback(record) if record["exception"] is not None else ""
    trace = "".join(f"  {_readable_line(line)}\n" for line in trace.splitlines())
    return (
        f"{record['time']:YYYY-MM-DD HH:mm:ss.SSS} {record['level'].name:<8} {message}{fields}\n"
        f"{trace}"
    )


def _fields(extra: Mapping[str, Any]) -> Mapping[str, Any]:
    first = {key: extra[key] for key in CONTEXT_FIELDS if key in extra}
    rest = {key: value for key, value in extra.items() if key not in first}
    return {key: _bounded(value) for key, value in (first | rest).items()}


def _bounded(value: object) -> object:
    if isinstance(value, bool | int | float) or value is None:
        return value
    text = value if isinstance(value, str) else str(value)
    return text if len(text) <= FIELD_LIMIT else text[: FIELD_LIMIT - 1] + "…"


def _readable(value: object) -> str:
    text = str(value)
    plain = text.isprintable() and " " not in text and '"' not in text and text != ""
    return text if plain else dumps(text, ensure_ascii=not text.isprintable())


def _readable_line(line: str) -> str:
    return line if line.isprintable() else dumps(line)[1:-1]


def _traceback(record: "Record") -> str:
    exception = record["exception"]
    if exception is None or exception.value is None:
        return ""
    formatter = logging.Formatter()
    text = formatter.formatException(
        (type(exception.value), exception.value, exception.value.__traceback__)
    )
    return text if len(text) <= TRACEBACK_LIMIT else f"…{text[1 - TRACEBACK_LIMIT :]}"

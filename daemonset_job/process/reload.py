"""Applies a changed configuration file while the program runs, or logs why it cannot be used."""

from collections.abc import Callable
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from loguru import logger
from prometheus_client import CollectorRegistry, Counter

from daemonset_job.process.config_watch import follow_file
from daemonset_job.process.logging_setup import configure_logging
from daemonset_job.process.settings import ConfigError


class LogSettings(Protocol):
    """The part of a configuration that is applied here."""

    @property
    def log_level(self) -> str:
        """Return the lowest level that is logged."""
        ...

    @property
    def log_json(self) -> bool:
        """Return whether lines are JSON."""
        ...


C = TypeVar("C", bound=LogSettings)


class ReloadMetrics:
    """Counts the configurations that came while the program ran."""

    def __init__(self, component: str, registry: CollectorRegistry) -> None:
        def counter(name: str, text: str) -> Counter:
            made = Counter(f"dsj_{name}", text, ["component"], registry=registry)
            return made.labels(component)

        self.applied = counter("config_reloads", "Configurations applied while running.")
        self.rejected = counter("config_reload_errors", "Configurations rejected while running.")


class Reloader(Generic[C]):
    """Reads each new text by `load`, which raises ConfigError, and passes it to `apply`."""

    def __init__(
        self,
        load: Callable[[str | None], C],
        apply: Callable[[C], None],
        metrics: ReloadMetrics,
    ) -> None:
        self._load = load
        self._apply = apply
        self._metrics = metrics

    async def follow(self, path: Path, known: str | None) -> None:
        """Apply the file's text whenever it has changed, until cancelled; see `follow_file`."""
        await follow_file(path, known, self.apply_text, self.reject)

    def apply_text(self, text: str | None) -> None:
        """Apply the configuration in `text`; an invalid one changes nothing."""
        try:
            config = self._load(text)
        except ConfigError as error:
            self.reject(error)
            return
        configure_logging(config.log_level, config.log_json)
        self._apply(config)
        self._metrics.applied.inc()
        logger.info("applied the new configuration")

    def reject(self, error: Exception) -> None:
        """Log the problems of the file; the configuration does not change."""
        self._metrics.rejected.inc()
        problems = error.problems if isinstance(error, ConfigError) else [str(error)]
        for problem in problems:
            logger.error(
                "rejected the new configuration, keeping the previous one", problem=problem
            )

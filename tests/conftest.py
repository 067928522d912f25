"""Settings of every ring."""

import asyncio
from collections.abc import Iterator

import pytest
from hypothesis import settings
from loguru import logger

# looptime's plugin asks the policy for a loop before each test, a synchronous one too. At the first
# call the policy creates a loop that is never closed (ResourceWarning, an error here). After this
# line the policy has none, and creates none.
asyncio.set_event_loop(None)

# Properties say what is true, not how fast: machines that run tests are busy.
settings.register_profile("project", deadline=None)
settings.load_profile("project")


@pytest.fixture(autouse=True)
def _logs_of_the_foundation() -> Iterator[None]:
    """Undo what a verb of the plugin does in its process: it disables these logs."""
    yield
    logger.enable("daemonset_job")

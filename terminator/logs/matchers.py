"""The matchers of all Jobs: Jobs that look for the same in their logs share one.

A shared matcher also shares the states that its regular expression has built.
"""

from collections import OrderedDict
from collections.abc import Callable

from loguru import logger

from daemonset_job.api.job import Job
from daemonset_job.api.job_spec import Completion
from terminator.logs.matcher import Matcher

# How many different matchers are kept.
_MATCHERS_LIMIT = 256

_Tokens = tuple[Completion, tuple[str, ...], str]


class Matchers:
    """Creates matchers and keeps those used most recently.

    `default_token()` returns the token of Jobs that name none.
    """

    def __init__(self, default_token: Callable[[], str]) -> None:
        self._default_token = default_token
        # The least recently used comes first; None for an invalid token.
        self._matchers: OrderedDict[_Tokens, Matcher | None] = OrderedDict()

    def of(self, job: Job) -> Matcher | None:
        """Return the Job's matcher, None after a warning if its token is invalid.

        Jobs with equal tokens get equal matchers.
        """
        # The default token that the running pods were given; the default may have changed since.
        default = job.completion_token or self._default_token()
        key = (job.spec.completion, job.spec.results, default)
        if key in self._matchers:
            self._matchers.move_to_end(key)
            return self._matchers[key]
        if len(self._matchers) >= _MATCHERS_LIMIT:
            self._matchers.popitem(last=False)
        try:
            matcher = Matcher.of(job.spec, default)
        except ValueError as error:
            logger.warning(
                "the completion token cannot be used",
                namespace=job.namespace,
                job=job.name,
                error=str(error),
            )
            matcher = None
        self._matchers[key] = matcher
        return matcher

"""Not acting on a cache that has not yet seen what we did ourselves.

The rule of kubernetes' pkg/controller/daemon/util/consistency.go: remember the resourceVersion
of our own last write per key, and skip acting on that key until the cache has come that far.
"""

from collections.abc import Hashable
from typing import Generic, TypeVar

from daemonset_job.runtime.clock import Clock

K = TypeVar("K", bound=Hashable)

# A watch lags by milliseconds, after a lost connection by a minute. An event that did not come
# within this time will not come (of an object that no selector shows any more).
DEFAULT_TTL_SECONDS = 120.0


class VersionExpectations(Generic[K]):
    """What was written per key against what was seen per resource.

    `resource` is any name for one watch, for instance "pods", or "pods/ns" where there is one
    watch for each namespace; versions of one resource compare as integers.
    """

    def __init__(self, clock: Clock, *, ttl_seconds: float = DEFAULT_TTL_SECONDS) -> None:
        """Expect nothing yet; an expectation counts as satisfied after `ttl_seconds`."""
        self._clock = clock
        self._ttl_seconds = ttl_seconds
        self._observed: dict[str, int] = {}
        self._written: dict[K, dict[str, tuple[int, float]]] = {}

    def __len__(self) -> int:
        """Return for how many keys something written was not seen yet."""
        return len(self._written)

    def wrote(self, key: K, resource: str, resource_version: str) -> None:
        """Expect `resource` to be seen at `resource_version`, on behalf of `key`.

        Call it with what a successful write returned. A version that is no integer expects
        nothing: it could never be compared.
        """
        version = _as_integer(resource_version)
        if version <= self._observed.get(resource, 0):
            return
        pending = self._written.setdefault(key, {})
        if version > pending.get(resource, (0, 0.0))[0]:
            pending[resource] = (version, self._clock.monotonic() + self._ttl_seconds)

    def observed(self, resource: str, resource_version: str) -> None:
        """Note that the cache of `resource` has come to `resource_version`; never goes back."""
        version = _as_integer(resource_version)
        self._observed[resource] = max(version, self._observed.get(resource, 0))

    def is_ready(self, key: K) -> bool:
        """Return whether every write for `key` was seen, or has expired."""
        pending = self._written.get(key)
        if pending is None:
            return True
        now = self._clock.monotonic()
        for resource, (version, expires_at) in list(pending.items()):
            if self._observed.get(resource, 0) >= version or now >= expires_at:
                del pending[resource]
        if pending:
            return False
        del self._written[key]
        return True

    def forget(self, key: K) -> None:
        """Expect nothing for `key` any more: its object is gone."""
        self._written.pop(key, None)


def _as_integer(resource_version: str) -> int:
    try:
        return int(resource_version)
    except ValueError:
        return 0

"""Which keys `rollout.exclusive` hold over all namespaces: those that the administrator names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

# Each key of a Job is compared with all of them.
KEYS_LIMIT: Final = 100
# The longest key of a Job.
_KEY_LIMIT: Final = 63
_KEY: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_PREFIX: Final = re.compile(r"[A-Za-z0-9][-A-Za-z0-9_.]*")


@dataclass(frozen=True, slots=True)
class ClusterKeys:
    """The keys that hold over all namespaces: `keys`, and those that begin with a prefix."""

    keys: frozenset[str] = frozenset()
    prefixes: tuple[str, ...] = ()

    def scope(self, namespace: str, key: str) -> str:
        """Return where a key of a Job of that namespace holds: there, or "" for everywhere."""
        return "" if key in self.keys or key.startswith(self.prefixes) else namespace


NO_CLUSTER_KEYS: Final = ClusterKeys()


def make_cluster_keys(named: Sequence[str]) -> ClusterKeys:
    """Return the keys that an administrator has named; one that ends with `*` is a prefix."""
    return ClusterKeys(
        frozenset(name for name in named if not name.endswith("*")),
        tuple(name[:-1] for name in named if name.endswith("*")),
    )


def read_cluster_keys(raw: object) -> tuple[str, ...]:
    """Return the names in a text with commas, such as `kernel,disk-*`; ValueError with the fix.

    A `*` alone is refused: it would have the tenants share every key.
    """
    if not isinstance(raw, str):
        raise ValueError("write one text with commas, such as kernel,disk-*")  # noqa: TRY004
    names = sorted({item.strip() for item in raw.split(",") if item.strip()})
    if len(names) > KEYS_LIMIT:
        raise ValueError(f"write at most {KEYS_LIMIT} keys, and a prefix such as disk-* for more")
    for name in names:
        form, text = (_PREFIX, name[:-1]) if name.endswith("*") else (_KEY, name)
        if len(text) > _KEY_LIMIT or not form.fullmatch(text):
            raise ValueError(
                f"{name[:80]!r} is no key: write at most {_KEY_LIMIT} letters, digits, '-', '_' "
                "and '.', with a letter or digit at both ends, or the beginning of keys and a '*'"
            )
    return tuple(names)

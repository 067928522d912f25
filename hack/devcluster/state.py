"""What `up` remembers about the current cluster, in .devcluster/cluster.json."""

import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from hack.devcluster.settings import Paths


@dataclass(frozen=True, slots=True)
class ClusterState:
    """The current cluster: one of ours (a kind cluster), or a context of the user's."""

    name: str
    engine: str
    """`host` or `private` for ours; empty for a context of the user's."""
    image: str
    nodes: int
    scale: bool

    @property
    def is_ours(self) -> bool:
        """Whether `down` deletes it."""
        return bool(self.engine)


def read(paths: Paths) -> ClusterState | None:
    """Return the notes of the last `up`, None if there are none or they cannot be read."""
    with suppress(OSError, ValueError, TypeError):
        return ClusterState(**json.loads(_file(paths).read_text()))
    return None


def write(paths: Paths, state: ClusterState) -> None:
    """Replace the notes in one step."""
    paths.state.mkdir(parents=True, exist_ok=True)
    work = _file(paths).with_suffix(".new")
    work.write_text(json.dumps(asdict(state), indent=2) + "\n")
    work.rename(_file(paths))


def _file(paths: Paths) -> Path:
    return paths.state / "cluster.json"

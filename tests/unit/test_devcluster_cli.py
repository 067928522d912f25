"""What `devcluster env` prints, and how it says that there is no cluster."""

import pytest

from hack.devcluster import cli, state
from hack.devcluster.settings import Paths


@pytest.fixture
def paths(monkeypatch, tmp_path):
    found = Paths(root=tmp_path, cache=tmp_path / "cache")
    monkeypatch.setattr(cli, "find_paths", lambda: found)
    return found


def test_env_without_a_cluster_says_so_and_fails(paths, capsys):
    assert cli.main(["env"]) == 1
    printed = capsys.readouterr()
    assert printed.out == f"export KUBECONFIG={paths.kubeconfig}\n"
    assert "devcluster env: there is no cluster: run `make cluster` first" in printed.err


def test_env_of_a_cluster(paths, capsys):
    state.write(paths, state.ClusterState("dsj-1", "private", "image", nodes=3, scale=False))
    assert cli.main(["env"]) == 0
    printed = capsys.readouterr()
    assert "export DOCKER_HOST=" in printed.out
    assert f"export KUBECONFIG={paths.kubeconfig}\n" in printed.out
    assert printed.err == ""

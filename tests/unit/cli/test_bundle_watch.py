"""What `kubectl dsjob bundle --watch` prints of a round that failed."""

from pathlib import Path

from kubectl_dsjob.bundle import bundling
from kubectl_dsjob.bundle.builders import Builder
from kubectl_dsjob.bundle.image import ImageWish
from kubectl_dsjob.errors import CliError
from kubectl_dsjob.proposals import at_job
from kubectl_dsjob.target import Target


async def test_a_command_that_is_proposed_names_the_cluster(monkeypatch, capsys):
    async def build(_wish):
        raise CliError("there is a Job", f"Delete it: kubectl delete dsj {at_job('fix', 'team')}")

    monkeypatch.setattr(bundling, "build_image", build)
    image = ImageWish(Path("fix"), "", "", Builder.DOCKER, False, None, "")
    wish = bundling.BundleWish(image, "fix", "", "", (), None)
    assert await bundling._round(wish, Target("east", "team")) is None
    assert "kubectl delete dsj fix -n team --context east" in capsys.readouterr().err

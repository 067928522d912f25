"""The changelog says so when the CRDs differ from those of the last release."""

import hashlib
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RELEASED = (ROOT / "crds" / "released.sha256").read_text(encoding="utf-8")
CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
HOW = """write its version into crds/released.sha256, and the output of
    sha256sum crds/jobs.yaml crds/jobreports.yaml"""


def released_digests():
    return {path: digest for digest, path in re.findall(r"(?m)^([0-9a-f]{64})  (\S+)$", RELEASED)}


def changed_crds():
    """Return the CRD files that differ from those of the last release."""
    now = {
        path: hashlib.sha256((ROOT / path).read_bytes()).hexdigest() for path in released_digests()
    }
    return {path for path, digest in released_digests().items() if now[path] != digest}


def test_the_digests_are_those_of_the_last_release():
    last = re.search(r"(?m)^## \[(\d[\d.]*)\]", CHANGELOG)[1]
    assert f"version {last}," in RELEASED, f"after a release {HOW}"
    crds = {f"crds/{path.name}" for path in (ROOT / "crds").glob("job*.yaml")}
    assert set(released_digests()) == crds


def test_a_changed_crd_is_in_the_changelog():
    unreleased = CHANGELOG[CHANGELOG.index("## [Unreleased]") :].split("\n## ")[0]
    named = {path for path in released_digests() if f"`{path}`" in unreleased}
    missing = changed_crds() - named
    assert not missing, (
        f"{sorted(missing)} differ from the last release: say under Unreleased in CHANGELOG.md "
        f"that `PATH` changed and what users notice. After a release {HOW}"
    )

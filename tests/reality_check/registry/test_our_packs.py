"""The packs in registry/: small, whole, of this version, listed, and fit for a leaderboard."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest
from support.paths import ROOT

from reality_check.api import leaderboard

REGISTRY = ROOT / "registry"
PACKS = sorted(REGISTRY.glob("*.pack"))


def test_they_are_listed_and_small() -> None:
    readme = (REGISTRY / "README.md").read_text()
    assert PACKS
    assert {path.name for path in REGISTRY.iterdir()} == {"README.md", *(p.name for p in PACKS)}
    assert all(f"`{path.name}`" in readme for path in PACKS)
    assert sum(path.stat().st_size for path in PACKS) < 4e6


@pytest.mark.usefixtures("blank_figures")
def test_they_stand_on_a_leaderboard(tmp_path: Path) -> None:
    page = tmp_path / "board.html"
    assert leaderboard(PACKS, page) >= 1  # checks every checksum, and the protocol hash
    text = page.read_text()
    for path in PACKS:
        about = json.loads(zipfile.ZipFile(path).read("pack.json"))
        assert all(method["name"] in text for method in about["experiment"]["methods"])

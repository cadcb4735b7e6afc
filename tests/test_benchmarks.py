"""Every benchmark still imports what it measures, and says what it takes."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
from support.paths import ROOT

FOLDER = ROOT / "benchmarks"
SCRIPTS = [file for file in sorted(FOLDER.glob("*.py")) if "argparse" in file.read_text("utf-8")]


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda file: file.stem)
def test_help(
    script: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))  # some import others
    monkeypatch.setattr("sys.argv", [script.name, "--help"])
    with pytest.raises(SystemExit, match="0"):
        runpy.run_path(str(script), run_name="__main__")
    assert "usage: " in capsys.readouterr().out

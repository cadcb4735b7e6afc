"""Tables in terminals of any width."""

from __future__ import annotations

import pytest

from reality_check.cli.main import main
from reality_check.utils.config_files import config_files, paper_files


@pytest.mark.parametrize("columns", ["20", "40"])
def test_names_stay_whole_on_narrow_terminals(
    columns: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    for what, names in ("papers", paper_files()), ("methods", config_files("methods")):
        assert main(["show", what]) == 0
        assert set(names) <= {line.split(" ")[0] for line in capsys.readouterr().out.splitlines()}

"""Tables in terminals of any width."""

from __future__ import annotations

import pytest

from reality_check.cli.main import main
from reality_check.utils.config_files import config_files, paper_files


@pytest.mark.parametrize("columns", ["20", "40"])
@pytest.mark.parametrize("what", ["papers", "methods"])
def test_names_stay_whole_on_narrow_terminals(
    what: str, columns: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert main(["show", what]) == 0
    first = {line.split(" ")[0] for line in capsys.readouterr().out.splitlines()}
    names = paper_files() if what == "papers" else config_files(what)
    assert set(names) <= first

"""The notebooks run from their first cell to their last, and are kept without outputs."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import pytest
from matplotlib import pyplot
from support.blank_figures import blank
from support.in_process import visiting, workers_in_this_process
from support.paths import ROOT

NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))

every_notebook = pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)


def cells(notebook: Path, kind: str) -> list[dict[str, Any]]:
    found = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in found if cell["cell_type"] == kind]


def test_there_is_a_notebook() -> None:
    assert [path.stem for path in NOTEBOOKS] == list(CHECKS)


@every_notebook
def test_it_is_a_notebook_without_outputs(notebook: Path) -> None:
    data = json.loads(notebook.read_text(encoding="utf-8"))
    assert (data["nbformat"], data["nbformat_minor"]) == (4, 5)
    ids = [cell["id"] for cell in data["cells"]]
    assert len(set(ids)) == len(ids)
    assert data["cells"][0]["source"][0].startswith("# ")
    for cell in cells(notebook, "code"):
        assert cell["outputs"] == []
        assert cell["execution_count"] is None
        assert not any(line.startswith(("%", "!")) for line in cell["source"]), "plain Python only"


def run(code: list[str], folder: Path) -> list[str]:
    """Run cells as a kernel does, each compiled on its own; return what they print, by line."""
    namespace = {"__name__": "__main__"}
    out = io.StringIO()
    with visiting(folder), workers_in_this_process(), contextlib.redirect_stdout(out):
        for number, cell in enumerate(code):
            exec(compile(cell, f"<cell {number}>", "exec"), namespace)
    pyplot.close("all")
    return out.getvalue().splitlines()


def check_first_comparison(said: list[str]) -> None:
    assert said[0] == "experiment ['my_loss', 'contrastive']"
    assert said[1] == "finished"
    assert [line.split()[0] for line in said[2:4]] == ["my_loss", "contrastive"]
    deviations = said[4:-1]
    assert any("trial" in line for line in deviations)
    assert all(line.startswith(("- ", "serious: ")) for line in deviations)


def check_frozen_features(said: list[str]) -> None:
    assert said[0] == "160 images"
    assert any(line.startswith("images_features: 160 x ") for line in said)
    assert "finished" in said
    rows = [line.split("  ")[0] for line in said]
    assert {"normalized_softmax", "contrastive", "raw features", "untrained embedder"} <= {*rows}


CHECKS = {
    "first_comparison": check_first_comparison,
    "frozen_features": check_frozen_features,
}
#: What makes their runs fast.
SMALLER = {
    "first_comparison": {
        "classes: 80, images_per_class: 8": "classes: 40, images_per_class: 4",
        "batch_size: 16, iterations_per_epoch: 10, max_epochs: 4": (
            "batch_size: 8, iterations_per_epoch: 1, max_epochs: 1"
        ),
        "trials: 2": "trials: 1",
        "reproductions: 3": "reproductions: 1",
    },
    "frozen_features": {
        "classes=80, images_per_class=8": "classes=40, images_per_class=4",
        "batch_size: 16, iterations_per_epoch: 10, max_epochs: 3": (
            "batch_size: 8, iterations_per_epoch: 1, max_epochs: 1"
        ),
        "trials: 5, budget: 2": "trials: 3, budget: 1",
    },
}


@pytest.mark.slow
@every_notebook
def test_its_cells_run_in_order(
    notebook: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pyplot.switch_backend("Agg")
    monkeypatch.setattr("reality_check.report.figures.plotting.render", blank)
    code = ["".join(cell["source"]) for cell in cells(notebook, "code")]
    for old, new in SMALLER[notebook.stem].items():
        assert any(old in cell for cell in code), old
        code = [cell.replace(old, new) for cell in code]
    said = run(code, tmp_path)
    CHECKS[notebook.stem](said)
    assert Path(said[-1]).is_file()

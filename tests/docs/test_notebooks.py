"""The notebooks run from their first cell to their last, and are kept without outputs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.paths import ROOT

NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))

every_notebook = pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)

#: Runs the cells as a kernel does: one namespace, each cell compiled on its own.
RUN = """
import json, sys
namespace = {"__name__": "__main__"}
for number, cell in enumerate(json.load(sys.stdin)):
    exec(compile(cell, f"<cell {number}>", "exec"), namespace)
"""


def cells(notebook: Path, kind: str) -> list[dict[str, Any]]:
    found = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in found if cell["cell_type"] == kind]


def test_there_is_a_notebook() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["first_comparison"]


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


@pytest.mark.slow
@every_notebook
def test_its_cells_run_in_order(notebook: Path, tmp_path: Path) -> None:
    code = ["".join(cell["source"]) for cell in cells(notebook, "code")]
    done = subprocess.run(
        [sys.executable, "-c", RUN],
        input=json.dumps(code),
        cwd=tmp_path,
        env={**os.environ, "MPLBACKEND": "Agg"},
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert said[0] == "experiment ['my_loss', 'contrastive']"
    assert said[1] == "finished"
    assert [line.split()[0] for line in said[2:4]] == ["my_loss", "contrastive"]
    deviations = said[4:-1]
    assert any("trial" in line for line in deviations)
    assert all(line.startswith(("- ", "serious: ")) for line in deviations)
    assert Path(said[-1]).is_file()

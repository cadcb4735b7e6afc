"""Made-up runs: one of two methods, and each of these by itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.recorded_runs import experiment, record

ONE, TWO = "quick/normalized_softmax", "quick/contrastive"


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of output folders: both, one, two, another_seed."""
    folder = tmp_path_factory.mktemp("runs")
    record(experiment(f"methods=[{ONE},{TWO}]"), folder / "both")
    record(experiment(f"methods=[{ONE}]"), folder / "one")
    record(experiment(f"methods=[{TWO}]"), folder / "two")
    record(experiment(f"methods=[{ONE}]", "seed=1"), folder / "another_seed")
    return folder

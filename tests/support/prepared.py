"""An experiment in its output folder, as a run opens it before its workers start."""

from __future__ import annotations

from pathlib import Path

from reality_check.config import Experiment
from reality_check.launch.check import check
from reality_check.launch.open_folder import open_folder
from reality_check.training.prepared_experiment import PreparedExperiment


def prepare(experiment: Experiment, out_dir: Path) -> PreparedExperiment:
    checked = check(experiment)
    with open_folder(checked, out_dir) as recorded:
        return PreparedExperiment(recorded.experiment, checked.dataset)


def logs(out: Path) -> str:
    """What all workers of an output folder said."""
    return "".join(path.read_text() for path in (out / "logs").glob("*.log"))

"""What only reads and shows starts without the libraries that take seconds to import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from reality_check.config import Experiment, load_experiment
from reality_check.studies.output_folder import lock_experiment
from reality_check.studies.recorded_experiment import RecordedExperiment, storage_url
from reality_check.studies.storage import open_storage

HEAVY = ("torch", "faiss", "sklearn", "matplotlib", "pytorch_metric_learning")
PROGRAM = f"""
import contextlib, io, shlex, sys
from reality_check.cli.main import main
for command in sys.argv[1:]:
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            status = main(shlex.split(command))
    except SystemExit as end:
        status = end.code
    assert not status, (command, status)
    print([name for name in {("yaml", *HEAVY)!r} if name in sys.modules])
"""


def said(program: str, *commands: str) -> list[str]:
    """What a process prints, by line."""
    words = [sys.executable, "-c", program, *commands]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()


def locked(tiny: Path, folder: Path) -> Experiment:
    """The experiment of an output folder that a run has just begun."""
    experiment = load_experiment(tiny).model_copy(update={"code": {"dataset": "1"}})
    lock_experiment(experiment, folder)
    return experiment


def test_reading_an_experiment() -> None:
    program = f"import reality_check as rc, sys; rc.load_experiment('quickstart'); \
print(*[name for name in {(*HEAVY, 'optuna')!r} if name in sys.modules])"
    assert said(program) == [""]


def test_commands_one_after_the_other(tiny: Path, tmp_path: Path) -> None:
    begun, waits = tmp_path / "begun", tmp_path / "waits"
    for folder in (begun, waits):
        folder.mkdir()
    recorded = RecordedExperiment(locked(tiny, begun), begun)
    for state in recorded.states().ready():
        recorded.study(state)  # begins it
    experiment = locked(tiny, waits)
    commands = [
        "show quickstart",
        "show methods",
        "show papers",
        "show trunks",
        "verdicts",
        f"status '{begun}'",
        f"status '{waits}'",  # its searches have not begun
    ]
    assert said(PROGRAM, "--help", *commands) == ["[]", *["['yaml']"] * len(commands)]
    storage = open_storage(storage_url(experiment, waits))
    assert storage.get_all_studies() == [], "to look begins nothing"

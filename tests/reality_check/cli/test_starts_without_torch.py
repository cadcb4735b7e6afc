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
    for name in {HEAVY!r}:
        if name in sys.modules:
            print(name, "after", command)
"""


def imported(program: str, *commands: str) -> list[str]:
    """The heavy libraries that a process has imported after each of the commands, if any."""
    words = [sys.executable, "-c", program, *commands]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    return [line for line in said.splitlines() if line]


def locked(tiny: Path, folder: Path) -> Experiment:
    """The experiment of an output folder that a run has just begun."""
    experiment = load_experiment(tiny).model_copy(update={"code": {"dataset": "1"}})
    lock_experiment(experiment, folder)
    return experiment


def test_reading_an_experiment() -> None:
    program = f"import reality_check as rc, sys; rc.load_experiment('quickstart'); \
print(*[name for name in {(*HEAVY, 'optuna')!r} if name in sys.modules])"
    assert imported(program) == []


def test_commands_one_after_the_other() -> None:
    commands = [
        "--help",
        "show quickstart",
        "show methods",
        "show papers",
        "show trunks",
        "verdicts",
    ]
    assert imported(PROGRAM, *commands) == []


def test_the_status_of_a_run_that_has_begun(tiny: Path, tmp_path: Path) -> None:
    experiment = locked(tiny, tmp_path)
    recorded = RecordedExperiment(experiment, tmp_path)
    for state in recorded.states().ready():
        recorded.study(state)  # begins it
    assert imported(PROGRAM, f"status '{tmp_path}'") == []


def test_the_status_of_a_run_whose_searches_have_not_begun(tiny: Path, tmp_path: Path) -> None:
    experiment = locked(tiny, tmp_path)
    assert imported(PROGRAM, f"status '{tmp_path}'") == []
    storage = open_storage(storage_url(experiment, tmp_path))
    assert storage.get_all_studies() == [], "to look begins nothing"


def test_a_library_that_is_imported_is_seen() -> None:
    assert "torch after show losses" in imported(PROGRAM, "show trunks", "show losses")

"""What a type checker says of a user's script."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

import pytest
from support.paths import ROOT

SCRIPT = """
import reality_check as rc


def best(folder: str) -> dict[str, float]:
    results = rc.load_results(folder)
    highest: dict[str, float] = {}
    for record in results.records(baselines=True):
        if record["metric"] == "precision_at_1":
            highest[record["method"]] = max(highest.get(record["method"], 0.0), record["value"])
    return highest


experiment: rc.Experiment = rc.load_experiment("quickstart", overrides=["seed=1"])
trials: int = experiment.protocol.search.trials
results: rc.ExperimentResults = rc.run(experiment, "out", workers=2)
records: list[rc.Record] = results.records()
rows: tuple[rc.ResultRow, ...] = results.rows
seconds = [trial["seconds"] for trial in results.trials() if trial["stage"] == "search"]
versions: dict[str, str] = results.versions
"""
#: Mistakes of a user's that a type checker is to find, and what it says.
MISTAKES = {
    'results.records()[0]["valu"]': 'has no key "valu"',
    'rc.load_result("out")': 'has no attribute "load_result"',
    "rc.run(experiment, 3)": 'incompatible type "int"',
    "results.rows[0].value.upper()": '"float" has no attribute "upper"',
}


@pytest.fixture(scope="module")
def users_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python that has this package installed, as a type checker sees it."""
    folder = tmp_path_factory.mktemp("users") / "venv"
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python3*/site-packages")
    for name in ("reality_check", "pml_extensions"):
        (packages / name).symlink_to(ROOT / name, target_is_directory=True)
    return folder / "bin" / "python"


def type_check(script: str, users_python: Path, folder: Path) -> tuple[int, str]:
    pytest.importorskip("mypy")
    (folder / "script.py").write_text(script, encoding="utf-8")
    command = ["-m", "mypy", "--strict", f"--python-executable={users_python}"]
    command += [f"--cache-dir={folder / 'cache'}", "--config-file=", "script.py"]
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def test_a_users_script_is_type_checked(users_python: Path, tmp_path: Path) -> None:
    status, said = type_check(SCRIPT, users_python, tmp_path)
    assert status == 0, said


def test_a_users_mistakes_are_found(users_python: Path, tmp_path: Path) -> None:
    begin = len(SCRIPT.splitlines()) + 1
    status, said = type_check(SCRIPT + "\n".join(MISTAKES) + "\n", users_python, tmp_path)
    assert status == 1
    errors = {line.split(":")[1]: line for line in said.splitlines() if ": error: " in line}
    assert list(errors) == [str(begin + index) for index in range(len(MISTAKES))]
    for line, expected in zip(errors.values(), MISTAKES.values(), strict=True):
        assert expected in line

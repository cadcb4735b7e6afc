"""Completion in shells: what argcomplete is given for a line."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "runs" / "second").mkdir(parents=True)
    (tmp_path / "experiment.yaml").write_text("methods: [contrastive]\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["sta"], ["status"]),
        (["run", "quickst"], ["quickstart"]),
        (["check", "exp"], ["experiment.yaml"]),
        (["run", "papers/000_sgsl/figure"], ["papers/000_sgsl/figure4_cars196"]),
        (["run", "quickstart", "--launcher", ""], ["local", "slurm", "command"]),
        (["show", "quicks"], ["quickstart"]),
        (["status", "ru"], ["runs/"]),
    ],
)
def test_what_is_offered(words: list[str], expected: list[str], here: Path) -> None:
    line, answer = f"reality-check {shlex.join(words[:-1])} {words[-1]}", here / "answer"
    asked = {"_ARGCOMPLETE": "1", "_ARGCOMPLETE_STDOUT_FILENAME": str(answer)}
    asked |= {"COMP_LINE": line, "COMP_POINT": str(len(line)), "_ARGCOMPLETE_IFS": "\n"}
    command = [sys.executable, "-m", "reality_check"]
    subprocess.run(command, env={**os.environ, **asked}, check=True, timeout=120)
    assert [word.rstrip() for word in answer.read_text().split("\n")] == expected

"""What `make gpu` runs, in a few seconds."""

from __future__ import annotations

import importlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
from support.paths import ROOT

pytestmark = pytest.mark.gpu


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("gpu")


def test_every_row_has_a_number(script: Any, tmp_path: Path) -> None:
    parts = ["floors", "evaluation", "networks", "losses"]
    assert script.main(["--tiny", "--skip-tests", "--out", str(tmp_path), "--parts", *parts]) == 0
    written = json.loads((tmp_path / "gpu.json").read_text())
    failed = {row["name"]: row["note"] for row in written["rows"] if row["value"] is None}
    assert not failed
    assert {row["part"] for row in written["rows"]} == set(parts)
    page = (tmp_path / "gpu.md").read_text()
    assert all(f"| {row['part']} | {row['name']} |" in page for row in written["rows"])
    assert written["GPU"] in page


def test_a_failure_is_a_row_and_a_ratio_needs_a_floor(script: Any) -> None:
    bench = script.Bench(tiny=True)

    def fail() -> float:
        raise ValueError("a | b\nc")

    failed = bench.measure("part", "fails", "ms", fail)
    assert (failed.value, failed.note) == (None, "ValueError: a / b c")
    assert bench.measure("part", "x", "ms", lambda: 3.0, failed).ratio is None
    two = bench.measure("part", "two", "ms", lambda: 2.0)
    assert bench.measure("part", "x", "ms", lambda: 3.0, two).ratio == 1.5
    bench.begun -= script.MEASURING
    assert bench.measure("part", "late", "ms", lambda: 3.0).note == "left out: no time"


def test_a_fold_run_that_was_stopped_is_continued(
    script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = {"classes": 8, "each": 8}
    monkeypatch.setattr(script.training, "VALIDATION", few)
    case = {**script.training.CASES["conv4-28"], "epoch": 2}
    case["images"] = {**case["images"], **few}
    whole, again = (script.last_epoch(case, stopped=stopped) for stopped in (False, True))
    assert again["step"] == whole["step"] == 2
    assert again["loss"] == pytest.approx(whole["loss"], rel=1e-4)
    assert again[script.PRIMARY] == pytest.approx(whole[script.PRIMARY], abs=1e-3)


def test_mps_is_begun_and_ended(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    control, told = tmp_path / "nvidia-cuda-mps-control", tmp_path / "told"
    control.write_text(
        f'#!/bin/sh\necho "$* $CUDA_MPS_PIPE_DIRECTORY" >> {told}\n[ $# = 1 ] || cat >> {told}\n'
    )
    control.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with script.mps() as environment:
        folder = environment["CUDA_MPS_PIPE_DIRECTORY"]
        assert told.read_text() == f"-d {folder}\n"
    assert told.read_text() == f"-d {folder}\n {folder}\nquit\n"
    control.unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    row = script.Bench(tiny=True).measure("folds", "x", "images/s", script.mps().__enter__)
    assert row.note.startswith("FileNotFoundError")
    assert "nvidia-cuda-mps-control" in row.note

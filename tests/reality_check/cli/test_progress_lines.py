"""What a run says without a terminal, and what its workers write into their logs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from support.in_process import run_command

pytestmark = pytest.mark.usefixtures("blank_figures")


GIVEN = [
    "protocol.search.trials=2",
    "protocol.reproductions=1",
    "methods=[quick/normalized_softmax,quick/contrastive]",
]
STAMP = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d "
TIME = r"in [\d.]+ (s|min( \d+ s)?)"
#: What is said of the first method: 2 trials, 1 reproduction, 1 complete run.
LINES = [
    rf"NAME: trial 1: [\d.]+ % {TIME}, 1 of 2 done, best [\d.]+ % validation MAP@R",
    rf"NAME: trial 2: [\d.]+ % {TIME}, 2 of 2 done, best [\d.]+ % validation MAP@R",
    rf"NAME: search complete, 2 of 2 {TIME}, best [\d.]+ % validation MAP@R",
    rf"NAME: reproduction 1: [\d.]+ % {TIME}, 1 of 1 done, best [\d.]+ % validation MAP@R",
    rf"NAME: reproductions complete, 1 of 1 {TIME}, best [\d.]+ % validation MAP@R",
    rf"NAME: final run 1: [\d.]+ % {TIME}, 1 of 1 done, best [\d.]+ % test MAP@R",
    rf"NAME: final complete, 1 of 1 {TIME}, best [\d.]+ % test MAP@R",
]
BASELINES = [rf"baselines 1: {TIME}, 1 of 1 done", rf"baselines complete, 1 of 1 {TIME}"]


@pytest.fixture(scope="module")
def ran(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """The folder that a run was called in, and what it printed."""
    folder = tmp_path_factory.mktemp("lines")
    done = run_command(folder, "run", str(tiny), *GIVEN, "--out", "out")
    assert done.returncode == 0, done.stderr
    return folder, done.stdout.splitlines()


def expected(said: list[str]) -> None:
    """Every line of every method is there, and in that order for each."""
    for name in ("normalized_softmax", "contrastive"):
        own = [line for line in said if f" {name}: " in line]
        assert len(own) == len(LINES)
        for line, pattern in zip(own, LINES, strict=True):
            assert re.fullmatch(STAMP + pattern.replace("NAME", name), line), line
    baselines = [line for line in said if " baselines " in line]
    for line, pattern in zip(baselines, BASELINES, strict=True):
        assert re.fullmatch(STAMP + pattern, line), line


@pytest.mark.slow
def test_a_line_for_every_trial_reproduction_and_stage(ran: tuple[Path, list[str]]) -> None:
    expected([line for line in ran[1] if re.match(STAMP, line)])


@pytest.mark.slow
def test_the_worker_log_has_them_too(ran: tuple[Path, list[str]]) -> None:
    log = (ran[0] / "out" / "logs" / "worker_0.log").read_text().splitlines()
    assert re.fullmatch(STAMP + r"worker 0 begins: process \d+ on \S+", log[0])
    expected(log)


@pytest.mark.slow
def test_quiet(tiny: Path, ran: tuple[Path, list[str]]) -> None:
    done = run_command(ran[0], "run", str(tiny), *GIVEN, "--out", "out", "--quiet")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    refused = run_command(ran[0], "run", str(tiny), "seed=5", *GIVEN, "--out", "out", "--quiet")
    assert refused.returncode == 2
    assert "seed is 0 there and 5 here" in refused.stderr
    both = run_command(ran[0], "run", str(tiny), "--quiet", "--json")
    assert both.returncode == 2


@pytest.mark.slow
def test_json_lines(tiny: Path, tmp_path: Path) -> None:
    given = [*GIVEN, "protocol.categories=[ensemble]"]
    done = run_command(tmp_path, "run", str(tiny), *given, "--out", "out", "--json")
    assert done.returncode == 0, done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert events[0]["event"] == "begin"
    assert events[0]["folder"] == "out"
    assert events[-1]["event"] == "complete"
    assert (tmp_path / events[-1]["report"]).exists()
    assert (tmp_path / events[-1]["summary"]).exists()
    assert all(isinstance(event["time"], float) for event in events)
    trials = [event for event in events if event["event"] == "trial_complete"]
    key = ("method", "stage", "search", "trial_index", "done", "wanted")
    own = [
        tuple(event[name] for name in key) for event in trials if event["method"] == "contrastive"
    ]
    assert own == [
        ("contrastive", "search", 0, 0, 1, 2),
        ("contrastive", "search", 0, 1, 2, 2),
        ("contrastive", "reproductions", 0, 0, 1, 1),
    ]
    for event in trials:
        has_value = event["method"] != ""
        assert (event["value"] is not None) == (event["best"] is not None) == has_value
        assert event["seconds"] > 0
        assert event["diverged"] is None
    stages = [event for event in events if event["event"] == "stage_complete"]
    assert [(event["stage"], event["trial_index"]) for event in stages] == [
        ("search", None),
        ("search", None),
        ("reproductions", None),
        ("reproductions", None),
        ("baselines", None),
    ]
    again = run_command(tmp_path, "run", str(tiny), *given, "--out", "out", "--json")
    kinds = [json.loads(line)["event"] for line in again.stdout.splitlines()]
    assert kinds == ["begin", "complete"], "nothing was left to do"

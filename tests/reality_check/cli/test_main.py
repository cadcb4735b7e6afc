"""The command line as people use it: read, stop, watch, break, mend, continue."""

from __future__ import annotations

import io
import json
import re
import shutil
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from support.command import prepare
from support.in_process import run_command, visiting

from reality_check import __version__
from reality_check.cli.listings import OWN_TRUNKS, _describe_class
from reality_check.cli.live_view import LiveView, render
from reality_check.cli.main import build_parser, main
from reality_check.config import load_experiment
from reality_check.config.metrics import Stage
from reality_check.models import TRUNKS
from reality_check.studies.output_folder import load_locked
from reality_check.studies.progress import Row, seconds_left, stage_rows, worker_states
from reality_check.studies.recorded_experiment import RecordedExperiment
from reality_check.utils.processes import this_process

COMMANDS = (
    *("init", "check", "run", "status", "report", "show", "pack", "merge", "leaderboard", "export"),
    *("worker", "verdicts", "claim", "compare"),
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output folder of a finished run."""
    folder = tmp_path_factory.mktemp("finished")
    prepare(folder)
    done = run_command(folder, "run", "experiment.yaml", "--out", "out")
    assert done.returncode == 0, done.stderr
    assert done.stderr == "", "without a terminal there is no live view"
    assert "Report: out/report.html" in done.stdout
    return folder / "out"


# -- reading --------------------------------------------------------------------------------------


def help_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as stopped:
        main([*arguments, "--help"])
    assert stopped.value.code == 0
    return capsys.readouterr().out


def test_help_names_all_commands_and_the_first_step(capsys: pytest.CaptureFixture[str]) -> None:
    text = help_of(capsys)
    for command in COMMANDS:
        assert re.search(rf"^    {command}\s+\w", text, re.MULTILINE), command
    order = [text.index(f"\n    {command}") for command in COMMANDS]
    assert order == sorted(order), "those of a first day come first"
    assert "reality-check run quickstart" in text


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command_fits_80_columns_and_explains(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = help_of(capsys, command)
    assert max(map(len, text.splitlines())) <= 80
    assert len(text.split()) > 50, "a title alone is no help"
    epilog = text.partition("options:")[2]
    assert re.search(rf"^  .*reality-check {command}\b", epilog.replace("example: ", "  "), re.M)


@pytest.mark.parametrize(
    ("command", "statuses"),
    [
        ("run", "0 done, 1 a training failed, 2 wrong usage, 75 stopped by --for,\n130 stopped"),
        ("check", "0 everything can run, 2 something cannot"),
    ],
)
def test_help_tells_exit_statuses(
    capsys: pytest.CaptureFixture[str], command: str, statuses: str
) -> None:
    assert f"exit status: {statuses}" in help_of(capsys, command)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["--version"])
    assert stopped.value.code == 0
    assert capsys.readouterr().out == f"reality-check {__version__}\n"


@pytest.mark.parametrize(
    ("what", "names"),
    [
        ("datasets", ["glyphs", "omniglot_background"]),
        ("models", ["conv4"]),
        ("methods", ["contrastive", "stop_gradient_softmax", "warped_softmax"]),
        ("protocols", ["appendix_d", "mlrc", "quick"]),
        ("experiments", ["quickstart"]),
        ("losses", ["ArcFaceLoss", "StopGradientSoftmaxLoss", "SignalToNoiseRatioContrastiveLoss"]),
        ("miners", ["MultiSimilarityMiner", "UniformHistogramMiner"]),
        ("distances", ["LpDistance"]),
        ("reducers", ["AvgNonZeroReducer"]),
        ("regularizers", ["LpRegularizer"]),
    ],
)
def test_show_lists_whole_names(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    what: str,
    names: list[str],
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["show", what]) == 0
    text = capsys.readouterr().out
    assert "…" not in text
    for name in names:
        assert re.search(rf"^{name}\b", text, re.MULTILINE), name


def test_show_trunks_says_what_their_classes_say() -> None:
    said = {name: _describe_class(cls, documented=True) for name, cls in TRUNKS.items()}
    assert said == OWN_TRUNKS


def test_show_losses_tells_arguments_and_hides_what_is_no_loss(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["show", "losses"]) == 0
    text = capsys.readouterr().out
    assert re.search(r"^ArcFaceLoss +margin=28.6, scale=64", text, re.MULTILINE)
    assert "Mixin" not in text


def test_show_prints_an_experiment_that_loads_again(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["show", "quickstart", "protocol.search.trials=9"]) == 0
    (tmp_path / "again.yaml").write_text(capsys.readouterr().out)
    expected = load_experiment("quickstart", ["protocol.search.trials=9"])
    assert load_experiment(tmp_path / "again.yaml") == expected


@pytest.mark.parametrize(
    ("name", "kind", "key"),
    [
        ("quick", "protocol", "iterations_per_epoch: 20"),
        ("mlrc_5x50", "protocol", "iterations_per_epoch: 100"),  # of its base
        ("conv4", "model", "trunk: conv4"),
        ("glyphs", "dataset", "reader: glyphs"),
        ("contrastive", "method", "ContrastiveLoss"),
    ],
)
def test_show_prints_what_an_experiment_names(
    capsys: pytest.CaptureFixture[str], name: str, kind: str, key: str
) -> None:
    assert main(["show", name]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"# {kind} {name}\n")
    assert key in text
    assert main(["show", name, "seed=3"]) == 2
    assert "overrides (seed=3) are of an experiment" in capsys.readouterr().err


def test_init_leaves_files_alone(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_losses.py").write_text("mine")
    assert main(["init"]) == 0
    assert "left my_losses.py as it is" in capsys.readouterr().out
    assert (tmp_path / "my_losses.py").read_text() == "mine"
    (tmp_path / "experiment.yaml").write_text("mine")
    assert main(["init"]) == 2
    assert "experiment.yaml exists already" in capsys.readouterr().err
    assert (tmp_path / "experiment.yaml").read_text() == "mine"


def test_init_in_another_folder(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["init", "a b/mine.yaml"]) == 0
    assert "  cd 'a b'\n  reality-check check mine.yaml" in capsys.readouterr().out
    files = sorted(path.name for path in (tmp_path / "a b").iterdir())
    assert files == ["mine.yaml", "my_losses.py", "reality-check.schema.json"]
    monkeypatch.chdir(tmp_path / "a b")
    monkeypatch.syspath_prepend(tmp_path / "a b")
    monkeypatch.delitem(sys.modules, "my_losses", raising=False)
    small = ["dataset.classes=40", "dataset.images_per_class=6", "protocol.training.batch_size=8"]
    assert main(["check", "mine.yaml", *small]) == 0
    monkeypatch.delitem(sys.modules, "my_losses")


def test_init_on_features_of_few_classes(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Thirty are left with eight to train on in the folds of the protocol that it names."""
    np.savez(tmp_path / "few.npz", x=np.eye(120, 16, dtype=np.float32), y=np.arange(120) % 30)
    with visiting(tmp_path):
        assert main(["init", "--features", "few.npz"]) == 0
        assert main(["check", "experiment.yaml"]) == 0, capsys.readouterr().err
        assert main(["init", "again.yaml", "--features", "none.npz"]) == 2
    assert "it must be an existing file" in capsys.readouterr().err
    assert not (tmp_path / "again.yaml").exists()


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("my_losses.py", "must end in .yaml"),
        ("my exp.yaml", "'my exp' would be the experiment's name"),
        ("mine/x.yaml", "mine/x.yaml cannot be written (File exists: mine"),
    ],
)
def test_init_refuses_what_check_could_not_take(
    file: str, message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").write_text("a file")
    assert main(["init", file]) == 2
    assert message in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_overrides_may_stand_after_options(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    prepare(tmp_path)
    for order in (
        ["run", "experiment.yaml", "--out", "out", "seed=-1"],
        ["run", "--out", "out", "experiment.yaml", "seed=-1"],
        ["run", "experiment.yaml", "seed=-1", "--out", "out"],
        ["run", "experiment.yaml", "device=cpu", "--workers", "2", "seed=-1"],
    ):
        assert main(order) == 2
        assert "seed" in capsys.readouterr().err


# -- a finished run -------------------------------------------------------------------------------


@pytest.mark.slow
def test_status_of_a_finished_run(
    finished: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["status", str(finished)]) == 0
    text = capsys.readouterr().out
    assert re.search(r"^contrastive +2 of 2 +2 of 2 +2 of 2 +\d", text, re.MULTILINE)
    assert "a_name_so_long_that" in text
    assert "…" not in text
    assert "Complete. Report:" in text


@pytest.mark.slow
def test_report_is_rebuilt_byte_for_byte(
    finished: Path,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(finished.parent)  # the path of the images is relative to this folder
    out = tmp_path / "copy"
    shutil.copytree(finished, out)
    written = ["results.csv", "baselines.csv", "report.html", "report.md", "tables.tex"]
    written += [str(path.relative_to(out)) for path in (out / "figures").iterdir()]
    assert "figures/gallery_contrastive.png" in written
    before = {name: (out / name).read_bytes() for name in written}
    for name in written:
        (out / name).unlink()
    assert main(["report", str(out)]) == 0
    assert "contrastive" in capsys.readouterr().out
    assert {name: (out / name).read_bytes() for name in written} == before


@pytest.mark.slow
def test_worker_of_a_finished_run_ends_at_once(finished: Path) -> None:
    assert main(["worker", str(finished)]) == 0


@pytest.fixture
def half_done(finished: Path, tmp_path: Path) -> RecordedExperiment:
    """The finished run, asked for two more trials."""
    out = tmp_path / "half"
    shutil.copytree(finished, out)
    text = (out / "experiment.yaml").read_text()
    (out / "experiment.yaml").write_text(text.replace("trials: 2\n", "trials: 4\n"))
    return RecordedExperiment(load_locked(out), out)


def say(out: Path, number: int, **state: object) -> None:
    state_of_worker = {"worker": this_process(), "time": time.time(), **state}
    (out / "logs" / f"worker_{number}.json").write_text(json.dumps(state_of_worker))


def shown(recorded: RecordedExperiment, workers: int) -> str:
    console = Console(force_terminal=True, width=80, file=io.StringIO(), color_system=None)
    console.print(render(recorded, workers, time.monotonic() - 75))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.slow
def test_live_view_shows_what_runs_the_best_and_the_end(half_done: RecordedExperiment) -> None:
    say(
        half_done.out_dir,
        0,
        doing="search",
        method="contrastive",
        trial_index=2,
        fold=1,
        epoch=3,
        max_epochs=8,
    )
    say(half_done.out_dir, 1, doing="waiting for other workers")
    text = shown(half_done, 2)
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    best = max(
        row.best or 0 for row in stage_rows(half_done.states()) if row.method == "contrastive"
    )
    assert re.search(rf"^contrastive +2 of 4 .*{100 * best:.1f}\s*$", text, re.MULTILINE)
    assert "contrastive: trial 3, fold 2, epoch 3 of at most 8" in text
    assert "waiting for other workers" in text
    assert re.search(r"running for 1 min 15 s, about \d+ s to go", text)


@pytest.mark.slow
def test_workers_that_are_gone_are_not_shown(half_done: RecordedExperiment) -> None:
    gone = {**this_process(), "pid": 2**22 + 1}
    say(half_done.out_dir, 0, doing="search", method="contrastive", trial_index=0, worker=gone)
    say(half_done.out_dir, 1, doing="search", method="contrastive", trial_index=1, time=0.0)
    (half_done.out_dir / "logs" / "worker_2.json").write_text("{half a fi")
    assert worker_states(half_done.out_dir) == []


def test_time_to_go_counts_what_is_left() -> None:
    rows = [
        Row("one", Stage.SEARCH, 0, 1, 4, 0.5, 10.0),
        Row("one", Stage.REPRODUCTIONS, 0, 0, 2, None, None),
        Row("one", Stage.FINAL, 0, 0, 2, None, None),
        Row("other", Stage.SEARCH, 0, 4, 4, 0.5, 10.0),
    ]
    # 3 trials and 2 reproductions of 10 s; one fold is taken to be half of a cross-validation.
    assert seconds_left(rows, 1) == 3 * 10 + 2 * 10 + 2 * 5
    assert seconds_left(rows, 2) == 30
    assert seconds_left([Row("one", Stage.SEARCH, 0, 0, 4, None, None)], 2) is None


@pytest.mark.slow
@pytest.mark.parametrize("terminal", [True, False])
def test_live_view_only_on_a_terminal(half_done: RecordedExperiment, terminal: bool) -> None:
    file = io.StringIO()
    with LiveView(Console(force_terminal=terminal, width=80, file=file), 1).shown() as view:
        view(half_done)
    assert ("contrastive" in file.getvalue()) is terminal
    assert bool(file.getvalue()) is terminal


@pytest.mark.slow
def test_live_view_outlives_a_busy_storage(
    half_done: RecordedExperiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(*_: object) -> None:
        raise RuntimeError("database is locked")

    monkeypatch.setattr(half_done, "states", busy)
    file = io.StringIO()
    with LiveView(Console(force_terminal=True, width=80, file=file), 1).shown() as view:
        view(half_done)
    assert "no news from the storage (RuntimeError)" in file.getvalue()


@pytest.mark.parametrize(
    ("text", "expected"), [("90s", 90), ("30m", 1800), ("1h30m", 5400), ("2d", 172800)]
)
def test_a_time_is_read_in_seconds(text: str, expected: int) -> None:
    assert build_parser().parse_args(["run", "x", "--for", text]).max_seconds == expected

"""Every figure comes out of the command, quick, with its numbers and its caption beside it."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from PIL import Image

from reality_check.cli.main import main
from reality_check.papers.figures import (
    FIGURES,
    FigureData,
    PaperFigure,
    Settings,
    _training,
    write_figure,
)
from reality_check.papers.figures._figure import csv_text
from reality_check.report.figures.plotting import new_figure

#: The tables of each figure beside the main one.
TABLES = {
    "stop_gradient_softmax_sphere": {"spread"},
    "grad_ml_update": {"steps"},
    "heated_up_softmax_embeddings": {"weights", "spread"},
    "heated_up_softmax_norms": {"gradients"},
    "warped_softmax_landscape": {"axis"},
    "warped_softmax_four_proxies": {"rest"},
    "warped_softmax_embeddings": {"proxies", "spread"},
}
#: Figures of a single network.
ONE_SEED = {"heated_up_softmax_norms", "heated_up_softmax_gradients"}
#: Figures of trainings and of formulas that take a second or two; the others are slow tests.
IN_A_SECOND = {
    "grad_ml_update",
    "warped_softmax_landscape",
    "normalized_softmax_dimensions",
    "normalized_softmax_class_sampling",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all figures, which share trainings."""
    return tmp_path_factory.mktemp("figures")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in IN_A_SECOND else [pytest.mark.slow])
        for name in FIGURES
    ],
)
def test_the_command_draws(
    folder: Path, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("REALITY_CHECK_DATA", raising=False)  # quick needs none
    assert main(["figure", name, "--out", str(folder), "--quick"]) == 0
    files = [f"{name}.png", f"{name}.txt", f"{name}.csv"]
    files += [f"{name}_{table}.csv" for table in TABLES.get(name, ())]
    told = capsys.readouterr().out.splitlines()
    written = {Path(line.removeprefix("wrote ")) for line in told if line.startswith("wrote ")}
    assert written == {folder / file for file in files}
    with Image.open(folder / f"{name}.png") as picture:
        assert picture.format == "PNG"
        assert picture.width >= 1200
        # Something is drawn: no shade covers everything.
        counts = picture.convert("L").histogram()
    assert max(counts) < 0.98 * sum(counts)
    caption = (folder / f"{name}.txt").read_text(encoding="utf-8")
    assert ("Formulas only" in caption) == (not FIGURES[name].needs)
    if FIGURES[name].needs:
        assert "made up" in caption
        assert ("one seed." if name in ONE_SEED else "2 seeds") in caption
    for file in written:
        if file.suffix == ".csv":
            head, *rows = csv.reader(file.read_text(encoding="utf-8").splitlines())
            assert rows
            assert {len(row) for row in rows} == {len(head)}
    assert not list(folder.rglob(".*.tmp"))


def test_a_figure_is_drawn_as_pdf_without_new_trainings(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "normalized_softmax_class_sampling"
    assert main(["figure", name, "--out", str(folder), "--quick"]) == 0
    kept = {file.name: file.stat().st_mtime_ns for file in (folder / "runs").iterdir()}
    assert main(["figure", name, "--out", str(folder), "--quick", "--format", "pdf"]) == 0
    assert (folder / f"{name}.pdf").read_bytes().startswith(b"%PDF")
    assert {file.name: file.stat().st_mtime_ns for file in (folder / "runs").iterdir()} == kept


def test_show_figures_lists_them_all(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["show", "figures"]) == 0
    out = capsys.readouterr().out
    for figure in FIGURES.values():
        assert figure.name in out
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["figure", "grad_ml_updates"], "Did you mean 'grad_ml_update'?"),
        (["figure", "grad_ml_update", "--format", "gif"], "must be png or pdf, got 'gif'"),
        (["figure", "grad_ml_update", "--quick", "--full"], "not allowed with"),
        (["figure"], "missing: FIGURE"),
        (["show", "figure"], "Did you mean 'figures'?"),
    ],
    ids=["name", "format", "both", "none", "show"],
)
def test_wrong_usage_is_one_line(
    arguments: list[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    try:
        status = main(arguments)
    except SystemExit as stopped:
        status = int(stopped.code or 0)
    error = capsys.readouterr().err
    assert status == 2
    assert told in error
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["heated_up_softmax_norms", "normalized_softmax_dimensions"])
def test_without_images_it_says_what_to_set(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("REALITY_CHECK_DATA", raising=False)
    assert main(["figure", name, "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert "REALITY_CHECK_DATA is not set" in error
    assert "--quick" in error
    monkeypatch.setenv("REALITY_CHECK_DATA", str(tmp_path))
    assert main(["figure", name, "--out", str(tmp_path / "out")]) == 2
    assert str(tmp_path) in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_folder_that_takes_no_files_is_refused_before_anything_is_trained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    out = tmp_path / "file" / "figures"
    assert main(["figure", "heated_up_softmax_norms", "--quick", "--out", str(out)]) == 2
    assert f"--out {str(out)!r} cannot be written" in capsys.readouterr().err


def test_ctrl_c_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(run: _training._Run) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(_training._Run, "epoch", interrupted)
    command = ["figure", "heated_up_softmax_norms", "--quick", "--out", str(tmp_path / "out")]
    assert main(command) == 130
    told = capsys.readouterr().err
    assert f"To continue: reality-check {' '.join(command)}" in told
    assert not list(tmp_path.rglob("*.png"))


def test_a_training_that_fails_is_status_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def explode(run: _training._Run) -> None:
        run.diverged = run.done = 1

    monkeypatch.setattr(_training._Run, "epoch", explode)
    command = ["figure", "heated_up_softmax_norms", "--quick", "--out", str(tmp_path / "out")]
    assert main(command) == 1
    assert "the loss became infinite in epoch 1" in capsys.readouterr().err
    assert not list(tmp_path.rglob("*.png"))


def test_a_figure_that_cannot_be_drawn_leaves_nothing(tmp_path: Path) -> None:
    def fail(data: FigureData) -> None:
        raise RuntimeError("no")

    figure = PaperFigure("f", "P, Fig. 1", "x", "", lambda settings: FigureData({}, "c"), fail)  # type: ignore[arg-type]
    with pytest.raises(RuntimeError):
        write_figure(figure, Settings(folder=tmp_path / "out"), "png")
    assert not (tmp_path / "out").exists()


def test_the_same_data_gives_the_same_bytes(tmp_path: Path) -> None:
    data = FigureData({"": {"x": [1, 2], "y": [0.1, None]}}, "what was run")
    figure = PaperFigure(
        "f", "P, Fig. 1", "x", "", lambda settings: data, lambda data: new_figure(7, 2)
    )
    first = {p.name: p.read_bytes() for p in write_figure(figure, Settings(folder=tmp_path), "png")}
    again = {p.name: p.read_bytes() for p in write_figure(figure, Settings(folder=tmp_path), "png")}
    assert first == again
    assert first["f.csv"] == b"x,y\n1,0.1\n2,\n"
    assert first["f.txt"] == b"what was run\n"


def test_columns_of_different_length_are_refused() -> None:
    with pytest.raises(ValueError, match="shorter"):
        csv_text({"x": [1, 2], "y": [1]})

"""Every figure comes out of the command, quick, with its numbers and its caption beside it."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest
from PIL import Image

from examples.paper_figures import training
from examples.paper_figures.__main__ import FIGURES, main
from examples.paper_figures.style import FigureData, csv_text, new_figure, write_figure

PAGE = Path(__file__).parents[3] / "docs" / "paper_figures.md"
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
FORMULAS = {"grad_ml_update", "warped_softmax_landscape", "warped_softmax_four_proxies"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all figures, which share trainings."""
    return tmp_path_factory.mktemp("figures")


@pytest.mark.parametrize("name", FIGURES)
def test_the_command_draws(
    folder: Path, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("REALITY_CHECK_DATA", raising=False)  # quick needs none
    main([name, "--out", str(folder), "--quick"])
    files = [f"{name}.png", f"{name}.txt", f"{name}.csv"]
    files += [f"{name}_{table}.csv" for table in TABLES.get(name, ())]
    lines = capsys.readouterr().out.splitlines()
    written = {Path(line.removeprefix("wrote ")) for line in lines if line.startswith("wrote ")}
    assert written == {folder / file for file in files}
    with Image.open(folder / f"{name}.png") as picture:
        assert picture.width >= 1200
        # Something is drawn: no shade covers everything.
        counts = picture.convert("L").histogram()
    assert max(counts) < 0.98 * sum(counts)
    caption = (folder / f"{name}.txt").read_text(encoding="utf-8")
    assert ("Formulas only" if name in FORMULAS else "made up") in caption
    for file in written:
        if file.suffix == ".csv":
            head, *rows = csv.reader(file.read_text(encoding="utf-8").splitlines())
            assert rows
            assert {len(row) for row in rows} == {len(head)}


def test_a_figure_is_drawn_as_pdf_without_new_trainings(folder: Path) -> None:
    name = "normalized_softmax_class_sampling"
    main([name, "--out", str(folder), "--quick"])
    kept = {file: file.stat().st_mtime_ns for file in (folder / "runs").iterdir()}
    main([name, "--out", str(folder), "--quick", "--format", "pdf"])
    assert (folder / f"{name}.pdf").read_bytes().startswith(b"%PDF")
    assert {file: file.stat().st_mtime_ns for file in (folder / "runs").iterdir()} == kept


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["grad_ml_updates"], "there is no figure 'grad_ml_updates'; the figures are"),
        (["heated_up_softmax_norms"], "REALITY_CHECK_DATA is not set"),
        (["heated_up_softmax_norms", "--quick"], "the loss became infinite in epoch 1"),
    ],
    ids=["name", "data", "divergence"],
)
def test_what_cannot_be_drawn_is_one_sentence(
    arguments: list[str], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.delenv("REALITY_CHECK_DATA", raising=False)
    monkeypatch.setattr(training, "_train_epoch", lambda *arguments: float("nan"))
    with pytest.raises(SystemExit, match="2"):
        main([*arguments, "--out", str(tmp_path)])
    assert sentence in capsys.readouterr().err
    assert not list(tmp_path.glob("*.*"))


def test_the_same_data_gives_the_same_bytes(tmp_path: Path) -> None:
    data = FigureData({"": {"x": [1, 2], "y": [0.1, None]}}, "what was run")

    def written() -> dict[str, bytes]:
        paths = write_figure(tmp_path / "f", data, lambda data: new_figure(7, 2), "png")
        return {path.name: path.read_bytes() for path in paths}

    first = written()
    assert first == written()
    assert first["f.csv"] == b"x,y\n1,0.1\n2,\n"
    assert first["f.txt"] == b"what was run\n"


def test_columns_of_different_length_are_refused() -> None:
    with pytest.raises(ValueError, match="shorter"):
        csv_text({"x": [1, 2], "y": [1]})


def test_the_page_shows_every_figure() -> None:
    page = PAGE.read_text(encoding="utf-8")
    shown = re.findall(r"^## .+\n\n!\[[^\]]{30,}\]\(images/(\w+)\.png\)\n", page, re.M)
    assert shown == list(FIGURES)
    assert page.count("**Seen:** ") == len(FIGURES)
    assert {file.stem for file in (PAGE.parent / "images").glob("*.png")} == set(FIGURES)

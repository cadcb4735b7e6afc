"""Small copies of CUB and In-Shop, in their genuine layouts, through the shipped experiments."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from reality_check.cli.main import main

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("workers_in_this_process", "laid_out")]

#: As published but for size: a small trunk, few and short trainings, two of the methods.
SMALL = [
    "model=conv4",
    "model.arguments.width=4",
    "model.pooling=average",
    "protocol.training.batch_size=8",
    "protocol.training.iterations_per_epoch=1",
    "protocol.training.max_epochs=2",
    "protocol.training.augmentation.crop_size=24",
    "protocol.search.trials=1",
    "protocol.search.sampler=random",
    "protocol.reproductions=1",
    "protocol.gallery=2",
    "dataset.size=32",
    "dataset.check_counts=false",
    "device=cpu",
]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REALITY_CHECK_CACHE", str(tmp_path / "cache"))


def picture(path: Path, number: int) -> None:
    """A photograph of its own size: 40 x 40 to 60 x 40."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draw = np.random.default_rng(number)
    shape = (40, int(draw.integers(40, 61)), 3)
    Image.fromarray(draw.integers(0, 256, shape, dtype=np.uint8)).save(path)


def small_cub(root: Path, classes: int = 48, each: int = 3) -> Path:
    names = [f"{label:03d}.Bird_{label}" for label in range(1, classes + 1)]
    files = [f"{name}/{name[4:]}_{n:04d}.jpg" for name in names for n in range(each)]
    for number, file in enumerate(files):
        picture(root / "images" / file, number)
    lists = {
        "classes.txt": [f"{i} {name}" for i, name in enumerate(names, 1)],
        "images.txt": [f"{i} {file}" for i, file in enumerate(files, 1)],
        "image_class_labels.txt": [f"{i} {1 + (i - 1) // each}" for i in range(1, len(files) + 1)],
        "train_test_split.txt": [f"{i} {i % 2}" for i in range(1, len(files) + 1)],
    }
    for name, lines in lists.items():
        (root / name).write_text("\n".join(lines) + "\n")
    return root


def small_in_shop(root: Path, items: int = 48, each: int = 4) -> Path:
    rows = []
    for item in range(1, items + 1):
        for view in range(each):
            name = f"img/WOMEN/Dresses/id_{item:08d}/{view:02d}_1_front.jpg"
            picture(root / "Img" / name, each * item + view)
            part = "train" if item % 2 else ("query" if view == 0 else "gallery")
            rows.append(f"{name} id_{item:08d} {part}")
    table = [str(len(rows)), "image_name item_id evaluation_status", *rows]
    (root / "Eval").mkdir(parents=True)
    (root / "Eval" / "list_eval_partition.txt").write_text("\n".join(table) + "\n")
    return root


def run(name: str, root: Path, out: Path, methods: str) -> list[dict[str, str]]:
    arguments = ["run", name, "--out", str(out), f"dataset.path={root}", f"methods={methods}"]
    assert main([*arguments, *SMALL]) == 0
    with (out / "results.csv").open() as file:
        return list(csv.DictReader(file))


def test_cub_images_of_many_sizes_from_files_to_report(tmp_path: Path) -> None:
    out = tmp_path / "out"
    rows = run("cub200_mlrc", small_cub(tmp_path / "CUB_200_2011"), out, "[nt_xent, arcface]")
    assert {row["category"] for row in rows} == {"aggregate", "ensemble"}
    assert {row["method"] for row in rows} == {"nt_xent", "arcface"}
    report = (out / "report.md").read_text()
    assert "cub200: 48 classes, 144 images of different sizes" in report
    assert "24 trainval, 24 test: the second half (72 test images)" in report
    assert "24 x 24 x 3" in report
    for method in ("nt_xent", "arcface"):
        shown = Image.open(out / "figures" / f"gallery_{method}.png")
        assert shown.size[0] > 8 * 128


def test_in_shop_with_queries_and_gallery(tmp_path: Path) -> None:
    out = tmp_path / "out"
    root = small_in_shop(tmp_path / "In-shop")
    rows = run("in_shop_mlrc", root, out, "[normalized_softmax]")
    report = (out / "report.md").read_text()
    assert "24 trainval, 24 test: the data set's own test classes" in report
    assert "96 test images, 24 queries and 72 in the gallery" in report
    values = {row["metric"]: float(row["value"]) for row in rows if row["category"] == "ensemble"}
    # Of 24 queries: every value is a multiple of 1/24 (R is 3 for all, so thirds of it for RP).
    assert round(values["precision_at_1"] * 24, 6) == round(values["precision_at_1"] * 24)
    assert round(values["r_precision"] * 72, 6) == round(values["r_precision"] * 72)


def test_broken_single_and_copied_images_are_in_the_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = small_cub(tmp_path / "CUB_200_2011")
    folders = sorted((root / "images").iterdir())
    broken = sorted(folders[3].iterdir())[:2]  # leaves one image of the class
    for file in broken:
        file.write_bytes(file.read_bytes()[:50])
    trained, tested = (next(folders[rank].iterdir()) for rank in (0, -1))
    tested.write_bytes(trained.read_bytes())
    out = tmp_path / "out"
    arguments = ["cub200_mlrc", f"dataset.path={root}", *SMALL]
    arguments += ["methods=[contrastive]", "dataset.on_broken=skip"]
    copies = "2 of 142 images have an identical copy in another class, 2 of them in training and"
    with pytest.warns(UserWarning, match="Skipped 2 of 144"):
        assert main(["check", *arguments]) == 0
    assert f"copies: {copies}" in capsys.readouterr().out
    with pytest.warns(UserWarning, match="Skipped 2 of 144"):
        assert main(["run", *arguments, "--out", str(out)]) == 0
    report = (out / "report.md").read_text()
    assert f"Serious – copies:** {copies}" in report
    assert "2 that could not be decoded" in report
    for file in broken:
        assert file.name.replace("_", "\\_") in report
    assert "Classes of one image" in report


def test_in_shop_cannot_be_halved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = small_in_shop(tmp_path / "In-shop")
    arguments = ["run", "in_shop_mlrc", f"dataset.path={root}", "--out", str(tmp_path / "out")]
    arguments += ["methods=[contrastive]", "protocol.split.test_classes=half", *SMALL]
    assert main(arguments) == 2
    assert "test_classes: official" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()

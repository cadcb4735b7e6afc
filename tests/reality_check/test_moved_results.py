"""A finished folder somewhere else: without the loss's source, the data set, and who made it."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
from support.command import write_images
from support.in_process import run_command, visiting
from support.prepared import prepare

import reality_check as rc
from reality_check.launch.worker import work

pytestmark = pytest.mark.usefixtures("blank_figures")

LOSSES = """\
import torch
from tools.scaling import scaled


class Mine(torch.nn.Module):
    def __init__(self, scale=1.0):
        super().__init__()
        self.scale = scale

    def forward(self, embeddings, labels):
        distances = (embeddings[:, None] - embeddings[None]).square().sum(-1)
        same = labels[:, None] == labels[None]
        return scaled(distances[same].mean() - distances[~same].mean(), self.scale).exp()
"""
TRUNKS = """\
import torch


class Tiny(torch.nn.Sequential):
    def __init__(self, channels=1):
        super().__init__(torch.nn.Conv2d(channels, 4, 3, stride=2), torch.nn.ReLU())
"""
EXPERIMENT = """\
dataset: {name: blobs, reader: tensors, path: data/blobs.npz}
model: {name: mine, trunk: my_trunks.Tiny}
protocol:
  base: quick_one_search
  split: {folds: 2}
  training: {iterations_per_epoch: 3, max_epochs: 2, embedding_size: 8, batch_size: 8}
  search: {trials: 2, startup_trials: 1}
  reproductions: 2
methods:
  - {name: mine, loss: my_losses.Mine, arguments: {scale: {low: 0.1, high: 2}}}
  - {name: contrastive, loss: ContrastiveLoss}
"""


def write_home(home: Path) -> None:
    """What a user has."""
    (home / "data").mkdir()
    write_images(home / "data" / "blobs.npz", 16)
    (home / "tools").mkdir()
    (home / "tools" / "scaling.py").write_text("def scaled(x, by):\n    return by * x\n")
    (home / "my_losses.py").write_text(LOSSES)
    (home / "my_trunks.py").write_text(TRUNKS)
    (home / "experiment.yaml").write_text(EXPERIMENT)


@pytest.fixture(scope="module")
def moved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """An output folder taken out of the folder of its author, which is gone; and the images."""
    home, elsewhere = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("elsewhere")
    write_home(home)
    done = run_command(home, "run", "experiment.yaml", "--out", "out")
    assert done.returncode == 0, done.stderr
    shutil.move(home / "out", elsewhere / "kept")
    shutil.move(home / "data" / "blobs.npz", elsewhere / "images.npz")
    shutil.rmtree(home)
    return elsewhere / "kept", elsewhere / "images.npz"


@pytest.mark.slow
@pytest.mark.parametrize("command", [["status"], ["report"], ["status", "--json"]])
def test_commands_need_neither_sources_nor_images(
    moved: tuple[Path, Path], tmp_path: Path, command: list[str]
) -> None:
    folder, _ = moved
    shutil.copytree(folder, tmp_path / "copy")
    shutil.rmtree(tmp_path / "copy" / "sources")
    done = run_command(tmp_path, command[0], "copy", *command[1:])
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    for name in ("results.csv", "report.md"):
        assert (tmp_path / "copy" / name).read_bytes() == (folder / name).read_bytes()
    results = rc.load_results(tmp_path / "copy")
    assert results.finished
    assert len(results.records()) == 72


@pytest.mark.slow
def test_networks_need_no_images(moved: tuple[Path, Path]) -> None:
    folder, images = moved
    trained = rc.load_network(folder, "mine", reproduction=1, fold=None)
    (experiment,) = [rc.load_experiment(folder / "experiment.yaml", [f"dataset.path={images}"])]
    from reality_check.data import load_dataset

    assert trained.embed(load_dataset(experiment.dataset)).shape == (64, 16)


@pytest.mark.slow
def test_a_worker_needs_no_sources_either(tmp_path: Path) -> None:
    """It may be started anywhere: the folder has copies, and knows where the images are."""
    home, elsewhere, out = (tmp_path / name for name in ("home", "elsewhere", "out"))
    for folder in (home, elsewhere):
        folder.mkdir()
    write_home(home)
    with visiting(home):
        prepare(rc.load_experiment("experiment.yaml", ["protocol.reproductions=1"]), out)
    for file in home.rglob("*.py"):
        file.unlink()
    with visiting(elsewhere):
        assert work(out, 3) == 0
    assert rc.load_results(out).finished


@pytest.mark.slow
def test_an_unfinished_folder_can_be_read_too(moved: tuple[Path, Path], tmp_path: Path) -> None:
    """No study is begun by looking: the database stays as it is."""
    folder, _ = moved
    shutil.copytree(folder, tmp_path / "copy")
    shutil.rmtree(tmp_path / "copy" / "sources")
    locked = tmp_path / "copy" / "experiment.yaml"
    text = locked.read_text()
    assert "kind: one" in text
    locked.write_text(text.replace("kind: one", "kind: repeated\n    repeats: 3"))
    before = (tmp_path / "copy" / "studies.db").read_bytes()
    said = run_command(tmp_path, "status", "copy").stdout
    assert "2 of 6" in said
    assert "Not complete" in said
    assert not rc.load_results(tmp_path / "copy").finished
    assert run_command(tmp_path, "report", "copy").returncode == 0
    assert (tmp_path / "copy" / "studies.db").read_bytes() == before


@pytest.mark.slow
def test_the_printed_command_makes_the_same_results(
    moved: tuple[Path, Path], tmp_path: Path
) -> None:
    """To the letter, in a folder that has nothing but the settings and the copied sources."""
    folder, images = moved
    section = (folder / "report.md").read_text().partition("## How to reproduce")[2]
    found = re.search(r"```sh\n(.*)\n```", section)
    assert found is not None
    program, *arguments = shlex.split(found.group(1))
    assert program == "reality-check"
    alone = tmp_path / "alone"
    alone.mkdir()
    shutil.copy(folder / "experiment.yaml", alone)
    shutil.copytree(folder / "sources", alone / "sources")
    assert sorted(str(path.relative_to(alone)) for path in alone.rglob("*.py")) == [
        "sources/my_losses.py",
        "sources/my_trunks.py",
        "sources/tools/scaling.py",
    ]
    # As if the images lay where they were.
    there = Path(rc.load_experiment(alone / "experiment.yaml").dataset.path)
    assert there.is_absolute()
    there.parent.mkdir(parents=True)
    shutil.copy(images, there)
    try:
        done = run_command(alone, *arguments)
    finally:
        shutil.rmtree(there.parents[1])
    assert done.returncode == 0, done.stderr
    assert "Different from the run" not in done.stdout
    again = alone / arguments[arguments.index("--out") + 1]
    for name in ("results.csv", "baselines.csv", "comparisons.csv"):
        assert (again / name).read_bytes() == (folder / name).read_bytes()
    assert (again / "sources" / "tools" / "scaling.py").exists()


@pytest.mark.slow
def test_a_run_made_again_with_other_images_says_so(
    moved: tuple[Path, Path], tmp_path: Path
) -> None:
    folder, images = moved
    with np.load(images) as arrays:
        changed = {**arrays, "images": 255 - arrays["images"]}
    np.savez(tmp_path / "other.npz", **changed)
    path = f"dataset.path={tmp_path / 'other.npz'}"
    done = run_command(tmp_path, "run", str(folder / "experiment.yaml"), path, "--out", "again")
    assert "Different from the run that wrote this experiment.yaml: dataset.\n" in done.stdout

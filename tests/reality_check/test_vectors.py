"""A comparison on vectors from end to end: scikit-learn's digits, 8 x 8 pixels as 64 numbers."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from support.blank_figures import blank
from support.in_process import run_command

import reality_check as rc
from pml_extensions.evaluation import RetrievalMetrics

sklearn = pytest.importorskip("sklearn.datasets")

YAML = """
name: digits
dataset: digits.npz
model: {base: identity, trunk: TRUNK}
protocol:
  base: features_quick
  split: {rule: mlrc, folds: 2}
  training:
    {batch_size: 12, iterations_per_epoch: 4, max_epochs: 2, embedding_size: 16,
     optimizers: {trunk: {lr: 0}}}
  search: {trials: 3, budget: 1, race: [], retrain: best, retrain_best: 3}
  gallery: 2
methods:
  - {base: quick/normalized_softmax, samples_per_class: 4}
  - {base: quick/contrastive, model: {embedder: {init: pca}}}
  - base: quick/multi_similarity
    model: {embedder: {layers: {choices: [2, 3]}, hidden_size: 8, dropout: {low: 0, high: 0.5}}}
"""


class SameAgain(torch.nn.Module):
    """A user's own trunk that returns what it gets."""

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        return vectors


def digits() -> tuple[np.ndarray, np.ndarray]:
    x, y = sklearn.load_digits(return_X_y=True)
    return x[::4].astype(np.float32), y[::4]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The output folders of the same experiment with both trunks."""
    folder = tmp_path_factory.mktemp("digits")
    module = ModuleType("my_trunks")
    module.SameAgain = SameAgain  # type: ignore[attr-defined]
    x, y = digits()
    np.savez(folder / "digits.npz", x=x, y=y, names=np.array([f"digit {n}" for n in range(len(x))]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "my_trunks", module)
        patch.setattr("reality_check.report.figures.plotting.render", blank)
        for name, trunk in (("identity", "identity"), ("own", "my_trunks.SameAgain")):
            text = YAML.replace("TRUNK", trunk)
            if name == "own":  # one method is enough to compare
                text = re.sub(r"^  - \{.*\n", "", text, flags=re.M)
            (folder / f"{name}.yaml").write_text(text)
            done = run_command(folder, "run", f"{name}.yaml", "--out", name)
            assert done.returncode == 0, done.stderr
    return {name: folder / name for name in ("identity", "own")}


def baseline(folder: Path, name: str) -> dict[str, float]:
    return {
        row.metric: row.value for row in rc.load_results(folder).baselines if row.method == name
    }


def halves() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    x, y = digits()
    return x[y < 5], x[y >= 5], y[y >= 5]


def test_an_own_trunk_that_changes_nothing_gives_the_same_to_the_bit(
    finished: dict[str, Path],
) -> None:
    tables = [(finished[name] / "results.csv").read_text() for name in ("identity", "own")]
    rows = [[row for row in table.splitlines() if "multi_similarity" in row] for table in tables]
    assert rows[0] == rows[1]
    assert len(rows[0]) > 10


def test_the_raw_row_is_what_the_metrics_give_by_hand(finished: dict[str, Path]) -> None:
    _, x, y = halves()
    assert baseline(finished["identity"], "raw features") == RetrievalMetrics()(x, y)


def test_the_row_of_principal_components_is_numpys(finished: dict[str, Path]) -> None:
    trainval, x, y = halves()
    mean = trainval.mean(axis=0, dtype=np.float64)
    _, _, components = np.linalg.svd(trainval - mean, full_matrices=False)
    by_hand = RetrievalMetrics()((x - mean) @ components[:16].T, y)
    row = baseline(finished["identity"], "PCA of raw features")
    assert row == pytest.approx(dict(by_hand), abs=2e-3)


def test_rows_without_training_are_no_trunks(finished: dict[str, Path]) -> None:
    names = {row.method for row in rc.load_results(finished["identity"]).baselines}
    assert names == {"raw features", "PCA of raw features", "untrained embedder"}


def test_searched_heads_are_loaded_as_their_trials_had_them(
    finished: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = finished["identity"]
    monkeypatch.chdir(folder.parent)
    searched = [t for t in rc.load_results(folder).trials() if t["method"] == "multi_similarity"]
    layers = {trial["params.model.embedder.layers"] for trial in searched}
    assert layers <= {2, 3}
    for reproduction in range(2):
        embedder = rc.load_network(folder, "multi_similarity", reproduction).network.embedder
        assert embedder.options["layers"] in layers
        assert embedder.options["hidden_size"] == 8


def test_the_report_speaks_of_samples_and_shows_their_names(finished: dict[str, Path]) -> None:
    report = (finished["identity"] / "report.md").read_text()
    assert "450 samples of 64" in report
    assert "raw features" in report
    assert "raw pixels" not in report
    words = re.sub(r"```.*?```|!\[.*?\]\(.*?\)", "", report, flags=re.S)
    assert [line for line in words.splitlines() if re.search("image(?!net)", line, re.I)] == []
    assert re.search("the first sample of each of some evenly spaced test classes", words)
    assert list((finished["identity"] / "figures").glob("gallery_*.png"))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ("protocol.training.augmentation.rotation=10", "augmentation.rotation, changes of images"),
        (
            "model.trunk=conv4",
            "conv4 takes images, but the samples are vectors of 64 float32",
        ),
        ("model.trunk=torchvision:resnet18", "takes images, but the samples are vectors of 64"),
        ("model.preprocessing.mean=0.5", "model.preprocessing is about pixels"),
        ("protocol.training.embedding_size=40", "embedder.init: pca gives at most 64 dimensions"),
        ("protocol.split.folds=4", "classes are too few for 4 folds"),
        ("model.embedder.layers={low: 0, high: 2, int: true}", "layers cannot be 0"),
        ("model.embedder.layers={low: 1, high: 2}", "write int: true in its range"),
        ("model.embedder.dropout={low: 0, high: 1}", "dropout cannot be 1"),
        ("protocol.final_metrics=[mean_average_precision_at_r_blur]", "blur"),
    ],
)
def test_mistakes_are_a_sentence(tmp_path: Path, change: str, text: str) -> None:
    if "torchvision" in change:
        pytest.importorskip("torchvision")
    x, y = digits()
    np.savez(tmp_path / "digits.npz", x=x, y=y)
    (tmp_path / "digits.yaml").write_text(YAML.replace("TRUNK", "identity"))
    more = ["protocol.categories=[aggregate, complete]"] if "embedding_size" in change else []
    done = run_command(tmp_path, "run", "digits.yaml", "--out", "out", change, *more)
    assert done.returncode == 2
    assert text in done.stderr
    assert not (tmp_path / "out").exists()

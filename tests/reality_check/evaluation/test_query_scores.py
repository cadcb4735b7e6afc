"""Scores of every query: kept beside each reproduction, and read back."""

from __future__ import annotations

import io
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.experiments import CAMPAIGN
from support.worked_experiment import WorkedExperiment

from pml_extensions.evaluation import RetrievalMetrics
from reality_check.config import compose
from reality_check.config.metrics import METRICS
from reality_check.data import ImageSet
from reality_check.evaluation.categories import score_folds
from reality_check.evaluation.query_scores import (
    QUERIES_FILE,
    read_query_scores,
    write_query_scores,
    write_test_queries,
)
from reality_check.evaluation.scoring import Diverged, evaluate_both_geometries
from reality_check.launch.trial_runner import TrialRunner
from reality_check.models.network import build_network
from reality_check.report.collect import collect
from reality_check.results import QueryScores
from reality_check.training.fold import FoldResult
from reality_check.training.trainer import Trainer
from reality_check.utils import checkpoints

SCORES_FILE = "queries.npz"

MakeImages = Callable[..., ImageSet]


def embeddings(folds: int, rows: int = 12) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(rows, 5, generator=generator) for _ in range(folds)]


def image_set(make_images: MakeImages, queries: list[bool] | None, labels: list[int]) -> ImageSet:
    count = len(labels)
    made = make_images(1, count)
    names = tuple(f"class {i}" for i in range(max(labels) + 1))
    asked = None if queries is None else np.array(queries)
    return ImageSet(made.images, np.array(labels), names, "some", queries=asked)


# -- files ---------------------------------------------------------------------------------------


def test_the_scores_are_those_of_each_query_and_their_means_the_metrics(tmp_path: Path) -> None:
    labels, folds = np.arange(12) % 3, embeddings(2)
    scores = score_folds(folds, labels, normalize=True)
    write_query_scores(tmp_path / SCORES_FILE, scores)
    with np.load(tmp_path / SCORES_FILE) as kept:
        assert set(kept.files) == {"aggregate", "ensemble"}
        unit = torch.cat([torch.nn.functional.normalize(fold) for fold in folds], dim=1)
        expected = RetrievalMetrics().per_query(unit, labels)
        alone = [RetrievalMetrics().per_query(fold, labels) for fold in folds]
        for row, name in enumerate(METRICS):
            assert kept["ensemble"][row] == pytest.approx(expected[name], abs=1e-6)
            means = (alone[0][name] + alone[1][name]) / 2
            assert kept["aggregate"][row] == pytest.approx(means, abs=1e-6)
        for category in kept.files:
            assert kept[category].dtype == np.float32
            assert kept[category].shape == (3, 12)
            for row, name in enumerate(METRICS):
                assert kept[category][row].mean() == pytest.approx(scores[category][name], abs=1e-6)


def test_the_kept_scores_are_of_the_methods_own_geometry() -> None:
    labels, x = np.arange(12) % 3, embeddings(1)[0] * torch.arange(1, 13)[:, None]
    for normalize in (True, False):
        found = evaluate_both_geometries(x, labels, normalize)
        expected = RetrievalMetrics(normalize=normalize).per_query(x, labels)
        for name in METRICS:
            np.testing.assert_array_equal(found.per_query[name], expected[name])
    assert evaluate_both_geometries(x, labels, True).per_query.keys() == set(METRICS)


def test_queries_without_a_reference_of_their_class_are_in_no_file(
    make_images: MakeImages, tmp_path: Path
) -> None:
    labels = [0, 0, 1, 2, 2, 2]
    write_test_queries(tmp_path, image_set(make_images, None, labels))
    write_query_scores(
        tmp_path / SCORES_FILE, score_folds(embeddings(2, 6), np.array(labels), True)
    )
    with np.load(tmp_path / QUERIES_FILE) as queries, np.load(tmp_path / SCORES_FILE) as kept:
        assert queries["labels"].tolist() == [0, 0, 2, 2, 2]
        assert queries["images"].tolist() == [0, 1, 3, 4, 5]
        assert queries["class_names"].tolist() == ["class 0", "class 1", "class 2"]
        assert kept["ensemble"].shape == (3, 5)
        assert np.isfinite(kept["ensemble"]).all()


def test_queries_and_a_gallery(make_images: MakeImages, tmp_path: Path) -> None:
    labels = [0, 0, 1, 1, 2]
    asked = [True, False, True, True, False]
    test = image_set(make_images, asked, labels)
    write_test_queries(tmp_path, test)
    scores = score_folds(embeddings(2, 5), np.array(labels), True, (), np.array(asked))
    write_query_scores(tmp_path / SCORES_FILE, scores)
    with np.load(tmp_path / QUERIES_FILE) as queries, np.load(tmp_path / SCORES_FILE) as kept:
        assert queries["images"].tolist() == [0], "class 1 has no image in the gallery"
        assert kept["ensemble"].shape == (3, 1)


def kept_by(folder: Path, means: dict[str, dict[str, float]]) -> QueryScores | None:
    recorded = {("m", category, 0): values for category, values in means.items()}
    return read_query_scores(folder, lambda *_: folder / SCORES_FILE, recorded)


@pytest.fixture
def one_run(make_images: MakeImages, tmp_path: Path) -> dict[str, dict[str, float]]:
    """A folder with one reproduction, and its metrics."""
    labels = np.arange(12) % 3
    scores = score_folds(embeddings(2), labels, True)
    write_test_queries(tmp_path, image_set(make_images, None, labels.tolist()))
    write_query_scores(tmp_path / SCORES_FILE, scores)
    return {category: dict(metrics) for category, metrics in scores.items()}


def test_scores_are_read_back(one_run: dict[str, dict[str, float]], tmp_path: Path) -> None:
    kept = kept_by(tmp_path, one_run)
    assert kept is not None
    assert kept.labels.tolist() == (np.arange(12) % 3).tolist()
    values = kept.load("m", "ensemble", 0)
    assert values is not None
    for row, name in enumerate(METRICS):
        assert values[row].mean() == pytest.approx(one_run["ensemble"][name], abs=1e-6)
    assert kept.load("m", "complete", 0) is None
    assert kept.load("m", "ensemble", 1) is None
    assert kept.load("other", "ensemble", 0) is None


def test_scores_of_another_training_count_as_missing(
    one_run: dict[str, dict[str, float]], tmp_path: Path
) -> None:
    one_run["ensemble"]["r_precision"] += 0.001
    kept = kept_by(tmp_path, one_run)
    assert kept is not None
    assert kept.load("m", "ensemble", 0) is None
    assert kept.load("m", "aggregate", 0) is not None


def test_a_diverged_run_counts_as_0_in_every_query(
    one_run: dict[str, dict[str, float]], tmp_path: Path
) -> None:
    (tmp_path / SCORES_FILE).unlink()
    kept = kept_by(tmp_path, {"ensemble": dict.fromkeys(METRICS, 0.0)})
    assert kept is not None
    values = kept.load("m", "ensemble", 0)
    assert values is not None
    assert values.shape == (3, 12)
    assert not values.any()


def test_damaged_files_count_as_missing(
    one_run: dict[str, dict[str, float]], tmp_path: Path
) -> None:
    path = tmp_path / SCORES_FILE
    whole = path.read_bytes()
    spoilt = bytearray(whole)
    with zipfile.ZipFile(io.BytesIO(whole)) as archive:
        entry = archive.getinfo("ensemble.npy")
    spoilt[entry.header_offset + 80] ^= 0xFF
    for content in (whole[: len(whole) // 2], bytes(spoilt), b"", b"no archive"):
        path.write_bytes(content)
        kept = kept_by(tmp_path, one_run)
        assert kept is not None
        assert kept.load("m", "ensemble", 0) is None
    path.write_bytes(whole)
    (tmp_path / QUERIES_FILE).write_bytes(b"torn")
    assert kept_by(tmp_path, one_run) is None


def test_the_same_scores_are_the_same_bytes_and_small(
    make_images: MakeImages, tmp_path: Path
) -> None:
    labels = np.arange(600) % 60
    scores = score_folds(embeddings(2, 600), labels, True)
    for folder in ("a", "b"):
        write_query_scores(tmp_path / folder / SCORES_FILE, scores)
    first = (tmp_path / "a" / SCORES_FILE).read_bytes()
    assert first == (tmp_path / "b" / SCORES_FILE).read_bytes()
    assert len(first) < 24 * 600 + 2000


# -- campaigns -----------------------------------------------------------------------------------


def untrained(self: Trainer) -> FoldResult:
    """A fold run that ends at once with an untrained network of its own seed."""
    network = build_network(
        self.task.model, (16, 16, 1), self.task.embedding_size, self.task.network_seed
    )
    checkpoints.save(self.folder / "model.pt", network.state_dict())
    return FoldResult(0.3, 1, 0, 1, 0.0, ())


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output folder of a finished recorded."""
    folder = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "run", untrained)
        patch.setattr("os.fsync", lambda descriptor: None)
        opened(folder).work()
    return folder


def opened(folder: Path, seed: int = 0) -> WorkedExperiment:
    """A recorded on 16 classes of made-up images."""
    draw = np.random.default_rng(seed)
    patterns = draw.uniform(0, 255, (16, 1, 16, 16, 1))
    images = np.clip(patterns + draw.normal(0, 60, (16, 6, 16, 16, 1)), 0, 255)
    names = tuple(f"class {label}" for label in range(16))
    pixels = images.reshape(-1, 16, 16, 1).astype(np.uint8)
    images = ImageSet(pixels, np.repeat(np.arange(16), 6), names, "patterns")
    return WorkedExperiment(compose(CAMPAIGN), folder, images)


@pytest.fixture
def recorded(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], WorkedExperiment]:
    """Opens the finished recorded in a copy of its folder."""
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    monkeypatch.setattr("os.fsync", lambda descriptor: None)
    monkeypatch.setattr(Trainer, "run", untrained)
    return lambda: opened(tmp_path)


def test_every_reproduction_keeps_its_scores(
    recorded: Callable[[], WorkedExperiment], tmp_path: Path
) -> None:
    files = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob(SCORES_FILE))
    assert files == [
        f"contrastive/{stage}/{trial_index:03d}/{SCORES_FILE}"
        for stage in ("final", "reproductions")
        for trial_index in range(2)
    ]
    results = collect(recorded())
    assert results.queries is not None
    assert results.queries.class_names == tuple(f"class {i}" for i in range(8, 16))
    for row in results.rows:
        if row.metric in METRICS:
            values = results.queries.load(row.method, row.category, row.reproduction)
            assert values is not None
            mean = values[list(METRICS).index(row.metric)].mean()
            assert mean == pytest.approx(row.value, abs=1e-6)


def test_a_folder_without_scores_is_read(
    recorded: Callable[[], WorkedExperiment], tmp_path: Path
) -> None:
    for path in tmp_path.rglob(SCORES_FILE):
        path.unlink()
    (tmp_path / QUERIES_FILE).unlink()
    assert collect(recorded()).queries is None


def test_a_diverged_reproduction_scores_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def diverge(*_: Any) -> None:
        raise Diverged("made up")

    monkeypatch.setattr("os.fsync", lambda descriptor: None)
    monkeypatch.setattr(Trainer, "run", untrained)
    monkeypatch.setattr(TrialRunner, "_train_final", diverge)
    folder = tmp_path / "second"
    folder.mkdir()
    made = opened(folder)
    made.work()
    queries = collect(made).queries
    assert queries is not None
    values = queries.load("contrastive", "complete", 0)
    assert values is not None
    assert not values.any()

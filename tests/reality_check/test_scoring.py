from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from pml_extensions.evaluation import RetrievalMetrics
from reality_check import checkpoints
from reality_check.config.schema import Model, Training
from reality_check.data import ImageSet
from reality_check.measuring import Diverged, embed, measure
from reality_check.model import build_network
from reality_check.results import METRICS
from reality_check.scoring import (
    embed_test,
    ensemble,
    load_network,
    score_baselines,
    score_folds,
)

CPU = torch.device("cpu")
MODEL = Model(name="tiny", trunk="conv4", arguments={"width": 4}, pooling="flatten")
PART = {"name": "Adam", "lr": 0.1}
TRAINING = Training.model_validate(
    {"embedding_size": 4, "optimizers": {"trunk": PART, "embedder": PART, "loss": PART}}
)

#: Golden C of protocol.md, section 5.
LABELS = np.array([0, 0, 0, 1, 1, 1])
FOLD_1 = torch.tensor([(4, 3), (2, 3), (3, -2), (1, -2), (-1, -2), (-4, 3)], dtype=torch.float32)
FOLD_2 = torch.tensor([(1, 4), (-2, -3), (-2, 0), (2, 1), (2, -3), (4, 0)], dtype=torch.float32)


def three(metrics: dict[str, float], suffix: str = "") -> list[float]:
    names = ("mean_average_precision_at_r", "r_precision", "precision_at_1")
    return [round(metrics[name + suffix], 6) for name in names]


def by_hand(embeddings: Tensor, labels: np.ndarray) -> list[float]:
    """MAP@R, RP and P@1 with plain loops over sorted Euclidean distances."""
    rows, sums = embeddings.double().tolist(), np.zeros(3)
    for query, point in enumerate(rows):
        others = [i for i in range(len(rows)) if i != query]
        others.sort(key=lambda i: sum((a - b) ** 2 for a, b in zip(point, rows[i], strict=True)))
        hits = [labels[i] == labels[query] for i in others]
        r = sum(hits)
        average = sum(sum(hits[: i + 1]) / (i + 1) for i in range(r) if hits[i]) / r
        sums += [average, sum(hits[:r]) / r, hits[0]]
    return [round(float(value), 6) for value in sums / len(rows)]


def test_golden_c_each_fold_aggregate_and_ensemble() -> None:
    assert three(measure(FOLD_1, LABELS, True)) == [0.458333, 0.583333, 0.5]
    assert three(measure(FOLD_2, LABELS, True)) == [0.583333, 0.583333, 0.833333]
    scores = score_folds([FOLD_1, FOLD_2], LABELS, normalize=True)
    assert three(scores["aggregate"]) == [0.520833, 0.583333, 0.666667]
    assert three(scores["ensemble"]) == [0.791667, 0.833333, 0.833333]


def test_concatenating_raw_rows_first_would_give_other_numbers() -> None:
    raw = torch.cat([FOLD_1, FOLD_2], dim=1)
    assert three(RetrievalMetrics(normalize=True)(raw, LABELS)) == [0.583333, 0.666667, 0.666667]


def test_the_ensemble_does_not_depend_on_the_norms_of_a_fold() -> None:
    scaled = ensemble([FOLD_1 * 100, FOLD_2 * 0.01], LABELS, normalize=True)
    assert three(scaled) == [0.791667, 0.833333, 0.833333]


def test_both_geometries_are_there_and_the_methods_own_has_the_plain_name() -> None:
    for fold in (FOLD_1, FOLD_2):
        unit = fold / fold.norm(dim=1, keepdim=True)
        own, raw = measure(fold, LABELS, True), measure(fold, LABELS, False)
        assert three(own) == three(raw, "_normalized") == by_hand(unit, LABELS)
        assert three(raw) == three(own, "_raw") == by_hand(fold, LABELS)
        assert len(own) == len(raw) == 2 * len(METRICS)


def test_the_raw_geometry_of_an_ensemble_concatenates_raw_rows() -> None:
    expected = by_hand(torch.cat([FOLD_1, FOLD_2], dim=1), LABELS)
    raw = ensemble([FOLD_1, FOLD_2], LABELS, normalize=False)
    assert three(raw) == expected
    assert three(raw, "_normalized") == [0.791667, 0.833333, 0.833333]
    assert three(ensemble([FOLD_1, FOLD_2], LABELS, normalize=True), "_raw") == expected


def test_the_ensemble_of_one_fold_is_the_fold() -> None:
    scores = score_folds([FOLD_1], LABELS, normalize=True)
    assert scores["ensemble"] == pytest.approx(scores["aggregate"])


def test_a_model_file_gives_the_embeddings_of_the_trained_network(
    tmp_path: Path, make_images: Callable[..., ImageSet]
) -> None:
    images = make_images(4)
    network = build_network(MODEL, images.image_shape, 4, seed=3)
    network.train()
    with torch.no_grad():
        network(torch.rand(8, 1, 16, 16))  # moves the statistics of BatchNorm
    checkpoints.save(tmp_path / "model.pt", network.state_dict())
    loaded = load_network(tmp_path / "model.pt", MODEL, images.image_shape, 4)
    embeddings = embed_test(loaded, images, TRAINING, CPU)
    network.eval()
    pixels = torch.from_numpy(images.images).permute(0, 3, 1, 2).float() / 255
    with torch.no_grad():
        expected = network((pixels - 0.5) / 0.5)
    torch.testing.assert_close(embeddings, expected)
    with pytest.raises(FileNotFoundError):
        load_network(tmp_path / "none.pt", MODEL, images.image_shape, 4)


def test_embedding_in_batches_keeps_order_and_modes(
    make_images: Callable[..., ImageSet], monkeypatch: pytest.MonkeyPatch
) -> None:
    images = make_images(4, 5)
    network = build_network(MODEL, images.image_shape, 4, seed=3)
    network.train()
    network.trunk[1].eval()  # type: ignore[index]
    before = {name: part.training for name, part in network.named_modules()}
    whole = embed_test(network, images, TRAINING, CPU)
    monkeypatch.setattr("reality_check.measuring._BATCH", 3)
    torch.testing.assert_close(embed_test(network, images, TRAINING, CPU), whole)
    assert {name: part.training for name, part in network.named_modules()} == before
    assert not whole.requires_grad
    assert whole.shape == (20, 4)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_embeddings_that_are_not_finite_are_refused(
    value: float, make_images: Callable[..., ImageSet]
) -> None:
    module = torch.nn.Flatten()
    with pytest.raises(Diverged):
        embed(
            lambda batch: module(batch.float()).mul(value),
            module,
            make_images(2).images,
            lambda batch: batch,
            CPU,
        )


def test_baselines_are_pixels_trunk_and_untrained_network(
    make_images: Callable[..., ImageSet],
) -> None:
    images = make_images(4)
    scores = score_baselines(MODEL, TRAINING, 3, images, CPU)
    assert list(scores) == ["raw pixels", "untrained trunk", "untrained embedder"]
    pixels = (torch.from_numpy(images.images).float() / 255 - 0.5) / 0.5
    flat = torch.nn.functional.normalize(pixels.reshape(len(images), -1))
    assert three(scores["raw pixels"]) == by_hand(flat, images.labels)
    assert score_baselines(MODEL, TRAINING, 3, images, CPU) == scores
    assert score_baselines(MODEL, TRAINING, 4, images, CPU) != scores


def test_raw_pixels_are_scored_only_when_asked_for(make_images: Callable[..., ImageSet]) -> None:
    images = make_images(4)
    whole = score_baselines(MODEL, TRAINING, 3, images, CPU)
    assert whole.pop("raw pixels")
    assert score_baselines(MODEL, TRAINING, 3, images, CPU, raw_pixels=False) == whole

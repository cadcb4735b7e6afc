from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from pml_extensions.evaluation import RetrievalMetrics, corrupt
from reality_check.config.metrics import METRICS
from reality_check.config.model import Model
from reality_check.config.training import Augment, Training
from reality_check.data import ImageSet
from reality_check.data.images import Images
from reality_check.evaluation import scoring as measuring
from reality_check.evaluation.baselines import score_baselines
from reality_check.evaluation.categories import (
    Score,
    embed_images,
    ensemble,
    load_network,
    score_folds,
    score_networks,
)
from reality_check.evaluation.scoring import (
    Diverged,
    embed,
    evaluate_both_geometries,
    require_finite,
)
from reality_check.models.network import Network, build_network
from reality_check.models.pipeline import Pipeline, build_pipeline
from reality_check.utils import checkpoints
from reality_check.utils.errors import UsageError

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
    assert three(evaluate_both_geometries(FOLD_1, LABELS, True)) == [0.458333, 0.583333, 0.5]
    assert three(evaluate_both_geometries(FOLD_2, LABELS, True)) == [0.583333, 0.583333, 0.833333]
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
        own = evaluate_both_geometries(fold, LABELS, True)
        raw = evaluate_both_geometries(fold, LABELS, False)
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


def pipeline(images: ImageSet) -> Pipeline:
    return build_pipeline(images, MODEL, TRAINING.augmentation, CPU)


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
    embeddings = embed_images(loaded, pipeline(images), CPU)
    network.eval()
    pixels = torch.from_numpy(images.images.array()).permute(0, 3, 1, 2).float() / 255
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
    whole = embed_images(network, pipeline(images), CPU)
    monkeypatch.setattr("reality_check.models.pipeline._MIN_IMAGES", 3)
    monkeypatch.setattr("reality_check.models.pipeline._MAX_IMAGES", {"cpu": 3})
    torch.testing.assert_close(embed_images(network, pipeline(images), CPU), whole)
    assert {name: part.training for name, part in network.named_modules()} == before
    assert not whole.requires_grad
    assert whole.shape == (20, 4)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e25])
def test_embeddings_that_are_not_finite_are_refused(
    value: float, make_images: Callable[..., ImageSet]
) -> None:
    module = torch.nn.Flatten()
    batches = pipeline(make_images(2)).evaluation_batches()
    embeddings = embed(lambda batch: module(batch).mul(value), module, batches)
    with pytest.raises(Diverged):
        require_finite(embeddings)


def test_baselines_are_pixels_trunk_and_untrained_network(
    make_images: Callable[..., ImageSet],
) -> None:
    images = make_images(4)
    scores = score_baselines(MODEL, TRAINING, 3, images, CPU, images)
    assert list(scores) == [
        "raw pixels",
        "PCA of raw pixels",
        "untrained trunk",
        "untrained embedder",
    ]
    pixels = (torch.from_numpy(images.images.array()).float() / 255 - 0.5) / 0.5
    flat = torch.nn.functional.normalize(pixels.reshape(len(images), -1))
    assert three(scores["raw pixels"]) == by_hand(flat, images.labels)
    centred = pixels.reshape(len(images), -1).double()
    centred -= centred.mean(dim=0)
    directions = torch.linalg.svd(centred, full_matrices=False).Vh[: TRAINING.embedding_size]
    components = torch.nn.functional.normalize(centred @ directions.T)
    assert three(scores["PCA of raw pixels"]) == by_hand(components, images.labels)
    assert score_baselines(MODEL, TRAINING, 3, images, CPU, images) == scores
    assert score_baselines(MODEL, TRAINING, 4, images, CPU, images) != scores


def test_components_are_those_of_other_classes(make_images: Callable[..., ImageSet]) -> None:
    # Directions in which the training classes differ, whatever the test classes are like.
    images, others = make_images(4), make_images(6, seed=1)
    own, foreign = (
        score_baselines(MODEL, TRAINING, 3, images, CPU, fitted) for fitted in (images, others)
    )
    assert own["raw pixels"] == foreign["raw pixels"]
    assert own["PCA of raw pixels"] != foreign["PCA of raw pixels"]
    few = make_images(2, each=1)  # no more components than images
    assert score_baselines(MODEL, TRAINING, 3, images, CPU, few)["PCA of raw pixels"]


def cells_by_hand(images: np.ndarray) -> Tensor:
    """The means of 32 x 32 cells as vectors; cells overlap where 32 does not divide a side."""
    cut = [
        [(i * side // 32, -(-(i + 1) * side // 32)) for i in range(32)]
        for side in images.shape[1:3]
    ]
    cells = [images[:, a:b, c:d].mean(axis=(1, 2)) for a, b in cut[0] for c, d in cut[1]]
    pixels = torch.from_numpy(np.concatenate(cells, axis=1)) / 255
    return torch.nn.functional.normalize((pixels - 0.5) / 0.5)


@pytest.mark.parametrize(("height", "width"), [(96, 96), (65, 32), (32, 80), (64, 64)])
def test_raw_pixels_of_images_beyond_64_are_the_means_of_cells(height: int, width: int) -> None:
    labels = np.repeat(np.arange(4), 3)
    draw = np.random.default_rng(0)
    pixels = draw.integers(0, 256, (12, height, width, 1), dtype=np.uint8)
    images = ImageSet(pixels, labels, tuple("abcd"), "large")
    scores = score_baselines(MODEL, TRAINING, 3, images, CPU, images)
    whole = torch.nn.functional.normalize(
        (torch.from_numpy(pixels.reshape(12, -1)) / 255 - 0.5) / 0.5
    )
    cells = cells_by_hand(pixels)
    if max(height, width) > 64:
        assert by_hand(cells, labels) != by_hand(whole, labels)
    else:
        cells = whole
    assert three(scores["raw pixels"]) == by_hand(cells, labels)


def test_raw_pixels_are_scored_only_when_asked_for(make_images: Callable[..., ImageSet]) -> None:
    images = make_images(4)
    whole = score_baselines(MODEL, TRAINING, 3, images, CPU, images)
    assert whole.pop("raw pixels")
    assert whole.pop("PCA of raw pixels")
    assert score_baselines(MODEL, TRAINING, 3, images, CPU) == whole


# -- metrics on request --------------------------------------------------------------------------

ASKED = [
    "recall_at_1",
    "recall_at_2",
    "mean_average_precision",
    "mean_reciprocal_rank",
    "NMI",
    "AMI",
    "F1",
    "separability",
    "binary_precision_at_1",
    "binary_recall_at_2",
    "binary_mean_average_precision_at_r",
]


def neighbours_by_hand(points: list[list[float]], query: int) -> list[int]:
    """The others by distance, ties by index."""
    others = [i for i in range(len(points)) if i != query]
    squared = {
        i: sum((a - b) ** 2 for a, b in zip(points[query], points[i], strict=True)) for i in others
    }
    return sorted(others, key=lambda i: (round(squared[i], 9), i))


def retrieval_by_hand(embeddings: Tensor, labels: np.ndarray) -> dict[str, float]:
    """Recall, MAP and MRR over whole rankings, with plain loops."""
    points = embeddings.double().tolist()
    sums = dict.fromkeys(["recall_at_1", "recall_at_2", *ASKED[2:4]], 0.0)
    for query in range(len(points)):
        hits = [labels[i] == labels[query] for i in neighbours_by_hand(points, query)]
        places = [place for place, hit in enumerate(hits, 1) if hit]
        sums["recall_at_1"] += places[0] <= 1
        sums["recall_at_2"] += places[0] <= 2
        sums["mean_reciprocal_rank"] += 1 / places[0]
        precisions = [count / place for count, place in enumerate(places, 1)]
        sums["mean_average_precision"] += sum(precisions) / len(precisions)
    return {name: total / len(points) for name, total in sums.items()}


def separability_by_hand(embeddings: Tensor, labels: np.ndarray) -> float:
    points = embeddings.double().numpy()
    centre, between, within = points.mean(axis=0), 0.0, 0.0
    for label in set(labels.tolist()):
        members = points[labels == label]
        mean = members.mean(axis=0)
        between += len(members) * ((mean - centre) ** 2).sum()
        within += ((members - mean) ** 2).sum()
    return between / within


@pytest.mark.parametrize("normalize", [True, False])
def test_metrics_on_request_are_those_of_their_geometry(normalize: bool) -> None:
    measured = evaluate_both_geometries(FOLD_1, LABELS, normalize, ASKED)
    unit = FOLD_1 / FOLD_1.norm(dim=1, keepdim=True)
    suffixes = ("", "_raw") if normalize else ("_normalized", "")
    for vectors, suffix in zip((unit, FOLD_1), suffixes, strict=True):
        for name, value in retrieval_by_hand(vectors, LABELS).items():
            assert measured[name + suffix] == pytest.approx(value, abs=1e-12), name
        expected = separability_by_hand(vectors, LABELS)
        assert measured["separability" + suffix] == pytest.approx(expected, rel=1e-6)


def test_asking_for_more_leaves_the_three_as_they_are() -> None:
    draw = torch.Generator().manual_seed(0)
    embeddings, labels = torch.randn(60, 5, generator=draw), np.repeat(np.arange(12), 5)
    for normalize in (True, False):
        few = evaluate_both_geometries(embeddings, labels, normalize)
        many = evaluate_both_geometries(embeddings, labels, normalize, ASKED)
        assert {name: many[name] for name in few} == few
        suffix = "_raw" if normalize else "_normalized"
        geometric = [name for name in ASKED if not name.startswith("binary_")]
        extra = {*ASKED, *(name + suffix for name in geometric)}
        assert set(many) - set(few) == extra


def test_clusters_are_found_in_each_geometry() -> None:
    draw = np.random.default_rng(0)
    angles = np.repeat([0.0, 2.1, 4.2], 40) + draw.normal(0, 0.02, 120)
    lengths = np.exp(draw.uniform(-3, 3, 120))
    points = torch.from_numpy(np.stack([np.cos(angles), np.sin(angles)], 1) * lengths[:, None])
    labels = np.repeat([0, 1, 2], 40)
    measured = evaluate_both_geometries(points.float(), labels, True, ["NMI", "AMI", "F1"])
    for name in ("NMI", "AMI", "F1"):
        assert measured[name] == pytest.approx(1)
        assert measured[name + "_raw"] < 0.9
    again = evaluate_both_geometries(points.float(), labels, False, ["NMI", "AMI", "F1"])
    assert again["NMI_normalized"] == measured["NMI"]
    assert again["NMI"] == measured["NMI_raw"]


def test_nmi_is_the_papers_geometric_one() -> None:
    sklearn_metrics = pytest.importorskip("sklearn.metrics")
    from pml_extensions.evaluation import kmeans_clusters

    draw = torch.Generator().manual_seed(1)
    embeddings, labels = torch.randn(60, 5, generator=draw), np.repeat(np.arange(6), 10)
    clusters = kmeans_clusters(torch.nn.functional.normalize(embeddings), 6).numpy()
    expected = sklearn_metrics.normalized_mutual_info_score(
        labels, clusters, average_method="geometric"
    )
    scores = evaluate_both_geometries(embeddings, labels, True, ["NMI"])
    assert scores["NMI"] == pytest.approx(expected)


def test_only_what_is_asked_for_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("computed without being asked for")

    for name in ("kmeans_clusters", "class_separability", "hamming_retrieval"):
        monkeypatch.setattr(f"reality_check.evaluation.scoring.{name}", refuse)
    evaluate_both_geometries(FOLD_1, LABELS, True)
    evaluate_both_geometries(FOLD_1, LABELS, True, ["recall_at_2", "mean_average_precision"])
    monkeypatch.undo()
    monkeypatch.setattr(measuring, "adjusted_mutual_information", refuse)
    evaluate_both_geometries(FOLD_1, LABELS, True, ["NMI", "F1"])


def test_binary_codes_are_the_signs_and_the_same_in_both_geometries() -> None:
    bits = (FOLD_1 > 0).double()
    hits = {"P@1": 0.0, "R@2": 0.0, "MAP@R": 0.0}
    for query in range(len(bits)):
        near = neighbours_by_hand(bits.tolist(), query)
        right = [LABELS[i] == LABELS[query] for i in near]
        hits["P@1"] += right[0]
        hits["R@2"] += any(right[:2])
        hits["MAP@R"] += sum(sum(right[: i + 1]) / (i + 1) for i in range(2) if right[i]) / 2
    for normalize in (True, False):
        measured = evaluate_both_geometries(FOLD_1, LABELS, normalize, ASKED)
        expected = [total / len(bits) for total in hits.values()]
        assert [measured[name] for name in ASKED[-3:]] == pytest.approx(expected)


def test_every_category_has_the_metrics_on_request() -> None:
    scores = score_folds([FOLD_1, FOLD_2], LABELS, normalize=True, extra_metrics=ASKED)
    folds = [evaluate_both_geometries(fold, LABELS, True, ASKED) for fold in (FOLD_1, FOLD_2)]
    for name, value in scores["aggregate"].items():
        assert value == pytest.approx((folds[0][name] + folds[1][name]) / 2)
    assert set(scores["ensemble"]) == set(scores["aggregate"]) == set(folds[0])
    unit = torch.cat([fold / fold.norm(dim=1, keepdim=True) for fold in (FOLD_1, FOLD_2)], 1)
    for vectors, suffix in ((unit, ""), (torch.cat([FOLD_1, FOLD_2], 1), "_raw")):
        for name, value in retrieval_by_hand(vectors, LABELS).items():
            assert scores["ensemble"][name + suffix] == pytest.approx(value, abs=1e-12)
    # Unit rows of both folds have length sqrt(2); the ratio does not depend on it.
    expected = separability_by_hand(unit, LABELS)
    assert scores["ensemble"]["separability"] == pytest.approx(expected, rel=1e-6)


def test_baselines_have_the_metrics_on_request(make_images: Callable[..., ImageSet]) -> None:
    images = make_images(4)
    scores = score_baselines(MODEL, TRAINING, 3, images, CPU, images, extra_metrics=ASKED)
    plain = score_baselines(MODEL, TRAINING, 3, images, CPU, images)
    pixels = (torch.from_numpy(images.images.array()).float() / 255 - 0.5) / 0.5
    flat = torch.nn.functional.normalize(pixels.reshape(len(images), -1))
    for name, value in retrieval_by_hand(flat, images.labels).items():
        assert scores["raw pixels"][name] == pytest.approx(value)
    for baseline, metrics in scores.items():
        assert list(metrics) == [*METRICS, *ASKED]
        assert {name: metrics[name] for name in METRICS} == plain[baseline]


# -- queries and a gallery ---------------------------------------------------------------------


def test_queries_search_the_gallery_and_not_each_other() -> None:
    # On a line: two queries of class 0 side by side, their gallery images farther away than b's.
    x = torch.tensor([0.0, 0.1, 1.0, 2.0, 0.5, 5.0])
    vectors = torch.stack([torch.cos(x / 10), torch.sin(x / 10)], dim=1)
    labels = np.array([0, 0, 0, 0, 1, 1])
    queries = np.array([True, True, False, False, False, True])
    found = evaluate_both_geometries(
        vectors, labels, True, ["recall_at_2", "mean_reciprocal_rank"], queries
    )
    # Gallery: 2 (class 0), 3 (class 0), 4 (class 1). The queries of class 0 see 4, 2, 3; the one of
    # class 1 sees 3, 2, 4.
    assert found["precision_at_1"] == 0
    assert found["recall_at_2"] == pytest.approx(2 / 3)
    assert found["r_precision"] == pytest.approx((0.5 + 0.5 + 0) / 3)
    assert found["mean_average_precision_at_r"] == pytest.approx((0.25 + 0.25 + 0) / 3)
    assert found["mean_reciprocal_rank"] == pytest.approx((1 / 2 + 1 / 2 + 1 / 3) / 3)


def test_every_category_and_binary_codes_know_the_queries() -> None:
    generator = torch.Generator().manual_seed(0)
    folds = [torch.randn(12, 8, generator=generator) for _ in range(2)]
    labels = np.arange(12) % 3
    queries = np.arange(12) < 5
    extra_metrics = ["binary_precision_at_1"]
    scores = score_folds(folds, labels, True, extra_metrics, queries)
    x = torch.cat([torch.nn.functional.normalize(fold) for fold in folds], dim=1)
    near = (x[:5] @ x[5:].T).argmax(dim=1).numpy()
    assert scores["ensemble"]["precision_at_1"] == np.mean(labels[5:][near] == labels[:5])
    bits = (x > 0).float()
    apart = (bits[:5, None] != bits[None, 5:]).sum(dim=2).numpy()
    expected = np.mean(labels[5:][apart.argmin(axis=1)] == labels[:5])
    assert scores["ensemble"]["binary_precision_at_1"] == expected


def test_baselines_know_the_queries() -> None:
    pixels = np.random.default_rng(2).integers(0, 256, (24, 16, 16, 1), dtype=np.uint8)
    labels, queries = np.arange(24) % 4, np.arange(24) % 3 == 0
    images = ImageSet(pixels, labels, tuple("abcd"), "noise", queries=queries)
    extra = ["jigsaw_precision_at_1"]
    scores = score_baselines(MODEL, TRAINING, 3, images, CPU, images, extra_metrics=extra)[
        "raw pixels"
    ]
    for prefix, seen in (("", pixels), ("jigsaw_", corrupt(pixels, "jigsaw", 0))):
        flat = seen.reshape(24, -1) / 255 * 2 - 1
        flat /= np.linalg.norm(flat, axis=1, keepdims=True)
        similar = flat @ flat.T
        near = similar[np.ix_(queries, ~queries)].argmax(axis=1)
        right = np.mean(labels[~queries][near] == labels[queries])
        np.fill_diagonal(similar, -1)
        assert right != np.mean(labels[similar.argmax(axis=1)] == labels)
        assert scores[f"{prefix}precision_at_1"] == right


# -- corrupted images ----------------------------------------------------------------------------

CORRUPTED = ["dropout_precision_at_1", "dropout_recall_at_2", "jigsaw_r_precision", "recall_at_2"]


def networks_of(images: ImageSet) -> list[Network]:
    return [build_network(MODEL, images.image_shape, 4, seed=seed) for seed in (3, 4)]


def score_with(labels: np.ndarray, normalize: bool = True) -> Score:
    return lambda embeddings, extra: score_folds(embeddings, labels, normalize, extra)


@pytest.mark.parametrize("normalize", [True, False])
def test_metrics_on_corrupted_images_are_those_of_corrupted_files(
    make_images: Callable[..., ImageSet], normalize: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reality_check.models.pipeline._MIN_IMAGES", 5)  # batches change nothing
    monkeypatch.setattr("reality_check.models.pipeline._MAX_IMAGES", {"cpu": 5})
    images = make_images(4)
    networks, score = networks_of(images), score_with(images.labels, normalize)
    found, embeddings = score_networks(networks, pipeline(images), CPU, score, CORRUPTED)
    plain, same = score_networks(networks, pipeline(images), CPU, score, ["recall_at_2"])
    other = "_raw" if normalize else "_normalized"
    for category, metrics in plain.items():
        assert {name: found[category][name] for name in metrics} == metrics
    assert all(torch.equal(one, two) for one, two in zip(embeddings, same, strict=True))
    for name, metric in (("dropout", "precision_at_1"), ("jigsaw", "r_precision")):
        changed = corrupt(images.images.array(), name, 0)
        files = ImageSet(Images.from_array(changed), images.labels, images.class_names, "changed")
        expected, _ = score_networks(networks, pipeline(files), CPU, score, [])
        for category, metrics in expected.items():
            for suffix in ("", other):
                assert found[category][f"{name}_{metric}{suffix}"] == metrics[metric + suffix]
    assert "jigsaw_precision_at_1" not in found["ensemble"]
    assert f"dropout_recall_at_2{other}" in found["aggregate"]


def test_corruption_comes_after_the_crop(make_images: Callable[..., ImageSet]) -> None:
    cropped = TRAINING.model_copy(update={"augmentation": Augment(crop_size=10)})
    images = make_images(2)
    (batch,) = build_pipeline(images, MODEL, cropped.augmentation, CPU).corrupted_batches("cutout")
    crops = images.images.array()[:, 3:13, 3:13]
    expected = torch.from_numpy(corrupt(crops, "cutout", 0)).permute(0, 3, 1, 2).float()
    torch.testing.assert_close(batch, (expected / 255 - 0.5) / 0.5)


def test_baselines_are_measured_on_corrupted_images_too(
    make_images: Callable[..., ImageSet],
) -> None:
    images = make_images(4)
    found = score_baselines(MODEL, TRAINING, 3, images, CPU, images, extra_metrics=CORRUPTED)
    plain = score_baselines(MODEL, TRAINING, 3, images, CPU, images, extra_metrics=["recall_at_2"])
    changed = corrupt(images.images.array(), "jigsaw", 0)
    files = ImageSet(Images.from_array(changed), images.labels, images.class_names, "changed")
    expected = score_baselines(MODEL, TRAINING, 3, files, CPU, images)
    for name, metrics in found.items():
        assert set(metrics) == {*METRICS, *CORRUPTED}
        assert {key: metrics[key] for key in plain[name]} == plain[name]
        assert metrics["jigsaw_r_precision"] == expected[name]["r_precision"]


def test_a_corruption_of_colours_does_not_fit_grey_images(
    make_images: Callable[..., ImageSet],
) -> None:
    with pytest.raises(UsageError, match="grey images have no hue"):
        list(pipeline(make_images(2)).corrupted_batches("hue_saturation"))

"""RetrievalMetrics against values by hand, plain loops, scikit-learn and PML's calculator."""

from __future__ import annotations

import itertools
import json
import math
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
from support import paths
from support.examples import examples
from torch import Tensor

from pml_extensions.evaluation import RetrievalMetrics, _query_chunks, _ranking
from pml_extensions.evaluation._ranking import Retrieval

NAMES = ("precision_at_1", "r_precision", "mean_average_precision_at_r")
ALL = (*NAMES, "mean_average_precision", "mean_reciprocal_rank")
RECALL_AT = (1, 2, 5, 40)
EVERY = (*ALL, *(f"recall_at_{k}" for k in RECALL_AT))
RAW = RetrievalMetrics(normalize=False)
GOLDEN = paths.GOLDEN
SORTED_LIMITS = (
    "_MAX_SORTED_REFERENCES",
    "_MAX_SORTED_REFERENCES_ON_CPU",
    "_MAX_SORTED_GALLERY_ON_CPU",
)
WAYS = ("counted", "counted or sorted", "sorted", "sorted, halved", "by values, as on a GPU")


@pytest.fixture(scope="module", autouse=True, params=WAYS)
def way(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run everything in all ways, between which the size of the data otherwise chooses."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "sorted, halved":
            patch.setattr(_ranking, "_MIN_HALVED_SIZE", 0)
            patch.setattr(_ranking, "_HALVED_SHARE", 0)
        elif request.param != "sorted":
            for limit in SORTED_LIMITS:
                patch.setattr(_ranking, limit, 0)
            patch.setattr(_ranking, "_SORTED_SHARE", 0)
            patch.setattr(_ranking, "_LARGEST_COUNTED_CLASS", 1000)
        if request.param == "counted or sorted":
            patch.setattr(_ranking, "_MAX_KEPT_PAIRS", 40)
        if request.param == "by values, as on a GPU":
            patch.setattr(_ranking, "_is_gpu", lambda device: True)
            patch.setattr(_query_chunks, "free_memory", lambda device: 2**34)
            patch.setattr(Retrieval, "_use_counting", _all_classes)
        yield request.param


def _all_classes(self: Retrieval, members: Tensor, *_: Any, **__: Any) -> Tensor:
    return torch.ones_like(members, dtype=torch.bool)


def every(normalize: bool = False, **kwargs: Any) -> RetrievalMetrics:
    """Return the object that computes all there is."""
    return RetrievalMetrics(normalize, metrics=ALL, recall_at=RECALL_AT, **kwargs)


def by_loops(x: Any, y: Any, ref: Any = None, ref_y: Any = None) -> dict[str, list[float]]:
    """Score by sorting (distance, index) of each query; exact for numbers of few bits."""
    same = ref is None
    ref, ref_y = (x, y) if same else (ref, ref_y)
    result: dict[str, list[float]] = {name: [] for name in EVERY}
    for i, query in enumerate(x):
        ranked = sorted(
            (sum((float(a) - float(b)) ** 2 for a, b in zip(query, r, strict=True)), j)
            for j, r in enumerate(ref)
            if not (same and i == j)
        )
        values = scores_by_hand([int(ref_y[j]) == int(y[i]) for _, j in ranked])
        for name in EVERY:
            result[name].append(values[name])
    return result


def scores_by_hand(hits: list[bool]) -> dict[str, float]:
    """Score one query, given which of its neighbours in order are of its class."""
    count = sum(hits)
    if count == 0:
        return dict.fromkeys(EVERY, math.nan)
    precisions = [sum(hits[: r + 1]) / (r + 1) if hit else 0.0 for r, hit in enumerate(hits)]
    first = hits.index(True) + 1
    return {
        "precision_at_1": float(hits[0]),
        "r_precision": sum(hits[:count]) / count,
        "mean_average_precision_at_r": sum(precisions[:count]) / count,
        "mean_average_precision": sum(precisions) / count,
        "mean_reciprocal_rank": 1 / first,
        **{f"recall_at_{k}": float(any(hits[:k])) for k in RECALL_AT},
    }


def assert_equal(result: dict[str, Any], expected: dict[str, Any]) -> None:
    assert set(result) <= set(expected)
    for name, values in result.items():
        np.testing.assert_allclose(values, expected[name], rtol=0, atol=1e-12, err_msg=name)


def pml(
    x: Tensor,
    y: Tensor,
    ref: Tensor | None = None,
    ref_y: Tensor | None = None,
    include: tuple[str, ...] = NAMES,
    k: Any = "max_bin_count",
) -> Any:
    calculator = AccuracyCalculator(include=include, k=k, device=torch.device("cpu"))
    if ref is None:
        return calculator.get_accuracy(x, y)
    return calculator.get_accuracy(x, y, ref, ref_y)


def line(*values: float) -> Tensor:
    return torch.tensor([(value, 0.0) for value in values])


def approx(**values: float) -> Any:
    return pytest.approx(values, abs=1e-6)


def test_golden_a() -> None:
    x, y = line(0, 1, 2.5, 4.5, 7, 11, 16), torch.tensor([0, 1, 0, 0, 1, 1, 2])
    expected = approx(
        precision_at_1=1 / 3, r_precision=0.416667, mean_average_precision_at_r=0.291667
    )
    assert RAW(x, y) == expected
    per_query = RAW.per_query(x, y)
    map_at_r = per_query["mean_average_precision_at_r"]
    np.testing.assert_allclose(map_at_r, [0.25, 0, 0.25, 0.5, 0.25, 0.5, math.nan])
    np.testing.assert_allclose(per_query["r_precision"], [0.5, 0, 0.5, 0.5, 0.5, 0.5, math.nan])
    np.testing.assert_allclose(per_query["precision_at_1"], [0, 0, 0, 1, 0, 1, math.nan])


def test_golden_b() -> None:
    reference, labels = line(1, 2, 3, 4, 5, 6, 7), [1, 0, 1, 1, 0, 1, 1]
    result = RAW(line(0), [1], reference, labels)
    assert result == approx(precision_at_1=1, r_precision=0.6, mean_average_precision_at_r=0.483333)


FOLD_1 = np.array([(4, 3), (2, 3), (3, -2), (1, -2), (-1, -2), (-4, 3)], dtype=np.float64)
FOLD_2 = np.array([(1, 4), (-2, -3), (-2, 0), (2, 1), (2, -3), (4, 0)], dtype=np.float64)


def unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x, axis=1, keepdims=True)


@pytest.mark.parametrize(
    ("embeddings", "expected"),
    [
        (FOLD_1, (0.5, 0.583333, 0.458333)),
        (FOLD_2, (0.833333, 0.583333, 0.583333)),
        (np.hstack([unit(FOLD_1), unit(FOLD_2)]), (0.833333, 0.833333, 0.791667)),
        (np.hstack([FOLD_1, FOLD_2]), (0.666667, 0.666667, 0.583333)),
    ],
    ids=["fold 1", "fold 2", "concatenated", "wrong order"],
)
def test_golden_c(embeddings: np.ndarray, expected: tuple[float, ...]) -> None:
    result = RetrievalMetrics()(embeddings, np.array([0, 0, 0, 1, 1, 1]))
    assert result == approx(**dict(zip(NAMES, expected, strict=True)))


def test_golden_d() -> None:
    result = RAW(line(0, 1, 2.1, 5, 3.3, 9), torch.tensor([0, 0, 0, 0, 1, 1]))
    assert result == approx(
        precision_at_1=0.5, r_precision=0.444444, mean_average_precision_at_r=0.37963
    )


def test_golden_recall() -> None:
    case = json.loads(GOLDEN.read_text())["cases"]["metrics"]
    metrics = RetrievalMetrics(False, metrics=(), recall_at=(1, 2, 4))
    result = metrics(case["inputs"]["x"], case["inputs"]["labels"])
    expected = case["expected"]["recall_at_k_euclidean"]
    assert result == pytest.approx({f"recall_at_{k}": v for k, v in expected.items()}, abs=1e-12)


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("order", ["sorted", "shuffled"])
def test_collapsed_embeddings_rank_by_index(order: str, normalize: bool) -> None:
    generator = torch.Generator().manual_seed(11)
    y = torch.arange(60) // 5
    if order == "shuffled":
        y = y[torch.randperm(60, generator=generator)]
    # Of length 8, so that products are exact; others round by the shape of a tile.
    point = torch.randint(0, 2, (64,), generator=generator) * 2.0 - 1
    expected = by_loops([(0,)] * 60, y)
    for chunk_size in (7, 1024):
        metrics = every(normalize, chunk_size=chunk_size)
        assert_equal(metrics.per_query(point.expand(60, 64), y), expected)


def test_collapsed_and_sorted_by_class_is_chance() -> None:
    # protocol.md section 5: four classes of five.
    result = RetrievalMetrics()(torch.ones(20, 3), torch.arange(20) // 5)
    assert result == approx(precision_at_1=0.25, r_precision=0.25, mean_average_precision_at_r=0.25)


def grid(seed: int, n: int, classes: int, values: int, size: int = 3) -> tuple[Tensor, Tensor]:
    """Return points on a small integer grid: many exact ties and duplicates."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randint(0, values, (n, size), generator=generator).float()
    return x, torch.randint(0, classes, (n,), generator=generator)


@pytest.mark.parametrize("chunk_size", [1, 7, 1000])
@pytest.mark.parametrize(
    ("n", "classes", "values"), [(40, 3, 3), (60, 25, 2), (50, 5, 30), (30, 2, 1)]
)
def test_ties_and_singletons_equal_loops(
    n: int, classes: int, values: int, chunk_size: int
) -> None:
    x, y = grid(n, n, classes, values)
    assert_equal(every(chunk_size=chunk_size).per_query(x, y), by_loops(x.tolist(), y.tolist()))


@pytest.mark.parametrize("sizes", [[1, 1, 2, 3, 14, 5, 4], [9, 9, 9], [2] * 12, [4, 20]])
def test_every_size_of_tiles_equals_loops(sizes: list[int]) -> None:
    generator = torch.Generator().manual_seed(len(sizes))
    y = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    y = y[torch.randperm(len(y), generator=generator)]
    x = torch.randint(0, 4, (len(y), 2), generator=generator)
    expected = by_loops(x.tolist(), y)
    for chunk_size in (*range(1, 6), 9, 12, len(y) - 1, len(y), len(y) + 1):
        assert_equal(every(chunk_size=chunk_size).per_query(x, y), expected)


def test_equals_that_reach_beyond_the_first_r() -> None:
    x, y = [[0.0]], [1]
    ref, ref_y = [[1.0], *[[2.0]] * 8], [0, 0, 0, 0, 0, 0, 1, 1, 1]
    result = RAW.per_query(x, y, ref, ref_y)
    assert_equal(result, by_loops(x, y, ref, ref_y))
    assert result["r_precision"] == [0]


LABELS = (0, 1, 7, -3, 2**24, 2**24 + 1, -(2**40), 2**63 - 1, -(2**63))
points = st.lists(
    st.tuples(st.integers(-2, 2), st.integers(-2, 2), st.sampled_from(LABELS)),
    min_size=1,
    max_size=14,
)
metric_sets = st.lists(st.sampled_from(EVERY), min_size=1, max_size=3, unique=True)


def chosen(names: list[str], chunk_size: int) -> RetrievalMetrics:
    """Return the object that computes these."""
    recall_at = [int(name.rpartition("_")[2]) for name in names if "recall" in name]
    return RetrievalMetrics(
        False, chunk_size, [name for name in names if name in ALL], recall_at=recall_at
    )


def split(rows: list[tuple[int, int, int]]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([r[:2] for r in rows], dtype=float), np.array([r[2] for r in rows])


@examples(25)
@given(rows=points, chunk_size=st.integers(1, 8), names=metric_sets)
def test_any_small_set_equals_loops(rows: Any, chunk_size: int, names: list[str]) -> None:
    x, y = split(rows)
    expected = by_loops(x, y)
    for metrics in (every(chunk_size=chunk_size), chosen(names, chunk_size)):
        if np.isnan(expected["r_precision"]).all():
            with pytest.raises(ValueError, match="nothing to measure"):
                metrics(x, y)
        else:
            assert_equal(metrics.per_query(x, y), expected)


@examples(25)
@given(rows=points, others=points, chunk_size=st.integers(1, 8), names=metric_sets)
def test_any_small_gallery_equals_loops(
    rows: Any, others: Any, chunk_size: int, names: list[str]
) -> None:
    data = (*split(rows), *split(others))
    expected = by_loops(*data)
    for metrics in (every(chunk_size=chunk_size), chosen(names, chunk_size)):
        if np.isnan(expected["r_precision"]).all():
            with pytest.raises(ValueError, match="nothing to measure"):
                metrics(*data)
        else:
            assert_equal(metrics.per_query(*data), expected)


@pytest.mark.parametrize("chunk_size", [3, 1000])
def test_separate_reference_equals_loops(chunk_size: int) -> None:
    x, y = grid(1, 20, 6, 3)
    ref, ref_y = grid(2, 65, 4, 3)
    metrics = every(chunk_size=chunk_size)
    result = metrics.per_query(x, y, ref, ref_y)
    assert_equal(result, by_loops(x.tolist(), y, ref.tolist(), ref_y))
    averages = metrics(x, y, ref, ref_y)
    assert averages.num_lone_queries == np.isnan(result["r_precision"]).sum() == (y >= 4).sum() > 0
    assert averages.num_queries == (y < 4).sum()


@pytest.mark.parametrize("classes", [4, 40, 150])
def test_equals_pml_on_random_data(classes: int) -> None:
    generator = torch.Generator().manual_seed(classes)
    y = torch.randint(0, classes, (300,), generator=generator)
    x = torch.randn(300, 16, generator=generator) + torch.randn(classes, 16, generator=generator)[y]
    assert RAW(x, y) == pytest.approx(pml(x, y), abs=1e-9)
    five = RetrievalMetrics(False, metrics=ALL)(x, y)
    # PML averages reciprocal ranks in float32.
    assert five == pytest.approx(pml(x, y, include=ALL, k=None), abs=1e-6)
    unit_x = torch.nn.functional.normalize(x)
    expected = pml(unit_x, y)
    assert RetrievalMetrics()(5 * x, y) == pytest.approx(expected, abs=1e-9)
    separate = pml(unit_x[:100], y[:100], unit_x[100:], y[100:])
    ours = RetrievalMetrics()(x[:100], y[:100], x[100:], y[100:])
    assert ours == pytest.approx(separate, abs=1e-9)


def test_duplicates_of_the_query_count() -> None:
    x = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    assert set(RetrievalMetrics()(x, torch.tensor([0, 0, 1, 1])).values()) == {1.0}
    assert set(RetrievalMetrics()(x, torch.tensor([0, 1, 1, 0])).values()) == {0.0}


def test_normalising_matters_and_scale_does_not() -> None:
    x = torch.tensor([[1.0, 0.1], [50.0, 1.0], [1.0, 0.6], [2.0, 1.4]])
    y = torch.tensor([0, 0, 1, 1])
    assert RetrievalMetrics()(x, y)["precision_at_1"] == 1
    assert RAW(x, y)["precision_at_1"] < 1


def test_raw_vectors_far_from_the_origin_keep_their_order() -> None:
    # In float32 the squares near 1e6 would swallow differences of 0.03.
    x = line(1000.0, 1000.0625, 1000.03125 + 0.0625, 1000.25)
    y = torch.tensor([0, 1, 1, 0])
    assert_equal(every().per_query(x, y), by_loops(x.double().tolist(), y))


def of_every_kind(x: Tensor, y: Tensor) -> list[tuple[Any, Any]]:
    """Return the same data, integers from 0 to 255, in other types and layouts."""
    read_only = x.numpy().copy(), y.numpy().copy()
    for array in read_only:
        array.flags.writeable = False
    return [
        (x.numpy(), y.numpy()),
        (x.tolist(), y.tolist()),
        (x.half(), y.int()),
        (x.bfloat16().requires_grad_(), y.to(torch.uint8)),
        (x.double(), y + 2**40),
        (x.long(), y - 2**62),
        (x.numpy().astype(np.float16), y.numpy().astype(np.int16)),
        (x.numpy().astype(np.uint8), y.numpy().astype(np.uint16)),
        (x.numpy().astype(">f4"), y.numpy().astype(">i8")),
        (x.t().contiguous().t(), y.repeat_interleave(2)[::2]),
        (torch.cat([x, x], dim=1)[:, : x.shape[1]], y),
        (x.numpy()[::-1].copy()[::-1], y.numpy()[::-1].copy()[::-1]),
        (np.asfortranarray(x.numpy()), y),
        (np.broadcast_to(x.numpy(), x.shape), y),
        read_only,
    ]


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.filterwarnings("error")
def test_every_kind_of_input_gives_the_same(normalize: bool) -> None:
    # Ties of unit vectors would round by type.
    x, y = grid(3, 30, 4, 256 if normalize else 5)
    metrics = every(normalize)
    expected, of_gallery = metrics(x, y), metrics(x[:20], y[:20], x[20:], y[20:])
    for embeddings, labels in of_every_kind(x, y):
        assert metrics(embeddings, labels) == pytest.approx(expected, abs=1e-12)
        parts = embeddings[:20], labels[:20], embeddings[20:], labels[20:]
        assert metrics(*parts) == pytest.approx(of_gallery, abs=1e-12)


def test_types_of_queries_and_gallery_may_differ() -> None:
    x, y = grid(3, 30, 4, 256)
    for metrics in (every(True), every(False)):
        expected = metrics(x[:20], y[:20], x[20:], y[20:])
        for a, b in itertools.permutations((torch.float16, torch.float32, torch.float64), 2):
            result = metrics(x[:20].to(a), y[:20], x[20:].to(b), y[20:].int())
            assert result == pytest.approx(expected, abs=1e-12)


def test_float64_tells_apart_what_float32_does_not() -> None:
    angles = np.array([0, 1e-5, 3e-5, 4e-5])
    x = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    assert RetrievalMetrics()(x, [0, 0, 1, 1])["precision_at_1"] == 1
    assert RAW(x, [0, 0, 1, 1])["precision_at_1"] == 1
    assert RetrievalMetrics()(x.astype(np.float32), [0, 0, 1, 1])["precision_at_1"] < 1


def test_labels_beyond_float32_stay_apart() -> None:
    # PML casts labels to float32, in which these four classes are one.
    for first in (2**24, -(2**24) - 1, 2**53, 2**63 - 2, -(2**63)):
        y = torch.tensor([first, first + 1, first, first + 1])
        assert RAW(line(0, 1, 10, 11), y)["precision_at_1"] == 0
        assert RAW(line(0, 1), y[:2], line(0, 1), y[:2])["precision_at_1"] == 1


def test_autocast_does_not_reach_the_products() -> None:
    generator = torch.Generator().manual_seed(10)
    x, y = torch.randn(200, 8, generator=generator), torch.arange(200) % 20
    expected = RetrievalMetrics()(x, y)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert RetrievalMetrics()(x, y) == expected


def test_inputs_are_left_alone() -> None:
    x, y = grid(4, 30, 4, 5)
    before = x.clone(), y.clone()
    RAW(x, y)
    RetrievalMetrics()(x, y)
    assert torch.equal(x, before[0])
    assert torch.equal(y, before[1])


def test_averages_over_queries_and_over_classes() -> None:
    x, y = grid(6, 50, 12, 6)
    y = -(y**5)
    by_query = by_loops(x.tolist(), y)
    of_class: dict[str, dict[int, list[float]]] = {name: defaultdict(list) for name in EVERY}
    for name, values in by_query.items():
        for label, value in zip(y.tolist(), values, strict=True):
            if not math.isnan(value):
                of_class[name][label].append(value)
    classes = sorted(of_class["r_precision"])
    means = {name: [np.mean(of_class[name][c]) for c in classes] for name in EVERY}
    labels, per_class = every().per_class(x, y)
    assert labels.tolist() == classes
    assert_equal(per_class, means)
    assert_equal(every(average="classes")(x, y), {n: np.mean(v) for n, v in means.items()})
    assert_equal(every()(x, y), {n: np.nanmean(v) for n, v in by_query.items()})


def test_queries_and_lone_queries_are_counted() -> None:
    result = RAW(line(0, 1, 2, 3, 4), [3, 3, 3, 1, 0])
    assert (result.num_queries, result.num_lone_queries) == (3, 2)
    result = RAW(line(0, 1, 2), [3, 3, 4], line(0, 1), [4, 4])
    assert (result.num_queries, result.num_lone_queries) == (1, 2)
    result = RetrievalMetrics(average="classes")(
        line(0, 1, 2), torch.tensor([[3, 1], [3, 2], [4, 2]])
    )
    assert (result.num_queries, result.num_lone_queries) == (2, 1)


def test_levels_of_labels_are_scored_one_by_one() -> None:
    x, y = grid(7, 40, 12, 6)
    ref, ref_y = grid(8, 40, 12, 6)
    levels, ref_levels = (
        torch.stack([y, y % 4, y % 2], 1),
        torch.stack([ref_y, ref_y % 4, ref_y % 2], 1),
    )
    for average in ("queries", "classes"):
        metrics = every(average=average)
        alone, searched = metrics(x, levels), metrics(x, levels, ref, ref_levels)
        assert len(alone) == len(searched) == 3 * len(EVERY)
        for level in range(3):
            expected = metrics(x, levels[:, level])
            of_gallery = metrics(x, levels[:, level], ref, ref_levels[:, level])
            for name in EVERY:
                assert alone[f"{name}_level{level}"] == expected[name]
                assert searched[f"{name}_level{level}"] == of_gallery[name]
    one_level = metrics(x, levels[:, :1].numpy())
    assert one_level == metrics(x, y)
    assert_equal(every().per_query(x, levels[:, :1]), by_loops(x.tolist(), y))


def test_metrics_come_in_the_order_asked_for() -> None:
    x, y = grid(9, 30, 5, 5)
    names = ("mean_reciprocal_rank", "r_precision", "precision_at_1")
    metrics = RetrievalMetrics(False, metrics=names, recall_at=(8, 1))
    for result in (metrics(x, y), metrics.per_query(x, y), metrics.per_class(x, y)[1]):
        assert tuple(result) == (*names, "recall_at_8", "recall_at_1")
    assert tuple(RetrievalMetrics()(x, y)) == NAMES
    assert tuple(RetrievalMetrics(metrics="r_precision")(x, y)) == ("r_precision",)


def test_chunks_change_float32_by_rounding_only(way: str) -> None:
    generator = torch.Generator().manual_seed(15)
    y = torch.arange(1200) % 400 % 151
    x = torch.randn(1200, 24, generator=generator) + torch.randn(151, 24, generator=generator)[y]
    exact = RetrievalMetrics(recall_at=(1, 10))(x.double(), y)
    sizes = (200,) if way == "sorted" else (200, 777, 2000)
    for size in sizes:
        result = RetrievalMetrics(chunk_size=size, recall_at=(1, 10))(x, y)
        assert result == pytest.approx(exact, abs=1e-5)


def test_gradients_are_not_kept() -> None:
    x, y = grid(4, 30, 4, 5)
    x.requires_grad_()
    for metrics in (RetrievalMetrics(), RAW):
        assert metrics(x, y) == metrics(x.detach(), y)
    assert x.grad is None


@pytest.mark.gpu
def test_a_gpu_gives_the_same() -> None:
    generator = torch.Generator().manual_seed(16)
    y = torch.arange(1000) % 90 % 70
    x = torch.randn(1000, 32, generator=generator) + torch.randn(70, 32, generator=generator)[y]
    allowed = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        for chunk_size, normalize in ((64, True), (1024, False)):
            expected = every(normalize)(x, y)
            metrics = every(normalize, chunk_size=chunk_size)
            with torch.autocast("cuda"):
                assert metrics(x.cuda(), y) == pytest.approx(expected, abs=1e-5)
        assert torch.backends.cuda.matmul.allow_tf32
        ties, tied_y = grid(17, 200, 9, 3)
        result = every().per_query(ties.cuda(), tied_y.cuda())
        assert_equal(result, every().per_query(ties, tied_y))
    finally:
        torch.backends.cuda.matmul.allow_tf32 = allowed


GOOD = (np.eye(4), np.array([0, 0, 1, 1]))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.full((4, 2), np.nan), GOOD[1]), "embeddings must be finite, but 4 of 4 rows"),
        ((np.diag([1.0, np.inf, 1, 1]), GOOD[1]), "1 of 4 rows hold NaN or infinity"),
        ((*GOOD, np.full((4, 4), np.nan), GOOD[1]), "reference must be finite"),
        ((GOOD[0], np.arange(4)), "nothing to measure"),
        ((*GOOD, np.eye(4), GOOD[1] + 7), "nothing to measure"),
        ((GOOD[0], GOOD[1][:3]), r"labels must have shape \(4,\)"),
        ((GOOD[0], GOOD[1].astype(float)), "labels must be integers"),
        ((np.ones(4), GOOD[1]), r"must have shape \(N, D\)"),
        ((np.ones((0, 3)), np.ones(0, dtype=int)), "with N > 0"),
        ((*GOOD, np.eye(4)), "must be given together"),
        ((*GOOD, None, GOOD[1]), "must be given together"),
        ((*GOOD, np.eye(5), np.arange(5)), "embeddings have 4 dimensions, but reference has 5"),
        ((*GOOD, np.eye(4)[:3], GOOD[1]), r"reference_labels must have shape \(3,\)"),
        ((*GOOD, np.eye(4), GOOD[1] / 2), "reference_labels must be integers"),
        ((GOOD[0], GOOD[1].astype(complex)), "labels must be integers"),
        ((GOOD[0].astype(complex), GOOD[1]), "must be real numbers"),
        ((GOOD[0], np.eye(3, 2, dtype=int)), r"labels must have shape \(4,\)"),
        ((GOOD[0], np.ones((4, 1, 1), dtype=int)), r"labels must have shape \(4,\)"),
        ((*GOOD, np.eye(4), np.eye(4, dtype=int)), "labels have 1 levels, but reference_labels"),
        ((np.array([["a"]] * 4), GOOD[1]), "embeddings must be a tensor or an array of numbers"),
        (([[1.0], [1.0, 2.0]], [0, 0]), "embeddings must be a tensor or an array of numbers"),
        ((GOOD[0], ["a"] * 4), "labels must be a tensor or an array of numbers"),
        ((GOOD[0][:1], [0]), "nothing to measure"),
    ],
)
def test_unusable_input_is_refused(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RetrievalMetrics()(*arguments)


def test_levels_are_refused_where_results_are_lists() -> None:
    levels = np.stack([GOOD[1], GOOD[1]], axis=1)
    for call in (RAW.per_query, RAW.per_class):
        with pytest.raises(
            ValueError, match=r"labels must have shape \(4,\) here, but have 2 levels"
        ):
            call(GOOD[0], levels)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"chunk_size": 0}, "chunk_size must be a whole number of at least 1"),
        ({"chunk_size": 2.5}, "chunk_size must be"),
        ({"chunk_size": True}, "chunk_size must be"),
        ({"normalize": "yes"}, "normalize must be"),
        ({"metrics": ("map",)}, "metrics must be .*'map'"),
        ({"metrics": "recall_at_1"}, r"recall_at=\(1,\)"),
        ({"recall_at": (1, 0)}, "recall_at must be a whole number of at least 1"),
        ({"metrics": ()}, "metrics and recall_at are both empty"),
        ({"average": "samples"}, "average must be"),
    ],
)
def test_arguments_are_checked(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RetrievalMetrics(**arguments)

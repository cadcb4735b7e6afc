"""RetrievalMetrics against values by hand, a plain loop and PML's AccuracyCalculator."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
from torch import Tensor

from pml_extensions.evaluation import RetrievalMetrics, retrieval_metrics

NAMES = ("precision_at_1", "r_precision", "mean_average_precision_at_r")
RAW = RetrievalMetrics(normalize=False)


@pytest.fixture(scope="module", autouse=True, params=["counted", "sorted"])
def way(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run everything in both ways, which the size of the data otherwise chooses between."""
    if request.param == "sorted":
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(retrieval_metrics, "_SORTED_ITEMS", 0)
        patch.setattr(retrieval_metrics, "_SORTED_SHARE", 0)
        yield


def by_loops(x: Any, y: Any, ref: Any = None, ref_y: Any = None) -> dict[str, list[float]]:
    """Score by sorting (distance, index) of each query; exact for numbers of few bits."""
    same = ref is None
    ref, ref_y = (x, y) if same else (ref, ref_y)
    result: dict[str, list[float]] = {name: [] for name in NAMES}
    for i, query in enumerate(x):
        ranked = sorted(
            (sum((float(a) - float(b)) ** 2 for a, b in zip(query, r, strict=True)), j)
            for j, r in enumerate(ref)
            if not (same and i == j)
        )
        hits = [int(ref_y[j]) == int(y[i]) for _, j in ranked]
        count = sum(hits)
        if count == 0:
            values = (math.nan,) * 3
        else:
            precisions = [sum(hits[: r + 1]) / (r + 1) for r in range(count) if hits[r]]
            values = (float(hits[0]), sum(hits[:count]) / count, sum(precisions) / count)
        for name, value in zip(NAMES, values, strict=True):
            result[name].append(value)
    return result


def pml(x: Tensor, y: Tensor, ref: Tensor | None = None, ref_y: Tensor | None = None) -> Any:
    calculator = AccuracyCalculator(include=NAMES, k="max_bin_count", device=torch.device("cpu"))
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


def test_collapsed_embeddings_rank_by_index() -> None:
    # protocol.md section 5: four classes of five, all points identical, sorted by class.
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
    result = RetrievalMetrics(normalize=False, chunk_size=chunk_size).per_query(x, y)
    for name, expected in by_loops(x.tolist(), y.tolist()).items():
        np.testing.assert_allclose(result[name], expected, atol=1e-12, err_msg=name)


@settings(max_examples=60, deadline=None)
@given(
    points=st.lists(
        st.tuples(st.integers(-2, 2), st.integers(-2, 2), st.integers(0, 3)),
        min_size=2,
        max_size=14,
    ),
    chunk_size=st.integers(1, 5),
)
def test_any_small_set_equals_loops(points: list[tuple[int, int, int]], chunk_size: int) -> None:
    x, y = np.array([p[:2] for p in points], dtype=float), np.array([p[2] for p in points])
    metrics = RetrievalMetrics(normalize=False, chunk_size=chunk_size)
    expected = by_loops(x, y)
    if all(math.isnan(value) for value in expected[NAMES[0]]):
        with pytest.raises(ValueError, match="nothing to measure"):
            metrics(x, y)
    else:
        result = metrics.per_query(x, y)
        for name in NAMES:
            np.testing.assert_allclose(result[name], expected[name], atol=1e-12)


def test_separate_reference_equals_loops() -> None:
    x, y = grid(1, 20, 6, 3)
    ref, ref_y = grid(2, 35, 4, 3)
    result = RAW.per_query(x, y, ref, ref_y)
    for name, expected in by_loops(x.tolist(), y, ref.tolist(), ref_y).items():
        np.testing.assert_allclose(result[name], expected, atol=1e-12)
    assert np.isnan(result["r_precision"]).sum() == (y >= 4).sum() > 0


@pytest.mark.parametrize("classes", [4, 40, 150])
def test_equals_pml_on_random_data(classes: int) -> None:
    generator = torch.Generator().manual_seed(classes)
    y = torch.randint(0, classes, (300,), generator=generator)
    x = torch.randn(300, 16, generator=generator) + torch.randn(classes, 16, generator=generator)[y]
    assert RAW(x, y) == pytest.approx(pml(x, y), abs=1e-9)
    unit_x = torch.nn.functional.normalize(x)
    expected = pml(unit_x, y)
    assert RetrievalMetrics()(5 * x, y) == pytest.approx(expected, abs=1e-9)
    separate = pml(unit_x[:100], y[:100], unit_x[100:], y[100:])
    ours = RetrievalMetrics()(x[:100], y[:100], x[100:], y[100:])
    assert ours == pytest.approx(separate, abs=1e-9)


@pytest.mark.parametrize(("classes", "values"), [(3, 2), (12, 3), (50, 2), (6, 1)])
def test_equals_pml_on_ties(classes: int, values: int) -> None:
    x, y = grid(classes, 120, classes, values)
    assert RAW(x, y) == pytest.approx(pml(x, y), abs=1e-9)


def test_one_large_class_among_small_ones() -> None:
    y = torch.cat([torch.zeros(60, dtype=torch.long), 1 + torch.arange(60) // 3])
    x = torch.randn(120, 4, generator=torch.Generator().manual_seed(8))
    order = torch.randperm(120, generator=torch.Generator().manual_seed(9))
    x, y = x[order], y[order]
    expected = pml(x, y)
    for chunk_size in (8, 512):
        metrics = RetrievalMetrics(normalize=False, chunk_size=chunk_size)
        assert metrics(x, y) == pytest.approx(expected, abs=1e-9)


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
    for name, expected in by_loops(x.double().tolist(), y).items():
        np.testing.assert_allclose(RAW.per_query(x, y)[name], expected, err_msg=name)


def test_every_kind_of_input_gives_the_same() -> None:
    x, y = grid(3, 30, 4, 5)
    expected = RAW(x, y)
    kinds: list[tuple[Any, Any]] = [
        (x.numpy(), y.numpy()),
        (x.tolist(), y.tolist()),
        (x.half(), y.int()),
        (x.bfloat16().requires_grad_(), y.to(torch.uint8)),
        (x.double(), y + 2**40),
        (x.numpy().astype(np.float16), y.numpy().astype(np.int16)),
        (x, -y),
        (x.numpy()[::-1].copy()[::-1], y.numpy()[::-1].copy()[::-1]),
        (np.broadcast_to(x.numpy(), x.shape), y),
    ]
    for embeddings, labels in kinds:
        assert RAW(embeddings, labels) == expected


def test_labels_beyond_float32_stay_apart() -> None:
    # PML casts labels to float32, in which these four classes are one.
    y = 2**24 + torch.tensor([0, 1, 0, 1])
    assert RAW(line(0, 1, 10, 11), y)["precision_at_1"] == 0


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
        ((*GOOD, np.eye(5), np.arange(5)), "embeddings have 4 dimensions, but reference has 5"),
    ],
)
def test_unusable_input_is_refused(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RetrievalMetrics()(*arguments)


@pytest.mark.parametrize("chunk_size", [0, 2.5, True])
def test_chunk_size_is_checked(chunk_size: Any) -> None:
    with pytest.raises(ValueError, match="chunk_size must be"):
        RetrievalMetrics(chunk_size=chunk_size)


def test_chunks_do_not_change_the_result() -> None:
    x, y = grid(5, 64, 7, 4, size=5)
    results = [RetrievalMetrics(False, size).per_query(x, y) for size in (1, 5, 64, 999)]
    for a, b in itertools.pairwise(results):
        for name in NAMES:
            np.testing.assert_array_equal(a[name], b[name])

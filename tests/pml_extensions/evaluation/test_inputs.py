"""What the evaluation takes as embeddings and labels, and what it says of everything else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from pml_extensions.evaluation import (
    AccuracyCalculator,
    RetrievalMetrics,
    _inputs,
    average_distance_to_proxy,
    class_separability,
    kmeans_clusters,
    nearest_neighbours,
)
from pml_extensions.modules import start_from_pca

GOOD = [[1.0, 2.0], [3.0, 4.0]]


def read_only() -> Any:
    array = np.array(GOOD)
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        (GOOD, torch.float64),
        (np.array(GOOD, dtype=np.float32), torch.float32),
        (np.array(GOOD, dtype=np.float16), torch.float32),
        (np.array(GOOD).astype(">f8"), torch.float64),
        (np.array(GOOD)[::-1][::-1], torch.float64),
        (np.array(GOOD, dtype=int), torch.float32),
        (np.array(GOOD, dtype=np.uint16), torch.float32),
        (read_only(), torch.float64),
        (torch.tensor(GOOD, dtype=torch.bfloat16), torch.float32),
        (torch.tensor(GOOD, dtype=torch.float64, requires_grad=True), torch.float64),
    ],
)
@pytest.mark.filterwarnings("error")
def test_any_real_numbers_are_taken(values: Any, dtype: torch.dtype) -> None:
    x, y = _inputs.embeddings_and_labels(values, [7, -(2**40)])
    assert x.tolist() == GOOD
    assert x.dtype == dtype
    assert not x.requires_grad
    assert y.tolist() == [7, -(2**40)]
    assert y.dtype == torch.int64


def test_reversed_arrays_are_read_in_their_order() -> None:
    assert _inputs.tensor(np.arange(4)[::-1], "x").tolist() == [3, 2, 1, 0]


def test_no_copy_where_none_is_needed() -> None:
    x = torch.zeros(3, 2)
    assert _inputs.matrix(x, "x").data_ptr() == x.data_ptr()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1.0, 2.0], r"x must have shape \(N, D\) with N > 0 and D > 0, but got \(2,\)"),
        (np.zeros((0, 3)), r"but got \(0, 3\)"),
        (np.zeros((3, 0)), r"but got \(3, 0\)"),
        ([[1.0, np.nan], [1.0, 2.0], [np.inf, 0.0]], "x must be finite, but 2 of 3 rows hold NaN"),
        ([[1.0], [1.0, 2.0]], "x must be a tensor or an array of numbers"),
        ([["a", "b"]], "x must be a tensor or an array of numbers"),
        (None, "x must be a tensor or an array of numbers"),
        (np.array([[1j]]), "x must be real numbers, but their dtype is torch.complex128"),
    ],
)
def test_bad_matrices(values: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _inputs.matrix(values, "x")


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0], r"labels must have shape \(2,\) like embeddings, but got \(1,\)"),
        ([[0, 1]], r"labels must have shape \(2,\) like embeddings, but got \(1, 2\)"),
        ([0.0, 1.0], "labels must be integers, but their dtype is torch.float64"),
        (["a", "b"], "labels must be a tensor or an array of numbers"),
    ],
)
def test_bad_labels(labels: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _inputs.embeddings_and_labels(GOOD, labels)


def test_a_refused_name_comes_with_what_to_write() -> None:
    with pytest.raises(ValueError, match=r"recall_at=\(10\b"):
        RetrievalMetrics(metrics=("recall_at_10",))
    with pytest.raises(
        ValueError, match=r"labels must be .*numpy\.unique\(strings, return_inverse"
    ):
        RetrievalMetrics()(GOOD, ["a", "a"])


@pytest.mark.parametrize("values", [[], [[1]], 1])
def test_integers_must_be_a_row(values: Any) -> None:
    with pytest.raises(ValueError, match=r"y must have shape \(N,\) with N > 0"):
        _inputs.integers(np.array(values, dtype=int), "y")


CPU = torch.device("cpu")
Y = torch.arange(4) // 2


@pytest.mark.parametrize("rows", [slice(None), slice(1)])
@pytest.mark.parametrize(
    ("length", "function"),
    [
        (1e19, lambda x: kmeans_clusters(x.float(), 2)),
        (1e30, lambda x: kmeans_clusters(x.bfloat16(), 2)),
        (1e200, lambda x: kmeans_clusters(x, 2)),
        (1e19, lambda x: AccuracyCalculator(("NMI",), device=CPU).get_accuracy(x.float(), Y)),
        (
            1e19,
            lambda x: AccuracyCalculator(("NMI",), device=CPU).get_accuracy(
                x.sign().float(), Y, x.float(), Y
            ),
        ),
        (1e200, lambda x: AccuracyCalculator(("r_precision",), device=CPU).get_accuracy(x, Y)),
        (1e200, lambda x: RetrievalMetrics(normalize=False)(x, Y)),
        (1e200, lambda x: RetrievalMetrics(normalize=False)(x.sign(), Y, x, Y)),
        (1e200, lambda x: class_separability(x, Y)),
        (1e200, lambda x: average_distance_to_proxy(x, Y, x)),
        (1e200, lambda x: nearest_neighbours(x, [0], 1, normalize=False)),
        (1e19, lambda x: start_from_pca(torch.nn.Linear(2, 1), x.float())),
    ],
)
def test_finite_values_with_infinite_squares_are_refused(
    length: float, function: Any, rows: slice
) -> None:
    x = torch.tensor([[1.0, 2.0], [2.0, 3.0], [5.0, 1.0], [4.0, 2.0]], dtype=torch.float64)
    x[rows] *= length
    with pytest.raises(ValueError, match="must have finite squares, but those of values up to"):
        function(x)

"""Vectors and other tensors as samples: views, batches, checksums and mistakes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from reality_check.data import TensorSet
from reality_check.data.store import TensorStore
from reality_check.data.tensors import Tensors
from reality_check.utils.errors import UsageError

CPU = torch.device("cpu")


def make(samples: np.ndarray, **changes: object) -> TensorSet:
    fields: dict[str, object] = {
        "labels": np.arange(len(samples)) % 3,
        "class_names": ("a", "b", "c"),
        "name": "toy",
        "sample_names": np.array([f"s{row}" for row in range(len(samples))], dtype=object),
    }
    return TensorSet(samples, **(fields | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "stored", "seen"),
    [
        ("float16", "float16", torch.float32),
        ("float32", "float32", torch.float32),
        ("float64", "float32", torch.float32),
        ("int64", "int64", torch.int64),
        ("uint8", "uint8", torch.uint8),
        ("uint16", "int32", torch.int32),
    ],
)
def test_batches_have_the_values_and_the_type_a_trunk_needs(
    given: str, stored: str, seen: torch.dtype
) -> None:
    array = np.arange(6 * 4).reshape(6, 4).astype(given)
    samples = Tensors.from_array(array)
    assert samples.values.dtype == stored
    assert samples.input_shape == ((4,), seen)
    batch = TensorStore(samples[[4, 1, 3]], CPU).batch(np.array([2, 0]))
    assert batch.dtype == seen
    assert batch.tolist() == array[[3, 4]].tolist()


def test_subsets_are_views_with_their_names() -> None:
    data = make(np.arange(18.0, dtype=np.float32).reshape(6, 3))
    part = data.subset([2, 0])
    assert np.shares_memory(part.samples.values, data.samples.values), "a view, not a copy"
    assert part.samples.array().tolist() == data.samples.values[[0, 2, 3, 5]].tolist()
    assert part.labels.tolist() == [1, 0, 1, 0]
    assert part.sample_names is not None
    assert part.sample_names.tolist() == ["s0", "s2", "s3", "s5"]


def test_a_memory_mapped_array_is_neither_copied_nor_written(tmp_path) -> None:
    np.save(tmp_path / "x.npy", np.ones((6, 3), np.float16))
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    store = TensorStore(make(mapped).subset([1, 2]).samples, CPU)
    assert store._samples.tensor.data_ptr() == mapped.ctypes.data
    store.batch(np.array([0])).fill_(7)
    assert (mapped == 1).all()


def test_fingerprint_is_of_the_content() -> None:
    array = np.arange(3000 * 2, dtype=np.float32).reshape(3000, 2)
    data = make(array)
    rows = np.arange(2999, -1, -1)
    # The same samples by way of a view of another order.
    twice = Tensors(array[::-1])[rows]
    assert data.fingerprint() == make(array.copy(), name="b", sample_names=None).fingerprint()
    assert data.fingerprint() == make(array).fingerprint() == make_of(twice).fingerprint()
    changed = array.copy()
    changed[2500, 1] += 1
    others = [
        make(changed),
        make(array.astype(np.float16)),
        make(array.reshape(3000, 2, 1)),
        make(array, labels=np.arange(1, 3001) % 3),
    ]
    assert len({data.fingerprint(), *(other.fingerprint() for other in others)}) == 5


def make_of(samples: Tensors) -> TensorSet:
    return make(samples)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("array", "text"),
    [
        (np.ones((6, 2), complex), "'toy' are complex128.*float16, float32 or integers"),
        (np.array([["a"]] * 6), "must be float16, float32 or integers"),
        (np.ones(6), r"shape \(6,\).*\(N, D\) for vectors"),
        (np.ones((6, 0)), r"shape \(6, 0\).*none of them 0"),
        (np.where(np.arange(12).reshape(6, 2) == 9, np.nan, 1), "first in row 4"),
        (np.where(np.arange(12).reshape(6, 2) == 2, np.inf, 1), "NaN or infinite.*row 1"),
    ],
)
def test_wrong_samples_are_refused_in_one_sentence(array: np.ndarray, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        make(array)


def test_a_class_without_samples_and_too_few_names_are_refused() -> None:
    with pytest.raises(UsageError, match=r"Class 'b' of 'toy' has no sample; .*add samples"):
        make(np.ones((2, 2)), labels=np.array([0, 2]))
    with pytest.raises(UsageError, match=r"names of the samples .*\(5,\).*\(6,\), one per sample"):
        make(np.ones((6, 2)), sample_names=np.array(["a"] * 5))

"""The nearest of many, found in both ways, against sorting by hand; and that all ways agree."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import Tensor

from pml_extensions.evaluation import RetrievalMetrics, _query_chunks, _ranking, _sorting
from pml_extensions.evaluation._sorting import nearest_by_numpy, nearest_by_sorting

SHAPES = [(1, 1, 1), (3, 7, 7), (5, 40, 1), (4, 90, 2), (30, 403, 9), (7, 1000, 6), (2, 300, 250)]


def by_hand(similarities: Tensor, count: int) -> list[list[int]]:
    """Sort by similarity, then by index."""
    rows = similarities.tolist()
    return [sorted(range(len(row)), key=lambda i, row=row: (-row[i], i))[:count] for row in rows]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("values", [1, 2, 3, 30, 10**6], ids="{} values".format)
@pytest.mark.parametrize(("rows", "size", "count"), SHAPES)
def test_the_nearest_stand_in_order_of_index_where_equal(
    rows: int,
    size: int,
    count: int,
    values: int,
    dtype: torch.dtype,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    generator = torch.Generator().manual_seed(size + values)
    similarities = torch.randint(values, (rows, size), generator=generator).to(dtype) - values // 2
    similarities[similarities == 0] *= -1  # zeros of both signs are equal
    similarities[::2] = similarities[::2].abs()
    if count < size:
        similarities[torch.arange(rows), torch.arange(rows) % size] = -torch.inf
    classes, own = (torch.randint(2, (n,), generator=generator) for n in (size, rows))
    expected = (classes[torch.tensor(by_hand(similarities, count))] == own[:, None]).tolist()
    blocks = [block.numpy() for block in similarities.split(max(1, size // 3), dim=1)]
    monkeypatch.setattr(_sorting, "_SEARCHED_ENTRIES", 2 * size)  # two rows at a time
    assert nearest_by_numpy(blocks, classes, own, count).tolist() == expected
    assert nearest_by_sorting(similarities, classes, own, count).tolist() == expected


@pytest.mark.parametrize(
    ("normalize", "values"), [(True, 2), (False, 2), (False, 4), (False, 1000)]
)
def test_all_ways_agree(normalize: bool, values: int, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(values)
    labels = torch.randint(60, (900,), generator=generator)
    # Odd numbers around zero. Of two values they are signs, and unit vectors without rounding.
    x = torch.randint(0, values, (900, 16), generator=generator).float() * 2 + 1 - values
    found = []
    for items, size in itertools.product((0, 8192), (0, 10**6)):
        monkeypatch.setattr(_ranking, "_MAX_SORTED_REFERENCES_ON_CPU", items)
        monkeypatch.setattr(_ranking, "_SORTED_SHARE", 64 if items else 0)
        monkeypatch.setattr(_ranking, "_LARGEST_COUNTED_CLASS", 1000)
        monkeypatch.setattr(_ranking, "_MIN_HALVED_SIZE", size)
        metrics = RetrievalMetrics(normalize, chunk_size=100, recall_at=(1, 3, 100))
        found.append(metrics.per_query(x, labels))
    monkeypatch.setattr(_ranking, "_is_gpu", lambda device: True)
    monkeypatch.setattr(_query_chunks, "free_memory", lambda device: 2**34)
    for items in (0, 8192):
        monkeypatch.setattr(_ranking, "_MAX_SORTED_REFERENCES", items)
        found.append(metrics.per_query(x, labels))
    for other in found[1:]:
        for name, scores in found[0].items():
            np.testing.assert_array_equal(other[name], scores, err_msg=name)


@pytest.mark.parametrize("share", [1, 10**9], ids=["by differences", "by products"])
@pytest.mark.parametrize("spread", [1.0, 1e-3, 1e-5, 0.0])
@pytest.mark.parametrize("halved_size", [0, 10**6])
def test_raw_vectors_closer_than_float32_can_tell_are_ranked_as_in_float64(
    spread: float, share: int, halved_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = torch.Generator().manual_seed(7)
    labels = torch.randint(60, (600,), generator=generator)
    groups = torch.randn(20, 256, generator=generator, dtype=torch.float64)[torch.arange(600) % 20]
    x = 5 + groups + spread * torch.randn(600, 256, generator=generator, dtype=torch.float64)
    x[::50] = x[7]  # equal ones rank by index
    distances = torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist")
    distances.fill_diagonal_(torch.inf)
    hits = labels[distances.sort(dim=1, stable=True).indices[:, :-1]] == labels.unsqueeze(1)
    first = 1 + hits.int().argmax(dim=1).double()
    monkeypatch.setattr(_sorting, "_DOUBTFUL_SHARE", share)
    monkeypatch.setattr(_ranking, "_MIN_HALVED_SIZE", halved_size)
    monkeypatch.setattr(_ranking, "_HALVED_ROWS", 100)
    metrics = RetrievalMetrics(normalize=False, metrics="r_precision", recall_at=(1, 30, 300))
    found = metrics.per_query(x, labels)
    own = labels.bincount()[labels] - 1
    within = (hits & (torch.arange(599) < own.unsqueeze(1))).sum(dim=1) / own
    np.testing.assert_allclose(found["r_precision"], within.numpy())
    for k in (1, 30, 300):
        np.testing.assert_array_equal(found[f"recall_at_{k}"], (first <= k).double().numpy())

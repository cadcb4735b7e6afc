"""Hamming retrieval against golden values, sorted loops, all orders of ties, and raw faiss."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from itertools import permutations
from typing import Any

import faiss
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support import paths
from support.examples import examples

from pml_extensions.evaluation import binary_codes
from pml_extensions.evaluation.binary_codes import expected_hamming_recall, hamming_retrieval
from pml_extensions.modules import BinaryEmbedding

GOLDEN = json.loads((paths.GOLDEN).read_text(encoding="utf-8"))["cases"]["binary_retrieval"]
KS = (1, 2, 3, 5)
bits = st.integers(1, 11).flatmap(
    lambda d: st.lists(
        st.tuples(st.lists(st.booleans(), min_size=d, max_size=d), st.integers(0, 3)),
        min_size=2,
        max_size=25,
    )
)


def scores(hits: list[bool], ks: Any = KS) -> dict[str, float]:
    """Score one query whose neighbours, nearest first, have its class or not."""
    count = sum(hits)
    precisions = [sum(hits[: r + 1]) / (r + 1) for r in range(count) if hits[r]]
    return {
        "precision_at_1": float(hits[0]),
        "r_precision": sum(hits[:count]) / count,
        "mean_average_precision_at_r": sum(precisions) / count,
        **{f"recall_at_{k}": float(any(hits[:k])) for k in ks},
    }


def neighbours(x: Any, y: Any, ref: Any, ref_y: Any, i: int) -> list[tuple[int, int, bool]]:
    """(Hamming distance, index, same class) of all references of query i."""
    return [
        (sum(a != b for a, b in zip(x[i], r, strict=True)), j, ref_y[j] == y[i])
        for j, r in enumerate(ref)
        if not (ref is x and i == j)
    ]


def mean(per_query: list[dict[str, float]]) -> dict[str, float]:
    return {name: sum(q[name] for q in per_query) / len(per_query) for name in per_query[0]}


def by_loops(
    x: Any, y: Any, ref: Any = None, ref_y: Any = None, ks: Any = KS
) -> dict[str, float] | None:
    """Average over queries ranked by (distance, index); None if no query can be scored."""
    ref, ref_y = (x, y) if ref is None else (ref, ref_y)
    ranked = [sorted(neighbours(x, y, ref, ref_y, i)) for i in range(len(x))]
    hits = [[same for _, _, same in query] for query in ranked]
    return (
        mean([scores(query, ks) for query in hits if any(query)]) if any(map(any, hits)) else None
    )


def over_all_orders(x: Any, y: Any) -> dict[str, float]:
    """Average over queries, and over all orders of their references that respect distance."""
    per_query = []
    for i in range(len(x)):
        found = neighbours(x, y, x, y, i)
        if any(same for _, _, same in found):
            orders = [sorted(order, key=lambda n: n[0]) for order in permutations(found)]
            per_query.append(mean([scores([n[2] for n in order]) for order in orders]))
    return {name: v for name, v in mean(per_query).items() if name.startswith("recall")}


def signed(x: Any) -> torch.Tensor:
    """Embeddings whose signs are these bits; some zeros and minus zeros for bit 0."""
    values = torch.where(torch.tensor(x), 0.3, -0.7)
    values[::2] = values[::2].clamp(min=0)
    return values


class TestHammingRetrieval:
    def test_golden(self) -> None:
        inputs, expected = GOLDEN["inputs"], GOLDEN["expected"]["recall_at_k_hamming"]
        for retrieve in (hamming_retrieval, expected_hamming_recall):
            for x in (inputs["x"], np.array(GOLDEN["expected"]["bits"], dtype=bool)):
                result = retrieve(x, inputs["labels"], ks=(1, 2))
                for k, value in expected.items():
                    assert result[f"recall_at_{k}"] == pytest.approx(value, abs=1e-9)

    @given(data=bits, chunk_size=st.sampled_from([1, 3, 100]))
    @examples(100)
    def test_equals_sorting_by_distance_and_index(self, data: Any, chunk_size: int) -> None:
        x, y = zip(*data, strict=True)
        expected = by_loops(x, y)
        if expected is None:
            with pytest.raises(ValueError, match="nothing to measure"):
                hamming_retrieval(signed(x), y)
            return
        result = hamming_retrieval(signed(x), y, KS, chunk_size=chunk_size)
        assert result == pytest.approx(expected, abs=1e-12)

    @pytest.mark.parametrize("first_depth", [1, 3, 16])
    def test_far_neighbours(self, first_depth: int, monkeypatch: pytest.MonkeyPatch) -> None:
        """Random codes of many classes: most queries find their class late, some beyond each K."""
        monkeypatch.setattr(binary_codes, "FIRST_DEPTH", first_depth)
        rng = np.random.default_rng(0)
        x, y = rng.normal(size=(150, 7)), rng.integers(0, 50, 150)
        ks = (1, 2, 10, 60, 149, 500)
        expected = by_loops((x > 0).tolist(), y.tolist(), ks=ks)
        assert hamming_retrieval(x, y, ks, chunk_size=40) == pytest.approx(expected, abs=1e-12)

    @given(data=bits, split=st.integers(1, 20))
    @examples(60)
    def test_separate_references(self, data: Any, split: int) -> None:
        x, y = zip(*data, strict=True)
        split = min(split, len(x) - 1)
        queries, references = (x[:split], y[:split]), (x[split:], y[split:])
        expected = by_loops(*queries, *references)
        if expected is None:
            return
        arguments = signed(queries[0]), queries[1], KS, signed(references[0]), references[1]
        assert hamming_retrieval(*arguments) == pytest.approx(expected, abs=1e-12)

    def test_packed_codes(self) -> None:
        x, y = torch.randn(30, 19), torch.arange(30) % 4
        packed = BinaryEmbedding(pack=True)(x)
        for retrieve in (hamming_retrieval, expected_hamming_recall):
            assert retrieve(packed, y) == retrieve(x, y)
            assert retrieve(packed.numpy()[::-1], y.flip(0)) == retrieve(x.flip(0), y.flip(0))

    def test_many_duplicates_of_the_query_before_it(self) -> None:
        """The query is not among its own first neighbours, and must not cost one of them."""
        x, y = np.ones((50, 8)), [0, 99, *(i // 2 for i in range(2, 49)), 0]
        assert hamming_retrieval(x, y, (1,)) == pytest.approx(by_ks(by_loops(x, y), 1), abs=1e-12)

    def test_ks_are_reported_once_in_order(self) -> None:
        result = expected_hamming_recall([[1.0], [1.0]], [0, 0], ks=[4, 1, 4])
        assert list(result) == ["recall_at_1", "recall_at_4"]


def by_ks(values: dict[str, float] | None, *ks: int) -> dict[str, float]:
    assert values is not None
    kept = {f"recall_at_{k}" for k in ks}
    return {n: v for n, v in values.items() if not n.startswith("recall") or n in kept}


class TestExpectedRecall:
    @given(data=bits.map(lambda rows: rows[:6]))
    @examples(40)
    def test_equals_the_mean_over_all_orders(self, data: Any) -> None:
        x, y = zip(*data, strict=True)
        if len(set(y)) == len(y):
            return
        result = expected_hamming_recall(signed(x), y, KS, chunk_size=4)
        assert result == pytest.approx(over_all_orders(x, y), abs=1e-9)

    def test_many_references_tie(self) -> None:
        """All codes alike: Recall@K is the chance that one of K draws is of the query's class."""
        n, size = 5000, 10
        x, y = torch.ones(n, 16), torch.arange(n) % (n // size)
        result = expected_hamming_recall(x, y, (1, 100, 4990, 4991))
        for k in (1, 100, 4990):
            none = math.comb(n - size, k) / math.comb(n - 1, k)
            assert result[f"recall_at_{k}"] == pytest.approx(1 - none, abs=1e-9)
        assert result["recall_at_4991"] == 1.0

    def test_autocast_makes_no_ties(self) -> None:
        generator = torch.Generator().manual_seed(0)
        centres = torch.randn(20, 2048, generator=generator)
        y = torch.arange(200) % 20
        # All are near 3, so that products are above 512, where bfloat16 counts in steps of 4.
        x = 3 + centres[y] + 4 * torch.randn(200, 2048, generator=generator)
        expected = expected_hamming_recall(x, y)
        with torch.autocast("cpu", torch.bfloat16):
            assert expected_hamming_recall(x, y) == expected

    def test_separate_references(self) -> None:
        x, ref = [[1.0, 1.0]], [[1.0, 1.0], [1.0, 1.0], [-1.0, 1.0]]
        result = expected_hamming_recall(x, [5], (1, 2), ref, [5, 6, 5])
        assert result == pytest.approx({"recall_at_1": 0.5, "recall_at_2": 1.0}, abs=1e-12)


class TestFaissOrder:
    """Retrieval relies on an order of ties that faiss keeps but does not promise."""

    @pytest.fixture(params=[1, 2])
    def threads(self, request: Any) -> Iterator[None]:
        before = faiss.omp_get_max_threads()
        faiss.omp_set_num_threads(request.param)
        yield
        faiss.omp_set_num_threads(before)

    @pytest.mark.usefixtures("threads")
    @pytest.mark.parametrize("size", [1, 2, 3, 8, 13, 32, 64])
    @pytest.mark.parametrize("count", [1, 7, 500, 3000])
    def test_by_distance_then_index(self, size: int, count: int) -> None:
        rng = np.random.default_rng(size)
        codes = rng.integers(0, 256, (3000, size), dtype=np.uint8)
        codes[::2] &= rng.integers(0, 4, size, dtype=np.uint8)
        index = faiss.IndexBinaryFlat(8 * size)
        index.add(codes)
        found = index.search(codes[:40], count)[1]
        distances = np.unpackbits(codes[:40, None] ^ codes, axis=2).sum(axis=2, dtype=int)
        assert np.array_equal(found, distances.argsort(axis=1, kind="stable")[:, :count])


@pytest.mark.parametrize("retrieve", [hamming_retrieval, expected_hamming_recall])
class TestBadInput:
    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"embeddings": [[1.0], [math.nan]]}, "embeddings must be finite, but 1 of 2 rows"),
            ({"labels": [0]}, r"labels must have shape \(2,\)"),
            ({"labels": [0, 1]}, "nothing to measure"),
            ({"embeddings": [[1.0]], "labels": [0]}, "nothing to measure"),
            ({"reference": [[1.0]]}, "reference and reference_labels must be given together"),
            ({"reference_labels": [0]}, "reference and reference_labels must be given together"),
            (
                {"reference": [[1.0, 2.0]], "reference_labels": [0]},
                "embeddings have 1 dimensions, but reference has 2 dimensions",
            ),
            (
                {"reference": np.zeros((1, 1), np.uint8), "reference_labels": [0]},
                r"embeddings have 1 dimensions, but reference has 1 bytes \(uint8\)",
            ),
            ({"reference": [[1.0]], "reference_labels": [7]}, "nothing to measure"),
            ({"ks": []}, "ks must be a list of at least one whole number"),
            ({"ks": 5}, "ks must be a list of at least one whole number, but got ks=5"),
            ({"ks": [1, 0]}, "each K of ks must be a whole number of at least 1"),
            ({"chunk_size": 0}, "chunk_size must be a whole number"),
        ],
    )
    def test_messages(self, retrieve: Any, change: dict[str, Any], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            retrieve(**{"embeddings": [[1.0], [2.0]], "labels": [0, 0], **change})


@pytest.mark.gpu
@pytest.mark.parametrize("retrieve", [hamming_retrieval, expected_hamming_recall])
def test_cuda(retrieve: Any) -> None:
    x, y = torch.randn(300, 24), torch.arange(300) % 30
    assert retrieve(x.cuda(), y.cuda()) == pytest.approx(retrieve(x, y), abs=1e-12)
    arguments = x[:50].cuda(), y[:50], KS, x[50:], y[50:]
    assert retrieve(*arguments) == pytest.approx(retrieve(x[:50], *arguments[1:]), abs=1e-12)

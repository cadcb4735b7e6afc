"""Verification accuracy against golden values and a loop over folds and thresholds."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.model_selection import KFold
from support import paths
from support.examples import examples

from pml_extensions.evaluation.verification import (
    merge_mirrored,
    pair_verification,
    verification_accuracy,
)

GOLDEN = json.loads((paths.GOLDEN).read_text(encoding="utf-8"))["cases"]["pair_verification_10fold"]


def by_loops(d: Any, same: Any, thresholds: Any, folds: int) -> tuple[list[float], list[float]]:
    """Accuracy and threshold of each fold, by trying every threshold on every pair."""
    d, same = np.asarray(d), np.asarray(same, dtype=bool)
    accuracies, chosen = [], []
    for train, test in KFold(folds, shuffle=False).split(d):
        best, best_right = None, -1
        for threshold in thresholds:
            right = sum((d[i] < threshold) == same[i] for i in train)
            if right > best_right:
                best, best_right = threshold, right
        accuracies.append(sum((d[i] < best) == same[i] for i in test) / len(test))
        chosen.append(float(best))
    return accuracies, chosen


def pairs(n: int = 47, size: int = 4, seed: int = 0) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(seed)
    a, same = rng.normal(size=(n, size)), np.arange(n) % 5 < 3
    return a, np.where(same[:, None], a, 0) + 0.7 * rng.normal(size=(n, size)), same


class TestVerificationAccuracy:
    def test_golden(self) -> None:
        inputs, expected = GOLDEN["inputs"], GOLDEN["expected"]
        thresholds = np.arange(0, 4, 0.01)
        result = verification_accuracy(inputs["distances"], inputs["same"], thresholds)
        assert result.accuracy == pytest.approx(expected["mean"], abs=1e-9)
        assert result.std == pytest.approx(expected["std_population"], abs=1e-9)
        assert result.fold_accuracies == pytest.approx(expected["fold_accuracy"], abs=1e-9)
        assert result.fold_thresholds == pytest.approx(expected["fold_threshold"], abs=1e-9)

    @given(
        data=st.lists(st.tuples(st.integers(0, 12), st.booleans()), min_size=3, max_size=40),
        thresholds=st.sets(st.integers(0, 12), min_size=1),
        folds=st.integers(2, 10),
    )
    @examples(100)
    def test_equals_a_loop(self, data: Any, thresholds: Any, folds: int) -> None:
        """Distances that meet thresholds exactly: strict, and the first of equally good ones."""
        d, same = zip(*data, strict=True)
        if len(set(same)) < 2 or folds > len(d):
            return
        limits = sorted(thresholds)
        accuracies, chosen = by_loops(d, same, limits, folds)
        result = verification_accuracy(d, same, limits, folds)
        assert result.fold_accuracies == tuple(accuracies)
        assert result.fold_thresholds == tuple(chosen)
        assert result.accuracy == pytest.approx(np.mean(accuracies), abs=1e-12)
        assert result.std == pytest.approx(np.std(accuracies), abs=1e-12)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"distances": [1.0, math.nan]}, "distances must be finite"),
            ({"distances": [[1.0, 2.0]]}, r"distances must have shape \(N,\)"),
            ({"same": [0, 1, 1]}, r"same must have shape \(2,\), one a pair, but got \(3,\)"),
            ({"same": [0, 2]}, "same must be booleans or 0 and 1, but holds 2"),
            ({"same": [1, 1]}, "same must hold both kinds"),
            ({"same": [0.0, 1.0]}, "same must be integers"),
            ({"thresholds": [0.0, 0.0]}, "thresholds must ascend"),
            ({"folds": 3}, "folds must be 2 to 2, the number of pairs, but got folds=3"),
            ({"folds": 1}, "folds must be 2 to 2"),
            ({"folds": 0}, "folds must be a whole number"),
        ],
    )
    def test_bad_input(self, change: dict[str, Any], message: str) -> None:
        good = {"distances": [1.0, 2.0], "same": [1, 0], "thresholds": [1.5], "folds": 2}
        with pytest.raises(ValueError, match=message):
            verification_accuracy(**{**good, **change})


class TestPairVerification:
    def test_insightface(self) -> None:
        a, b, same = pairs()
        unit_a, unit_b = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (a, b))
        d = [math.dist(p, q) ** 2 for p, q in zip(unit_a, unit_b, strict=True)]
        accuracies, chosen = by_loops(d, same, np.arange(0, 4, 0.01), 10)
        result = pair_verification(a, b, same)
        assert result.fold_accuracies == pytest.approx(accuracies, abs=1e-9)
        assert result.fold_thresholds == pytest.approx(chosen, abs=1e-9)
        longer = pair_verification(5 * a, 0.1 * b, same)
        assert longer.fold_accuracies == pytest.approx(accuracies, abs=1e-9)

    def test_paper004(self) -> None:
        a, b, same = pairs()
        a, b = 9 * a, 9 * b
        d = [math.dist(p, q) for p, q in zip(a, b, strict=True)]
        accuracies, chosen = by_loops(d, same, np.arange(0, 100, 0.01), 4)
        result = pair_verification(a, b, torch.tensor(same), folds=4, convention="paper004")
        assert result.fold_accuracies == pytest.approx(accuracies, abs=1e-9)
        assert result.fold_thresholds == pytest.approx(chosen, abs=1e-9)
        assert result != pair_verification(a, b, same, folds=4)

    def test_distances_beyond_the_last_threshold_are_different(self) -> None:
        a, b = np.zeros((4, 1)), np.array([[1.0], [150.0], [1.0], [150.0]])
        result = pair_verification(a, b, [1, 1, 1, 0], folds=2, convention="paper004")
        assert result.fold_accuracies == (0.5, 1.0)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"embeddings_b": [[1.0]]}, r"embeddings_b must have shape \(2, 1\) like embeddings_a"),
            ({"embeddings_a": [[1.0], [math.inf]]}, "embeddings_a must be finite"),
            ({"convention": "lfw"}, "convention must be one of 'insightface', 'paper004'"),
        ],
    )
    def test_bad_input(self, change: dict[str, Any], message: str) -> None:
        good = {
            "embeddings_a": [[1.0], [2.0]],
            "embeddings_b": [[1.0], [1.0]],
            "same": [True, False],
            "folds": 2,
        }
        with pytest.raises(ValueError, match=message):
            pair_verification(**{**good, **change})


class TestMergeMirrored:
    x, y = [[1.0, 2.0], [0.0, 3.0]], [[3.0, 0.0], [0.0, 1.0]]

    def test_insightface_sums_to_unit_length(self) -> None:
        merged = merge_mirrored(self.x, self.y)
        expected = torch.tensor([[4 / math.sqrt(20), 2 / math.sqrt(20)], [0, 1]])
        torch.testing.assert_close(merged, expected.double())

    def test_paper004_averages(self) -> None:
        merged = merge_mirrored(torch.tensor(self.x), torch.tensor(self.y), "paper004")
        assert merged.tolist() == [[2.0, 1.0], [0.0, 2.0]]
        assert merged.dtype == torch.float32

    def test_half_precision_is_merged_in_float32(self) -> None:
        big = torch.full((1, 1), 60000.0, dtype=torch.float16)
        assert merge_mirrored(big, big, "paper004").tolist() == [[60000.0]]

    def test_bad_input(self) -> None:
        with pytest.raises(ValueError, match=r"mirrored must have shape \(2, 2\) like embeddings"):
            merge_mirrored(self.x, self.y[:1])
        with pytest.raises(ValueError, match="convention must be one of"):
            merge_mirrored(self.x, self.y, "mean")  # type: ignore[arg-type]


@pytest.mark.gpu
def test_cuda() -> None:
    a, b, same = (torch.as_tensor(part) for part in pairs())
    assert pair_verification(a.cuda(), b, same) == pair_verification(a, b, same)

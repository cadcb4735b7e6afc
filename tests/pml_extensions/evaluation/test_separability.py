"""CSC and AvgDTP against golden values, full scatter matrices and loops."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support import paths
from support.examples import examples

from pml_extensions.evaluation import separability
from pml_extensions.evaluation.separability import average_distance_to_proxy, class_separability

GOLDEN = json.loads((paths.GOLDEN).read_text(encoding="utf-8"))["cases"]["metrics"]
X, Y, PROXIES = (GOLDEN["inputs"][name] for name in ("x", "labels", "proxies"))


def scatter(x: Any, y: Any) -> tuple[float, float, float]:
    """Traces of the full scatter matrices of Eq. 9."""
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y)
    between = within = np.zeros((x.shape[1], x.shape[1]))
    for c in set(y.tolist()):
        members = x[y == c]
        share = len(members) / len(x)
        offset = members.mean(axis=0) - x.mean(axis=0)
        between = between + share * np.outer(offset, offset)
        within = within + share * np.cov(members.T, bias=True).reshape(between.shape)
    return between.trace(), within.trace(), between.trace() / within.trace()


def random(n: int = 40, size: int = 3, classes: int = 5, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, size)), rng.integers(0, classes, n)


class TestClassSeparability:
    def test_golden(self) -> None:
        expected = GOLDEN["expected"]["csc"]
        values = expected["trace_Sb"], expected["trace_Sw"], expected["ratio"]
        assert class_separability(X, Y) == pytest.approx(values, abs=1e-9)

    @given(n=st.integers(5, 60), size=st.integers(1, 4), seed=st.integers(0, 99))
    @examples(50)
    def test_equals_the_scatter_matrices(self, n: int, size: int, seed: int) -> None:
        x, y = random(n, size, 4, seed)
        assert class_separability(x, y - 2**40) == pytest.approx(scatter(x, y), rel=1e-9)

    def test_any_chunk_gives_the_same(self, monkeypatch: pytest.MonkeyPatch) -> None:
        x, y = random()
        whole = class_separability(x, y)
        monkeypatch.setattr(separability, "CHUNK", 7)
        assert class_separability(x, y) == pytest.approx(whole, rel=1e-12)

    def test_normalize(self) -> None:
        x, y = random()
        unit = x / np.linalg.norm(x, axis=1, keepdims=True)
        values = class_separability(x, y, normalize=True)
        assert values == pytest.approx(scatter(unit, y), rel=1e-9)
        assert values.trace_between + values.trace_within <= 1

    def test_an_offset_costs_no_digits(self) -> None:
        x, y = random()
        exact = np.round(x * 2**10) / 2**10
        assert class_separability(exact + 2.0**30, y) == pytest.approx(scatter(exact, y), rel=1e-9)

    def test_float32_is_summed_in_float64(self) -> None:
        x, y = random(100_000, 2, 3)
        x = (x + 100).astype(np.float32)
        assert class_separability(x, y) == pytest.approx(scatter(x, y), rel=1e-9)

    def test_classes_that_are_points(self) -> None:
        x = [[0.1, 0.7]] * 3 + [[0.4, 0.3]] * 2
        assert class_separability(x, [0, 0, 0, 1, 1]).ratio == math.inf

    @pytest.mark.parametrize("normalize", [False, True])
    def test_a_collapsed_embedding_has_no_ratio(self, normalize: bool) -> None:
        between, within, ratio = class_separability([[0.1, 0.7]] * 5, [0, 0, 0, 1, 1], normalize)
        assert (between, within) == (0.0, 0.0)
        assert math.isnan(ratio)

    def test_one_class(self) -> None:
        between, within, ratio = class_separability([[0.0], [2.0]], [3, 3])
        assert (between, within, ratio) == (0.0, 1.0, 0.0)

    def test_bad_input(self) -> None:
        with pytest.raises(ValueError, match="embeddings must be finite"):
            class_separability([[math.inf]], [0])
        with pytest.raises(ValueError, match="labels must have shape"):
            class_separability([[1.0]], [0, 1])


class TestAverageDistanceToProxy:
    def test_golden(self) -> None:
        value = average_distance_to_proxy(X, Y, PROXIES)
        assert value == pytest.approx(GOLDEN["expected"]["avg_dtp"], abs=1e-9)

    @given(n=st.integers(1, 60), seed=st.integers(0, 99))
    @examples(50)
    def test_equals_a_loop(self, n: int, seed: int) -> None:
        x, y = random(n, 3, 6, seed)
        proxies = np.random.default_rng(seed + 100).normal(size=(8, 3))
        per_class: dict[int, list[float]] = {}
        for e, c in zip(x, y, strict=True):
            per_class.setdefault(int(c), []).append(math.dist(e, proxies[c]))
        expected = sum(sum(d) / len(d) for d in per_class.values()) / len(per_class)
        assert average_distance_to_proxy(x, y, proxies) == pytest.approx(expected, abs=1e-12)

    def test_any_chunk_gives_the_same(self, monkeypatch: pytest.MonkeyPatch) -> None:
        x, y = random()
        whole = average_distance_to_proxy(x, y, np.eye(5, 3))
        monkeypatch.setattr(separability, "CHUNK", 7)
        assert average_distance_to_proxy(x, y, np.eye(5, 3)) == pytest.approx(whole, rel=1e-12)

    def test_takes_the_proxies_of_a_loss(self) -> None:
        proxies = torch.nn.Parameter(torch.tensor([[3.0, 4.0]]))
        assert average_distance_to_proxy(torch.zeros(2, 2), [0, 0], proxies) == 5.0

    def test_close_to_a_proxy_far_from_the_origin(self) -> None:
        proxy = torch.full((1, 2), 1000.0)
        x = proxy + torch.tensor([[0.0625, 0.0]])
        assert average_distance_to_proxy(x, [0], proxy) == 0.0625

    @pytest.mark.parametrize(
        ("labels", "proxies", "message"),
        [
            ([0, 2], [[0.0], [0.0]], "a label is 2"),
            ([0, -1], [[0.0], [0.0]], "a label is -1"),
            ([0, 1], [[0.0, 0.0]], "embeddings have 1 dimensions, but proxies have 2"),
            ([0, 1], [[0.0], [math.nan]], "proxies must be finite"),
        ],
    )
    def test_bad_input(self, labels: Any, proxies: Any, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            average_distance_to_proxy([[1.0], [2.0]], labels, proxies)


@pytest.mark.gpu
def test_cuda() -> None:
    x, y = (torch.as_tensor(part) for part in random())
    assert class_separability(x.cuda(), y) == pytest.approx(class_separability(x, y), rel=1e-9)
    values = [average_distance_to_proxy(e, y, torch.eye(5, 3)) for e in (x, x.cuda())]
    assert values[1] == pytest.approx(values[0], rel=1e-9)

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from threadpoolctl import ThreadpoolController

from pml_extensions.evaluation import RetrievalMetrics, _products
from pml_extensions.evaluation._products import dot_products, onednn_is_faster, rounded_products


@pytest.fixture
def made_by(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Name the maker of the processor."""

    def name(maker: str) -> None:
        monkeypatch.setattr(_products, "_processor", lambda: f"vendor_id : {maker}")
        onednn_is_faster.cache_clear()

    yield name
    onednn_is_faster.cache_clear()


@pytest.fixture
def on_amd(made_by: Callable[[str], None]) -> None:
    made_by("AuthenticAMD")
    if not onednn_is_faster():
        pytest.skip("this torch has no MKL, no oneDNN, or not the operation of oneDNN")


def test_intel_keeps_mkl(made_by: Callable[[str], None]) -> None:
    made_by("GenuineIntel")
    assert not onednn_is_faster()


@pytest.mark.usefixtures("on_amd")
@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 500, 7), (257, 1025, 128), (40, 33, 1024)])
def test_product_is_that_of_float64(shape: tuple[int, int, int]) -> None:
    n, m, d = shape
    x, y = torch.randn(n, d), torch.randn(m, d)
    found = dot_products(x, y)
    torch.testing.assert_close(found.double(), x.double() @ y.double().t(), atol=1e-3, rtol=1e-5)


@pytest.mark.usefixtures("on_amd")
def test_equal_vectors_are_equally_similar() -> None:
    generator = torch.Generator().manual_seed(0)
    for n, m, d in ((50, 1500, 131), (256, 700, 64), (7, 301, 1024)):
        which = torch.randint(m // 3, (m,), generator=generator)
        y = torch.nn.functional.normalize(torch.randn(m, d, generator=generator))
        similarities = dot_products(y[:n], y[which])
        first = torch.stack([(which == w).nonzero()[0, 0] for w in which])
        assert torch.equal(similarities, similarities[:, first])


@pytest.mark.parametrize("maker", ["AuthenticAMD", "GenuineIntel"])
@pytest.mark.parametrize("rows", [slice(0, 77), slice(120, 200), slice(290, 310), slice(301)])
def test_rounded_products_are_those_of_float64(
    maker: str, rows: slice, made_by: Callable[[str], None]
) -> None:
    made_by(maker)
    x = torch.randn(301, 131)
    found = rounded_products(x, slice(rows.start or 0, rows.stop))
    exact = x[rows].double() @ x[rows.start or 0 :].double().t()
    torch.testing.assert_close(found.double(), exact, atol=1e-4, rtol=1e-5)


@pytest.mark.usefixtures("on_amd")
def test_numpy_multiplies_with_the_threads_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    pools, matmul, during = ThreadpoolController().select(user_api="blas"), np.matmul, []

    def numbers() -> list[int]:
        return [pool["num_threads"] for pool in pools.info()]

    def observed(*args: Any, **kwargs: Any) -> Any:
        during.extend(numbers())
        return matmul(*args, **kwargs)

    before, threads = numbers(), torch.get_num_threads()
    monkeypatch.setattr(np, "matmul", observed)
    torch.set_num_threads(1)
    try:
        rounded_products(torch.randn(50, 20), slice(0, 10))
    finally:
        torch.set_num_threads(threads)
    assert set(during) == {1}
    assert numbers() == before


@pytest.mark.usefixtures("on_amd")
@pytest.mark.parametrize(("items", "size"), [(900, 16), (900, 256), (9000, 24)])
def test_metrics_are_those_of_plain_products(
    items: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = torch.Generator().manual_seed(1)
    labels = torch.randint(items // 10, (items,), generator=generator)
    x = torch.randn(items // 10, size, generator=generator)[labels]
    x += torch.randn(items, size, generator=generator)
    fast = RetrievalMetrics()(x, labels)
    monkeypatch.setattr(_products, "onednn_is_faster", lambda: False)
    assert fast == pytest.approx(RetrievalMetrics()(x, labels), abs=1e-5)

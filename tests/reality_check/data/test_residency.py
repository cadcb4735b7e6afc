"""Samples on a GPU: uploaded once, shared, only where there is room, and taken off where not."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
import torch
from simulated_cuda import Device
from support.gpu_folds import coloured

from reality_check.data import residency
from reality_check.data.images import Images
from reality_check.data.store import PixelStore, TensorStore
from reality_check.data.tensors import Tensors

pytestmark = pytest.mark.gpu
GPU = torch.device("cuda")
MIB = 2**20


@pytest.fixture(autouse=True)
def as_in_a_new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(residency, "_resident", {})
    monkeypatch.setattr(residency, "_process_count", 1)
    gc.collect()
    torch.cuda.empty_cache()


def images(count: int = 16) -> Images:
    """A MiB each 16 of them."""
    generator = np.random.default_rng(0)
    return Images.from_array(generator.integers(0, 256, (count, 256, 256, 1), dtype=np.uint8))


def with_free(gpu: Device, nbytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """So much memory and no more."""
    gpu.memory[0].empty_cache()
    monkeypatch.setattr(gpu.memory[0], "total", gpu.memory[0].live + nbytes)


def test_all_views_share_one_upload() -> None:
    every, before = images(), torch.cuda.memory_allocated()
    stores = [PixelStore(every[rows], GPU) for rows in ([0, 1, 2], [5, 3], list(range(16)))]
    assert torch.cuda.memory_allocated() - before == MIB
    found = stores[1].batch(np.array([1, 0])).pixels
    np.testing.assert_array_equal(found.cpu().numpy(), every.array()[[3, 5]])


def test_tensors_too() -> None:
    every = Tensors.from_array(np.arange(2**18, dtype=np.float32).reshape(-1, 4))
    before = torch.cuda.memory_allocated()
    stores = [TensorStore(every[rows], GPU) for rows in ([7, 1], slice(None))]
    assert torch.cuda.memory_allocated() - before == MIB
    assert stores[0].batch(np.array([1])).tolist() == [[4, 5, 6, 7]]


def test_the_upload_goes_with_the_array() -> None:
    before = torch.cuda.memory_allocated()
    store = PixelStore(images(), GPU)
    assert store.resident
    del store
    gc.collect()
    assert torch.cuda.memory_allocated() == before
    assert not residency._resident


def test_what_the_allocator_keeps_counts_as_free(
    simulated_gpu: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_free(simulated_gpu, 3 * MIB, monkeypatch)
    held = torch.empty(2 * MIB, dtype=torch.uint8, device=GPU)
    del held
    assert torch.cuda.mem_get_info()[0] == MIB
    assert PixelStore(images(), GPU).resident


@pytest.mark.parametrize(("processes", "resident"), [(1, True), (2, True), (3, False)])
def test_processes_on_one_gpu_divide_its_memory(
    processes: int, resident: bool, simulated_gpu: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_free(simulated_gpu, 5 * MIB, monkeypatch)
    residency.share_gpu(processes)
    every = images()
    store = PixelStore(every, GPU)
    assert store.resident == resident
    found = store.batch(np.array([2])).pixels
    assert found.is_cuda
    np.testing.assert_array_equal(found.cpu().numpy(), every.array()[[2]])


def test_where_others_were_faster_batches_are_sent(
    simulated_gpu: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_free(simulated_gpu, MIB // 2, monkeypatch)
    monkeypatch.setattr(residency, "free_memory", lambda device: 2**34)
    every = images()
    store = PixelStore(every, GPU)
    assert not store.resident
    np.testing.assert_array_equal(
        store.batch(np.array([2])).pixels.cpu().numpy(), every.array()[[2]]
    )


MANY_SIZES = ((20, 24), (18, 30), (25, 16))


@pytest.mark.parametrize("kind", ["one size", "many sizes", "tensors"])
def test_what_is_sent_is_gathered_in_page_locked_memory(
    kind: str, simulated_gpu: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not copied there: that takes as long as to send it."""
    monkeypatch.setattr(residency, "free_memory", lambda device: 0)

    def refuse(*arguments: Any, **keywords: Any) -> None:
        raise AssertionError("copied into page-locked memory")

    monkeypatch.setattr(torch.Tensor, "pin_memory", refuse)
    rows = np.array([4, 1, 5])
    stores: list[Any]
    if kind == "tensors":
        every = Tensors.from_array(np.arange(400, dtype=np.float32).reshape(-1, 4))
        stores = [TensorStore(every, torch.device(name)) for name in ("cpu", "cuda")]
        expected, found = (store.batch(rows) for store in stores)
    else:
        pixels = coloured(MANY_SIZES if kind == "many sizes" else MANY_SIZES[:1]).images
        stores = [PixelStore(pixels, torch.device(name)) for name in ("cpu", "cuda")]
        expected, found = (store.batch(rows).pixels for store in stores)
    assert not stores[1].resident
    assert [way for way, _ in simulated_gpu.uploads] == ["pinned"]
    assert not simulated_gpu.waits
    torch.testing.assert_close(found.cpu(), expected)


def test_samples_can_be_taken_off() -> None:
    assert not residency.take_off_gpu()
    every, before = images(), torch.cuda.memory_allocated()
    stores = [PixelStore(every[rows], GPU) for rows in ([0, 1, 2], [5, 3])]
    expected = [store.batch(np.array([1, 0])).pixels.cpu() for store in stores]
    assert residency.take_off_gpu()
    assert torch.cuda.memory_allocated() == before
    for store, pixels in zip(stores, expected, strict=True):
        assert not store.resident
        torch.testing.assert_close(store.batch(np.array([1, 0])).pixels.cpu(), pixels)
    assert not PixelStore(every, GPU).resident, "nor is it uploaded again"
    assert not residency.take_off_gpu()
    assert PixelStore(images(), GPU).resident, "another array"

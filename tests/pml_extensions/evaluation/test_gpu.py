"""Retrieval metrics on a GPU: operations and waits counted, memory bounded, and out of memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from simulated_cuda import Device, simulated_cuda
from torch import Tensor

from pml_extensions import evaluation
from pml_extensions.evaluation import RetrievalMetrics, _query_chunks, _ranking
from pml_extensions.functional import allow_tf32, free_memory

pytestmark = pytest.mark.gpu


def noisy(items: int, classes: int, size: int = 16) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(items)
    labels = torch.randint(classes, (items,), generator=generator)
    centres = torch.randn(classes, size, generator=generator)
    return centres[labels] + torch.randn(items, size, generator=generator), labels


def counted(metrics: RetrievalMetrics, x: Tensor, labels: Tensor, gpu: Device) -> tuple[int, int]:
    """Operations and waits of one evaluation."""
    there = x.cuda()
    before = gpu.operations.total(), gpu.waits.total()
    metrics.per_query(there, labels)
    return gpu.operations.total() - before[0], gpu.waits.total() - before[1]


# Tiles of 1,024, as on a CPU, took 124, 5,329 and, at 60,502 items, 409,493 operations and 12, 305
# and 48,021 waits. One wait is for the result; of more items the classes are counted on the GPU.
@pytest.mark.parametrize("labelled", ["cpu", "cuda"])
@pytest.mark.parametrize(
    ("items", "classes", "operations", "waits"), [(1500, 50, 55, 1), (6000, 100, 105, 4)]
)
def test_it_is_not_bound_by_launches(
    items: int, classes: int, operations: int, waits: int, labelled: str, simulated_gpu: Device
) -> None:
    x, labels = noisy(items, classes, 128)
    found = counted(RetrievalMetrics(), x, labels.to(labelled), simulated_gpu)
    assert {way for way, _ in simulated_gpu.uploads} <= {"pinned"}
    assert found[0] <= operations
    assert found[1] <= waits + (items < 4096 and labelled == "cuda")


@pytest.mark.parametrize("whose", ["embeddings", "reference"])
def test_what_is_not_finite_is_found_with_the_result(whose: str) -> None:
    given = {name: noisy(100, 5)[0].cuda() for name in ("embeddings", "reference")}
    given[whose][[3, 7], 2] = torch.nan
    labels = noisy(100, 5)[1]
    with pytest.raises(ValueError, match=f"{whose} must be finite, but 2 of 100 rows"):
        RetrievalMetrics()(**given, labels=labels, reference_labels=labels)


X, Y = torch.randn(300, 24, generator=torch.Generator().manual_seed(0)), torch.arange(300) % 30
#: What else measures embeddings, and how often it waits.
OTHERS: dict[str, tuple[Callable[[Tensor, Tensor], Any], int]] = {
    "hamming_retrieval": (evaluation.hamming_retrieval, 10),
    "expected_hamming_recall": (evaluation.expected_hamming_recall, 6),
    "class_separability": (evaluation.class_separability, 4),
    "average_distance_to_proxy": (
        lambda x, y: evaluation.average_distance_to_proxy(x, y, x[:30]),
        8,
    ),
    "pair_verification": (
        lambda x, y: evaluation.pair_verification(x[:100], x[100:200], y[:100] % 2),
        6,
    ),
    "clustering_metrics": (evaluation.clustering_metrics, 12),
    "nearest_neighbours": (
        lambda x, y: evaluation.nearest_neighbours(x, torch.arange(9), 5).flatten().tolist(),
        6,
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_others_wait_so_often_and_give_what_a_cpu_gives(name: str, simulated_gpu: Device) -> None:
    measure, waits = OTHERS[name]
    x, y = X.cuda(), Y.cuda()
    simulated_gpu.reset()
    with torch.autocast("cuda", torch.bfloat16), allow_tf32(x.device, True):
        found = measure(x, y)
    # Signs are exact in TF32 too.
    assert not simulated_gpu.tf32 or name == "expected_hamming_recall"
    assert simulated_gpu.waits.total() <= waits, simulated_gpu.waits
    assert found == pytest.approx(measure(X, Y), abs=1e-6)


@pytest.mark.parametrize("items", [300, 5000])
def test_similarities_of_unit_vectors_are_float32(items: int, simulated_gpu: Device) -> None:
    """All of its bits, and no more."""
    x, y = noisy(items, 50)
    with allow_tf32(torch.device("cuda"), True):
        RetrievalMetrics()(x.cuda(), y)
    assert not simulated_gpu.tf32
    assert {place.partition(":")[0] for _, place in simulated_gpu.doubles} == {
        "pml_extensions/evaluation/_scores.py"
    }


def test_more_query_chunks_are_no_more_waits(simulated_gpu: Device) -> None:
    x, labels = noisy(5000, 1000)
    one, ten = (
        counted(RetrievalMetrics(chunk_size=size), x, labels, simulated_gpu) for size in (5000, 500)
    )
    assert one[1] == ten[1]
    assert (ten[0] - one[0]) / 9 <= 70, "60,502 items are 14 chunks"


#: Classes of 1,500 items that are sorted, since so large ones have ties, and that are not.
ways = pytest.mark.parametrize("classes", [4, 300], ids="{} classes".format)


@ways
def test_query_chunks_are_no_larger_than_memory(
    classes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_ranking, "_MAX_SORTED_REFERENCES", 0)
    x, labels = noisy(1500, classes)
    expected = RetrievalMetrics()(x, labels)
    x, free = x.cuda(), 2**24
    x[:1] @ x[:1].t()  # the first product allocates the workspace of cuBLAS
    monkeypatch.setattr(_query_chunks, "free_memory", lambda device: free)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    assert RetrievalMetrics()(x, labels) == pytest.approx(expected, abs=1e-5)
    taken = torch.cuda.max_memory_allocated() - before
    assert taken <= free / 4 + 40 * x.numel() < 4 * 1500**2


@ways
def test_where_memory_runs_out_query_chunks_are_smaller(
    classes: int, simulated_gpu: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_ranking, "_MAX_SORTED_REFERENCES", 0)
    monkeypatch.setattr(_query_chunks, "free_memory", lambda device: 2**34)  # others take it next
    x, labels = noisy(1500, classes)
    expected = RetrievalMetrics()(x, labels)
    x = x.cuda()
    memory = simulated_gpu.memory[0]
    taken = memory.live
    for room in (2**20, 2**22):
        monkeypatch.setattr(memory, "total", taken + room)
        memory.empty_cache()
        assert RetrievalMetrics()(x, labels) == pytest.approx(expected, abs=1e-5)
    monkeypatch.setattr(memory, "total", taken + 2**17)
    sentence = r"^cuda:0 has not enough free memory to rank 1,500 .*\(embeddings.cpu\(\)\)\.$"
    with pytest.raises(torch.OutOfMemoryError, match=sentence):
        RetrievalMetrics()(x, labels)


def test_what_the_allocator_keeps_is_free() -> None:
    torch.cuda.empty_cache()
    before = free_memory(torch.device("cuda"))
    held = torch.empty(2**28, dtype=torch.uint8, device="cuda")
    assert free_memory(torch.device("cuda")) <= before - len(held)
    del held
    assert torch.cuda.mem_get_info()[0] <= before - 2**28, "the driver counts it as taken"
    assert free_memory(torch.device("cuda")) == before


def test_a_reference_follows_to_the_second_gpu() -> None:
    measures: list[Callable[..., Any]] = [evaluation.hamming_retrieval, RetrievalMetrics()]
    given = {"reference": X[:200], "reference_labels": Y[:200]}
    for measure in measures:
        with simulated_cuda(gpus=2):
            found = measure(X[200:].to("cuda:1"), Y[200:], **given)
        assert found == pytest.approx(measure(X[200:], Y[200:], **given), abs=1e-6)

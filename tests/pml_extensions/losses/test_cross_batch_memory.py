"""CrossBatchMemory: against a loop that keeps a memory of its own."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from pytorch_metric_learning import losses as pml_losses
from pytorch_metric_learning import miners
from pytorch_metric_learning.utils import loss_and_miner_utils as lmu
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from pml_extensions.losses import CrossBatchMemory, GradMLLoss, NormalizedSoftmaxLoss

SIZE, BATCH, CLASSES = 5, 6, 3
Pair = tuple[int, int]


def batches(count: int) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(3)
    return [
        (
            torch.randn(BATCH, SIZE, generator=generator, dtype=torch.float64),
            torch.randint(CLASSES, (BATCH,), generator=generator),
        )
        for _ in range(count)
    ]


class Memory:
    """The last ``size`` embeddings, oldest first, each with its label and its time."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.entries: list[tuple[Tensor, int, int]] = []
        self.time = 0

    def add(self, x: Tensor, labels: Tensor) -> list[int]:
        """Add a batch and return the times of its samples."""
        times = list(range(self.time, self.time + len(x)))
        self.time += len(x)
        for embedding, label, time in zip(x.detach(), labels.tolist(), times, strict=True):
            self.entries.append((embedding.clone(), label, time))
        self.entries = self.entries[-self.size :]
        return times


def grad_ml(pos: list[Tensor], neg: list[Tensor], k: float, w: float) -> Tensor:
    value = torch.zeros((), dtype=torch.float64)
    if pos:
        value = value + 2 * (torch.stack(pos) ** k).mean()
    if neg:
        value = value - 4 * w * (torch.stack(neg) ** k).mean()
    return value


@pytest.mark.parametrize("memory_size", [6, 10, 100])
@pytest.mark.parametrize("with_mined", [False, True])
def test_grad_ml_over_batches_equals_a_loop(memory_size: int, with_mined: bool) -> None:
    k, w = 1.5, 0.4
    loss = CrossBatchMemory(GradMLLoss(k, w), SIZE, memory_size=memory_size)
    memory = Memory(memory_size)
    for x, labels in batches(7):
        mined = miners.BatchHardMiner()(x, labels) if with_mined else None
        times = memory.add(x, labels)
        unit = F.normalize(x.requires_grad_())
        pos, neg = [], []
        for i in range(BATCH):
            for embedding, label, time in memory.entries:
                distance = (unit[i] - F.normalize(embedding, dim=0)).norm()
                if label != labels[i]:
                    neg.append(distance)
                elif time != times[i]:
                    pos.append(distance)
        # What was mined in the batch counts once more, against its copies in the memory.
        for a, p, n in zip(*(mined or ((), (), ())), strict=True):
            copies = F.normalize(x.detach())
            pos.append((unit[a] - copies[p]).norm())
            neg.append((unit[a] - copies[n]).norm())
        expected = grad_ml(pos, neg, k, w)
        value = loss(x, labels, mined)
        torch.testing.assert_close(value, expected)
        (gradient,) = torch.autograd.grad(value, x)
        (expected_gradient,) = torch.autograd.grad(expected, x)
        torch.testing.assert_close(gradient, expected_gradient)


@pytest.mark.parametrize(
    "miner", [miners.MultiSimilarityMiner(), miners.TripletMarginMiner(margin=0.3)], ids=str
)
@pytest.mark.parametrize("inner", [None, miners.PairMarginMiner(), miners.TripletMarginMiner()])
def test_what_was_mined_in_the_batch_keeps_its_meaning(miner: Any, inner: Any) -> None:
    loss = CrossBatchMemory(GradMLLoss(), SIZE, memory_size=15, miner=inner)
    seen = 0
    for x, labels in batches(6):
        mined = miner(x, labels)
        loss(x, labels, mined)
        indices = loss.create_indices_tuple(
            x, labels, loss.embedding_memory, loss.label_memory, mined, True
        )
        if len(indices) == 3:
            indices = (indices[0], indices[1], indices[0], indices[2])
        a1, p, a2, n = indices
        assert torch.equal(labels[a1], loss.label_memory[p])
        assert (labels[a2] != loss.label_memory[n]).all()
        seen += len(p)
    assert seen > 0


@pytest.mark.parametrize("mask", [None, [True, False, True, False, False, True]])
def test_the_queue_holds_the_last_embeddings_where_it_wraps(mask: list[bool] | None) -> None:
    loss = CrossBatchMemory(GradMLLoss(), SIZE, memory_size=8)
    enqueued = None if mask is None else torch.tensor(mask)
    rows: list[Any] = [[0.0] * SIZE] * 8
    classes, position = [0] * 8, 0
    for x, labels in batches(7):
        assert loss.queue_idx == position
        x = x.float()
        loss(x, labels, enqueue_mask=enqueued)
        for i in range(BATCH):
            if mask is None or mask[i]:
                rows[position], classes[position] = x[i].tolist(), int(labels[i])
                position = (position + 1) % 8
        assert loss.embedding_memory.tolist() == rows
        assert loss.label_memory.tolist() == classes
    loss.reset_queue()
    assert not loss.embedding_memory.any()
    assert not loss.label_memory.any()
    assert loss.queue_idx == 0
    x, labels = batches(1)[0]
    fresh = CrossBatchMemory(GradMLLoss(), SIZE, memory_size=8)
    torch.testing.assert_close(loss(x, labels), fresh(x, labels))


@pytest.mark.parametrize("miner", [None, miners.TripletMarginMiner(margin=0.1)])
@pytest.mark.parametrize("inner", [GradMLLoss(), pml_losses.NTXentLoss(temperature=0.1)])
def test_a_memory_of_one_batch_is_the_loss_of_that_batch(miner: Any, inner: Any) -> None:
    size = 12
    loss = CrossBatchMemory(inner, SIZE, memory_size=size, miner=miner)
    torch.manual_seed(0)
    for _ in range(3):
        x, labels = torch.randn(size, SIZE), torch.randint(4, (size,))
        pairs = miner(x, labels) if miner else lmu.get_all_pairs_indices(labels)
        torch.testing.assert_close(loss(x, labels), inner(x, labels, pairs, x.clone(), labels))


@pytest.mark.parametrize("miner", [None, miners.TripletMarginMiner(margin=0.1)])
@pytest.mark.parametrize("inner", [GradMLLoss(), pml_losses.NTXentLoss(temperature=0.1)])
def test_what_is_not_enqueued_is_compared_with_what_is(miner: Any, inner: Any) -> None:
    size = 12
    loss = CrossBatchMemory(inner, SIZE, memory_size=size, miner=miner)
    torch.manual_seed(0)
    for _ in range(3):
        x, labels = torch.randn(2 * size, SIZE), torch.randint(4, (2 * size,))
        halves = x[:size], labels[:size], x[size:], labels[size:]
        pairs = miner(*halves) if miner else lmu.get_all_pairs_indices(halves[1], halves[3])
        expected = inner(*halves[:2], pairs, *halves[2:])
        value = loss(x, labels, enqueue_mask=torch.arange(2 * size) >= size)
        torch.testing.assert_close(value, expected)


def test_a_miner_that_draws_by_distance_searches_the_memory() -> None:
    torch.manual_seed(0)
    miner = miners.DistanceWeightedMiner(cutoff=0.5, nonzero_loss_cutoff=1.4)
    loss = CrossBatchMemory(GradMLLoss(), 2, memory_size=64, miner=miner)
    radians = torch.arange(32).deg2rad()
    for _ in range(5):
        x = torch.stack([radians.cos(), radians.sin()], dim=1).requires_grad_()
        value = loss(x, torch.randint(10, (32,)))
        value.backward()
        assert value.isfinite()
        assert x.grad is not None
        assert x.grad.isfinite().all()


def test_the_first_batch_is_as_in_pml() -> None:
    # There batch and memory coincide, so that PML's reading of mined pairs is right.
    (x, labels), *_ = batches(1)
    mined = miners.TripletMarginMiner(margin=0.3)(x, labels)
    ours, theirs = (
        cls(pml_losses.ContrastiveLoss(), SIZE, memory_size=10)
        for cls in (CrossBatchMemory, pml_losses.CrossBatchMemory)
    )
    torch.testing.assert_close(ours(x, labels, mined), theirs(x, labels, mined))


def test_enqueue_mask() -> None:
    k, w = 2.0, 0.4
    loss = CrossBatchMemory(GradMLLoss(k, w), SIZE, memory_size=8)
    memory = Memory(8)
    mask = torch.tensor([True, False, True, False, False, True])
    for x, labels in batches(5):
        memory.add(x[mask], labels[mask])
        unit, rest = F.normalize(x[~mask]), labels[~mask]
        pos, neg = [], []
        for i in range(len(rest)):
            for embedding, label, _ in memory.entries:
                distance = (unit[i] - F.normalize(embedding, dim=0)).norm()
                (pos if label == rest[i] else neg).append(distance)
        value = loss(x, labels, enqueue_mask=mask)
        torch.testing.assert_close(value, grad_ml(pos, neg, k, w))


@pytest.mark.parametrize("name", pml_losses.CrossBatchMemory.supported_losses())
def test_pml_losses_work_as_before(name: str) -> None:
    loss_class = getattr(pml_losses, name)
    ours, theirs = (
        cls(loss_class(), SIZE, memory_size=16)
        for cls in (CrossBatchMemory, pml_losses.CrossBatchMemory)
    )
    for x, labels in batches(4):
        values = []
        for loss in (ours, theirs):
            torch.manual_seed(0)
            values.append(loss(x.float(), labels))
        torch.testing.assert_close(*values, rtol=0, atol=0)


def test_other_losses_are_refused_as_in_pml() -> None:
    with pytest.raises(Exception, match="CrossBatchMemory not supported for NormalizedSoftmaxLoss"):
        CrossBatchMemory(NormalizedSoftmaxLoss(3, SIZE), SIZE)

    class MyGradMLLoss(GradMLLoss):
        pass

    with pytest.raises(Exception, match="not supported for MyGradMLLoss"):
        CrossBatchMemory(MyGradMLLoss(), SIZE)

    class MyMemory(CrossBatchMemory):
        @staticmethod
        def supported_losses() -> list[str]:
            return [*CrossBatchMemory.supported_losses(), "MyGradMLLoss"]

    assert isinstance(MyMemory(MyGradMLLoss(), SIZE).loss, MyGradMLLoss)


def test_mixed_precision_batches() -> None:
    loss = CrossBatchMemory(GradMLLoss(), SIZE, memory_size=10)
    for x, labels in batches(3):
        half = x.half().requires_grad_()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            value = loss(half, labels)
        value.backward()
        assert value.dtype == torch.float32
        assert half.grad is not None
        assert half.grad.isfinite().all()
        assert loss.embedding_memory.dtype == torch.float32


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_a_checkpoint_continues_the_queue(steps: int) -> None:
    loss, resumed = (CrossBatchMemory(GradMLLoss(), SIZE, memory_size=16).double() for _ in "ab")
    *past, (x, labels) = batches(steps + 1)
    for batch in past:
        loss(*batch)
    resumed.load_state_dict(copy.deepcopy(loss.state_dict()))
    assert resumed(x, labels) == loss(x, labels)
    assert torch.equal(resumed.embedding_memory, loss.embedding_memory)


def test_a_checkpoint_without_the_place_in_the_queue_is_refused() -> None:
    state = pml_losses.CrossBatchMemory(pml_losses.ContrastiveLoss(), SIZE).state_dict()
    with pytest.raises(RuntimeError, match="does not store the position in the queue"):
        CrossBatchMemory(GradMLLoss(), SIZE).load_state_dict(state)
    CrossBatchMemory(GradMLLoss(), SIZE).load_state_dict(state, strict=False)  # as it says


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_recomputation_is_refused(use_reentrant: bool) -> None:
    loss = CrossBatchMemory(GradMLLoss(), SIZE, memory_size=10)
    ((x, labels),) = batches(1)
    value = checkpoint(loss, x.requires_grad_(), labels, use_reentrant=use_reentrant)
    with pytest.raises(RuntimeError, match="checkpoint the network alone"):
        value.backward()

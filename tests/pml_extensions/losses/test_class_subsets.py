"""What every proxy loss offers for very many classes: sampling, chunks, sparse gradients."""

from __future__ import annotations

import math
from functools import partial
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.losses import PROXY_LOSSES, Make, chunked
from support.tensors import Outputs
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from pml_extensions.losses import (
    ChunkedSoftmax,
    ClassSampler,
    NormalizedSoftmaxLoss,
)

CLASSES, SIZE = 40, 5
LOSSES = {name: partial(make, CLASSES, SIZE) for name, make in PROXY_LOSSES.items()}
every_loss = pytest.mark.parametrize("make", LOSSES.values(), ids=LOSSES.keys())


def seeded(make: Make, **kwargs: Any) -> Any:
    torch.manual_seed(0)
    loss = make(**kwargs).double()
    # Biases start at zero, which would hide them from a comparison.
    with torch.no_grad():
        for parameter in loss.parameters():
            if parameter.ndim == 1:
                parameter.add_(torch.linspace(-0.5, 0.5, len(parameter), dtype=torch.float64))
    return loss


def batch(n: int = 12) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(n, SIZE, generator=generator, dtype=torch.float64)
    return x, torch.randint(CLASSES, (n,), generator=generator)


def results(loss: Any, x: Tensor, labels: Tensor) -> dict[str, Tensor]:
    leaf = x.clone().requires_grad_()
    loss.zero_grad()
    value = loss(leaf, labels)
    value.backward()
    assert leaf.grad is not None
    grads = {name: p.grad.to_dense() for name, p in loss.named_parameters()}
    return {"value": value.detach(), "x": leaf.grad, **grads}


@every_loss
@examples(8)
@given(chunk=st.integers(1, 60))
def test_any_chunk_size_equals_none(make: Make, chunk: int) -> None:
    x, labels = batch()
    torch.testing.assert_close(
        results(seeded(make, softmax=chunked(chunk)), x, labels), results(seeded(make), x, labels)
    )


@every_loss
@pytest.mark.parametrize(("chunk", "width"), [(None, CLASSES), (9, 9), (100, CLASSES)])
def test_no_product_is_wider_than_a_chunk(make: Make, chunk: int | None, width: int) -> None:
    x, labels = batch(64)
    with Outputs() as outputs:
        results(seeded(make, softmax=chunked(chunk)), x, labels)
    products = {(64, columns) for columns in (9, CLASSES)}
    assert products & {tuple(shape) for shape in outputs.shapes} == {(64, width)}


@every_loss
def test_a_ratio_of_one_is_the_full_softmax(make: Make) -> None:
    x, labels = batch()
    full = seeded(make, class_sampler=ClassSampler(1.0))
    torch.testing.assert_close(results(full, x, labels), results(seeded(make), x, labels))
    # So is a share that rounds up to all classes, which goes through the sampler.
    nearly = seeded(make, class_sampler=ClassSampler(1 - 1e-9))
    torch.testing.assert_close(results(nearly, x, labels), results(seeded(make), x, labels))


@every_loss
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("chunk", [None, 3])
def test_a_sample_is_the_loss_over_those_classes(
    make: Make, sparse: bool, chunk: int | None
) -> None:
    x, labels = batch()
    sampler = ClassSampler(0.5, sparse_gradients=sparse)
    sampled = seeded(make, class_sampler=sampler, softmax=chunked(chunk))
    kept = sampler.sample(labels, CLASSES)
    sampler.sample = lambda labels, num_classes: kept  # type: ignore[method-assign]
    actual = results(sampled, x, labels)

    class_wise = [n for n, p in sampled.named_parameters() if p.shape[0] == CLASSES]
    assert all(dict(sampled.named_parameters())[n].grad.is_sparse == sparse for n in class_wise)
    # The same loss with only the kept classes, as a loss of its own.
    small = seeded(make)
    small.num_classes = len(kept)
    for module in small.modules():
        for name, parameter in list(module._parameters.items()):
            if parameter is not None and parameter.shape[0] == CLASSES:
                module._parameters[name] = torch.nn.Parameter(parameter.data[kept])
    position = {c: i for i, c in enumerate(kept.tolist())}
    small_labels = torch.tensor([position[c] for c in labels.tolist()])
    expected = results(small, x, small_labels)
    for name in class_wise:
        full = torch.zeros_like(actual[name])
        full[kept] = expected[name]
        expected[name] = full
    torch.testing.assert_close(actual, expected)


@every_loss
def test_each_training_step_draws_anew_and_evaluation_takes_all(make: Make) -> None:
    x, labels = batch()
    loss = seeded(make, class_sampler=ClassSampler(0.5))
    rows = []
    for _ in range(4):
        results(loss, x, labels)
        rows.append(tuple(loss.proxies.grad.abs().sum(dim=1).gt(0).tolist()))
    assert len(set(rows)) > 1
    assert all(row[c] for row in rows for c in labels.tolist())
    full = seeded(make)
    full.load_state_dict(loss.state_dict(), strict=False)  # all but the sampler
    torch.testing.assert_close(loss.eval()(x, labels), full.eval()(x, labels))
    assert loss.get_logits(x).shape == (len(x), CLASSES)


def test_a_checkpoint_continues_the_draws() -> None:
    x, labels = batch()
    loss = seeded(LOSSES["normalized"], class_sampler=ClassSampler(0.5))
    loss(x, labels)
    state = {name: value.clone() for name, value in loss.state_dict().items()}
    expected = [loss(x, labels).item() for _ in range(3)]
    assert len(set(expected)) == 3
    torch.manual_seed(99)
    resumed = LOSSES["normalized"](class_sampler=ClassSampler(0.5)).double()
    resumed.load_state_dict(state)
    assert [resumed(x, labels).item() for _ in range(3)] == expected


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_recomputation_draws_the_same_classes(use_reentrant: bool) -> None:
    grads = []
    for call in (lambda loss, *args: loss(*args), partial(checkpoint, use_reentrant=use_reentrant)):
        torch.manual_seed(0)
        loss = seeded(LOSSES["normalized"], class_sampler=ClassSampler(0.4))
        calls = [batch(size) for size in (12, 5, 12)]
        calls.append((-calls[0][0], calls[0][1]))  # another view with the very same labels
        # The gradients of several calls, whose recomputations come in any order, in two steps.
        for _ in range(2):
            sum(call(loss, x.requires_grad_(), labels) for x, labels in calls).backward()
        grads.append((loss.proxies.grad, *(x.grad for x, _ in calls)))
    torch.testing.assert_close(*grads)


@pytest.mark.parametrize(
    ("ratio", "of", "expected"),
    [
        (0.5, "all", 20),
        (0.51, "all", 21),
        (0.55, "all", 22),  # as floats, 0.55 x 40 is a little more
        (0.05, "all", 4),  # 2 classes asked for, but the batch has 4
        (0.5, "negatives", 4 + 18),
        (0.001, "negatives", 4 + 1),
    ],
)
def test_how_many_classes_are_kept(ratio: float, of: Any, expected: int) -> None:
    kept = ClassSampler(ratio, of).sample(torch.tensor([5, 9, 9, 0, 39, 5]), CLASSES)
    assert len(kept) == expected
    assert {0, 5, 9, 39} <= set(kept.tolist())


def test_ranks_reduce_where_the_labels_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """NCCL takes nothing from the host, where a sampler stays that belongs to no loss."""
    reduce = Mock()
    monkeypatch.setattr(torch.distributed, "all_reduce", reduce)
    monkeypatch.setattr("pml_extensions.losses.class_sampler.world_size", lambda: 2)
    ClassSampler(1 - 1e-9).sample(torch.tensor([0], device="meta"), CLASSES)
    assert reduce.call_args.args[0].device.type == "meta"  # seed and number of the draw


def test_a_wrong_number_of_classes_is_refused() -> None:
    x, labels = batch()
    loss = seeded(LOSSES["normalized"], class_sampler=ClassSampler(0.1, "negatives"))
    loss.class_sampler.classes_per_step = known = len(labels.unique()) - 1
    with pytest.raises(RuntimeError, match=f"not {known} classes in this step"):
        loss(x, labels)


@pytest.mark.parametrize("optimizer", ["SGD", "SparseAdam", "Adagrad"])
def test_optimizers_take_sparse_gradients(optimizer: str) -> None:
    x, labels = batch()
    loss = seeded(LOSSES["normalized"], class_sampler=ClassSampler(0.3, sparse_gradients=True))
    before = loss.proxies.detach().clone()
    results(loss, x, labels)
    touched = loss.proxies.grad.to_dense().abs().sum(dim=1) > 0
    getattr(torch.optim, optimizer)(loss.parameters(), lr=0.1).step()
    moved = (loss.proxies.detach() - before).abs().sum(dim=1) > 0
    assert torch.equal(moved, touched)
    assert 0 < touched.sum() < CLASSES


@pytest.mark.parametrize("n", [0, 1])
def test_small_batches(n: int) -> None:
    x, labels = batch(n)
    for make in LOSSES.values():
        loss = seeded(make, class_sampler=ClassSampler(0.2), softmax=ChunkedSoftmax(3))
        leaf = x.clone().requires_grad_()
        value = loss(leaf, labels)
        value.backward()
        assert value.isfinite()


def test_proxies_start_the_same_with_and_without_sampling() -> None:
    for make in LOSSES.values():
        torch.testing.assert_close(
            seeded(make, class_sampler=ClassSampler(0.2)).proxies,
            seeded(make).proxies,
            rtol=0,
            atol=0,
        )


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"ratio": 0}, "ratio must be above 0 and at most 1"),
        ({"ratio": 1.5}, "ratio must be above 0 and at most 1"),
        ({"ratio": math.nan}, "ratio must be above 0 and at most 1"),
        ({"ratio": 0.5, "ratio_of": "some"}, "ratio_of must be one of 'all', 'negatives'"),
        ({"ratio": 1.0, "sparse_gradients": True}, "needs a ratio below 1"),
        ({"ratio": 0.5, "sparse_gradients": 1}, "sparse_gradients must be one of True, False"),
        ({"chunk_size": 0}, "chunk_size must be a whole number"),
        ({"check_labels": "yes"}, "check_labels must be one of None, True, False"),
        ({"class_sampler": 0.1}, r"class_sampler must be an object such as ClassSampler\(0\.1\)"),
        ({"softmax": 2048}, r"softmax must be an object such as ChunkedSoftmax\(\)"),
    ],
)
def test_bad_arguments(kwargs: dict[str, Any], message: str) -> None:
    of: dict[str, Any] = {"ratio": ClassSampler, "chunk_size": ChunkedSoftmax}
    make = of.get(next(iter(kwargs)), partial(NormalizedSoftmaxLoss, 3, 2))
    with pytest.raises(ValueError, match=message):
        make(**kwargs)


def test_labels_are_checked_unless_told_otherwise() -> None:
    x, labels = batch()
    labels[3] = CLASSES
    for check in (None, True):
        with pytest.raises(ValueError, match="num_classes=40, but a label is 40"):
            NormalizedSoftmaxLoss(CLASSES, SIZE, check_labels=check)(x, labels)
    with pytest.raises(IndexError):
        NormalizedSoftmaxLoss(CLASSES, SIZE, check_labels=False)(x, labels)


def test_proxies_can_start_at_class_means() -> None:
    loss = NormalizedSoftmaxLoss(4, 2)
    before = loss.proxies.detach().clone()
    x = torch.tensor([[1.0, 0.0], [1.0, 2.0], [0.0, -3.0], [5.0, 0.0]])
    loss.set_proxies_to_class_means(x, torch.tensor([2, 2, 0, 3]))
    half = 1 / math.sqrt(2)
    expected = torch.tensor([[0.0, -1.0], before[1].tolist(), [half, half], [1.0, 0.0]])
    torch.testing.assert_close(loss.proxies.data, expected)
    assert loss.proxies.requires_grad
    with pytest.raises(ValueError, match="a label is 4"):
        loss.set_proxies_to_class_means(x, torch.tensor([2, 2, 4, 3]))

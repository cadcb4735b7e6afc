"""On a CUDA device: the same numbers, no waiting for the device, autocast, labels."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import pytest
import support.losses
import torch
from pytorch_metric_learning import losses as pml_losses
from pytorch_metric_learning import miners, reducers
from support.losses import GPU_LOSSES, Make
from support.waits import no_waits, waits_counted
from torch import Tensor

from pml_extensions.functional import Piecewise, Power, Scaled
from pml_extensions.losses import (
    ClassSampler,
    CrossBatchMemory,
    GradMLLoss,
    NormalizedSoftmaxLoss,
    WarpedSoftmaxLoss,
)

pytestmark = pytest.mark.gpu
CLASSES, SIZE = 60, 16
LOSSES: dict[str, Make] = {
    **GPU_LOSSES,
    "powers": partial(WarpedSoftmaxLoss, own_warp=Power(1.5), other_warp=Power(2)),
    "other warps": partial(
        WarpedSoftmaxLoss, own_warp=Piecewise(2.5, 0.7, 1.3), other_warp=Scaled(0.97)
    ),
}
OPTIONS = {
    **support.losses.OPTIONS,
    "sparse": lambda: {"class_sampler": ClassSampler(0.5, sparse_gradients=True)},
}
#: Sampled rows of several parameters, among them sparse ones, and of one.
CASES = [(name, option) for name in LOSSES for option in ("full", "chunked")]
CASES += [(name, "sampled") for name in GPU_LOSSES]
CASES += [(name, "sparse") for name in ("normalized", "hist")]
every_case = pytest.mark.parametrize(("name", "option"), CASES)


def seeded(name: str, option: str, seed: int = 0) -> Any:
    torch.manual_seed(seed)
    return LOSSES[name](CLASSES, SIZE, **OPTIONS[option]())


def batch() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(12, SIZE, generator=generator)
    return x, torch.randint(CLASSES, (12,), generator=generator)


def results(
    loss: Any, x: Tensor, labels: Tensor, forward_in: AbstractContextManager[Any] | None = None
) -> list[Tensor]:
    """The loss and its gradients; the backward pass lies outside of autocast, as torch wants it."""
    leaf = x.clone().requires_grad_()
    with forward_in or nullcontext():
        value = loss(leaf, labels)
    value.backward()
    grads = [leaf.grad, *(p.grad.to_dense() for p in loss.parameters())]
    return [tensor.detach().cpu() for tensor in (value, *grads)]


@every_case
def test_same_numbers_as_on_the_cpu_and_the_host_never_waits(name: str, option: str) -> None:
    x, labels = batch()
    expected = results(seeded(name, option), x, labels)
    loss, x, labels = seeded(name, option).cuda(), x.cuda(), labels.cuda()
    actual = results(loss, x, labels)
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)
    leaf = x.clone().requires_grad_()
    with no_waits():
        loss(leaf, labels).backward()


@pytest.mark.parametrize(
    ("name", "option", "dtype"),
    [(name, "full", torch.bfloat16) for name in LOSSES]
    + [(name, "chunked", torch.float16) for name in LOSSES]
    + [("hist", "sparse", torch.bfloat16)],
)
def test_half_precision_is_that_of_the_embeddings_alone(
    name: str, option: str, dtype: torch.dtype
) -> None:
    x, labels = (tensor.cuda() for tensor in batch())
    x = x.to(dtype)
    value, grad, *others = results(seeded(name, option).cuda(), x.float(), labels)
    autocast = torch.autocast("cuda", dtype)
    actual, actual_grad, *actual_others = results(seeded(name, option).cuda(), x, labels, autocast)
    expected = [value, *others]
    torch.testing.assert_close([actual, *actual_others], expected, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(actual_grad, grad.to(dtype))


@pytest.mark.filterwarnings("ignore:the warp's theory")
@pytest.mark.parametrize("name", LOSSES)
def test_its_other_methods_are_those_of_the_cpu_and_need_no_wait(name: str) -> None:
    """Logits, also of half precision under autocast, values of a phase, proxies of class means."""
    results_by_device = []
    for device in ("cpu", "cuda"):
        loss, (x, labels) = seeded(name, "full").to(device), batch()
        x, labels = x.to(device), labels.to(device)
        values = {key: float(getattr(loss, key)) for key in loss.phase_checks}
        with no_waits(), torch.autocast(device, torch.bfloat16):
            logits = [loss.get_logits(x), loss.get_logits(x.bfloat16())]
            loss.set_phase(**{key: value / 2 for key, value in values.items()})
            logits.append(loss.get_logits(x))
        loss.set_proxies_to_class_means(x, labels)
        results_by_device.append([tensor.detach().cpu() for tensor in (*logits, loss.proxies)])
    torch.testing.assert_close(*results_by_device, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("option", "map_location"), [("full", "cuda"), ("sampled", "cpu")])
@pytest.mark.parametrize("name", GPU_LOSSES)
def test_a_checkpoint_is_loaded_onto_the_gpu(name: str, option: str, map_location: str) -> None:
    x, labels = (tensor.cuda() for tensor in batch())
    loss, file = seeded(name, option).cuda(), io.BytesIO()
    phase = {key: getattr(loss, key) * 0.9 for key in loss.phase_checks if key not in ("k1", "k2")}
    loss.set_phase(**phase)
    loss(x, labels)  # moves running statistics, the number of the draw, and the latch
    torch.save(loss.state_dict(), file)
    file.seek(0)
    resumed = seeded(name, option, seed=5).cuda()
    resumed.load_state_dict(torch.load(file, map_location=map_location, weights_only=True))
    tensors = dict(resumed.named_parameters()) | dict(resumed.named_buffers())
    assert {tensor.device.type for tensor in tensors.values()} == {"cuda"}
    expected = dict(loss.named_parameters()) | dict(loss.named_buffers())
    torch.testing.assert_close(tensors, expected, rtol=0, atol=0)
    assert {key: getattr(resumed, key) for key in phase} == phase
    assert (resumed(x, labels) == loss(x, labels)).item()


#: How many are kept depends on the batch: 6 are too few for it, or a share of the others is added.
COUNTED: dict[str, Callable[[], ClassSampler]] = {
    "fewer than the batch": lambda: ClassSampler(0.1),
    "of the negatives": lambda: ClassSampler(0.1, "negatives"),
}


@pytest.mark.parametrize("option", COUNTED)
def test_classes_whose_number_is_known_are_not_counted(option: str) -> None:
    x, labels = (tensor.cuda() for tensor in batch())
    classes = len(labels.unique())

    def step(known: int | None) -> list[Tensor]:
        torch.manual_seed(0)
        loss = LOSSES["normalized"](CLASSES, SIZE, class_sampler=COUNTED[option]()).cuda()
        loss.class_sampler.classes_per_step = known
        leaf = x.clone().requires_grad_()
        with waits_counted() as waits:
            value = loss(leaf, labels)
            value.backward()
        assert len(waits) == (known is None)
        return [value.detach(), leaf.grad, loss.proxies.grad]

    torch.testing.assert_close(step(classes), step(None))


def test_a_label_out_of_range_is_named_if_asked() -> None:
    x, labels = (tensor.cuda() for tensor in batch())
    labels[3] = CLASSES
    with pytest.raises(ValueError, match="a label is 60"):
        NormalizedSoftmaxLoss(CLASSES, SIZE, check_labels=True).cuda()(x, labels)


# -- losses of tuples -----------------------------------------------------------------------------

MINERS: dict[str, Callable[[], Any] | None] = {
    "all": None,
    "multi_similarity": miners.MultiSimilarityMiner,
    "triplets": miners.TripletMarginMiner,
    "hard": miners.BatchHardMiner,
}
TUPLES: dict[str, Callable[[], Any]] = {
    "disjoint": GradMLLoss,
    "all quadruples": lambda: GradMLLoss(quadruples="all", k=1.5),
    "contrastive": pml_losses.ContrastiveLoss,
    "triplet": pml_losses.TripletMarginLoss,
}


def of_batches(device: str, loss: Any, miner: Any, memory: bool) -> list[Tensor]:
    """The values and gradients of three batches."""
    if memory:
        loss = CrossBatchMemory(loss, SIZE, memory_size=30).to(device)
    generator, outputs = torch.Generator().manual_seed(2), []
    for _ in range(3):
        x = torch.randn(12, SIZE, generator=generator).to(device).requires_grad_()
        labels = torch.randint(4, (12,), generator=generator).to(device)
        value = loss(x, labels, None if miner is None else miner(x, labels))
        outputs += [value.detach().cpu(), *(g.cpu() for g in torch.autograd.grad(value, x))]
    return outputs


@pytest.mark.parametrize(
    ("name", "miner", "memory"),
    [(name, miner, False) for name in TUPLES for miner in MINERS]
    + [("disjoint", "all", True), ("triplet", "triplets", True), ("contrastive", "hard", True)],
)
def test_tuples_are_those_of_the_cpu(name: str, miner: str, memory: bool) -> None:
    make_miner = MINERS[miner] or (lambda: None)
    cpu, gpu = (
        of_batches(device, TUPLES[name](), make_miner(), memory) for device in ("cpu", "cuda")
    )
    torch.testing.assert_close(gpu, cpu, rtol=1e-4, atol=1e-5)


def test_disjoint_quadruples_need_no_wait() -> None:
    x, labels = torch.randn(12, SIZE, device="cuda"), batch()[1].cuda() % 4
    loss = GradMLLoss()
    with no_waits():
        loss(x.requires_grad_(), labels).backward()


@pytest.mark.parametrize("k", [1.5, 2])
def test_all_quadruples_wait_for_the_number_of_classes(k: float) -> None:
    x, labels = torch.randn(12, SIZE, device="cuda"), batch()[1].cuda() % 4
    with waits_counted() as waits:
        GradMLLoss(quadruples="all", k=k)(x.requires_grad_(), labels).backward()
    assert len(waits) == 1, waits


@pytest.mark.parametrize("name", ["disjoint", "all quadruples"])
def test_a_backward_pass_within_autocast_is_float32(name: str) -> None:
    grads = []
    for device in ("cpu", "cuda"):
        x = torch.randn(12, SIZE, generator=torch.Generator().manual_seed(3)).to(device)
        loss, y = TUPLES[name](), (torch.arange(12) % 4).to(device)
        with torch.autocast("cuda", torch.bfloat16, enabled=device == "cuda"):
            loss(x.requires_grad_(), y).backward()
        assert x.grad is not None
        grads.append(x.grad.cpu())
    torch.testing.assert_close(grads[1], grads[0], rtol=1e-4, atol=1e-5)


def test_reducers_find_their_indices_on_the_gpu() -> None:
    reducer = reducers.ClassWeightedReducer(torch.ones(4, device="cuda"))
    loss = NormalizedSoftmaxLoss(4, SIZE, reducer=reducer).cuda()
    x, y = torch.ones(12, SIZE, device="cuda"), (torch.arange(12) % 4).cuda()
    with no_waits():
        loss(x, y).backward()

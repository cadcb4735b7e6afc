"""Steps of training on a GPU: what they wait for, and that they are those of the CPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import simulated_cuda
import torch
from simulated_cuda import Device
from support.gpu_folds import COLOURFUL, built, coloured, vectors
from support.waits import waits_counted
from torch import Tensor

from reality_check.data import residency

pytestmark = pytest.mark.gpu
STEPS = 2
#: Of an epoch: its mean loss is read at its end.
MOST_WAITS = 1
#: At the learning rate of 0.01 rounding alone moves a loss by 7 % within eight steps (H100).
LR = 1e-4
LOSSES: dict[str, dict[str, Any]] = {
    "normalized": {"loss": "NormalizedSoftmaxLoss"},
    "chunked": {
        "loss": "NormalizedSoftmaxLoss",
        "arguments": {
            "softmax": {"class": "pml_extensions.losses.ChunkedSoftmax", "chunk_size": 4}
        },
    },
    "sampled": {
        "loss": "ProxyNCAPlusPlusLoss",
        "arguments": {
            "class_sampler": {
                "class": "pml_extensions.losses.ClassSampler",
                "ratio": 0.3,
                "ratio_of": "negatives",
            }
        },
    },
    "sgsl": {"loss": "StopGradientSoftmaxLoss", "arguments": {"join_mode": "latch"}},
    "warped": {"loss": "WarpedSoftmaxLoss", "arguments": {"alpha": 2.5, "k1": 0.7, "k2": 1.3}},
    "heated": {"loss": "HeatedUpSoftmaxLoss", "arguments": {"normalization": "bn"}},
    "hist": {"loss": "HISTLoss", "arguments": {"hidden_size": 8}},
    "gradml": {"loss": "GradMLLoss"},
}

CROPS = {**COLOURFUL, "resized_crop_scale": (0.4, 1.0), "crop_size": 16}


def losses_of_two_epochs(folder: Path, device: str, **options: Any) -> list[float]:
    trainer = built(folder, device, lr=LR, **options)
    return [trainer.train_steps(STEPS) for _ in range(2)]


@pytest.mark.parametrize("name", LOSSES)
def test_an_epoch_waits_for_its_mean_loss_only(tmp_path: Path, name: str) -> None:
    trainer = built(tmp_path, "cuda", lr=LR, **LOSSES[name])
    first = trainer.train_steps(STEPS)
    with waits_counted() as waits:
        second = trainer.train_steps(STEPS)
    assert len(waits) <= MOST_WAITS, waits
    gpu = simulated_cuda.current()
    assert gpu is None or not gpu.doubles, "float64"
    expected = losses_of_two_epochs(tmp_path, "cpu", **LOSSES[name])
    assert [first, second] == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize(
    ("loss", "miner"),
    [
        ("TripletMarginLoss", {"class": "BatchEasyHardMiner"}),
        ("MultiSimilarityLoss", {"class": "MultiSimilarityMiner"}),
        ("GradMLLoss", {"class": "MultiSimilarityMiner"}),
    ],
)
def test_miners_choose_what_they_choose_on_a_cpu(
    tmp_path: Path, loss: str, miner: dict[str, Any]
) -> None:
    """In the first step: what is chosen later turns on rounding."""
    found, expected = (
        built(tmp_path, device, loss=loss, miner=miner).train_steps(1) for device in ("cuda", "cpu")
    )
    assert found == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("autocast", ["bf16", "fp16"])
def test_half_precision_waits_for_its_scale_only(tmp_path: Path, autocast: str) -> None:
    """GradScaler looks once a step whether all gradients are finite."""
    trainer = built(tmp_path, "cuda", autocast=autocast)
    seen: list[torch.dtype] = []
    trainer.loss.register_forward_pre_hook(lambda _, given: seen.append(given[0].dtype))
    trainer.train_steps(STEPS)
    assert seen == [torch.float32] * STEPS, "a loss of others would compute in half precision"
    with waits_counted() as waits:
        trainer.train_steps(STEPS)
    looks = STEPS if autocast == "fp16" else 0
    assert len(waits) <= MOST_WAITS + looks, waits
    # Without a scale the gradients of float16 vanish.
    assert (trainer.module.scaler.get_scale() > 1) == (autocast == "fp16")
    assert {p.grad.dtype for p in trainer.network.parameters()} == {torch.float32}


def test_scaled_gradients_are_clipped_at_their_own_size(tmp_path: Path) -> None:
    trainer = built(tmp_path, "cuda", autocast="fp16", gradient_clip_norm=0.01)
    trainer.module.scaler = torch.amp.GradScaler("cuda", init_scale=256.0)
    trainer.train_steps(STEPS)
    assert trainer.module.scaler.get_scale() == 256, "no step overflowed"
    gradients = [p.grad for p in trainer.network.parameters() if p.grad is not None]
    norm = torch.stack([gradient.norm() for gradient in gradients]).norm()
    assert norm.item() == pytest.approx(0.01, rel=0.02)


@pytest.mark.parametrize("clip", [None, 0.01])
def test_a_step_that_overflows_is_taken_by_no_part(tmp_path: Path, clip: float | None) -> None:
    """Gradients of the loss are float32 and would not overflow by themselves."""
    trainer = built(tmp_path, "cuda", autocast="fp16", gradient_clip_norm=clip)
    trainer.module.scaler = torch.amp.GradScaler("cuda", init_scale=2.0**24)
    parts = (trainer.network.trunk, trainer.network.embedder, trainer.loss)

    def state() -> list[Tensor]:
        return [p.detach().cpu().clone() for part in parts for p in part.parameters()]

    before = state()
    trainer.train_steps(1)
    assert trainer.module.scaler.get_scale() == 2.0**23
    assert all(map(torch.equal, state(), before))
    trainer.module.scaler = torch.amp.GradScaler("cuda", init_scale=256.0)
    trainer.train_steps(1)
    assert not any(map(torch.equal, state(), before))


STORES: dict[str, Callable[[], dict[str, Any]]] = {
    "one size": lambda: {"data": coloured(), "augmentation": CROPS},
    "many sizes": lambda: {
        "data": coloured(((20, 24), (18, 30), (25, 16))),
        "augmentation": CROPS,
    },
    "vectors": lambda: {"data": vectors(), "augmentation": {"noise": 0.1, "dropout": 0.2}},
}


@pytest.mark.parametrize("name", STORES)
def test_batches_are_those_of_the_cpu(tmp_path: Path, name: str) -> None:
    """Pixels, random numbers and labels, one by one."""
    taken = {}
    for number, device in enumerate(("cpu", "cuda")):
        batches = built(tmp_path, device, **STORES[name]()).batches
        torch.manual_seed(number)  # of no concern to batches, which have their own generator
        taken[device] = list(batches.take(3))
    found, expected = taken["cuda"], taken["cpu"]
    for (images, labels), (on_cpu, labels_on_cpu) in zip(found, expected, strict=True):
        assert images.dtype == torch.float32
        torch.testing.assert_close(images.cpu(), on_cpu, rtol=0, atol=2e-3)
        torch.testing.assert_close(labels.cpu(), labels_on_cpu)


def test_a_validation_waits_for_its_result_only(tmp_path: Path, simulated_gpu: Device) -> None:
    """And for the word that all is finite."""
    trainer = built(tmp_path, "cuda")
    trainer._measure(trainer.network)
    simulated_gpu.reset()
    trainer._measure(trainer.network)
    assert simulated_gpu.waits.total() == 2, simulated_gpu.waits
    heavy = {place.partition(":")[0] for _, place in simulated_gpu.doubles}
    assert heavy == {"pml_extensions/evaluation/_scores.py"}, "float64 of more than scores"


def nearly_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """As free memory, what torch's own cache keeps of earlier tests included."""
    monkeypatch.setattr(residency, "free_memory", lambda device: 1000)


@pytest.mark.parametrize("resident", [True, False])
@pytest.mark.parametrize("name", STORES)
def test_samples_of_every_store_arrive_without_a_wait(
    tmp_path: Path, name: str, resident: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = STORES[name]()
    expected = losses_of_two_epochs(tmp_path, "cpu", **options)
    if not resident:
        nearly_full(monkeypatch)
    trainer = built(tmp_path, "cuda", lr=LR, **options)
    assert trainer.batches._pipeline.store.resident == resident
    first = trainer.train_steps(STEPS)
    with waits_counted() as waits:
        second = trainer.train_steps(STEPS)
    assert len(waits) <= MOST_WAITS, waits
    assert [first, second] == pytest.approx(expected, rel=0.02)


def test_what_is_sent_is_page_locked_or_small(
    tmp_path: Path, simulated_gpu: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    nearly_full(monkeypatch)
    trainer = built(tmp_path, "cuda")
    simulated_gpu.reset()
    trainer.train_steps(STEPS)
    pinned = [place for kind, place in simulated_gpu.uploads if kind == "pinned"]
    assert any("data/store.py" in place for place in pinned), simulated_gpu.uploads
    pageable = [place for kind, place in simulated_gpu.uploads if kind == "pageable"]
    assert not any("data/store.py" in place for place in pageable), pageable

"""Batches that are embedded in parts train as those that are not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from pytorch_metric_learning.losses import MultiSimilarityLoss
from support.training_modules import DROPOUT, batches, module_of, settings, train, training, weights
from torch import Tensor

from reality_check.config import compose
from reality_check.config.method import ValueSchedule
from reality_check.data import ImageSet
from reality_check.training.methods import FilledMethod, FilledSecondPhase
from reality_check.training.module import TrainingModule
from reality_check.training.preflight import check_model
from reality_check.utils.errors import UsageError

MEMORY = {"loss": {"class": "MultiSimilarityLoss"}, "memory_size": 44}
CASES: dict[str, tuple[FilledMethod, str]] = {
    "proxies": (settings("ProxyAnchorLoss"), "GradCache"),
    "proxies, plainly": (settings("NormalizedSoftmaxLoss"), "gradient accumulation"),
    "pairs": (
        settings("MultiSimilarityLoss", miner={"class": "MultiSimilarityMiner", "epsilon": 0.5}),
        "GradCache",
    ),
    "memory": (settings("CrossBatchMemory", arguments=MEMORY), "GradCache"),
}
#: What else a step does; the last part of a batch of 10 is smaller than the others.
OPTIONS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "clipping": {"gradient_clip_norm": 0.05, "gradient_clip": 0.02},
    "frozen trunk": {"freeze_trunk_epochs": 2},
    "checkpointing": {"activation_checkpointing": True},
    "Adam for the loss": {"optimizers": {"loss": {"name": "Adam", "arguments": {}}}},
}


def assert_equal(one: TrainingModule, other: TrainingModule, rel: float = 1e-5) -> None:
    expected = weights(other)
    for name, value in weights(one).items():
        difference = (value.double() - expected[name].double()).norm()
        assert difference <= rel * expected[name].double().norm(), name


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("case", CASES)
def test_ten_steps_are_those_of_whole_batches(case: str, options: str) -> None:
    method, way = CASES[case]
    whole = module_of(training(**OPTIONS[options]), method)
    parts = module_of(training(**OPTIONS[options], sub_batch_size=4), method)
    before = weights(whole)
    assert train(parts, 10) == pytest.approx(train(whole, 10), rel=1e-5)
    assert_equal(parts, whole)
    assert not all(torch.equal(before[name], value) for name, value in weights(parts).items())
    assert parts.remarks() == (f"batches in parts by {way}",)


@pytest.mark.parametrize("case", CASES)
def test_scaled_gradients_are_those_of_whole_batches(case: str) -> None:
    """As under fp16 on a GPU."""
    made = []
    for options in ({}, {"sub_batch_size": 4}):
        how = training(gradient_clip_norm=0.05, **options)
        made.append(module_of(how, CASES[case][0]))
        made[-1].scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        train(made[-1], 10)
    assert_equal(*made)


def test_autocast_reaches_both_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[bool, torch.dtype]] = []
    parts = module_of(training(autocast="bf16", sub_batch_size=5), CASES["pairs"][0])
    parts.network.embedder.register_forward_hook(
        lambda *args: seen.append((torch.is_grad_enabled(), args[2].dtype))
    )
    train(parts, 1)
    assert seen == [(False, torch.bfloat16)] * 2 + [(True, torch.bfloat16)] * 2


class Chance(MultiSimilarityLoss):
    """Draws random numbers, too."""

    def forward(self, embeddings: Tensor, labels: Tensor, *rest: Any) -> Tensor:
        return super().forward(embeddings + 0.1 * torch.rand_like(embeddings), labels, *rest)


@pytest.mark.parametrize("case", [*CASES, "chance"])
def test_dropout_is_that_of_the_parts_held_in_memory(case: str) -> None:
    method = settings(f"{__name__}.Chance") if case == "chance" else CASES[case][0]
    parts = module_of(training(sub_batch_size=4), method, DROPOUT)
    plain = module_of(training(), method, DROPOUT)
    network, optimizers = plain.network.train(), plain.optimizers.values()
    losses = train(parts, 10)
    after, expected = torch.rand(1), []
    torch.manual_seed(4)
    for images, labels in batches(10):
        x = torch.cat([network(part) for part in images.split(4)])
        pairs = plain.miner(x, labels) if plain.miner else None
        value = plain.loss(x, labels, pairs) if plain.miner else plain.loss(x, labels)
        for optimizer in optimizers:
            optimizer.zero_grad()
        value.backward()
        for optimizer in optimizers:
            optimizer.step()
        expected.append(value.item())
    assert losses == pytest.approx(expected, rel=1e-5)
    assert_equal(parts, plain)
    assert torch.equal(after, torch.rand(1))  # no random number was drawn twice, or left out


REDUCER = {"reducer": {"class": "AvgNonZeroReducer"}}


@pytest.mark.parametrize(
    ("loss", "arguments", "way"),
    [
        *((f"{name}Loss", {}, True) for name in ("NormalizedSoftmax", "ArcFace", "ProxyNCA")),
        ("SoftTripleLoss", {}, True),
        ("StopGradientSoftmaxLoss", {"join_mode": "always"}, True),
        *((f"{name}Loss", {}, False) for name in ("ProxyAnchor", "Contrastive", "MultiSimilarity")),
        ("CrossBatchMemory", MEMORY, False),
        # These are means over parts at the start, but not of those that have learned something.
        ("StopGradientSoftmaxLoss", {}, False),
        ("ArcFaceLoss", REDUCER, False),
        ("ArcFaceLoss", {"reducer": {"class": "ThresholdReducer", "low": 1.0}}, False),
        ("NormalizedSoftmaxLoss", {"reducer": {"class": "SumReducer"}}, False),
    ],
)
@pytest.mark.parametrize("size", [1, 4, 9])
def test_the_way_is_measured(loss: str, arguments: dict[str, Any], way: bool, size: int) -> None:
    method = settings(loss, arguments=arguments)
    made, drawn = module_of(training(sub_batch_size=size), method), torch.rand(1)
    assert made._sub_batches
    assert made._sub_batches.accumulates is way
    # Neither the loss nor any random number differs from that without parts.
    fresh = module_of(training(), method)
    assert torch.equal(drawn, torch.rand(1))
    assert_equal(made, fresh, rel=0.0)


@pytest.mark.parametrize(
    "changes",
    [
        {"second_phase": FilledSecondPhase({"temperature": 0.1}, {}, 1.0, 1.0)},
        {"schedules": {"temperature": ValueSchedule(kind="linear", factor=2.0)}},
        {"miner": {"class": "BatchHardMiner"}},
    ],
)
def test_in_doubt_it_is_grad_cache(changes: dict[str, Any]) -> None:
    made = module_of(training(sub_batch_size=4), settings("NormalizedSoftmaxLoss", **changes))
    assert made.remarks() == ("batches in parts by GradCache",)


STATISTICS = [
    ({"protocol.training.freeze_batchnorm": False}, "trunk"),
    ({"model.neck": "batch_norm"}, "embedder"),
    ({"model.normalization": "batch_norm"}, "head"),
]


@pytest.mark.parametrize(("changes", "part"), STATISTICS)
def test_a_batchnorm_that_learns_is_refused(
    make_images: Callable[..., ImageSet], changes: dict[str, Any], part: str
) -> None:
    raw = {"name": "x", "dataset": "glyphs", "model": "conv4", "protocol": "quick_one_search"}
    still = ["protocol.training.freeze_batchnorm=true"]
    changed = still + [f"{key}={value}" for key, value in changes.items()]
    parts = ["protocol.training.sub_batch_size=4"]
    for overrides in (changed, still + parts):
        check_model(compose({**raw, "methods": ["contrastive"]}, overrides), make_images(16))
    experiment = compose({**raw, "methods": ["contrastive"]}, changed + parts)
    with pytest.raises(UsageError, match=rf"sub_batch_size=4: a BatchNorm of the {part} .*null\."):
        check_model(experiment, make_images(16))


def test_a_training_refuses_it_too() -> None:
    with pytest.raises(UsageError, match="a BatchNorm of the trunk"):
        module_of(training(sub_batch_size=4, freeze_batchnorm=False))

"""The losses to compare with, against plain loops."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, ClassVar

import pytest
import torch
from pytorch_metric_learning.losses import ContrastiveLoss, TripletMarginLoss
from pytorch_metric_learning.miners import TripletMarginMiner
from pytorch_metric_learning.reducers import DoNothingReducer
from torch import Tensor

from pml_extensions.losses import HeatedUpSoftmaxLoss
from pml_extensions.testing import LossContract, PhaseContract, ProxyLossContract
from reality_check.baseline_losses import (
    CenterContrastiveLoss,
    DRTripletLoss,
    LinearSoftmaxLoss,
    LossAfterWarmUp,
    PotentialFieldLoss,
    RingLoss,
    UniformByWidth,
)
from reality_check.config import compose
from reality_check.training.methods import (
    FilledMethod,
    FilledSecondPhase,
    build_loss,
    enter_second_phase,
)
from reality_check.utils.errors import UsageError


def batch() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return 3 * torch.randn(6, 4, generator=generator), torch.tensor([0, 0, 1, 1, 2, 2])


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("bias", [True, False])
def test_the_linear_softmax_is_a_classifier(bias: bool, smoothing: float) -> None:
    x, labels = batch()
    torch.manual_seed(1)
    loss = LinearSoftmaxLoss(3, 4, bias=bias, label_smoothing=smoothing)
    logits = [[float(row @ w) for w in loss.classify.weight.detach()] for row in x]
    if bias:
        logits = [
            [z + float(b) for z, b in zip(row, loss.classify.bias.detach(), strict=True)]
            for row in logits
        ]
    expected = 0.0
    for row, label in zip(logits, labels.tolist(), strict=True):
        normaliser = math.log(sum(math.exp(z) for z in row))
        shares = [smoothing / 3 + (1 - smoothing) * (j == label) for j in range(3)]
        expected -= sum(q * (z - normaliser) for q, z in zip(shares, row, strict=True)) / 6
    assert float(loss(x, labels)) == pytest.approx(expected, rel=1e-5)
    loss(x.bfloat16(), labels).backward()
    assert {p.dtype for p in loss.parameters()} == {torch.float32}


def test_ring_loss_pulls_lengths_to_a_learned_radius() -> None:
    x, labels = batch()
    loss = RingLoss()
    lengths = [math.sqrt(sum(float(v) ** 2 for v in row)) for row in x]
    radius = sum(lengths) / 6
    expected = sum((length - radius) ** 2 for length in lengths) / 12
    assert float(loss(x, labels)) == pytest.approx(expected, rel=1e-5)
    assert float(loss.radius.detach()) == pytest.approx(radius, rel=1e-5)
    value = loss(2 * x, labels)  # the radius is known by now
    assert float(value) == pytest.approx(sum((2 * n - radius) ** 2 for n in lengths) / 12, rel=1e-5)
    value.backward()
    slope = sum(radius - 2 * length for length in lengths) / 6
    assert float(loss.radius.grad) == pytest.approx(slope, rel=1e-5)


def test_proxies_start_uniformly_within_one_over_the_root_of_the_width() -> None:
    proxies = torch.empty(500, 16)
    UniformByWidth()(proxies)
    assert float(proxies.abs().max()) <= 0.25
    assert float(proxies.std()) == pytest.approx(0.25 / math.sqrt(3), rel=0.05)


def unit(vector: list[float]) -> list[float]:
    length = math.sqrt(sum(v * v for v in vector))
    return [v / length for v in vector]


def test_center_contrast_has_a_margin_and_a_pull_to_the_own_center() -> None:
    x, labels = batch()
    torch.manual_seed(1)
    loss = CenterContrastiveLoss(
        3, 4, scale=5.0, margin=0.3, center_weight=0.7, reducer=DoNothingReducer()
    )
    found = loss(x, labels)
    centers = [unit(row) for row in loss.proxies.tolist()]
    for i, (row, label) in enumerate(zip(x.tolist(), labels.tolist(), strict=True)):
        point = unit(row)
        cosines = [sum(a * b for a, b in zip(point, c, strict=True)) for c in centers]
        logits = [5 * (cosine - 0.3 * (j == label)) for j, cosine in enumerate(cosines)]
        contrast = math.log(sum(math.exp(z) for z in logits)) - logits[label]
        pull = 0.7 * sum((a - c) ** 2 for a, c in zip(point, centers[label], strict=True))
        assert float(found["contrastive_loss"]["losses"][i]) == pytest.approx(contrast, rel=1e-5)
        assert float(found["center_loss"]["losses"][i]) == pytest.approx(pull, rel=1e-5)


def potential(d: float, same: bool, alpha: float, delta: float) -> float:
    """Eq. 1 and 2 case by case."""
    if same:
        return -1 / delta**alpha if d < delta else -1 / d**alpha
    return 1 / d**alpha if d < delta else 1 / delta**alpha


@pytest.mark.parametrize(("alpha", "delta"), [(2.0, 0.9), (4.5, 0.4)])
def test_the_potential_field_counts_every_ordered_pair(alpha: float, delta: float) -> None:
    x, labels = batch()
    torch.manual_seed(1)
    loss = PotentialFieldLoss(3, 4, 2, alpha, delta)
    points = [(unit(row), label) for row, label in zip(x.tolist(), labels.tolist(), strict=True)]
    points += [(unit(row), c) for c, rows in enumerate(loss.proxies.tolist()) for row in rows]
    energy = sum(
        potential(math.dist(a, b), i == j, alpha, delta)
        for k, (a, i) in enumerate(points)
        for m, (b, j) in enumerate(points)
        if k != m
    )
    assert float(loss(x, labels)) == pytest.approx(energy / 6, rel=1e-5)


def test_the_potential_field_by_hand() -> None:
    """Two samples and their proxies, on a circle: two repelled, one of them closely, one drawn."""
    loss = PotentialFieldLoss(2, 2, 1, alpha=2.0, delta=0.5)
    loss.proxies.data = torch.tensor([[[0.6, 0.8]], [[-1.0, 0.0]]])
    x, labels = torch.tensor([[1.0, 0.0], [0.8, 0.6]]), torch.tensor([0, 1])
    # Squared distances: 0.4 (apart), 0.8 (own), 4 (apart), 0.08 (apart), 3.6 (own), 3.2 (apart).
    pairs = 4 - 1 / 0.8 + 4 + 1 / 0.08 - 1 / 3.6 + 4
    assert float(loss(x, labels)) == pytest.approx(2 * pairs / 2, rel=1e-5)


def test_nothing_pulls_within_delta_and_nothing_pushes_beyond() -> None:
    x = torch.tensor([[1.0, 0.0], [0.995, 0.1], [-1.0, 0.0]], requires_grad=True)
    loss = PotentialFieldLoss(2, 2, 1, delta=0.2)
    loss.proxies.data = torch.tensor([[[1.0, 0.0]], [[-1.0, 0.0]]])
    loss(x, torch.tensor([0, 0, 1])).backward()
    assert not x.grad.any()
    loss.zero_grad()
    nearly = torch.tensor([[1.0, 0.0], [1.0, 1e-5]], requires_grad=True)
    loss(nearly, torch.tensor([0, 1])).backward()
    assert nearly.grad.isfinite().all()
    assert nearly.grad[0, 1] > 0 > nearly.grad[1, 1], "downhill, the two go apart"


def test_wrong_powers_and_scales_are_refused() -> None:
    allowed = "must be finite and greater than 0, but got"
    with pytest.raises(ValueError, match=f"alpha {allowed} alpha=0"):
        PotentialFieldLoss(2, 2, alpha=0)
    with pytest.raises(ValueError, match=f"scale {allowed} scale=0"):
        CenterContrastiveLoss(2, 2, scale=0)


class Quick:
    compile_backend = "aot_eager"
    fast_gradcheck = True

    @pytest.mark.slow
    def test_compiling_changes_nothing(self) -> None:
        super().test_compiling_changes_nothing()


class TestDRTriplet(Quick, LossContract):
    supports_ref_emb = True
    known_failures: ClassVar = {
        "test_compiling_changes_nothing": "PML finds the triplets, whose number labels decide"
    }

    def make_loss(self, **kwargs: Any) -> DRTripletLoss:
        return DRTripletLoss(direction=0.7, **kwargs)


def test_the_triplet_loss_with_directions() -> None:
    x, labels = batch()
    unit = [[v / math.hypot(*row) for v in row] for row in x.tolist()]
    found = DRTripletLoss(0.4, 0.7, reducer=DoNothingReducer())(x, labels)["loss"]
    triplets = list(zip(*(t.tolist() for t in found["indices"]), strict=True))
    assert len(triplets) == 6 * 1 * 4
    for (a, p, n), value in zip(triplets, found["losses"].tolist(), strict=True):
        near, far = math.dist(unit[a], unit[p]), math.dist(unit[a], unit[n])
        cosine = sum(v * w for v, w in zip(unit[a], unit[p], strict=True))
        regulariser = 0.7 * (1 - cosine) / (far * near)
        assert value == pytest.approx(max(0, near**2 - far**2 + 0.4 - regulariser), abs=1e-5)


class TestCenterContrast(Quick, ProxyLossContract):
    def make_loss(self, **kwargs: Any) -> CenterContrastiveLoss:
        return CenterContrastiveLoss(self.num_classes, self.embedding_size, **kwargs)


class TestPotentialField(Quick, LossContract):
    def make_loss(self, **kwargs: Any) -> PotentialFieldLoss:
        # delta 1, so that among a few random points some repel each other
        return PotentialFieldLoss(
            self.num_classes, self.embedding_size, 2, alpha=3.0, delta=1.0, **kwargs
        )


class TestAfterWarmUp(PhaseContract):
    phase: ClassVar = {"warm_up_weight": 0.25}
    wrong_phase: ClassVar = {"warm_up_weight": 1.5}

    def make_loss(self, **kwargs: Any) -> LossAfterWarmUp:
        return LossAfterWarmUp(ContrastiveLoss(), TripletMarginLoss(margin=0.5), **kwargs)


def test_the_warm_up_ends_with_the_first_phase() -> None:
    x, labels = batch()
    kinds = {
        "warm_up": {"class": "ContrastiveLoss", "neg_margin": 0.7},
        "loss": {"class": "pml_extensions.losses.HeatedUpSoftmaxLoss", "alpha": 4.0},
    }
    name = "reality_check.baseline_losses.LossAfterWarmUp"
    loss = build_loss(replace(settings(**kinds), loss=name), 3, 4)
    assert isinstance(loss, LossAfterWarmUp)
    mined = TripletMarginMiner(margin=0.2)(x, labels)
    warm = ContrastiveLoss(neg_margin=0.7)(x, labels)
    torch.testing.assert_close(loss(x, labels, mined), warm)  # of all pairs, not the mined ones
    values = {"warm_up_weight": 0.0, "alpha": 2.0}
    enter_second_phase(loss, FilledSecondPhase(values, {}, 1.0, 1.0))
    later = HeatedUpSoftmaxLoss(3, 4, alpha=2.0)
    later.load_state_dict({**later.state_dict(), "proxies": loss.loss.state_dict()["proxies"]})
    torch.testing.assert_close(loss(x, labels), later(x, labels))


def test_a_miner_has_a_say_after_the_warm_up() -> None:
    x, labels = batch()
    triplets = TripletMarginLoss(margin=0.5)
    loss = LossAfterWarmUp(ContrastiveLoss(), triplets, warm_up_weight=0)
    mined = TripletMarginMiner(margin=0.2, type_of_triplets="semihard")(x, labels)
    torch.testing.assert_close(loss(x, labels, mined), triplets(x, labels, mined))
    assert not torch.isclose(loss(x, labels, mined), loss(x, labels))


def settings(**arguments: object) -> FilledMethod:
    return FilledMethod("m", "MultipleLosses", arguments, None, 2, {}, 0.0, True)


def test_a_yaml_can_sum_losses_with_miners_of_their_own() -> None:
    x, labels = batch()
    terms = [
        {"class": "reality_check.baseline_losses.LinearSoftmaxLoss", "bias": False},
        {"class": "TripletMarginLoss", "margin": 0.3},
    ]
    arguments = {"losses": terms, "miners": [None, {"class": "BatchHardMiner"}], "weights": [1, 2]}
    torch.manual_seed(1)
    both = build_loss(settings(**arguments), 3, 4)
    softmax, triplet = both.losses
    mined = both.miners[1](x, labels)
    expected = softmax(x, labels) + 2 * triplet(x, labels, mined)
    torch.testing.assert_close(both(x, labels), expected)
    assert softmax.classify.weight.shape == (3, 4)


def test_a_wrong_argument_within_a_list_names_the_class() -> None:
    wrong = [{"class": "TripletMarginLoss", "margn": 0.3}]
    with pytest.raises(UsageError, match=r"TripletMarginLoss has no argument 'margn'.*'margin'"):
        build_loss(settings(losses=wrong), 3, 4)


def test_a_class_of_an_unknown_kind_needs_its_module() -> None:
    kinds = {"losses": [{"class": "TripletMarginLoss", "pairs": {"class": "Pairs"}}]}
    with pytest.raises(UsageError, match=r"'pairs' is 'Pairs'.* write .*my_module\.Pairs"):
        build_loss(settings(**kinds), 3, 4)


def test_the_code_of_classes_within_a_list_counts() -> None:
    from reality_check.launch.check import classes_of

    raw = {
        "name": "lists",
        "dataset": "glyphs",
        "model": "conv4",
        "protocol": "quick_one_search",
        "methods": [{"loss": "MultipleLosses", "arguments": {"losses": [{"class": "mine.Loss"}]}}],
    }
    assert "mine.Loss" in classes_of(compose(raw).methods[0])

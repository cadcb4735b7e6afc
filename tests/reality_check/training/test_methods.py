from __future__ import annotations

from typing import Any

import pytest
import torch
from pytorch_metric_learning import losses, miners

from pml_extensions.losses import HeatedUpSoftmaxLoss
from reality_check.config import Method, Protocol, Range, compose
from reality_check.config.method import ValueSchedule
from reality_check.config.model import Model
from reality_check.training.methods import (
    FilledSecondPhase,
    build_loss,
    build_miner,
    enter_second_phase,
    fill_method,
    has_parameters,
    middle_params,
    search_space,
)
from reality_check.utils.errors import UsageError


def composed(protocol: str = "quick_retrained", **method: Any) -> tuple[Method, Protocol]:
    entry = {"name": "m", "loss": "ContrastiveLoss", **method}
    raw = {"name": "x", "dataset": "glyphs", "model": "conv4", "protocol": protocol}
    experiment = compose({**raw, "methods": [entry]})
    return experiment.methods[0], experiment.protocol


RANGE = {"low": 0.0, "high": 1.0}
IDENTITY = Model(name="vectors", trunk="identity", weights="none")


def test_the_search_space_holds_ranges_of_method_and_protocol_in_a_fixed_order() -> None:
    method, protocol = composed(
        loss="ProxyAnchorLoss",
        arguments={"margin": RANGE, "distance": {"class": "LpDistance", "p": RANGE}},
        miner={"class": "MultiSimilarityMiner", "epsilon": RANGE},
        learning_rates={"embedder": RANGE},
        phase2={"factors": {"alpha": RANGE}, "lr_factor": RANGE},
    )
    assert list(search_space(method, protocol)) == [
        "arguments.distance.p",
        "arguments.margin",
        "learning_rates.embedder",
        "learning_rates.loss",
        "learning_rates.trunk",
        "miner.epsilon",
        "phase2.factors.alpha",
        "phase2.lr_factor",
    ]


def test_the_protocols_range_for_losses_is_not_searched_by_a_loss_without_parameters() -> None:
    """It would be a searched parameter without effect."""
    method, protocol = composed()
    assert not has_parameters(method, protocol)
    assert list(search_space(method, protocol)) == ["learning_rates.trunk"]
    assert fill_method(method, protocol, {"learning_rates.trunk": 0.1}).learning_rates == {
        "trunk": 0.1,
        "embedder": 0.002,
        "loss": 0.0,
    }


def test_the_protocols_range_for_trunks_is_not_searched_where_there_is_no_trunk() -> None:
    method, protocol = composed()
    assert list(search_space(method, protocol, IDENTITY)) == []
    assert fill_method(method, protocol, {}, IDENTITY).learning_rates["trunk"] == 0
    method, protocol = composed(learning_rates={"trunk": RANGE})
    assert list(search_space(method, protocol, IDENTITY)) == ["learning_rates.trunk"]


def test_filling_in_gives_every_value_its_place() -> None:
    method, protocol = composed(
        loss="ProxyAnchorLoss",
        arguments={"margin": RANGE, "alpha": 16},
        miner={"class": "MultiSimilarityMiner", "epsilon": RANGE},
        learning_rates={"trunk": 0.25},
        loss_weight_decay=0.5,
        phase2={"factors": {"alpha": RANGE}, "arguments": {"margin": 0.75}, "lr_factor": RANGE},
    )
    params = {
        "arguments.margin": 0.125,
        "miner.epsilon": 0.375,
        "learning_rates.loss": 0.0625,
        "phase2.factors.alpha": 0.5,
        "phase2.lr_factor": 0.875,
    }
    settings = fill_method(method, protocol, params)
    assert settings.arguments == {"margin": 0.125, "alpha": 16}
    assert settings.miner == {"class": "MultiSimilarityMiner", "epsilon": 0.375}
    assert settings.learning_rates == {"trunk": 0.25, "embedder": 0.002, "loss": 0.0625}
    assert settings.loss_weight_decay == 0.5
    assert settings.second_phase == FilledSecondPhase(
        {"margin": 0.75}, {"alpha": 0.5}, 0.875, 0.875
    )
    assert settings.params == params
    assert isinstance(method.arguments["margin"], Range), "the method itself stays searched"


def test_the_losss_own_weight_decay_wins_even_when_it_is_zero() -> None:
    method, protocol = composed("mlrc")
    assert fill_method(method, protocol, {}).loss_weight_decay == 1e-4
    method, protocol = composed("mlrc", loss_weight_decay=0)
    assert fill_method(method, protocol, {}).loss_weight_decay == 0


@pytest.mark.parametrize("loss_factor", [None, 0.5])
def test_the_losss_factor_is_that_of_the_network_unless_given(loss_factor: float | None) -> None:
    method, protocol = composed(phase2={"lr_factor": 0.25, "loss_lr_factor": loss_factor})
    settings = fill_method(method, protocol, middle_params(method, protocol))
    assert settings.second_phase == FilledSecondPhase({}, {}, 0.25, loss_factor or 0.25)


def test_all_methods_have_two_phases_where_the_protocol_says_so() -> None:
    method, protocol = composed("appendix_d")
    # The follow-up learning rate is each method's own search (protocol section 6).
    assert list(search_space(method, protocol)) == ["phase2.lr_factor"]
    second = fill_method(method, protocol, {"phase2.lr_factor": 0.3}).second_phase
    assert second == FilledSecondPhase({}, {}, 0.3, 0.3)
    method, protocol = composed("mlrc")
    assert fill_method(method, protocol, {}).second_phase is None


def test_losses_and_miners_are_built_with_sizes_and_nested_objects() -> None:
    method, protocol = composed(
        loss="pytorch_metric_learning.losses.ProxyAnchorLoss",
        arguments={
            "margin": 0.5,
            "distance": {"class": "CosineSimilarity"},
            "reducer": "SumReducer",
            "embedding_regularizer": {"class": "LpRegularizer", "p": 1},
        },
        miner="TripletMarginMiner",
    )
    settings = fill_method(method, protocol, middle_params(method, protocol))
    loss = build_loss(settings, 7, 5)
    assert isinstance(loss, losses.ProxyAnchorLoss)
    assert loss.proxies.shape == (7, 5)
    assert loss.margin == 0.5
    assert type(loss.distance).__name__ == "CosineSimilarity"
    assert loss.embedding_regularizer.p == 1
    assert isinstance(build_miner(settings, 5, 8), miners.TripletMarginMiner)
    method, protocol = composed()
    assert build_miner(fill_method(method, protocol, {"learning_rates.trunk": 1}), 5, 8) is None


def test_a_value_of_the_harness_can_be_withheld_from_a_loss() -> None:
    """PML's MarginLoss learns one boundary a class as soon as it is told of the classes."""
    values: dict[str, Any] = {"loss": "MarginLoss", "arguments": {"learn_beta": True, "beta": 0.5}}
    values["learning_rates"] = {"trunk": 0.1, "loss": 0.1}
    method, protocol = composed(**values)
    assert build_loss(fill_method(method, protocol, {}), 7, 5).beta.tolist() == [0.5] * 7
    values["arguments"]["num_classes"] = None
    method, protocol = composed(**values)
    assert build_loss(fill_method(method, protocol, {}), 7, 5).beta.tolist() == [0.5]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"loss": "ContrastveLoss"}, "mean 'ContrastiveLoss'"),
        ({"loss": "no_such_module.Loss"}, r"'no_such_module'.*no_such_module\.py"),
        ({"loss": "pytorch_metric_learning.losses.Nothing"}, "'Nothing'"),
        ({"arguments": {"pos_margn": 1}}, "'pos_margn'.*mean 'pos_margin'"),
        ({"loss": "ProxyNCALoss", "arguments": {"num_classes": 3}}, "set by the harness"),
        ({"loss": "ProxyNCALoss", "arguments": {"num_classes": None}}, "needs .* 'num_classes'"),
        ({"loss": "math.sqrt"}, "m"),
        ({"loss": "torch.Size"}, r"torch\.nn\.Module"),
        ({"arguments": {"distance": {"class": "LpDistanc"}}}, "mean 'LpDistance'"),
    ],
)
def test_a_loss_that_cannot_be_built_is_a_usage_error(changes: dict[str, Any], words: str) -> None:
    values = {"learning_rates": {"trunk": 0.1, "embedder": 0.1, "loss": 0.1}, **changes}
    method, protocol = composed(**values)
    with pytest.raises(UsageError, match=words):
        build_loss(fill_method(method, protocol, {}), 4, 4)


def test_the_second_phase_multiplies_first_phase_values_also_of_tensors() -> None:
    loss = torch.nn.Module()
    loss.margin, loss.beta = 0.5, torch.nn.Parameter(torch.tensor([4.0]), requires_grad=False)
    enter_second_phase(loss, FilledSecondPhase({}, {"margin": 0.5}, 1, 1))
    assert loss.margin == 0.25
    ours = HeatedUpSoftmaxLoss(3, 2, alpha=16)
    enter_second_phase(ours, FilledSecondPhase({}, {"alpha": 0.125}, 1, 1))
    assert float(ours.alpha) == 2.0


@pytest.mark.parametrize(
    ("loss", "name", "first", "second"),
    [
        ("ArcFaceLoss", "margin", 28.6, 20.0),  # held in radians
        ("SoftTripleLoss", "gamma", 0.1, 0.2),  # held as 1 / gamma
    ],
)
def test_the_second_phase_sets_no_argument_that_the_loss_holds_as_something_else(
    loss: str, name: str, first: float, second: float
) -> None:
    rates = {"trunk": 0.1, "embedder": 0.1, "loss": 0.1}
    values: dict[str, Any] = {"loss": loss, "arguments": {name: first}, "learning_rates": rates}
    method, protocol = composed(**values, phase2={"arguments": {name: second}, "lr_factor": 1})
    with pytest.raises(
        UsageError,
        match=rf"method 'm': .*second phase: {loss} does not hold .*write factors: {{{name}",
    ):
        build_loss(fill_method(method, protocol, {}), 7, 5)
    # What it holds can be multiplied.
    method, protocol = composed(**values, phase2={"factors": {name: 0.5}, "lr_factor": 1})
    settings = fill_method(method, protocol, {})
    built = build_loss(settings, 7, 5)
    held = getattr(built, name)
    assert settings.second_phase is not None
    enter_second_phase(built, settings.second_phase)
    assert getattr(built, name) == 0.5 * held


def test_looking_at_the_second_phase_draws_no_random_number() -> None:
    rates = {"trunk": 0.1, "embedder": 0.1, "loss": 0.1}
    drawn = []
    for phase2 in (None, {"arguments": {"softmax_scale": 4.0}, "lr_factor": 1}):
        method, protocol = composed(loss="ProxyNCALoss", learning_rates=rates, phase2=phase2)
        settings = fill_method(method, protocol, {})
        torch.manual_seed(0)
        loss = build_loss(settings, 7, 5)
        drawn.append((loss.proxies.detach().clone(), torch.rand(1)))
    torch.testing.assert_close(drawn[0], drawn[1], rtol=0, atol=0)
    assert settings.second_phase is not None
    enter_second_phase(loss, settings.second_phase)
    assert loss.softmax_scale == 4.0


def test_a_second_phase_sets_numbers_that_are_tensors() -> None:
    loss = losses.MarginLoss(beta=1.2, learn_beta=True)
    enter_second_phase(loss, FilledSecondPhase({"beta": 0.5}, {}, 1.0, 1.0))
    assert float(loss.beta.detach()) == 0.5


@pytest.mark.parametrize("name", ["magin", "training", "forward"])
def test_the_second_phase_changes_only_numbers_that_are_there(name: str) -> None:
    with pytest.raises(UsageError, match=name):
        enter_second_phase(losses.TripletMarginLoss(), FilledSecondPhase({name: 1.0}, {}, 1.0, 1.0))


def test_a_schedule_is_searched_like_any_value() -> None:
    lengths = {"low": 2, "high": 7, "int": True}
    schedule = {"kind": "linear", "factor": RANGE | {"low": 0.1}, "epochs": lengths}
    method, protocol = composed(
        loss="pml_extensions.losses.HeatedUpSoftmaxLoss",
        schedules={"alpha": schedule},
        learning_rates={"trunk": 0.1, "loss": 0.1},
    )
    assert list(search_space(method, protocol)) == [
        "schedules.alpha.epochs",
        "schedules.alpha.factor",
    ]
    settings = fill_method(
        method, protocol, {"schedules.alpha.epochs": 4, "schedules.alpha.factor": 0.5}
    )
    assert settings.schedules == {"alpha": ValueSchedule(kind="linear", factor=0.5, epochs=4)}
    assert fill_method(*composed(), {"learning_rates.trunk": 1}).schedules == {}


STEP = {"kind": "step", "factor": 2}


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ({"before_training": "class_means"}, "mapping with keys of batch_statistics, proxies"),
        ({"before_training": {"proxies": "means"}}, "'random' or 'class_means', got 'means'"),
        (
            {"schedules": {"alpha": 0.5}},
            "alpha must be a mapping with keys of kind, .* got 0.5",
        ),
        ({"schedules": {"alpha": {"kind": "linear", "epochs": -3, "factor": 1}}}, "got -3"),
        ({"schedules": {"alpha": {"kind": "line", "factor": 1}}}, "Did you mean 'linear'"),
        ({"schedules": {"alpha": STEP | {"at": [8]}}}, "after epoch 8, but at most 8 are"),
        (
            {"schedules": {"alpha": STEP | {"at": [6]}}, "phase2": {}},
            "after epoch 6, but at most 6",
        ),
        ({"schedules": {"alpha": STEP | {"every": {"choices": [2, 8]}}}}, "after epoch [89],"),
        (
            {"schedules": {"alpha": {"kind": "linear", "epochs": 9, "factor": 2}}},
            "after epoch [89],",
        ),
    ],
)
def test_one_sentence_for_a_wrong_option(method: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        composed(**method)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("change", ["arguments", "factors"])
def test_a_value_follows_a_schedule_or_changes_in_the_second_phase(change: str) -> None:
    with pytest.raises(UsageError, match="'alpha' has a schedule and is changed by phase2"):
        composed(
            loss="pml_extensions.losses.HeatedUpSoftmaxLoss",
            schedules={"alpha": {"kind": "step", "every": 3, "factor": 0.5}},
            phase2={change: {"alpha": 0.5}},
        )

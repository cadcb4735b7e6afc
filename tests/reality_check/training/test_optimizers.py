"""Parameter groups by patterns and by layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from support.training_modules import batches, module_of, settings, training

from reality_check.config import compose
from reality_check.data import ImageSet
from reality_check.training.methods import FilledSecondPhase
from reality_check.training.module import TrainingModule
from reality_check.training.preflight import check_model
from reality_check.utils.errors import UsageError


def options_of(made: TrainingModule, part: str = "trunk") -> dict[str, tuple[float, float]]:
    """Learning rate and decay of each parameter of a part, by name."""
    module = made.loss if part == "loss" else getattr(made.network, part)
    names = {parameter: name for name, parameter in module.named_parameters()}
    found = {
        names[parameter]: (group["lr"], group["weight_decay"])
        for group in made.optimizers[part].param_groups
        for parameter in group["params"]
    }
    assert {*found} == {*names.values()}  # each once, none left out
    return found


def test_the_first_pattern_counts() -> None:
    groups = {r"^0\.": {"lr_factor": 0.1}, "bias|^(0|1)": {"weight_decay": 0}, "^9": {}}
    made = module_of(training({"trunk": {"weight_decay": 0.2, "groups": groups}}))
    found = options_of(made)
    assert found["0.weight"] == pytest.approx((0.005, 0.2))
    assert found["1.weight"] == found["10.bias"] == (0.05, 0)
    assert found["3.weight"] == found["9.weight"] == (0.05, 0.2)
    assert len(made.optimizers["trunk"].param_groups) == 3
    assert options_of(made, "embedder") == dict.fromkeys(options_of(made, "embedder"), (0.05, 0))


def test_layers_and_patterns_multiply() -> None:
    groups = {"^9": {"lr_factor": 2}}
    made = module_of(training({"trunk": {"layer_decay": 0.5, "groups": groups}}))
    found = {name: rate for name, (rate, _) in options_of(made).items()}
    assert found["10.weight"] == 0.05
    assert found["9.weight"] == 0.05
    assert found["7.weight"] == 0.05 * 0.25
    assert found["0.weight"] == pytest.approx(0.05 * 0.5**7)


def test_ratios_stay_through_schedule_and_phases() -> None:
    groups = {r"^0\.": {"lr_factor": 0.1}}
    schedule = {"kind": "step", "at": [1], "factor": 0.5, "warmup_iterations": 4}
    made = module_of(training({"trunk": {"groups": groups}}, schedule=schedule))
    rates = made.optimizers["trunk"].param_groups
    made.set_iteration(2, 10)
    assert [group["lr"] for group in rates] == pytest.approx([0.0025, 0.025])
    made.enter_second_phase(FilledSecondPhase({}, {}, lr_factor=0.2, loss_lr_factor=1.0))
    made.set_iteration(10, 10)
    assert [group["lr"] for group in rates] == pytest.approx([0.0005, 0.005])


def test_all_groups_are_clipped_and_frozen() -> None:
    groups = {"weight": {"lr_factor": 1.0, "weight_decay": 0.0}}
    how = {"trunk": {"groups": groups, "arguments": {}}}
    made = module_of(training(how, gradient_clip=1e-4, freeze_trunk_epochs=1))
    made.train()
    for epoch in (0, 1):
        before = [p.detach().clone() for p in made.network.trunk.parameters()]
        made.set_iteration(epoch, 1)
        made.step(*batches(1)[0])
        moved = [
            float((p - old).detach().abs().max())
            for p, old in zip(made.network.trunk.parameters(), before, strict=True)
        ]
        assert max(moved) <= epoch * 0.05 * 1e-4 * 1.01
    assert min(moved) > 0


def test_parts_of_a_loss_keep_their_rates() -> None:
    rates = {"trunk": 0.1, "embedder": 0.2, "loss": 0.4, "loss.hypergraph_parameters": 0.03}
    hist = settings("pml_extensions.losses.HISTLoss", learning_rates=rates)
    plain = options_of(module_of(training(), hist), "loss")
    how = training({"loss": {"groups": {"weight": {"weight_decay": 0.5}}}})
    found = options_of(module_of(how, hist), "loss")
    assert {name: rate for name, (rate, _) in found.items()} == {
        name: rate for name, (rate, _) in plain.items()
    }
    assert (
        {name for name, (_, decay) in found.items() if decay}
        == {name for name in found if "weight" in name}
        != set()
    )


@pytest.mark.parametrize(
    ("optimizer", "words"),
    [
        ({"groups": {"blocks": {"lr_factor": 0.1}}}, r"'blocks' matches no .*such as 0\.weight"),
        ({"groups": {"weight": {}, r"0\.weight": {}}}, r"'0\\\\.weight' matches no"),
        ({"name": "Rprop", "arguments": {}, "groups": {"bias": {"weight_decay": 0.1}}}, "is 0.1"),
    ],
)
def test_groups_that_do_not_fit_are_refused(
    make_images: Callable[..., ImageSet], optimizer: dict[str, Any], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        module_of(training({"trunk": optimizer}))
    raw = {"name": "x", "dataset": "glyphs", "model": "conv4", "protocol": "quick_one_search"}
    experiment = compose({**raw, "methods": ["contrastive"]})
    plain = experiment.plain()
    plain["protocol"]["training"]["optimizers"]["trunk"].update({"arguments": {}} | optimizer)
    with pytest.raises(UsageError, match=words):
        check_model(compose(plain), make_images(16))


def test_a_pattern_is_a_regular_expression() -> None:
    with pytest.raises(ValidationError, match="valid regular expression"):
        training({"trunk": {"groups": {"(": {}}}})


def test_without_options_nothing_is_split() -> None:
    made = module_of(training())
    assert [[*group] for group in made.optimizers["trunk"].param_groups] == [
        [*torch.optim.SGD([torch.zeros(1)], lr=0.1).param_groups[0]]
    ]

"""The optimisers of the trunk, the embedder and the loss."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn

from reality_check.config.classes import (
    build,
    constructor_arguments,
    find_class,
    required_arguments,
)
from reality_check.config.training import Optimizer, ParameterGroup, Training
from reality_check.models.network import Network
from reality_check.training.layers import layer_factors
from reality_check.training.methods import LOSS_PART, FilledMethod
from reality_check.utils.errors import UsageError


class JointOptimizer(torch.optim.Optimizer):
    """Several optimisers as one: all of them take a step, or none if float16 overflowed.

    A GradScaler checks each optimiser for overflows, and the host waits for every check; with one
    optimiser it waits once.

    Attributes:
        active: the optimisers that take the next step.
    """

    def __init__(self, optimizers: Iterable[torch.optim.Optimizer]) -> None:
        self.active = list(optimizers)
        groups = [group for optimizer in self.active for group in optimizer.param_groups]
        # The empty dictionary: this optimiser has no options.
        super().__init__([p for group in groups for p in group["params"]], {})

    def step(self, closure: Any = None) -> Any:
        """Take a step with each active optimiser."""
        for optimizer in self.active:
            optimizer.step()


def build_optimizers(
    network: Network, loss: nn.Module, filled: FilledMethod, training: Training
) -> dict[str, torch.optim.Optimizer]:
    """Return optimisers by part: ``trunk``, ``embedder`` and ``loss``, if it has parameters."""
    modules = {"trunk": network.trunk, "embedder": network.embedder, "loss": loss}
    optimizers = {}
    for name, module in modules.items():
        config: Optimizer = getattr(training.optimizers, name)
        decay = filled.loss_weight_decay if name == "loss" else config.weight_decay
        parameters = [p for p in module.parameters() if p.requires_grad]
        if parameters:
            groups: list[dict[str, Any]] = [{"params": parameters}]
            if name == "loss":
                groups = _loss_groups(loss, parameters, filled)
            rate = filled.learning_rates[name]
            layer_decay = getattr(config, "layer_decay", None)  # of the trunk's
            try:
                if config.groups or layer_decay:
                    factors = layer_factors(module, layer_decay) if layer_decay else {}
                    rates = {
                        parameter: group.get("lr", rate) * factors.get(parameter, 1.0)
                        for group in groups
                        for parameter in group["params"]
                    }
                    groups = _split_groups(module, rates, decay, config.groups)
                optimizers[name] = _build_optimizer(config, groups, rate, decay)
            except UsageError as error:
                raise UsageError(f"optimizers.{name}.name={config.name}: {error}") from None
    return optimizers


def _loss_groups(
    loss: nn.Module, parameters: list[nn.Parameter], filled: FilledMethod
) -> list[dict[str, Any]]:
    """Return the parameter groups of a loss.

    Parts with learning rates of their own are separate groups; the other parameters come first.
    """
    groups: list[dict[str, Any]] = []
    for key, rate in filled.learning_rates.items():
        if not key.startswith(LOSS_PART):
            continue
        name = key.removeprefix(LOSS_PART)
        part = getattr(loss, name, None)
        if not callable(part):
            raise UsageError(
                f"learning_rates.loss_parts names {name!r}, but {type(loss).__name__} has no such "
                "method that returns parameters; remove it."
            )
        groups.append({"params": list(part()), "lr": rate})
    separate = {id(p) for group in groups for p in group["params"]}
    others = [p for p in parameters if id(p) not in separate]
    return [{"params": others}, *groups] if others else groups


def _split_groups(
    module: nn.Module,
    rates: Mapping[nn.Parameter, float],
    decay: float,
    patterns: Mapping[re.Pattern[str], ParameterGroup],
) -> list[dict[str, Any]]:
    """Return the groups of parameters with equal options.

    Args:
        module: the part of the network, or the loss.
        rates: the learning rates of its trained parameters, without the factors of patterns.
        decay: the weight decay of parameters that no pattern gives another one.
        patterns: what is different for some parameters, by the patterns of their names.
    """
    names = {parameter: name for name, parameter in module.named_parameters()}
    unused: dict[Any, None] = dict.fromkeys(patterns)
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for parameter, rate in rates.items():
        matches = (item for item in patterns.items() if item[0].search(names[parameter]))
        pattern, own = next(matches, (None, ParameterGroup()))
        unused.pop(pattern, None)
        own_decay = decay if own.weight_decay is None else own.weight_decay
        groups.setdefault((rate * own.lr_factor, own_decay), []).append(parameter)
    for pattern in unused:  # the first, if any
        raise UsageError(
            f"groups: {pattern.pattern!r} matches no trained parameter that no pattern before it "
            f"matches; they have names such as {next(iter(names.values()))}: change or remove it."
        )
    return [{"params": p, "lr": lr, "weight_decay": own} for (lr, own), p in groups.items()]


def _build_optimizer(
    config: Optimizer, groups: list[dict[str, Any]], lr: float, decay: float
) -> torch.optim.Optimizer:
    """Construct an optimiser, and check that a training can use it."""
    cls, label = find_class(config.name, "optimizer"), f"optimiser {config.name}"
    takes_decay = "weight_decay" in constructor_arguments(cls)[0]
    largest = max(group.get("weight_decay", decay) for group in groups)
    if largest and not takes_decay:
        raise UsageError(f"{label} has no weight_decay, but it is {largest:g}; write 0.")
    arguments = {"params": groups, "lr": lr} | ({"weight_decay": decay} if takes_decay else {})
    optimizer = build(cls, config.arguments, label, arguments)
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise UsageError(
            f"{label} is none: it must be a subclass of torch.optim.Optimizer; got "
            f"{type(optimizer).__name__}."
        )
    if "closure" in required_arguments(optimizer.step):
        raise UsageError(
            f"{label} needs the loss several times a step (a closure), and a training gives it "
            "once; take another one."
        )
    return optimizer

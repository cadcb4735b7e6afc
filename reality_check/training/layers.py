"""The layers of a trunk: their learning rates, and activations that are computed again."""

from __future__ import annotations

import contextlib
import itertools
from functools import partial
from typing import Any

from torch import nn
from torch.utils.checkpoint import checkpoint

from reality_check.utils.errors import UsageError

#: Options of activation checkpointing.
_OPTIONS = {"use_reentrant": False}
#: Methods of networks that switch it on, with their arguments: timm's, and transformers' two names.
_WAYS: dict[str, tuple[Any, ...]] = {
    "set_grad_checkpointing": (),
    "activation_checkpointing_enable": (_OPTIONS,),
    "gradient_checkpointing_enable": (_OPTIONS,),
}


def layer_factors(trunk: nn.Module, decay: float) -> dict[nn.Parameter, float]:
    """Return factors of the learning rate: 1 in the last layer, in each one before ``decay`` less.

    Layers are those of timm (``timm.optim.param_groups_layer_decay``) for its networks, otherwise
    the children of the longest large stack of the trunk, with what is before and after it.

    Raises:
        UsageError: the trunk has one layer only.
    """
    if hasattr(trunk, "group_matcher"):
        from timm.optim import param_groups_layer_decay

        groups = param_groups_layer_decay(trunk, weight_decay_exclude_1d=False, layer_decay=decay)
        if len(groups) > 1:  # not so if an adapter has renamed the parameters
            return {p: group["lr_scale"] for group in groups for p in group["params"]}
    layers = _layers_of_stack(trunk)
    last = max(layers.values(), default=0)
    if last == 0:
        raise UsageError(
            "layer_decay: the trunk has no stack of layers (nn.Sequential or nn.ModuleList); write "
            "optimizers.trunk.groups: {PATTERN: {lr_factor: 0.1}}."
        )
    return {parameter: decay ** (last - layer) for parameter, layer in layers.items()}


def _layers_of_stack(trunk: nn.Module) -> dict[nn.Parameter, int]:
    """Return the number of the layer of each parameter, by the children of the main stack."""
    stack = _main_stack(trunk) or ()
    children = {p: index for index, child in enumerate(stack) for p in child.parameters()}
    # Parameters come in the order of the layers; what is outside of the stack has no index.
    layers = itertools.groupby(trunk.parameters(), children.get)
    return {p: number for number, (_, layer) in enumerate(layers) for p in layer}


def _main_stack(trunk: nn.Module) -> nn.Sequential | nn.ModuleList | None:
    """Return the longest stack of those with half the parameters of the largest; None if none."""
    stacks = [m for m in trunk.modules() if isinstance(m, nn.Sequential | nn.ModuleList)]
    half = max(map(_size, stacks), default=0) / 2
    large = [stack for stack in stacks if _size(stack) >= half]
    return max(large, key=lambda stack: sum(_size(child) > 0 for child in stack), default=None)


def _size(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def checkpoint_activations(trunk: nn.Module) -> None:
    """Make a trunk keep fewer activations, and compute the others again for the gradient.

    Raises:
        UsageError: the trunk has neither timm's or transformers' way for it, nor a stack of layers.
    """
    for part, (name, arguments) in itertools.product(trunk.modules(), _WAYS.items()):
        if hasattr(part, name):
            # timm and transformers refuse it for networks of theirs that cannot.
            with contextlib.suppress(AssertionError, ValueError):
                getattr(part, name)(*arguments)
                return
    stack = _main_stack(trunk)
    if stack is None:
        raise UsageError(
            "training.activation_checkpointing: the trunk has no set_grad_checkpointing() as those "
            "of timm, no gradient_checkpointing_enable() as those of transformers, and no stack of "
            "layers (nn.Sequential or nn.ModuleList); write false."
        )
    for child in stack:
        if _size(child):  # others, such as a ReLU, may change their input in place
            child.forward = partial(checkpoint, child.forward, **_OPTIONS)

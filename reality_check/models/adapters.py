"""Low-rank adapters of trunks, by peft."""

from __future__ import annotations

import re
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from reality_check.config.classes import one_line
from reality_check.config.model import Adapter
from reality_check.models.partly_frozen import in_evaluation, influences
from reality_check.models.published_weights import import_library
from reality_check.utils.errors import UsageError


def add_adapter(
    trunk: nn.Module, adapter: Adapter, still: Sequence[nn.Module], example: Tensor, title: str
) -> None:
    """Add an adapter to a trunk, and freeze all other parameters.

    Args:
        trunk: the trunk, which is changed.
        adapter: its options.
        still: modules that get no adapter.
        example: one sample as an input of the trunk.
        title: what error messages call the trunk.

    Raises:
        UsageError: peft is not installed, no layer has such a name, peft cannot adapt it, or its
            adapter would change nothing.
    """
    peft = import_library("peft", f"the adapter of {title}", "peft")
    without = {id(module) for part in still for module in part.modules()}
    adapted = {
        name: module
        for name, module in trunk.named_modules()
        if id(module) not in without and any(re.fullmatch(t, name) for t in adapter.targets)
    }
    layers = [name for name, m in trunk.named_modules() if isinstance(m, nn.Linear | nn.Conv2d)]
    last = f"the last layers are {', '.join(layers[-5:]) or 'none'}"
    grouped = [name for name, module in adapted.items() if getattr(module, "groups", 1) > 1]
    if grouped:
        raise UsageError(
            f"adapter.targets: {grouped[0]} of {title} is a convolution with groups, into which no "
            "adapter can be merged; name pointwise ones only."
        )
    if not adapted:
        raise UsageError(
            f"adapter.targets: no layer of {title} has a name like {' or '.join(adapter.targets)}; "
            rf"write regular expressions for full names, such as ['.*\.conv_pw']; {last}."
        )
    config = peft.LoraConfig(
        r=adapter.rank,
        lora_alpha=adapter.alpha,
        lora_dropout=adapter.dropout,
        target_modules=[*adapted],
    )
    try:
        peft.inject_adapter_in_model(config, trunk)
    except ValueError as error:
        raise UsageError(
            f"adapter.targets: {title} cannot be adapted: {one_line(error, 160)}"
        ) from None
    added = {name: p for name, p in trunk.named_parameters() if p.requires_grad}
    with in_evaluation(trunk), torch.enable_grad():
        used = influences(trunk(example), [*added.values()])
    without_effect = [name for name, counts in zip(added, used, strict=True) if not counts]
    if without_effect:
        raise UsageError(
            f"adapter.targets: {title} does not call {without_effect[0].partition('.lora_')[0]} "
            "but reads its weights, or does not use it, so that an adapter would change nothing; "
            f"write regular expressions for full names of others; {last}."
        )


def merge_adapters(network: nn.Module) -> None:
    """Add the products of adapters to the weights that they adapt, and remove the adapters."""
    for name, module in list(network.named_modules()):
        if hasattr(module, "get_base_layer") and hasattr(module, "merge"):
            module.merge()
            network.set_submodule(name, module.get_base_layer())

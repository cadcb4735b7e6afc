"""A network for evaluations, with BatchNorms folded into the layers before them."""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

import torch
from torch import Tensor, nn

_LAYERS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear)
_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


class FoldedNetwork:
    """What a network computes in evaluation mode, up to rounding, with fewer operations.

    A BatchNorm multiplies each channel by a number and adds another one, which the layer before it
    can do. Which layer that is, torch.fx finds out by running the network with stand-ins.

    Attributes:
        count: of BatchNorms that are folded.

    Raises:
        Exception: of any kind, from a network that decides by the values of tensors.
    """

    def __init__(self, network: nn.Module) -> None:
        modes = {part: part.training for part in network.modules()}
        network.eval()
        try:
            self._traced = torch.fx.GraphModule(network, _Tracer().trace(network))
        finally:
            for part, mode in modes.items():
                part.training = mode
        self._folded: list[tuple[Any, Any, Any]] = []
        graph, modules = self._traced.graph, dict(self._traced.named_modules())
        uses = Counter(str(node.target) for node in graph.nodes if node.op == "call_module")
        for node in list(graph.nodes):
            before = node.args[0] if node.op == "call_module" and node.args else None
            if not isinstance(before, torch.fx.Node) or before.op != "call_module":
                continue
            norm, name = modules[str(node.target)], str(before.target)
            layer: Any = modules[name]
            alone = len(before.users) == uses[name] == uses[str(node.target)] == 1
            foldable = type(norm) in _NORMS and norm.running_mean is not None
            if not alone or not isinstance(layer, _LAYERS) or not foldable:
                continue
            folded = copy.deepcopy(layer).requires_grad_(False)
            if folded.bias is None:
                zeros = layer.weight.detach().new_zeros(len(layer.weight))
                folded.bias = nn.Parameter(zeros, requires_grad=False)
            owner, _, last = name.rpartition(".")
            setattr(self._traced.get_submodule(owner), last, folded)  # not in the network itself
            self._folded.append((layer, norm, folded))
            node.replace_all_uses_with(before)
            graph.erase_node(node)
        self.count = len(self._folded)
        self._traced.recompile()
        self.refresh()

    @torch.no_grad()
    def refresh(self) -> None:
        """Take the weights as they are now."""
        for layer, norm, folded in self._folded:
            scale = (norm.running_var + norm.eps).rsqrt()
            if norm.weight is not None:
                scale = scale * norm.weight
            shift = -norm.running_mean if layer.bias is None else layer.bias - norm.running_mean
            folded.weight.copy_(layer.weight * scale.view(-1, *(1,) * (layer.weight.dim() - 1)))
            folded.bias.copy_(shift * scale if norm.bias is None else shift * scale + norm.bias)

    def __call__(self, images: Tensor) -> Tensor:
        return self._traced(images)


class _Tracer(torch.fx.Tracer):
    """Looks into modules that have a BatchNorm, and into no others."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        inside = any(isinstance(part, _NORMS) for part in m.modules())
        return isinstance(m, _NORMS) or not inside

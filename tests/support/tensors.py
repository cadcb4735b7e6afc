"""What tests see of the tensors that PyTorch makes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


class Outputs(TorchDispatchMode):
    """Notes the shape of each tensor that an operation returns, in backward too."""

    def __init__(self) -> None:
        super().__init__()
        self.shapes: list[torch.Size] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        results = result if isinstance(result, tuple | list) else (result,)
        self.shapes += [each.shape for each in results if isinstance(each, Tensor)]
        return result

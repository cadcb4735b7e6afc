"""Trunks that are trained from one of their modules on, from images or from its stored outputs."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from reality_check.utils.errors import UsageError
from reality_check.utils.text import nearest


class _Recorded(nn.Module):
    """Returns what the module that it replaces returned for an example, whatever it is called with.

    It has the attributes of that module too: trunks read some, such as the type of its weights.

    Args:
        replaced: the module, whose weights are dropped.
        output: a tensor, or a tuple of tensors and plain values.

    Attributes:
        given: if it is set, it takes the place of the first tensor.
    """

    def __init__(self, replaced: nn.Module, output: Any) -> None:
        super().__init__()
        self._replaced = [replaced.to("meta")]  # in a list, so that it is no submodule
        self._is_tuple = isinstance(output, tuple)
        self._parts: list[Any] = list(output) if self._is_tuple else [output]
        for number, part in enumerate(self._parts):
            if isinstance(part, Tensor):  # as a buffer it moves to the device
                self._parts[number] = None
                self.register_buffer(f"output{number}", part, persistent=False)
        self.given: Tensor | None = None

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            value = getattr(self.__dict__.get("_replaced", [None])[0], name)
            if inspect.ismethod(value):  # it would change what is dropped
                raise
            return value

    def forward(self, *_: Any, **__: Any) -> Any:
        parts = list(self._parts)
        for name, tensor in self.named_buffers():
            parts[int(name.removeprefix("output"))] = tensor.clone()  # it may be changed in place
        if self.given is not None:
            parts[0] = self.given
        return tuple(parts) if self._is_tuple else parts[0]


class ResumedTrunk(nn.Module):
    """The part of a trunk after one of its modules, whose outputs are its input.

    Each module that runs before is replaced by its output for one example, so that it costs nothing
    and has no weights; code between modules runs with this example. That is right if one tensor
    passes on, besides values that are the same for all samples.

    Args:
        trunk: the trunk, which is changed.
        name: the full name of the module.
        example: one sample as an input of the trunk.

    Shape: (B, ...), outputs of the module -> outputs of the trunk.
    """

    def __init__(self, trunk: nn.Module, name: str, example: Tensor) -> None:
        super().__init__()
        for done, output in freeze_until(trunk, name, example).items():
            trunk.set_submodule(done, _Recorded(trunk.get_submodule(done), output))
        self.trunk, self._start = trunk, name
        self.register_buffer("example", example, persistent=False)

    def forward(self, stored: Tensor) -> Tensor:
        start: Any = self.trunk.get_submodule(self._start)
        start.given = stored
        try:
            outputs: Tensor = self.trunk(self.example)
        finally:
            start.given = None
        return outputs


def freeze_until(trunk: nn.Module, name: str, example: Tensor) -> dict[str, Any]:
    """Freeze all parameters of a trunk on which its output does not depend after a module.

    Returns:
        The outputs for the example of the module and of all that run before it, by their full
        names; of nested ones only the outermost, and none that runs again later.

    Raises:
        UsageError: there is no such module, or it does not run exactly once and return a tensor.
    """
    check_module(trunk, name)
    parameters = [parameter for parameter in trunk.parameters() if parameter.requires_grad]
    with in_evaluation(trunk), torch.enable_grad():
        outputs = _outputs_until(trunk, name, example)
        with _hook(trunk.get_submodule(name), _detach):
            result = trunk(example)
        used = influences(result, parameters)
    for parameter, counts in zip(parameters, used, strict=True):
        parameter.requires_grad_(counts)
    return outputs


def influences(output: Tensor, parameters: Sequence[nn.Parameter]) -> list[bool]:
    """Return of each parameter whether an output depends on it."""
    if not parameters or not output.requires_grad:
        return [False] * len(parameters)
    gradients = torch.autograd.grad(output.sum(), parameters, retain_graph=True, allow_unused=True)
    return [gradient is not None for gradient in gradients]


def check_module(trunk: nn.Module, name: str) -> None:
    """Raise UsageError unless a trunk has a module of that name."""
    names = [key for key, _ in trunk.named_modules() if key]
    if name not in names:
        blocks = [key for key in names if key.rpartition(".")[2].isdigit()]
        depth = min((key.count(".") for key in blocks), default=0)
        outer = ", ".join(key for key in blocks if key.count(".") == depth)
        raise UsageError(
            f"the trunk has no module {name!r} to be frozen up to.{nearest(name, names)} "
            f"Some of its modules: {outer or ', '.join(names[:20])}."
        )


@torch.no_grad()
def _outputs_until(trunk: nn.Module, name: str, example: Tensor) -> dict[str, Any]:
    """Return the outputs that :func:`freeze_until` returns."""
    names = {module: key for key, module in trunk.named_modules() if key}
    outputs: dict[str, Any] = {}
    later: set[str] = set()

    def record(module: nn.Module, inputs: Any, output: Any) -> None:
        if name in outputs:
            later.add(names[module])
        elif isinstance(output, Tensor):
            outputs[names[module]] = output.clone()  # what follows may change it in place
        elif isinstance(output, tuple):
            outputs[names[module]] = output

    with contextlib.ExitStack() as hooks:
        for module in names:
            hooks.enter_context(_hook(module, record))
        trunk(example)
    if name in later or not isinstance(_first(outputs.get(name)), Tensor):
        raise UsageError(
            f"the module {name!r} of the trunk does not run exactly once and return a tensor, so "
            "the trunk cannot be frozen up to it; name one before or after it."
        )
    return {
        key: output
        for key, output in outputs.items()
        if key not in later and not any(key.startswith(f"{other}.") for other in outputs)
    }


def output_of(trunk: nn.Module, name: str, samples: Tensor) -> Tensor:
    """Return the output of a module of a trunk; what follows does not run."""
    found: list[Tensor] = []

    def keep(module: nn.Module, inputs: Any, output: Any) -> None:
        found.append(_first(output))
        raise _Stop

    with _hook(trunk.get_submodule(name), keep), contextlib.suppress(_Stop):
        trunk(samples)
    return found[0]


class _Stop(Exception):
    """Ends a forward pass."""


def _detach(module: nn.Module, inputs: Any, output: Any) -> Any:
    """Return an output as the start of the computation of gradients."""
    first = _first(output).detach().requires_grad_().clone()  # which may be changed in place
    return (first, *output[1:]) if isinstance(output, tuple) else first


def _first(output: Any) -> Any:
    return output[0] if isinstance(output, tuple) and output else output


@contextlib.contextmanager
def _hook(module: nn.Module, function: Callable[..., Any]) -> Iterator[None]:
    handle = module.register_forward_hook(function)
    try:
        yield
    finally:
        handle.remove()


@contextlib.contextmanager
def in_evaluation(module: nn.Module) -> Iterator[None]:
    """Put a module into evaluation mode for a while."""
    was_training = module.training
    module.eval()
    try:
        yield
    finally:
        module.train(was_training)

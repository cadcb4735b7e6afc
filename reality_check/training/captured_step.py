"""Computes loss and gradients by a CUDA graph, whose operations are recorded once and replayed.

A graph repeats what was recorded, with the same memory and the same Python numbers. A step that
waits for the GPU, uploads something, or changes anything but tensors in place would be repeated
wrongly without an error. So a graph is used only if it agrees with plain steps at first.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import math
import random
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from reality_check.training.plain_attributes import PlainAttributes
from reality_check.utils.text import one_line

#: Number of plain steps before the recording; the last of them is watched.
WARM_UP = 3
#: Number of steps after the recording that are computed both by the graph and plainly.
CHECKS = 2

_log = logging.getLogger(__name__)


class CapturedStep:
    """A training step that is recorded, and repeated for batches of the same shape.

    Args:
        compute: a function of images and labels that sets the gradients and returns the loss.
        parts: the modules that take part in the step, by name; ``None`` is left out.
        device: the GPU.
        tolerance: the largest difference allowed between the graph and a plain step, relative to
            the norm of each part's gradient.

    Attributes:
        why_not: why no graph is used, or ``None`` while one is used or still possible.
    """

    def __init__(
        self,
        compute: Callable[[Tensor, Tensor], Tensor],
        parts: Mapping[str, nn.Module | None],
        device: torch.device,
        tolerance: float,
    ) -> None:
        self._compute, self._device, self._tolerance = compute, device, tolerance
        self._parts = {name: part for name, part in parts.items() if part is not None}
        self._stream = torch.cuda.Stream(device)
        self.why_not: str | None = None
        self.forget()

    def forget(self) -> None:
        """Drop the graph, for example when a Python number of the loss has changed."""
        self._graph: Any = None
        self._gradients: list[tuple[nn.Parameter, Tensor]] = []
        self._warm_up_steps, self._checked_steps = 0, 0

    def give_up(self, why: str) -> None:
        """Take plain steps from now on, and log why."""
        self.forget()
        self.why_not = why
        _log_once(why)

    def __call__(self, images: Tensor, labels: Tensor) -> Tensor:
        """Set the gradients, and return the value of the loss."""
        if self.why_not is None and self._graph is None:
            self._warm_up_steps += 1
            if self._warm_up_steps < WARM_UP:
                return self._run_on_stream(images, labels)
            if self._warm_up_steps == WARM_UP:
                return self._run_watched(images, labels)
            self._record(images, labels)  # which may give up
        if self.why_not is not None:
            return self._compute(images, labels)
        # The graph is for one shape.
        if (images.shape, labels.shape) != (self._images.shape, self._labels.shape):
            return self._compute(images, labels)
        if self._checked_steps < CHECKS:
            return self._run_both_ways(images, labels)
        return self._replay(images, labels).clone()

    def _run_on_stream(self, images: Tensor, labels: Tensor) -> Tensor:
        """Take a plain step on the stream of the recording, which prepares torch for it."""
        current = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            value = self._compute(images, labels)
        current.wait_stream(self._stream)
        return value

    def _run_watched(self, images: Tensor, labels: Tensor) -> Tensor:
        """Take a plain step, and give up if a graph would repeat it wrongly."""
        attributes = PlainAttributes(self._parts, self._device)
        random_states, tensors = _host_random_states(), dict(self._tensors())
        watch = _Watch()
        with _record_sync_warnings() as sync_warnings, watch:
            value = self._run_on_stream(images, labels)
        # A graph would use the tensors before the replacement.
        replaced = [name for name, tensor in self._tensors() if tensors.get(name) is not tensor]
        # The state has the attributes that the step has changed, by their module. The key of a part
        # itself is its name with a dot.
        changed = [
            f"{part.rstrip('.')}.{name}"
            for part, names in attributes.state_dict().items()
            for name in names
        ]
        gradients = [p.grad for p in self._parameters() if p.grad is not None]
        if sync_warnings:
            self.give_up("the step waits for the GPU")
        elif watch.reasons:
            self.give_up(watch.reasons[0])
        elif random_states != _host_random_states():
            self.give_up("the step draws random numbers on the host")
        elif changed or replaced:
            self.give_up(f"the step changes {[*changed, *replaced][0]}, which no graph does")
        elif any(gradient.layout != torch.strided for gradient in gradients):
            self.give_up("a gradient is sparse")
        return value

    def _record(self, images: Tensor, labels: Tensor) -> None:
        """Record a step as a graph, or give up if that fails."""
        self._images, self._labels = images.clone(), labels.clone()
        for parameter in self._parameters():
            parameter.grad = None  # so that the gradients are in the graph's own memory
        random_state, graph = torch.cuda.get_rng_state(self._device), torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, stream=self._stream):
                self._value = self._compute(self._images, self._labels)
        except Exception as error:  # from torch, the driver, or lack of memory
            self.give_up(f"it cannot be recorded: {one_line(error)}")
            self._repair_random_state()
            torch.cuda.set_rng_state(random_state, self._device)
            for parameter in self._parameters():
                parameter.grad = None
        else:
            self._graph = graph
            self._gradients = [(p, p.grad) for p in self._parameters() if p.grad is not None]

    def _repair_random_state(self) -> None:
        """Make random numbers work again, which some torch versions refuse after such a failure."""
        try:
            torch.rand(1, device=self._device)
        except RuntimeError:
            with contextlib.suppress(RuntimeError), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # torch warns that the graph is empty
                with torch.cuda.graph(torch.cuda.CUDAGraph(), stream=self._stream):
                    pass
            torch.rand(1, device=self._device)

    def _replay(self, images: Tensor, labels: Tensor) -> Tensor:
        """Run the graph for a batch; return the loss, which the next run overwrites."""
        self._images.copy_(images)
        self._labels.copy_(labels)
        self._graph.replay()
        for parameter, gradient in self._gradients:
            parameter.grad = gradient
        return self._value

    def _run_both_ways(self, images: Tensor, labels: Tensor) -> Tensor:
        """Take a step by the graph and then a plain step from the same state, and compare them.

        The result of the plain step is kept.
        """
        buffers = [b for part in self._parts.values() for b in part.buffers()]
        buffer_values = [b.clone() for b in buffers]
        random_state = torch.cuda.get_rng_state(self._device)
        replayed = self._copy_outcome(self._replay(images, labels))
        for buffer, value in zip(buffers, buffer_values, strict=True):
            buffer.copy_(value)
        torch.cuda.set_rng_state(random_state, self._device)
        value = self._compute(images, labels)
        expected = self._copy_outcome(value)
        if not all(bool(torch.isfinite(t).all()) for ts in expected.values() for t in ts):
            return value  # the float16 scale may still be too large; compare a later step
        self._checked_steps += 1
        for name, tensors in expected.items():
            difference = _relative_difference(replayed[name], tensors)
            if not difference <= self._tolerance:  # also if it is NaN
                self.give_up(f"its {name} differ from those of the plain step by {difference:.1e}")
                break
        return value

    def _copy_outcome(self, value: Tensor) -> dict[str, list[Tensor]]:
        """Return copies of all values that a step computes or changes."""
        outcome = {"loss's values": [value.clone()]}
        for name, part in self._parts.items():
            gradients = [p.grad for p in part.parameters() if p.grad is not None]
            outcome[f"gradients of the {name}"] = [g.clone() for g in gradients]
            outcome[f"buffers of the {name}"] = [b.clone() for b in part.buffers()]
        return outcome

    def _parameters(self) -> Iterator[nn.Parameter]:
        for part in self._parts.values():
            yield from part.parameters()

    def _tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Yield parameters and buffers by name."""
        for owner, part in self._parts.items():
            yield from (*part.named_parameters(owner), *part.named_buffers(owner))


@functools.cache
def _log_once(why: str) -> None:
    """Log a reason once in each worker, even if several fold runs have it."""
    _log.warning("no CUDA graph, since %s; steps are plain ones", why)


class _Watch(TorchDispatchMode):
    """Finds operations that a graph would repeat with the values of the recorded step, wrongly.

    Attributes:
        reasons: a sentence for each such operation.
    """

    def __init__(self) -> None:
        super().__init__()
        self.reasons: list[str] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Check an operation, and run it."""
        kwargs = kwargs or {}
        if func is torch.ops.aten.copy_.default:  # copy_(target, source)
            self._check_copy(args[1], args[0].device)
        elif func is torch.ops.aten._to_copy.default:  # called by Tensor.to
            self._check_copy(args[0], kwargs.get("device"))
        if any(isinstance(value, torch.Generator) for value in (*args, *kwargs.values())):
            self.reasons.append(f"the step draws from a generator of its own ({func})")
        return func(*args, **kwargs)

    def _check_copy(self, source: Tensor, target: torch.device | None) -> None:
        if target is not None and target.type == "cuda" and source.device.type == "cpu":
            self.reasons.append(f"the step uploads a tensor of the shape {[*source.shape]}")


@contextlib.contextmanager
def _record_sync_warnings() -> Iterator[list[str]]:
    """Collect warnings about waits for the GPU; the list is filled when the context exits."""
    messages: list[str] = []
    previous_mode = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            yield messages
        finally:
            torch.cuda.set_sync_debug_mode(previous_mode)
            texts = (str(warning.message) for warning in caught)
            messages += [text for text in texts if "called a synchronizing CUDA operation" in text]


def _host_random_states() -> tuple[Any, ...]:
    """Return the states of the random generators of Python, NumPy and torch on the CPU."""
    numpy_state: Any = np.random.get_state()
    _, keys, *rest = numpy_state  # the keys become bytes, so that states can be compared by ``!=``
    return random.getstate(), keys.tobytes(), *rest, torch.get_rng_state().numpy().tobytes()


def _relative_difference(actual: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    """Return the norm of ``actual - expected``, relative to the norm of ``expected``."""
    if len(actual) != len(expected):
        return math.inf
    squared_difference, squared_norm = 0.0, 0.0
    for tensor, reference in zip(actual, expected, strict=True):
        squared_difference += float((tensor.double() - reference.double()).square().sum())
        squared_norm += float(reference.double().square().sum())
    return (squared_difference / max(squared_norm, 1e-30)) ** 0.5

"""Numerics that stay finite, with their gradients, where a formula does not."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

# Squared distances below this part of the squared lengths count as zero in a float64 expansion.
COINCIDENT = 1e-14
# A shorter vector counts as zero: its direction is rounding noise and the Jacobian 1/|x| explodes.
SHORTEST_VECTOR = 1e-6


def at_least_float32(x: Tensor) -> Tensor:
    """Return ``x`` as float64 if it is float64 and as float32 otherwise (gradients cast back)."""
    return x if x.dtype == torch.float64 else x.float()


def without_autocast(x: Tensor) -> torch.autocast:
    """Return a context in which autocast leaves operations on the device of ``x`` alone."""
    return torch.autocast(x.device.type, enabled=False)


AnyFunction = Callable[..., Any]


def gradients(
    function: AnyFunction, inputs: Sequence[Tensor], grads: Sequence[Tensor | None]
) -> tuple[Tensor | None, ...]:
    """Return the gradients of a function's inputs, integers last, to be differentiated again."""
    floats = [one for one in inputs if one.is_floating_point()]
    rest = inputs[len(floats) :]
    with without_autocast(inputs[0]):
        outputs, pull_back, *_ = torch.func.vjp(lambda *leaves: function(*leaves, *rest), *floats)
        given = (
            torch.zeros_like(output) if grad is None else grad
            for output, grad in zip(outputs, grads, strict=False)
        )
        return *pull_back(tuple(given)), *(None for _ in rest)


def differentiable_as(function: AnyFunction) -> AnyFunction:
    """Decorate the backward pass of a :class:`Fused` that cannot be differentiated itself.

    With ``create_graph=True`` and under torch.func it gives the gradients of ``function``, which
    says the same in plain operations. ``once_differentiable`` would not do: it lets a second
    derivative pass, wrong, where the gradient that comes in is a constant.
    """

    def decorate(backward: AnyFunction) -> AnyFunction:
        @wraps(backward)
        def either(ctx: Any, *grads: Tensor | None) -> Any:
            if not torch.is_grad_enabled():
                return backward(ctx, *grads)
            return gradients(function, ctx.saved_tensors[: len(ctx.needs_input_grad)], grads)

        return either

    return decorate


class Fused(torch.autograd.Function):
    """A function of tensors that saves all it got and returned, a tuple; torch.func takes it."""

    generate_vmap_rule = True

    def __init_subclass__(cls) -> None:
        # torch asks for it in each call, which takes as long as a small step's operation.
        cls.forward.__signature__ = inspect.signature(cls.forward)  # type: ignore[attr-defined]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
        ctx.save_for_backward(*inputs, *output)


def unit_vectors(x: Tensor) -> Tensor:
    """Return the rows of ``x`` at unit length; a zero row stays zero and gets zero gradient.

    Args:
        x: Vectors, shape (..., D), float32 or float64.

    Returns:
        Vectors of the same shape.
    """
    units: Tensor = _UnitVectors.apply(x)[0]
    return units


def plain_unit_vectors(x: Tensor) -> tuple[Tensor]:
    squared = x.square().sum(dim=-1, keepdim=True)
    return (x * squared.masked_fill(squared <= SHORTEST_VECTOR**2, torch.inf).rsqrt(),)


class _UnitVectors(Fused):
    """Half the passes over ``x`` that autograd takes."""

    @staticmethod
    def forward(x: Tensor) -> tuple[Tensor, Tensor]:
        inverse = inverse_lengths(x)
        return x * inverse, inverse

    @staticmethod
    @differentiable_as(plain_unit_vectors)
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        _, units, inverse = ctx.saved_tensors
        along = (grads[0] * units).sum(dim=-1, keepdim=True)
        return torch.addcmul(grads[0], along, units, value=-1).mul_(inverse)


def inverse_lengths(x: Tensor) -> Tensor:
    """Return 1/|x| of each row, and 0 with zero gradient of a zero row, shape (..., 1)."""
    lengths = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return lengths.masked_fill(lengths <= SHORTEST_VECTOR, torch.inf).reciprocal()


def projections(x: Tensor, p: Tensor) -> Tensor:
    """Return ``x @ unit_vectors(p).t()``, shape (N, C): at x of unit length, the cosines."""
    products: Tensor = _Projections.apply(x, p)[0]
    return products


class _Projections(Fused):
    """Without the unit vectors of p, and few passes over p, which may be large."""

    @staticmethod
    def forward(x: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
        inverse = inverse_lengths(p).t()
        return (x @ p.t()).mul_(inverse), inverse

    @staticmethod
    @differentiable_as(lambda x, p: (x @ plain_unit_vectors(p)[0].t(),))
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        x, p, products, inverse = ctx.saved_tensors
        along = (grads[0] * products).sum(dim=0, keepdim=True).mul_(inverse.square())
        per_length = grads[0] * inverse
        with without_autocast(x):
            grad_p = (per_length.t() @ x).addcmul_(along.t(), p, value=-1)
            return per_length @ p, grad_p


def root(squared: Tensor) -> Tensor:
    """Return the distances of squared ones, with zero gradient where these are zero."""
    coincide = squared == 0
    return squared.masked_fill(coincide, 1.0).sqrt().masked_fill(coincide, 0.0)


def paired_distances(x: Tensor, y: Tensor) -> Tensor:
    """Return ``|x_i - y_i|`` by direct difference, with zero gradient where both coincide.

    Args:
        x: Vectors, shape (N, D).
        y: Vectors, shape (N, D).

    Returns:
        Distances, shape (N,).
    """
    return root((x - y).square().sum(dim=-1))


def pairwise_distances(x: Tensor, y: Tensor) -> Tensor:
    """Return ``|x_i - y_j|`` to the digits of its dtype, with zero gradient where both coincide.

    The usual expansion xx + yy - 2xy loses most digits for close points far from the origin
    (17 % error at separation 0.1 and norm 64 in float32), and all of them under TF32. Here float32
    vectors on a CPU are expanded in float64, which keeps them, at a tenth of the time of direct
    differences; these serve elsewhere.

    Args:
        x: Vectors, shape (N, D).
        y: Vectors, shape (M, D).

    Returns:
        Distances, shape (N, M).
    """
    distances: Tensor = _PairwiseDistances.apply(x, y)[0]
    return distances


class _PairwiseDistances(Fused):
    """``torch.cdist`` without loss of digits, whose backward is two matrix products.

    cdist's own backward takes N*M*D memory on CUDA.
    """

    @staticmethod
    def forward(x: Tensor, y: Tensor) -> tuple[Tensor]:
        return (_exact_distances(x, y),)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x, y, distances = ctx.saved_tensors
        coincide = distances == 0
        # Zero where points coincide, even if the gradient is infinite there.
        per_length = (grads[0] / distances.masked_fill(coincide, 1.0)).masked_fill(coincide, 0.0)
        grad_x = grad_y = None
        with without_autocast(x):
            if ctx.needs_input_grad[0]:
                grad_x = per_length.sum(dim=1, keepdim=True) * x - per_length @ y
            if ctx.needs_input_grad[1]:
                grad_y = per_length.sum(dim=0).unsqueeze(1) * y - per_length.t() @ x
        return grad_x, grad_y


def _exact_distances(x: Tensor, y: Tensor) -> Tensor:
    if x.dtype != torch.float32 or x.device.type != "cpu":
        return torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist")
    wide_x, wide_y = x.double(), y.double()
    x_squared = wide_x.square().sum(dim=1, keepdim=True)
    squared = torch.addmm(wide_y.square().sum(dim=1), wide_x, wide_y.t(), alpha=-2)
    squared += x_squared
    return squared.masked_fill_(squared < COINCIDENT * x_squared, 0.0).sqrt_().to(x.dtype)


def world_size() -> int:
    """Return how many processes torch.distributed joins, 1 if it does not run."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_world_size()
    return 1


def is_recomputing() -> bool:
    """Return whether this forward pass is part of a backward pass, as in torch.utils.checkpoint."""
    return not torch.compiler.is_compiling() and torch._C._current_graph_task_id() != -1


def softplus(x: Tensor) -> Tensor:
    """Return ``ln(1 + e^x)`` to the last digit; torch's own is linear above 20."""
    return -F.logsigmoid(-x)

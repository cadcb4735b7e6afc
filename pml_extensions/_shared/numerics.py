"""Numerically stable functions: values and gradients stay finite where plain formulas do not."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

# In xx + yy - 2xy in float64, squared distances below this fraction of xx count as zero.
COINCIDENT = 1e-14
# A shorter vector counts as zero: its direction is rounding noise and the Jacobian 1/|x| explodes.
SHORTEST_VECTOR = 1e-6


def at_least_float32(x: Tensor) -> Tensor:
    """Return ``x`` in float32, or unchanged if it is float64; gradients are cast back."""
    return x if x.dtype == torch.float64 else x.float()


def without_autocast(x: Tensor) -> torch.autocast:
    """Return a context that disables autocast on the device of ``x``."""
    return torch.autocast(x.device.type, enabled=False)


AnyFunction = Callable[..., Any]


def gradients(
    function: AnyFunction, inputs: Sequence[Tensor], grads: Sequence[Tensor | None]
) -> tuple[Tensor | None, ...]:
    """Return the gradients of the inputs of ``function``, which can be differentiated again.

    Args:
        function: Returns a tuple of tensors.
        inputs: Floating-point tensors, then integer tensors, whose gradients are None.
        grads: Gradients of the outputs; None means zeros, and entries beyond the outputs are
            ignored.
    """
    floats = [tensor for tensor in inputs if tensor.is_floating_point()]
    integers = inputs[len(floats) :]
    with without_autocast(inputs[0]):
        # ``vjp`` maps gradients of the outputs to gradients of the inputs.
        outputs, vjp, *_ = torch.func.vjp(lambda *leaves: function(*leaves, *integers), *floats)
        output_grads = (
            torch.zeros_like(output) if grad is None else grad
            for output, grad in zip(outputs, grads, strict=False)
        )
        return *vjp(tuple(output_grads)), *(None for _ in integers)


def second_derivatives_from(plain_forward: AnyFunction) -> AnyFunction:
    """Decorate the backward pass of a :class:`Fused` that is not differentiable itself.

    With ``create_graph=True`` and under torch.func, the decorated function returns the gradients of
    ``plain_forward``, which computes the forward pass by plain operations. torch's
    ``once_differentiable`` is not enough: it silently gives a wrong second derivative if the
    incoming gradient is a constant.
    """

    def decorate(backward: AnyFunction) -> AnyFunction:
        @wraps(backward)
        def wrapped(ctx: Any, *grads: Tensor | None) -> Any:
            if not torch.is_grad_enabled():
                return backward(ctx, *grads)
            # The inputs, which a Fused saves before its outputs.
            return gradients(plain_forward, ctx.saved_tensors[: len(ctx.needs_input_grad)], grads)

        return wrapped

    return decorate


class Fused(torch.autograd.Function):
    """Base of functions with a hand-written gradient; usable under torch.func.

    ``forward`` returns a tuple: the results, and then intermediate values for ``backward``, whose
    gradients are ignored. All inputs and outputs of ``forward`` are saved for ``backward``.
    """

    generate_vmap_rule = True

    def __init_subclass__(cls) -> None:
        # torch inspects the signature in each call, which takes as long as a small operation.
        cls.forward.__signature__ = inspect.signature(cls.forward)  # type: ignore[attr-defined]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
        ctx.save_for_backward(*inputs, *output)


def unit_vectors(x: Tensor) -> Tensor:
    """Scale the rows of ``x`` to unit length; a zero row stays zero and gets zero gradient.

    Args:
        x: Vectors, shape (..., D), float32 or float64.

    Returns:
        Vectors of the same shape.
    """
    vectors: Tensor = _UnitVectors.apply(x)[0]
    return vectors


def plain_unit_vectors(x: Tensor) -> tuple[Tensor]:
    """Return the result of :func:`unit_vectors`, as a tuple, from plain operations."""
    squared = x.square().sum(dim=-1, keepdim=True)
    return (x * squared.masked_fill(squared <= SHORTEST_VECTOR**2, torch.inf).rsqrt(),)


class _UnitVectors(Fused):
    """:func:`unit_vectors` with half the passes over ``x`` that autograd takes."""

    @staticmethod
    def forward(x: Tensor) -> tuple[Tensor, Tensor]:
        inverse_norms = inverse_lengths(x)
        return x * inverse_norms, inverse_norms

    @staticmethod
    @second_derivatives_from(plain_unit_vectors)
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        # For a unit vector u and its gradient g, the gradient of x is (g - (g u) u) / |x|.
        _, vectors, inverse_norms = ctx.saved_tensors
        radial = (grads[0] * vectors).sum(dim=-1, keepdim=True)
        return torch.addcmul(grads[0], radial, vectors, value=-1).mul_(inverse_norms)


def inverse_lengths(x: Tensor) -> Tensor:
    """Return 1/|x| for each row, shape (..., 1); a zero row gets 0 and zero gradient."""
    lengths = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return lengths.masked_fill(lengths <= SHORTEST_VECTOR, torch.inf).reciprocal()


def projections(x: Tensor, p: Tensor) -> Tensor:
    """Return ``x @ unit_vectors(p).t()``, shape (N, C): the cosines if ``x`` has unit length."""
    projected: Tensor = _Projections.apply(x, p)[0]
    return projected


class _Projections(Fused):
    """:func:`projections` with few passes over ``p``, which may be large, and no copy of it."""

    @staticmethod
    def forward(x: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
        inverse_norms = inverse_lengths(p).t()
        return (x @ p.t()).mul_(inverse_norms), inverse_norms

    @staticmethod
    @second_derivatives_from(lambda x, p: (x @ plain_unit_vectors(p)[0].t(),))
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        # For projections z and their gradients g = grads[0], the gradient of p_j is the sum over i
        # of g_ij x_i / |p_j| - g_ij z_ij p_j / |p_j|^2. No gradient passes through the second
        # output, the norms, so grads[1] is not used.
        x, p, projected, inverse_norms = ctx.saved_tensors
        radial = (grads[0] * projected).sum(dim=0, keepdim=True).mul_(inverse_norms.square())
        scaled_grad = grads[0] * inverse_norms
        with without_autocast(x):
            grad_p = (scaled_grad.t() @ x).addcmul_(radial.t(), p, value=-1)
            return scaled_grad @ p, grad_p


def root(squared: Tensor) -> Tensor:
    """Return the square roots of squared distances, with zero gradient at 0."""
    coincide = squared == 0
    return squared.masked_fill(coincide, 1.0).sqrt().masked_fill(coincide, 0.0)


def paired_distances(x: Tensor, y: Tensor) -> Tensor:
    """Return ``|x_i - y_i|``, with zero gradient at 0.

    Args:
        x: Vectors, shape (N, D).
        y: Vectors, shape (N, D).

    Returns:
        Distances, shape (N,).
    """
    return root((x - y).square().sum(dim=-1))


def pairwise_distances(x: Tensor, y: Tensor) -> Tensor:
    """Return ``|x_i - y_j|`` to the full precision of the dtype, with zero gradient at 0.

    The usual expansion xx + yy - 2xy loses most digits for close points far from the origin
    (17 % error at separation 0.1 and norm 64 in float32), and all of them under TF32. Here float32
    vectors on a CPU are expanded in float64, which keeps the digits and takes a tenth of the time
    of direct differences; other dtypes and devices use direct differences.

    Args:
        x: Vectors, shape (N, D).
        y: Vectors, shape (M, D).

    Returns:
        Distances, shape (N, M).
    """
    distances: Tensor = _PairwiseDistances.apply(x, y)[0]
    return distances


class _PairwiseDistances(Fused):
    """``torch.cdist`` without loss of digits, with a backward pass of two matrix products.

    The backward pass of cdist takes N*M*D memory on CUDA.
    """

    @staticmethod
    def forward(x: Tensor, y: Tensor) -> tuple[Tensor]:
        return (_exact_distances(x, y),)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x, y, distances = ctx.saved_tensors
        coincide = distances == 0
        # The gradient of x_i is the sum over j of g_ij (x_i - y_j) / |x_i - y_j|. A pair of points
        # that coincide adds nothing, even if its g is infinite.
        scaled_grad = (grads[0] / distances.masked_fill(coincide, 1.0)).masked_fill(coincide, 0.0)
        grad_x = grad_y = None
        with without_autocast(x):
            if ctx.needs_input_grad[0]:
                grad_x = scaled_grad.sum(dim=1, keepdim=True) * x - scaled_grad @ y
            if ctx.needs_input_grad[1]:
                grad_y = scaled_grad.sum(dim=0).unsqueeze(1) * y - scaled_grad.t() @ x
        return grad_x, grad_y


def _exact_distances(x: Tensor, y: Tensor) -> Tensor:
    """Return the result of :func:`pairwise_distances`, without its gradient."""
    if x.dtype != torch.float32 or x.device.type != "cpu":
        return torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist")
    double_x, double_y = x.double(), y.double()
    x_squared = double_x.square().sum(dim=1, keepdim=True)
    # |y|^2 - 2 x y, and then + |x|^2.
    squared = torch.addmm(double_y.square().sum(dim=1), double_x, double_y.t(), alpha=-2)
    squared += x_squared
    # Rounding noise of points that coincide counts as 0.
    return squared.masked_fill_(squared < COINCIDENT * x_squared, 0.0).sqrt_().to(x.dtype)


def squared_lengths(x: Tensor) -> Tensor:
    """Return the squared length of each row of a matrix."""
    return torch.linalg.vector_norm(x, dim=1).square()


def world_size() -> int:
    """Return the number of processes in torch.distributed, or 1 if it is not initialised."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_world_size()
    return 1


def is_recomputing() -> bool:
    """Return whether this forward pass runs in a backward pass, as under torch's checkpoint."""
    # The id of the backward pass that runs, or -1.
    return not torch.compiler.is_compiling() and torch._C._current_graph_task_id() != -1


def softplus(x: Tensor) -> Tensor:
    """Return ``ln(1 + e^x)`` to full precision; ``F.softplus`` is linear above 20."""
    return -F.logsigmoid(-x)

"""What the losses share, in one file: a loss can be copied elsewhere with this file alone.

First checks of arguments, then numerics that stay finite where a formula does not, then the sums
of a softmax, then what stands before PML's base classes. PML is not imported here, since modules
and metrics do without it.
"""

from __future__ import annotations

import inspect
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

if TYPE_CHECKING:
    from pytorch_metric_learning.losses import BaseMetricLossFunction as _Before
else:
    _Before = torch.nn.Module

IndicesTuple = tuple[Tensor, ...] | None
LossDict = dict[str, dict[str, Any]]

# -- checks: each error says what was given and what is allowed -----------------------------------


@dataclass(frozen=True)
class Number:
    """A check of a number: called with a name and a value, it returns the value or raises.

    Args:
        allowed: What the number must be, in words.
        holds: Whether it is.
    """

    allowed: str
    holds: Callable[[float], bool]

    def __call__(self, name: str, value: Any) -> float:
        """Return ``value`` as a float, or raise ValueError if it is no number that is allowed."""
        try:
            number = None if isinstance(value, (bool, str)) else float(value)
        except (TypeError, ValueError):
            number = None
        if number is None or not self.holds(number):
            allowed = "a number" if number is None else self.allowed
            raise ValueError(f"{name} must be {allowed}, but got {name}={value!r}.")
        return number


positive = Number("finite and greater than 0", lambda x: 0 < x < math.inf)
positive_or_infinite = Number("greater than 0", lambda x: x > 0)
non_negative = Number("finite and at least 0", lambda x: 0 <= x < math.inf)
at_least_one = Number("finite and at least 1", lambda x: 1 <= x < math.inf)
fraction = Number("at least 0 and below 1", lambda x: 0 <= x < 1)
share = Number("above 0 and at most 1", lambda x: 0 < x <= 1)


def positive_integer(name: str, value: Any) -> int:
    """Return ``value`` as an int, or raise ValueError if it is not a whole number above 0."""
    try:
        number = operator.index(value)
    except TypeError:
        number = 0
    if isinstance(value, bool) or number < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, but got {name}={value!r}.")
    return number


def one_of(name: str, value: Any, allowed: Sequence[Any]) -> Any:
    """Return ``value``, or raise ValueError if it is none of ``allowed``."""
    # Identity for booleans: 0 == False, but 0 is not what the signature offers.
    if not any(
        value is option or (isinstance(value, str) and value == option) for option in allowed
    ):
        options = ", ".join(repr(option) for option in allowed)
        raise ValueError(f"{name} must be one of {options}, but got {name}={value!r}.")
    return value


def class_labels(labels: Tensor, num_classes: int, check: bool | None = None) -> Tensor:
    """Return ``labels`` as int64, or raise ValueError if they are not integers 0..num_classes-1.

    On a GPU reading the range would wait for the device, so there, and under torch.compile, it is
    an assertion that the device makes, unless ``check`` is True; False checks nothing.
    """
    if labels.dtype.is_floating_point or labels.dtype.is_complex or labels.dtype == torch.bool:
        raise ValueError(f"labels must be integers, but their dtype is {labels.dtype}.")
    labels = labels.long()
    if check is False or len(labels) == 0:
        return labels
    lowest, highest = labels.aminmax()
    if torch.compiler.is_compiling() or (check is None and labels.device.type != "cpu"):
        valid = (lowest >= 0) & (highest < num_classes)
        torch._assert_async(valid, f"a label is not in 0..{num_classes - 1}")
    elif lowest < 0 or highest >= num_classes:
        wrong = lowest if lowest < 0 else highest
        raise ValueError(
            f"num_classes={num_classes}, but a label is {int(wrong)}; labels must be "
            f"0..{num_classes - 1} (data sets that count from 1 need remapping)."
        )
    return labels


def embedding_shape(embeddings: Tensor, embedding_size: int | None = None) -> None:
    """Raise ValueError unless ``embeddings`` are floating-point vectors of the expected size."""
    expected = "embedding_size" if embedding_size is None else embedding_size
    if embeddings.ndim != 2 or expected not in ("embedding_size", embeddings.shape[1]):
        raise ValueError(
            f"embeddings must have shape (batch_size, {expected}), "
            f"but got {tuple(embeddings.shape)}."
        )
    if not embeddings.dtype.is_floating_point:
        raise ValueError(f"embeddings must be floating point, but got {embeddings.dtype}.")


def require_squares(x: Tensor, name: str) -> None:
    """Raise ValueError if squared distances of finite ``x``, summed in its dtype, overflow."""
    # Four times the sum is more than that of all distances to one point between them.
    if not math.isfinite(x.square().sum().mul_(4)):
        raise ValueError(
            f"{name} must have finite squares, but those of values up to "
            f"{float(x.abs().max()):.3g} overflow in {x.dtype}; divide all by one number, or look "
            "for what made them so large (a training that diverged)."
        )


# -- numerics -------------------------------------------------------------------------------------

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


# -- softmax --------------------------------------------------------------------------------------

#: A term e^this of a softmax, 2e-35, changes no sum, yet is no denormal number in float32.
NEGLIGIBLE = -80.0

#: Returns the logits of embeddings, shape (N, D), and the rows of class-wise parameters,
#: shape (C, ...): shape (N, C), or (V, N, C) of V softmaxes over the same classes.
Logits = Callable[..., Tensor]


class Sums(NamedTuple):
    """What a softmax comes to for each sample, shape (N,) or (V, N).

    ``own`` is the logit of the sample's own class y, ``others`` the log-sum-exp of those of all
    other classes (minus infinity of none), ``total`` the sum of all; ``rows`` are those of the
    class-wise parameters that belong to y, shape (N, ...).
    """

    own: Tensor
    others: Tensor
    total: Tensor
    rows: tuple[Tensor, ...]


class Part(NamedTuple):
    """The sums over some of the classes; ``top + log_sum`` are those of the other classes."""

    own: Tensor
    top: Tensor
    log_sum: Tensor
    total: Tensor

    @classmethod
    def of(cls, z: Tensor, labels: Tensor, start: int = 0) -> Part:
        """Sum up the logits of the classes from ``start`` on, which are overwritten."""
        place, here = places(z, labels, start)
        own, total = z.gather(-1, place), z.sum(dim=-1)
        z.scatter_(-1, place, own.masked_fill(here, -torch.inf))
        # Relative to the largest, because a large sum loses the digits of its logarithm.
        top = z.amax(dim=-1, keepdim=True)
        terms = z.sub_(top.masked_fill(top == -torch.inf, 0.0)).clamp_(min=NEGLIGIBLE).exp_()
        own = own.masked_fill(~here, 0.0).squeeze(-1)
        return cls(own, top.squeeze(-1), terms.sum(dim=-1).log_(), total)


def logit_gradient(
    z: Tensor,
    labels: Tensor,
    top: Tensor,
    log_sum: Tensor,
    grads: Sequence[Tensor | None],
    start: int = 0,
) -> Tensor:
    """Return the gradient of :meth:`Part.of` from those of own, ``top + log_sum`` and total."""
    grad_own, grad_others, grad_total = grads
    place, here = places(z, labels, start)
    # Where there is no other class the sum is minus infinity, and its gradient must be zero.
    terms = z - top.masked_fill(top == -torch.inf, 0.0).unsqueeze(-1)
    terms.clamp_(min=NEGLIGIBLE).exp_()
    # With the logarithm added to a large maximum, the terms would not add up to 1.
    weight = torch.exp(-log_sum) * (0.0 if grad_others is None else grad_others)
    # Products of denormal numbers are slow.
    grad = torch.threshold_(terms, math.exp(NEGLIGIBLE) * 1.001, 0.0).mul_(weight.unsqueeze(-1))
    mine = grad.gather(-1, place).masked_fill(here, 0.0)
    if grad_own is not None:
        mine += grad_own.unsqueeze(-1) * here
    grad.scatter_(-1, place, mine)
    return grad if grad_total is None else grad.add_(grad_total.unsqueeze(-1))


def places(z: Tensor, labels: Tensor, start: int) -> tuple[Tensor, Tensor]:
    """Return where in ``z`` each sample's class is, or any place if elsewhere, and whether."""
    place = (labels - start).expand(z.shape[:-1]).unsqueeze(-1)
    here = (place >= 0) & (place < z.shape[-1])
    return place.clamp(0, z.shape[-1] - 1), here


def own_rows(row: Tensor, labels: Tensor) -> Tensor:
    """Return the rows of the samples' classes, shape (N, ...)."""
    if row.ndim != 2 or torch.compiler.is_compiling():
        return row.index_select(0, labels)
    # A sparse gradient is added to a dense one in place, without one more of all classes.
    return F.embedding(labels, row, sparse=True)


def plain_sums(z: Tensor, labels: Tensor, start: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Return own, ``top + log_sum`` and total of :meth:`Part.of` by plain operations."""
    place, here = places(z, labels, start)
    own = z.gather(-1, place)
    # Not minus infinity: of nothing else the derivative would be no number.
    lowest = torch.finfo(z.dtype).min
    others = z.scatter(-1, place, own.masked_fill(here, lowest)).logsumexp(dim=-1)
    return own.masked_fill(~here, 0.0).squeeze(-1), others, z.sum(dim=-1)


class _MatrixSums(Fused):
    """The sums of a matrix of logits; fewer passes and copies of it than autograd takes."""

    @staticmethod
    def forward(z: Tensor, labels: Tensor) -> tuple[Tensor, ...]:
        part = Part.of(z.clone(), labels)
        return part.own, part.top + part.log_sum, part.total, part.top, part.log_sum

    @staticmethod
    def setup_context(ctx: Any, *args: Any) -> None:
        Fused.setup_context(ctx, *args)
        # Zeros for a total that nobody takes would be added to the whole matrix.
        ctx.set_materialize_grads(False)

    @staticmethod
    @differentiable_as(plain_sums)
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor, None]:
        z, labels, _, _, _, top, log_sum = ctx.saved_tensors
        return logit_gradient(z, labels, top, log_sum, grads[:3]), None


class Softmax:
    """A softmax over all classes at once, from the N x C matrix of logits."""

    def cross_entropy(
        self, logits: Logits, x: Tensor, rows: Sequence[Tensor], labels: Tensor
    ) -> Tensor:
        """Return ``-ln softmax(z)_y`` of each sample, shape (N,).

        Args:
            logits: The equation of z.
            x: Embeddings, shape (N, D).
            rows: Class-wise parameters, shape (C, ...).
            labels: Own classes y, shape (N,), values 0..C-1.
        """
        return F.cross_entropy(logits(x, *rows), labels, reduction="none")

    def sums(self, logits: Logits, x: Tensor, rows: Sequence[Tensor], labels: Tensor) -> Sums:
        """Return the parts of the cross-entropy, ``softplus(others - own)``; same arguments."""
        # Before the logits, so that their gradient is there when the sparse one is added to it.
        of_labels = tuple(own_rows(row, labels) for row in rows)
        z = logits(x, *rows)
        if not z.requires_grad:  # a sparse gradient alone is none that Adam takes
            of_labels = tuple(row.index_select(0, labels) for row in rows)
        own, others, total, *_ = _MatrixSums.apply(z, labels)
        return Sums(own, others, total, of_labels)


# -- before PML's base classes --------------------------------------------------------------------


class Float32Loss(_Before):
    """Computes in float32 under autocast and for float16 and bfloat16 embeddings.

    That includes regularisers and reducers: PML adds up sub-losses in the embeddings' dtype.
    float64 stays float64. A ``distance`` is refused: the equations fix theirs.
    """

    def __init__(self, **kwargs: Any) -> None:
        if kwargs.get("distance") is not None:
            raise ValueError(
                f"{type(self).__name__} takes no distance, because its equation fixes one; "
                "remove that argument."
            )
        if type(kwargs.get("reducer")).__name__ == "DivisorReducer":
            raise ValueError(
                f"{type(self).__name__} names no divisor for DivisorReducer; write MeanReducer(), "
                "which divides by the number of entries."
            )
        super().__init__(**kwargs)

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor | None = None,
        indices_tuple: IndicesTuple = None,
        ref_emb: Tensor | None = None,
        ref_labels: Tensor | None = None,
    ) -> Tensor:
        """Return the loss, reduced by the reducer.

        Args:
            embeddings: Shape (N, D).
            labels: Shape (N,).
            indices_tuple: What a miner returned.
            ref_emb: Embeddings to compare with, shape (M, D); not all losses take them.
            ref_labels: Shape (M,).

        Returns:
            What the reducer returns: a float32 scalar (float64 if the embeddings are) for PML's.
        """
        # PML tells "no reference" by identity, which the cast must not break.
        x = _float32(embeddings)
        if ref_emb is not None:
            # By the graph, because a comparison of values waits for a GPU.
            parts = getattr(ref_emb.grad_fn, "next_functions", ((None,),))
            of_all = len(ref_emb) == world_size() * len(embeddings) > len(embeddings)
            if of_all and None is not parts[0][0] is embeddings.grad_fn:
                raise ValueError(
                    "DistributedLossWrapper(efficient=True) of PML loses the gradient of pairs "
                    "across ranks; write pml_extensions.distributed.DistributedLossWrapper(loss)."
                )
            ref_emb = x if ref_emb is embeddings else _float32(ref_emb)
        with without_autocast(x):
            loss: Tensor = super().forward(x, labels, indices_tuple, ref_emb, ref_labels)
        return loss


def _float32(x: Tensor) -> Tensor:
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


class Phased:
    """Numbers that can change between the phases of a training, each with its check.

    They are plain floats, exact whatever the dtype of the module, and part of the checkpoint.
    """

    phase_checks: ClassVar[Mapping[str, Callable[[str, Any], float]]] = {}

    def set_phase(self, **values: float) -> None:
        """Change the named numbers from the next forward pass on; the others stay.

        Args:
            **values: New numbers by name.

        Raises:
            ValueError: A name is unknown or a value is not allowed; then nothing is changed.
        """
        for name, number in self._checked(values).items():
            setattr(self, name, number)

    def _checked(self, values: Mapping[str, Any]) -> dict[str, float]:
        unknown = [name for name in values if name not in self.phase_checks]
        if unknown:
            raise ValueError(
                f"{type(self).__name__} has no phase value {unknown[0]!r}; "
                f"the names are {', '.join(self.phase_checks)}."
            )
        return {name: self.phase_checks[name](name, value) for name, value in values.items()}

    def get_extra_state(self) -> Tensor:
        """Return the numbers of the phase for a checkpoint, exact."""
        return torch.tensor(
            [getattr(self, name) for name in self.phase_checks], dtype=torch.float64
        )

    def set_extra_state(self, state: Tensor) -> None:
        """Take over the numbers of the phase from a checkpoint."""
        for name, number in zip(self.phase_checks, state.tolist(), strict=True):
            setattr(self, name, number)


class ProxyLoss(Phased, Float32Loss):
    """A loss with a parameter ``proxies`` of shape (num_classes, embedding_size).

    A subclass writes its equation as ``features`` of the embeddings, ``logits`` of features and
    classes, and ``sample_losses`` where it is no softmax of these. They get float32 or float64
    tensors and run without autocast; no parameter ever changes its dtype.

    Args:
        num_classes: Number of classes C.
        embedding_size: Dimension D of the embeddings.
        phase: Numbers by name, those of ``phase_checks``.
        class_sampler: Draws the classes that a training step compares with, such as
            ``ClassSampler(0.1)``; evaluation mode takes all classes. None: all.
        softmax: How sums over classes are taken, such as ``ChunkedSoftmax()``, whose memory does
            not grow with batch x classes. None: from the matrix of all logits.
        check_labels: True raises ValueError for a label out of range, on a GPU by waiting for it.
            None does so on the CPU and leaves it to an assertion on the device elsewhere. False
            checks nothing.
        **kwargs: PML's ``reducer``, ``weight_init_func``, ``weight_regularizer``,
            ``embedding_regularizer`` and their weights.

    Raises:
        ValueError: An argument is out of range.
    """

    sub_losses: ClassVar[tuple[str, ...]] = ("loss",)
    proxies: torch.nn.Parameter
    logits: Logits

    def __init__(
        self,
        num_classes: int,
        embedding_size: int,
        phase: Mapping[str, float],
        class_sampler: Any = None,
        softmax: Any = None,
        check_labels: bool | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.num_classes = positive_integer("num_classes", num_classes)
        self.embedding_size = positive_integer("embedding_size", embedding_size)
        self.set_phase(**phase)
        self.proxies = torch.nn.Parameter(torch.empty(self.num_classes, self.embedding_size))
        self.weight_init_func(self.proxies)
        self.class_sampler = _object("class_sampler", class_sampler, "fewest", "ClassSampler(0.1)")
        self.softmax = _object("softmax", softmax, "sums", "ChunkedSoftmax()") or Softmax()
        self.check_labels = one_of("check_labels", check_labels, (None, True, False))
        names = ["num_classes", "embedding_size", *self.phase_checks]
        self.add_to_recordable_attributes(list_of_names=names, is_stat=False)

    def get_logits(self, embeddings: Tensor) -> Tensor:
        """Return the logits of the softmax: larger is more similar.

        Args:
            embeddings: Shape (N, embedding_size).

        Returns:
            Shape (N, num_classes), float32 (float64 if the embeddings are).
        """
        embedding_shape(embeddings, self.embedding_size)
        with without_autocast(embeddings):
            x = self.features(at_least_float32(embeddings))
            return self.logits(x, *(p.to(x) for p in self.class_parameters()))

    def features(self, embeddings: Tensor) -> Tensor:
        """Return what the logits are made of, shape (N, D): the embeddings, unless overridden."""
        return embeddings

    def features_in_training(self, embeddings: Tensor) -> Tensor:
        """Return the same for the loss, where running statistics may move."""
        return self.features(embeddings)

    def compute_loss(
        self,
        embeddings: Tensor,
        labels: Tensor | None,
        indices_tuple: IndicesTuple,
        ref_emb: Tensor | None,
        ref_labels: Tensor | None,
    ) -> LossDict:
        """Return PML's loss dictionary; called by ``forward``.

        Raises:
            ValueError: This call cannot be meant.
        """
        if labels is None:
            raise ValueError(f"labels are required by {type(self).__name__}, but none were given.")
        if ref_emb is not embeddings or ref_labels is not labels:
            raise ValueError(f"{type(self).__name__} takes no ref_emb; leave it out.")
        embedding_shape(embeddings, self.embedding_size)
        labels = class_labels(labels, self.num_classes, self.check_labels)
        losses = self.sample_losses(embeddings, labels)
        if len(embeddings) == 0:
            # The mean of nothing is NaN; PML's zero loss keeps the graph.
            return self.zero_losses()
        if indices_tuple is not None:
            from pytorch_metric_learning.utils import loss_and_miner_utils as lmu

            weights = lmu.convert_to_weights(indices_tuple, labels, dtype=embeddings.dtype)
            losses = {name: values * weights for name, values in losses.items()}
        indices = torch.arange(len(embeddings), device=embeddings.device)
        loss_dict = {
            name: {"losses": values, "indices": indices, "reduction_type": "element"}
            for name, values in losses.items()
        }
        self.add_weight_regularization_to_loss_dict(loss_dict, self.proxies)
        return loss_dict

    def sample_losses(self, embeddings: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """Return each sub-loss of the samples, shape (N,), by name: the softmax of ``logits``."""
        y, rows = self.classes(embeddings, labels, *self.class_parameters())
        x = self.features_in_training(embeddings)
        return {"loss": self.softmax.cross_entropy(self.logits, x, rows, y)}

    def class_parameters(self) -> tuple[Tensor, ...]:
        """Return the class-wise parameters, those that ``logits`` takes."""
        return (self.proxies,)

    def classes(
        self, x: Tensor, labels: Tensor, *parameters: Tensor
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Return labels and rows of class-wise parameters for the classes of this step."""
        rows: Sequence[Tensor] = parameters
        if self.class_sampler is not None and self.training:
            labels, rows = self.class_sampler(labels, parameters)
        return labels, tuple(row.to(x) for row in rows)

    def _sub_loss_names(self) -> list[str]:
        return list(self.sub_losses)

    @torch.no_grad()
    def set_proxies_to_class_means(self, embeddings: Tensor, labels: Tensor) -> None:
        """Start the proxies at the unit-length mean of each class (paper 003's code, for SOP).

        Args:
            embeddings: Of the training images before training, shape (M, embedding_size).
            labels: Shape (M,); classes without a sample keep their proxy.

        Raises:
            ValueError: A shape or a label is out of range.
        """
        embedding_shape(embeddings, self.embedding_size)
        labels = class_labels(labels, self.num_classes, check=True).to(self.proxies.device)
        x = embeddings.to(self.proxies)
        sums = torch.zeros_like(self.proxies).index_add_(0, labels, x)
        seen = torch.bincount(labels, minlength=self.num_classes) > 0
        self.proxies.copy_(torch.where(seen.unsqueeze(1), unit_vectors(sums), self.proxies))


def _object(name: str, value: Any, method: str, example: str) -> Any:
    if value is not None and not hasattr(value, method):
        raise ValueError(f"{name} must be an object such as {example}, but got {name}={value!r}.")
    return value

"""Base classes of the losses, to be combined with PML's base class.

PML is not imported here, so modules and metrics work without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from .checks import class_labels, embedding_shape, one_of, positive_integer
from .numerics import at_least_float32, unit_vectors, without_autocast, world_size
from .softmax import Logits, Softmax

if TYPE_CHECKING:
    from pytorch_metric_learning.losses import BaseMetricLossFunction as _Base
else:
    _Base = torch.nn.Module

#: Indices of pairs or triplets from a miner, if there is one.
IndicesTuple = tuple[Tensor, ...] | None
#: PML's loss dictionary: name of a sub-loss -> its losses, indices and reduction type, by name.
LossDict = dict[str, dict[str, Any]]


class Float32Loss(_Base):
    """Base of losses that compute in float32 under autocast and for half-precision embeddings.

    Regularisers and reducers compute in float32, too, because PML adds up sub-losses in the dtype
    of the embeddings. float64 stays float64. The argument ``distance`` raises ValueError, because
    each equation fixes its distance.
    """

    def __init__(self, **kwargs: Any) -> None:
        if kwargs.get("distance") is not None:
            raise ValueError(
                f"{type(self).__name__} takes no distance, because its equation fixes one; "
                "remove that argument."
            )
        # By name, because PML is not imported here.
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
            indices_tuple: Pairs or triplets from a miner.
            ref_emb: Reference embeddings, shape (M, D); not all losses support them.
            ref_labels: Shape (M,).

        Returns:
            The reduced loss: with PML's reducers a float32 scalar (float64 for float64 embeddings).
        """
        # PML tests ``ref_emb is embeddings``, so one tensor must be cast to one tensor.
        x = _half_to_float32(embeddings)
        if ref_emb is not None:
            # PML's efficient wrapper passes the joined batches of all ranks, this rank's
            # first. Then the first input of ``ref_emb`` in the autograd graph is the node that
            # computed the embeddings. Comparing values instead would synchronise with the
            # GPU. Each input is a pair of a node and the number of its output; a ``ref_emb``
            # without graph has none.
            inputs = getattr(ref_emb.grad_fn, "next_functions", ((None,),))
            has_all_ranks = len(ref_emb) == world_size() * len(embeddings) > len(embeddings)
            node = embeddings.grad_fn
            if has_all_ranks and node is not None and inputs[0][0] is node:
                raise ValueError(
                    "DistributedLossWrapper(efficient=True) of PML loses the gradient of pairs "
                    "across ranks; write pml_extensions.distributed.DistributedLossWrapper(loss)."
                )
            ref_emb = x if ref_emb is embeddings else _half_to_float32(ref_emb)
        with without_autocast(x):
            loss: Tensor = super().forward(x, labels, indices_tuple, ref_emb, ref_labels)
        return loss


def _half_to_float32(x: Tensor) -> Tensor:
    """Return float16 and bfloat16 tensors as float32, and others unchanged."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


class Phased:
    """Hyper-parameters that can change between the phases of a training, each with its own check.

    They are Python floats, exact whatever the dtype of the module, and are saved in checkpoints.
    """

    phase_checks: ClassVar[Mapping[str, Callable[[str, Any], float]]] = {}

    def set_phase(self, **values: float) -> None:
        """Set hyper-parameters from the next forward pass on; the others keep their values.

        Args:
            **values: New values by name.

        Raises:
            ValueError: A name is unknown or a value is not allowed; then nothing is changed.
        """
        for name, number in self._checked_phase(values).items():
            setattr(self, name, number)

    def _checked_phase(self, values: Mapping[str, Any]) -> dict[str, float]:
        """Return the values as floats, or raise ValueError if a name or a value is not allowed."""
        unknown = [name for name in values if name not in self.phase_checks]
        if unknown:
            raise ValueError(
                f"{type(self).__name__} has no phase value {unknown[0]!r}; "
                f"the names are {', '.join(self.phase_checks)}."
            )
        return {name: self.phase_checks[name](name, value) for name, value in values.items()}

    def get_extra_state(self) -> Tensor:
        """Return the hyper-parameters for a checkpoint, as float64."""
        return torch.tensor(
            [getattr(self, name) for name in self.phase_checks], dtype=torch.float64
        )

    def set_extra_state(self, state: Tensor) -> None:
        """Load the hyper-parameters from a checkpoint."""
        for name, number in zip(self.phase_checks, state.tolist(), strict=True):
            setattr(self, name, number)


class ProxyLoss(Phased, Float32Loss):
    """A loss with a parameter ``proxies`` of shape (num_classes, embedding_size).

    A subclass defines its equation by ``features`` (of the embeddings), ``logits`` (of features and
    class-wise parameters) and, if the loss is not the cross-entropy of these logits,
    ``sample_losses``. They get float32 or float64 tensors and run without autocast; parameters keep
    their dtype.

    Args:
        num_classes: Number of classes C.
        embedding_size: Dimension D of the embeddings.
        phase: Initial values of the hyper-parameters in ``phase_checks``, by name.
        class_sampler: Chooses the classes used in a training step, such as ``ClassSampler(0.1)``;
            evaluation mode uses all classes. None always uses all.
        softmax: How sums over classes are computed, such as ``ChunkedSoftmax()``, whose memory does
            not grow with batch size x classes. None uses the matrix of all logits.
        check_labels: True raises ValueError for a label out of range, which synchronises with a
            GPU. None raises the error on the CPU only and uses a device-side assertion elsewhere.
            False skips the check.
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
        # Any object with a method ``fewest`` or ``sums`` is accepted, whatever its class.
        self.class_sampler = _require_method(
            "class_sampler", class_sampler, "fewest", "ClassSampler(0.1)"
        )
        self.softmax = _require_method("softmax", softmax, "sums", "ChunkedSoftmax()") or Softmax()
        self.check_labels = one_of("check_labels", check_labels, (None, True, False))
        self.add_to_recordable_attributes(
            list_of_names=["num_classes", "embedding_size", *self.phase_checks], is_stat=False
        )

    def get_logits(self, embeddings: Tensor) -> Tensor:
        """Return the logits of the softmax; a larger one means more similar.

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
        """Return the features that ``logits`` takes, shape (N, D): by default the embeddings."""
        return embeddings

    def features_in_training(self, embeddings: Tensor) -> Tensor:
        """Return the features in ``compute_loss``, where running statistics may be updated."""
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
            ValueError: Labels are missing, references were given, or a shape or label is wrong.
        """
        if labels is None:
            raise ValueError(f"labels are required by {type(self).__name__}, but none were given.")
        # Without references, PML's forward passes embeddings and labels in their place.
        if ref_emb is not embeddings or ref_labels is not labels:
            raise ValueError(f"{type(self).__name__} takes no ref_emb; leave it out.")
        embedding_shape(embeddings, self.embedding_size)
        labels = class_labels(labels, self.num_classes, self.check_labels)
        # Also for an empty batch, because other ranks may wait for its part in an all_reduce.
        losses = self.sample_losses(embeddings, labels)
        if len(embeddings) == 0:
            # A mean over no samples is NaN; PML's zero loss stays connected to the graph.
            return self.zero_losses()
        if indices_tuple is not None:
            from pytorch_metric_learning.utils import loss_and_miner_utils as lmu

            # The weight of a sample is its share of the indices, relative to the most frequent one.
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
        """Return the sub-losses by name, each of shape (N,): by default the cross-entropy."""
        y, parameters = self.select_classes(embeddings, labels, *self.class_parameters())
        x = self.features_in_training(embeddings)
        return {"loss": self.softmax.cross_entropy(self.logits, x, parameters, y)}

    def class_parameters(self) -> tuple[Tensor, ...]:
        """Return the class-wise parameters in the order in which ``logits`` takes them."""
        return (self.proxies,)

    def select_classes(
        self, x: Tensor, labels: Tensor, *parameters: Tensor
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Return the labels and the class-wise parameters of this step, in the dtype of ``x``.

        With a class sampler in training, the parameters have one row for each sampled class, and
        the labels are renumbered to index these rows.
        """
        if self.class_sampler is not None and self.training:
            labels, parameters = self.class_sampler(labels, parameters)
        return labels, tuple(parameter.to(x) for parameter in parameters)

    def _sub_loss_names(self) -> list[str]:
        return list(self.sub_losses)

    @torch.no_grad()
    def set_proxies_to_class_means(self, embeddings: Tensor, labels: Tensor) -> None:
        """Initialise each proxy with the mean of its class, scaled to unit length.

        The code of "Heated-Up Softmax Embedding" does so for SOP.

        Args:
            embeddings: Embeddings of the training images before training, shape
                (M, embedding_size).
            labels: Shape (M,); classes without a sample keep their proxy.

        Raises:
            ValueError: A shape or a label is out of range.
        """
        embedding_shape(embeddings, self.embedding_size)
        labels = class_labels(labels, self.num_classes, check=True).to(self.proxies.device)
        x = embeddings.to(self.proxies)
        # A sum has the direction of the mean.
        class_sums = torch.zeros_like(self.proxies).index_add_(0, labels, x)
        seen = torch.bincount(labels, minlength=self.num_classes) > 0
        self.proxies.copy_(torch.where(seen.unsqueeze(1), unit_vectors(class_sums), self.proxies))


def _require_method(name: str, value: Any, method: str, example: str) -> Any:
    """Return ``value``, or raise ValueError unless it is None or has the method ``method``."""
    if value is not None and not hasattr(value, method):
        raise ValueError(f"{name} must be an object such as {example}, but got {name}={value!r}.")
    return value

"""Losses broken in one way each, with the checks that they must fail.

Not collected by itself: ``test_contracts.py`` runs this file in a pytest of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from pytorch_metric_learning.losses import BaseMetricLossFunction
from pytorch_metric_learning.losses.mixins import WeightRegularizerMixin
from pytorch_metric_learning.utils import common_functions as c_f
from pytorch_metric_learning.utils import loss_and_miner_utils as lmu
from torch import Tensor

from pml_extensions.testing import PhaseContract, ProxyLossContract


class Softmax(WeightRegularizerMixin, BaseMetricLossFunction):
    """A plain loss that keeps the contract; the broken ones override a method each."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.num_classes, self.embedding_size = 5, 7
        self.proxies = torch.nn.Parameter(torch.empty(5, 7))
        self.weight_init_func(self.proxies)
        self.register_buffer("scale", torch.tensor(2.0, dtype=torch.float64))
        self.add_to_recordable_attributes(
            list_of_names=["num_classes", "embedding_size"], is_stat=False
        )

    def set_phase(self, scale: float, **unknown: float) -> None:
        if unknown or not scale > 0:
            raise ValueError(f"only scale > 0, but got {scale=}, {unknown=}")
        self.scale.fill_(scale)

    def _apply(self, fn: Any, recurse: bool = True) -> Softmax:
        scale = self._buffers.pop("scale")
        super()._apply(fn, recurse)
        self._buffers["scale"] = scale
        return self

    def unit(self, x: Tensor) -> Tensor:
        return F.normalize(x, eps=1e-6)

    def logits(self, x: Tensor, proxies: Tensor) -> Tensor:
        return self.scale * self.unit(x) @ self.unit(proxies).t()

    def get_logits(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", enabled=False):
            return self.logits(x, self.proxies)

    def losses(self, x: Tensor, proxies: Tensor, labels: Tensor) -> Tensor:
        rows = self.logits(x, proxies).log_softmax(dim=1)
        return -rows.gather(1, labels[:, None]).squeeze(1)

    def check(self, labels: Tensor, embeddings: Tensor, ref_emb: Any, ref_labels: Any) -> None:
        c_f.labels_required(labels)
        c_f.ref_not_supported(embeddings, labels, ref_emb, ref_labels)
        if embeddings.ndim != 2:
            raise ValueError("embeddings must have two dimensions")

    def promoted(self, x: Tensor) -> Tensor:
        return x if x.dtype == torch.float64 else x.float()

    def weights(self, indices_tuple: Any, labels: Tensor, dtype: torch.dtype) -> Tensor:
        return lmu.convert_to_weights(indices_tuple, labels, dtype=dtype)

    def entries(self, losses: Tensor) -> dict[str, Any]:
        indices = torch.arange(len(losses), device=losses.device)
        return {"loss": {"losses": losses, "indices": indices, "reduction_type": "element"}}

    def compute_loss(
        self, embeddings: Tensor, labels: Tensor, indices_tuple: Any, ref_emb: Any, ref_labels: Any
    ) -> dict[str, Any]:
        self.check(labels, embeddings, ref_emb, ref_labels)
        with torch.autocast("cpu", enabled=False):
            x = self.promoted(embeddings)
            losses = self.losses(x, self.proxies.to(x), labels.long())
            losses = losses * self.weights(indices_tuple, labels, losses.dtype)
        if len(losses) == 0:
            return self.zero_losses()
        loss_dict = self.entries(losses)
        self.add_weight_regularization_to_loss_dict(loss_dict, self.proxies)
        return loss_dict


class Toy(ProxyLossContract, PhaseContract):
    """The contract of one of the losses below.

    The correct one passes all checks. A broken one goes through those that it must fail, and
    through all others of the same classes of checks, which it must pass.

    Attributes:
        fails: The checks that it must fail, separated by blanks.
    """

    compile_backend = "eager"
    fast_gradcheck = True
    phase: ClassVar = {"scale": 3.1}
    wrong_phase: ClassVar = {"scale": -1.0}
    fails: ClassVar[str] = ""
    loss: ClassVar[type[Softmax]] = Softmax

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        tried = {*cls.fails.split(), *cls.known_failures}
        compiled = COMPILING in tried  # which takes longest
        families = {owner(name.partition("[")[0]) for name in tried}
        for name in checks() if tried else ():
            if owner(name) not in families or (name == COMPILING and not compiled):
                setattr(cls, name, None)

    def make_loss(self, **kwargs: Any) -> Any:
        return self.loss(**kwargs)


COMPILING = "test_compiling_changes_nothing"


def checks() -> list[str]:
    return [name for name in dir(Toy) if name.startswith("test_")]


def owner(check: str) -> type:
    """The class of checks, such as those in low precision."""
    return next(base for base in Toy.__mro__ if check in vars(base))


def must_fail(*checks: str) -> Callable[[type[Softmax]], type[Softmax]]:
    """Put a loss through the contract, of which it must fail these checks alone."""

    def tested(loss: type[Softmax]) -> type[Softmax]:
        body = {"loss": loss, "fails": " ".join(checks), "__module__": __name__}
        globals()[f"Test{loss.__name__}"] = type(f"Test{loss.__name__}", (Toy,), body)
        return loss

    return tested


class TestCorrect(Toy):
    pass


@must_fail("test_sub_losses_are_declared")
class UndeclaredSubLoss(Softmax):
    def entries(self, losses: Tensor) -> dict[str, Any]:
        return {"ap_loss": super().entries(losses)["loss"]}


@must_fail("test_sub_losses_are_declared")
class IndicesOutsideOfTheBatch(Softmax):
    def entries(self, losses: Tensor) -> dict[str, Any]:
        sub_loss = super().entries(losses)["loss"]
        return {"loss": {**sub_loss, "indices": sub_loss["indices"] - 1}}


@must_fail("test_reducers_have_entries_to_act_on", "test_miner_weights_multiply_the_samples")
class ReducesItself(Softmax):
    def entries(self, losses: Tensor) -> dict[str, Any]:
        kind = {"indices": None, "reduction_type": "already_reduced"}
        return {"loss": {"losses": losses.mean(), **kind}}


@must_fail(
    "test_reducers_see_the_entries[sum]",
    "test_reducers_see_the_entries[threshold]",
    "test_reducers_see_the_entries[class_weighted]",
)
class OverridesTheReducer(Softmax):
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        value = super().forward(*args, **kwargs)
        if type(self.reducer).__name__ in ("DoNothingReducer", "MultipleReducers"):
            return value
        kept, self.reducer = self.reducer, self.get_default_reducer()
        value = super().forward(*args, **kwargs)
        self.reducer = kept
        return value


@must_fail("test_embedding_regularizer_is_added")
class ForgetsTheEmbeddingRegularizer(Softmax):
    def add_embedding_regularization_to_loss_dict(self, *args: Any) -> None:
        pass


@must_fail("test_weight_regularizer_is_added")
class ForgetsTheWeightRegularizer(Softmax):
    def add_weight_regularization_to_loss_dict(self, *args: Any) -> None:
        pass


@must_fail("test_weight_init_func_is_used")
class IgnoresTheWeightInitFunc(Softmax):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        torch.nn.init.normal_(self.proxies)


@must_fail("test_miner_weights_multiply_the_samples")
class IgnoresMiners(Softmax):
    def weights(self, indices_tuple: Any, labels: Tensor, dtype: torch.dtype) -> Tensor:
        return torch.ones(len(labels), dtype=dtype)


@must_fail("test_works_with_a_miner_and_in_multiple_losses", "test_inputs_are_left_alone")
class RefusesMinedPairs(Softmax):
    def weights(self, indices_tuple: Any, labels: Tensor, dtype: torch.dtype) -> Tensor:
        if indices_tuple is not None and len(indices_tuple) == 4:
            raise ValueError("triplets only")
        return super().weights(indices_tuple, labels, dtype)


@must_fail(
    "test_low_precision_embeddings_are_computed_in_float32[bfloat16]",
    "test_low_precision_embeddings_are_computed_in_float32[float16]",
    "test_an_optimizer_steps_after_any_dtype[bfloat16]",
    "test_an_optimizer_steps_after_any_dtype[float16]",
    "test_an_optimizer_steps_after_any_dtype[float64]",
)
class RetypesItsProxies(Softmax):
    """As PML's losses do."""

    def check(self, labels: Tensor, embeddings: Tensor, *ref: Any) -> None:
        super().check(labels, embeddings, *ref)
        self.proxies.data = self.proxies.data.to(embeddings.dtype)


@must_fail(
    "test_low_precision_embeddings_are_computed_in_float32[bfloat16]",
    "test_low_precision_embeddings_are_computed_in_float32[float16]",
    "test_degenerate_batches_are_finite[float16_extremes]",
)
class ComputesInLowPrecision(Softmax):
    def promoted(self, x: Tensor) -> Tensor:
        return x

    def unit(self, x: Tensor) -> Tensor:
        return x / x.square().sum(dim=1, keepdim=True).clamp_min(1e-6).sqrt()


@must_fail(
    "test_double_precision_is_computed_in_double",
    "test_gradient_of_embeddings_is_the_derivative",
    "test_gradient_of_parameters_is_the_derivative",
    "test_second_derivatives_are_right_or_refused",
)
class ComputesDoubleInSingle(Softmax):
    def promoted(self, x: Tensor) -> Tensor:
        return x.float()


@must_fail("test_autocast_changes_nothing")
class LeavesAutocastOn(Softmax):
    def losses(self, x: Tensor, proxies: Tensor, labels: Tensor) -> Tensor:
        with torch.autocast("cpu", enabled=self.under_autocast, dtype=torch.bfloat16):
            return super().losses(x, proxies, labels)

    def check(self, *args: Any) -> None:
        super().check(*args)
        self.under_autocast = torch.is_autocast_enabled("cpu")


@must_fail("test_logits_are_float32_under_autocast")
class LogitsUnderAutocast(Softmax):
    def get_logits(self, x: Tensor) -> Tensor:
        return self.unit(x) @ self.unit(self.proxies).t()


@must_fail("test_degenerate_batches_are_finite[empty]")
class AveragesNothing(Softmax):
    def zero_losses(self) -> dict[str, Any]:
        return self.entries(self.proxies[:0, 0])


@must_fail("test_degenerate_batches_are_finite[zeros]", "test_degenerate_batches_are_finite[tiny]")
class DividesByZeroLength(Softmax):
    def unit(self, x: Tensor) -> Tensor:
        return x / x.square().sum(dim=1, keepdim=True).sqrt()


@must_fail("test_embeddings_on_their_proxies_are_finite")
class HasNoGradientAtItsProxies(Softmax):
    """The derivative of the root is infinite at distance 0."""

    def logits(self, x: Tensor, proxies: Tensor) -> Tensor:
        difference = self.unit(x).unsqueeze(1) - self.unit(proxies)
        return -self.scale * difference.square().sum(dim=2).sqrt()


@must_fail(
    "test_degenerate_batches_are_finite[one]", "test_degenerate_batches_are_finite[one_class]"
)
class DividesByTheNumberOfOtherClasses(Softmax):
    def entries(self, losses: Tensor) -> dict[str, Any]:
        return super().entries(losses / self.others)

    def check(self, labels: Tensor, embeddings: Tensor, *ref: Any) -> None:
        super().check(labels, embeddings, *ref)
        self.others = ((labels != labels[:1]).any() if len(labels) else labels.sum() + 1).float()


@must_fail("test_a_nan_embedding_shows_in_the_loss")
class HidesNaN(Softmax):
    def promoted(self, x: Tensor) -> Tensor:
        return super().promoted(x).nan_to_num()


@must_fail("test_inputs_are_left_alone")
class WritesToTheEmbeddings(Softmax):
    def check(self, labels: Tensor, embeddings: Tensor, *ref: Any) -> None:
        super().check(labels, embeddings, *ref)
        if not embeddings.requires_grad:
            embeddings.mul_(2)


@must_fail("test_order_of_samples_does_not_matter", "test_samples_are_independent")
class DependsOnTheOrder(Softmax):
    def losses(self, x: Tensor, proxies: Tensor, labels: Tensor) -> Tensor:
        return super().losses(x, proxies, labels) * torch.linspace(1, 2, 64)[: len(x)]


@must_fail("test_names_of_classes_do_not_matter")
class DependsOnTheNumbersOfClasses(Softmax):
    def losses(self, x: Tensor, proxies: Tensor, labels: Tensor) -> Tensor:
        return super().losses(x, proxies, labels) * (1 + 0.1 * labels)


@must_fail("test_samples_are_independent")
class DependsOnTheBatch(Softmax):
    def losses(self, x: Tensor, proxies: Tensor, labels: Tensor) -> Tensor:
        losses = super().losses(x, proxies, labels)
        return losses * (1 + losses.sum())


@must_fail(
    "test_samples_are_independent",
    "test_low_precision_embeddings_are_computed_in_float32[bfloat16]",
    "test_low_precision_embeddings_are_computed_in_float32[float16]",
)
class DependsOnTheBatchBesides(Softmax):
    """In a term of all samples; PML, besides, adds up terms in low precision."""

    def compute_loss(self, embeddings: Tensor, *args: Any) -> dict[str, Any]:
        loss_dict = super().compute_loss(embeddings, *args)
        x = self.unit(self.promoted(embeddings))
        spread = ((x - x.mean(dim=0)) ** 2).mean() if len(x) else x.sum()
        kind = {"indices": None, "reduction_type": "already_reduced"}
        loss_dict["spread"] = {"losses": -spread, **kind}
        return loss_dict

    def _sub_loss_names(self) -> list[str]:
        return ["loss", "spread"]


@must_fail("test_labels_may_be_int32")
class TakesInt64Only(Softmax):
    def check(self, labels: Tensor, embeddings: Tensor, *ref: Any) -> None:
        super().check(labels, embeddings, *ref)
        assert labels.dtype == torch.int64


@must_fail("test_calls_without_labels_are_refused")
class NeedsNoLabels(Softmax):
    def forward(self, x: Tensor, labels: Any = None, *args: Any, **kwargs: Any) -> Any:
        labels = torch.zeros(len(x), dtype=torch.long) if labels is None else labels
        return super().forward(x, labels, *args, **kwargs)


@must_fail("test_wrong_shapes_are_refused")
class TakesAnyShape(Softmax):
    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Any:
        return super().forward(x.flatten(start_dim=1), *args, **kwargs)


@must_fail("test_reference_embeddings")
class IgnoresReferenceEmbeddings(Softmax):
    def check(self, labels: Tensor, embeddings: Tensor, *ref: Any) -> None:
        super().check(labels, embeddings, embeddings, labels)


class TestSaysThatItTakesReferenceEmbeddings(Toy):
    fails = "test_reference_embeddings"
    supports_ref_emb = True


@must_fail(
    "test_labels_out_of_range_are_refused[num_classes]",
    "test_labels_out_of_range_are_refused[minus_1]",
    "test_labels_out_of_range_are_refused[minus_100]",
)
class DropsLabelsOutOfRange(Softmax):
    def losses(self, x: Tensor, proxies: Tensor, labels: Tensor) -> Tensor:
        return super().losses(x, proxies, labels.clamp(0, 4))


@must_fail("test_another_embedding_size_is_refused")
class PadsEmbeddings(Softmax):
    def promoted(self, x: Tensor) -> Tensor:
        x = super().promoted(x)
        return F.pad(x, (0, 1)) if x.shape[1] == 6 else x


@must_fail(
    "test_gradient_of_embeddings_is_the_derivative",
    "test_gradient_of_parameters_is_the_derivative",
    "test_second_derivatives_are_right_or_refused",
)
class HasAWrongGradient(Softmax):
    def losses(self, x: Tensor, proxies: Tensor, labels: Tensor) -> Tensor:
        losses = super().losses(x, proxies, labels)
        return losses * losses.detach()


class _GrowsWithEachBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.factor = 1.0
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        ctx.factor *= 2
        return grads[0] * (ctx.factor - 1)


@must_fail(
    "test_backward_twice_gives_twice_the_gradient",
    "test_gradient_of_embeddings_is_the_derivative",
    "test_second_derivatives_are_right_or_refused",
)
class SpoilsItsSecondBackward(Softmax):
    def losses(self, x: Tensor, proxies: Tensor, labels: Tensor) -> Tensor:
        return super().losses(_GrowsWithEachBackward.apply(x), proxies, labels)


class _Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.square()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return 2 * grads[0] * ctx.saved_tensors[0]


@must_fail("test_second_derivatives_are_right_or_refused")
class DropsASecondDerivative(Softmax):
    def losses(self, x: Tensor, proxies: Tensor, labels: Tensor) -> Tensor:
        return super().losses(x, proxies, labels) + _Square.apply(x).mean(dim=1)


@must_fail("test_gradients_accumulate_over_batches", "test_backward_twice_gives_twice_the_gradient")
class ClearsGradients(Softmax):
    def losses(self, x: Tensor, proxies: Tensor, labels: Tensor) -> Tensor:
        if proxies.requires_grad:
            proxies.register_hook(self.clear)
        return super().losses(x, proxies, labels)

    def clear(self, gradient: Tensor) -> None:
        self.proxies.grad = None


@must_fail("test_evaluation_changes_nothing")
class LearnsInEvaluation(Softmax):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.register_buffer("batches", torch.zeros(()))

    def losses(self, x: Tensor, proxies: Tensor, labels: Tensor) -> Tensor:
        if not self.training:
            self.batches += 1
        return super().losses(x, proxies, labels)


@must_fail("test_copies_compute_the_same")
class CannotBeCopied(Softmax):
    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("no copies")

    def __deepcopy__(self, memo: Any) -> Any:
        other = type(self)()
        other.load_state_dict(self.state_dict())
        return other.to(self.proxies.dtype)


@must_fail(
    "test_a_checkpoint_resumes_the_loss", "test_a_phase_changes_the_loss_and_survives_a_checkpoint"
)
class ForgetsItsState(Softmax):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.learned = 1.0

    def losses(self, x: Tensor, proxies: Tensor, labels: Tensor) -> Tensor:
        losses = super().losses(x, proxies, labels) * self.learned
        if self.training and len(labels) == 20:
            self.learned *= 0.9
        return losses


@must_fail("test_a_pml_trainer_trains_an_epoch")
class ProxiesAreNoParameter(Softmax):
    def losses(self, x: Tensor, proxies: Tensor, labels: Tensor) -> Tensor:
        return super().losses(x, proxies if len(labels) != 20 else proxies.detach(), labels)


@must_fail(COMPILING)
class BreaksTheGraph(Softmax):
    def losses(self, x: Tensor, proxies: Tensor, labels: Tensor) -> Tensor:
        losses = super().losses(x, proxies, labels)
        return losses if losses.sum().item() > 0 else -losses


@must_fail("test_sizes_are_recorded")
class RecordsNoSizes(Softmax):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.num_classes = 0


@must_fail("test_logits_are_larger_for_the_more_similar_class")
class ReturnsDistancesAsLogits(Softmax):
    """As PML's ProxyNCALoss does."""

    def get_logits(self, x: Tensor) -> Tensor:
        return -super().get_logits(x)


@must_fail("test_a_phase_changes_the_loss_and_survives_a_checkpoint")
class KeepsThePhaseOutsideOfTheState(Softmax):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.register_buffer("scale", self.scale, persistent=False)


@must_fail("test_unknown_phase_names_change_nothing", "test_wrong_phase_values_are_refused")
class SetsAPhaseByHalves(Softmax):
    def set_phase(self, scale: float, **unknown: float) -> None:
        self.scale.fill_(scale)
        super().set_phase(scale, **unknown)


@must_fail("test_changing_the_precision_of_the_module_keeps_the_phase")
class RoundsThePhase(Softmax):
    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        return super(Softmax, self)._apply(fn, recurse)


class TestKnownFailureIsExpected(Toy):
    loss = TakesAnyShape
    fails = ""
    known_failures: ClassVar = {"test_wrong_shapes_are_refused": "it takes any shape"}


class TestKnownFailureThatPasses(Toy):
    fails = "test_labels_may_be_int32"
    known_failures: ClassVar = {"test_labels_may_be_int32": "mended since"}


class TestExemptCaseIsSkipped(Toy):
    loss = DividesByZeroLength
    fails = "test_degenerate_batches_are_finite[tiny]"
    exempt: ClassVar = {"test_degenerate_batches_are_finite[zeros]": "a direction is needed"}

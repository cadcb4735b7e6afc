"""What each loss owes to PML and to its users, whatever its equation."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any, ClassVar

import pytest
import torch

from pml_extensions.losses import (
    ChunkedSoftmax,
    ClassSampler,
    GradMLLoss,
    HeatedUpSoftmaxLoss,
    HISTLoss,
    NormalizedSoftmaxLoss,
    ProxyNCAPlusPlusLoss,
    StopGradientSoftmaxLoss,
    WarpedSoftmaxLoss,
)
from pml_extensions.testing import LossContract, PhaseContract, ProxyLossContract


class OurContract(LossContract):
    """Beyond the contract: what our error messages say.

    Generating C++ takes the "inductor" of a compilation most of its time; one loss on quadruples
    goes through it, the others end with the traced graph, that of the gradient for two.
    """

    compile_backend = "eager"
    fast_gradcheck = True

    @pytest.mark.slow
    def test_compiling_changes_nothing(self) -> None:
        super().test_compiling_changes_nothing()

    def test_our_refusals_say_what_is_allowed(self) -> None:
        x, labels = self.batch()
        loss = self.make_loss().to(self.device)
        with pytest.raises(ValueError, match="labels are required"):
            loss(x)
        with pytest.raises(ValueError, match=r"must have shape \(batch_size"):
            loss(x[:, :, None], labels)
        with pytest.raises(ValueError, match="takes no distance"):
            self.make_loss(distance=object())


class OurProxyContract(OurContract, ProxyLossContract, PhaseContract):
    """Proxy losses check their sizes, their labels and their phases in the same words."""

    loss: ClassVar[Any]
    arguments: ClassVar[dict[str, Any]] = {}

    def make_loss(self, **kwargs: Any) -> Any:
        # Samplers have a state of their own.
        arguments = copy.deepcopy(self.arguments)
        return self.loss(self.num_classes, self.embedding_size, **arguments, **kwargs)

    @pytest.mark.parametrize(
        ("label", "message"),
        [
            (None, r"a label is {0}; labels must be 0\.\.{1}"),
            (-1, "a label is -1"),
            (-100, "-100"),
        ],
    )
    def test_labels_out_of_range_are_named(self, label: int | None, message: str) -> None:
        x, labels = self.batch()
        labels = labels.clone()
        labels[4] = self.num_classes if label is None else label
        # On a GPU labels are looked at only where that is asked for: the host would wait.
        check_labels = None if self.device == "cpu" else True
        loss = self.make_loss(check_labels=check_labels).to(self.device)
        with pytest.raises(
            ValueError, match=message.format(self.num_classes, self.num_classes - 1)
        ):
            loss(x, labels)

    def test_labels_that_are_no_integers_are_named(self) -> None:
        x, labels = self.batch()
        with pytest.raises(ValueError, match="must be integers"):
            self.make_loss().to(self.device)(x, labels.float())

    def test_wrong_embedding_size_is_named(self) -> None:
        x, labels = self.batch()
        with pytest.raises(ValueError, match=r"shape \(batch_size, 7\), but got \(20, 6\)"):
            self.make_loss().to(self.device)(x[:, :6], labels)

    @pytest.mark.parametrize(
        ("kwargs", "message"),
        [
            ({"num_classes": 0}, "num_classes must be a whole number"),
            ({"num_classes": 2.5}, "num_classes must be a whole number"),
            ({"embedding_size": -1}, "embedding_size must be a whole number"),
        ],
    )
    def test_sizes_are_checked(self, kwargs: dict[str, Any], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            self.loss(**{"num_classes": 3, "embedding_size": 2, **self.arguments, **kwargs})

    def test_phases_are_recorded_and_named(self) -> None:
        loss = self.make_loss()
        assert set(loss.phase_checks) <= set(loss._record_these)
        known = next(iter(loss.phase_checks))
        with pytest.raises(ValueError, match=rf"no phase value 'sigma'; the names are .*{known}"):
            loss.set_phase(sigma=1.0)
        with pytest.raises(ValueError, match=f"{known} must be a number"):
            loss.set_phase(**{known: "fast"})


class SampledContract(OurProxyContract):
    """With class sampling the batches lack classes, so that there is something to draw."""

    num_classes = 23
    exempt: ClassVar = {
        "test_samples_are_independent": "the classes of the batch are kept",
        "test_names_of_classes_do_not_matter": "classes are drawn by their numbers",
    }

    def make_optimizer(self, parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=0.01)


NO_DERIVATIVE = "inside alpha the gradient is by design not the derivative of the value"
SPARSE: dict[str, Any] = {"class_sampler": ClassSampler(0.95, sparse_gradients=True)}
SPARSE_EXEMPT = {
    **SampledContract.exempt,
    "test_gradient_of_parameters_is_the_derivative": "gradcheck takes no sparse gradients",
    "test_compiling_changes_nothing": "torch.compile traces no sparse tensors",
}


class NormalizedSoftmaxContract(OurProxyContract):
    loss = NormalizedSoftmaxLoss
    phase: ClassVar = {"temperature": 0.7}
    wrong_phase: ClassVar = {"temperature": 0}


class TestNormalizedSoftmax(NormalizedSoftmaxContract):
    def test_weights_lie_as_in_pml(self) -> None:
        loss = self.make_loss()
        assert loss.W.shape == (self.embedding_size, self.num_classes)
        assert loss.W.data_ptr() == loss.proxies.data_ptr()


class TestNormalizedSoftmaxSampledNegatives(NormalizedSoftmaxContract, SampledContract):
    arguments: ClassVar = {"class_sampler": ClassSampler(0.3, "negatives")}
    exempt: ClassVar = {
        **SampledContract.exempt,
        "test_compiling_changes_nothing": "how many classes are kept depends on the labels",
    }


class TestNormalizedSoftmaxSparse(NormalizedSoftmaxContract, SampledContract):
    arguments: ClassVar = {**SPARSE, "softmax": ChunkedSoftmax(4)}
    exempt: ClassVar = SPARSE_EXEMPT


class TestProxyNCAPlusPlus(OurProxyContract):
    loss = ProxyNCAPlusPlusLoss
    phase: ClassVar = {"scale": 1.1}
    wrong_phase: ClassVar = {"scale": -1.0}


class SGSLContract(OurProxyContract):
    loss = StopGradientSoftmaxLoss
    phase: ClassVar = {"gamma": 1.7, "beta": 2.7}
    wrong_phase: ClassVar = {"gamma": -1.0, "beta": "fast"}
    exempt: ClassVar = {
        "test_gradient_of_parameters_is_the_derivative": "the second term's proxies are constants"
    }


class TestSGSLPerBatch(SGSLContract):
    compile_backend = "aot_eager"


class TestWarped(OurProxyContract):
    compile_backend = "aot_eager"  # which traces the gradient of its own
    loss = WarpedSoftmaxLoss
    arguments: ClassVar = {"alpha": 2.5, "k1": 0.7, "k2": 1.3}
    phase: ClassVar = {"alpha": 1.7, "k1": 0.3, "k2": 3.7, "delta_multiplier": 4.7, "scale": 5.7}
    wrong_phase: ClassVar = {"alpha": 0, "k1": -1.0, "delta_multiplier": -0.1, "scale": "fast"}
    exempt: ClassVar = {
        "test_gradient_of_embeddings_is_the_derivative": NO_DERIVATIVE,
        "test_gradient_of_parameters_is_the_derivative": NO_DERIVATIVE,
    }


class HeatedUpContract(OurProxyContract):
    loss = HeatedUpSoftmaxLoss
    phase: ClassVar = {"alpha": 28.4001}
    wrong_phase: ClassVar = {"alpha": -1.0}


class TestHeatedUp(HeatedUpContract):
    arguments: ClassVar = {"bias": "scaled"}


class TestHeatedUpBatchNorm(HeatedUpContract):
    arguments: ClassVar = {"normalization": "bn", "bn_shift": True}
    exempt: ClassVar = {"test_samples_are_independent": "the batch gives mean and variance"}


class HISTContract(OurProxyContract):
    loss = HISTLoss
    arguments: ClassVar = {"hidden_size": 11}
    phase: ClassVar = {"tau": 12.7, "alpha": 0.7, "hypergraph_weight": 2.7}
    wrong_phase: ClassVar = {"tau": 0, "alpha": -1.0, "hypergraph_weight": "much"}
    exempt: ClassVar = {"test_samples_are_independent": "the batch is the hypergraph"}


class TestHIST(HISTContract):
    pass


class TestHISTSparse(HISTContract, SampledContract):
    arguments: ClassVar = {"hidden_size": 11, **SPARSE}
    exempt: ClassVar = SPARSE_EXEMPT


class GradMLContract(OurContract):
    supports_ref_emb = True

    @pytest.mark.slow
    @torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True)
    def test_compiling_changes_nothing(self) -> None:
        super().test_compiling_changes_nothing()


class TestGradMLDisjoint(GradMLContract):
    compile_backend = "inductor"
    exempt: ClassVar = {
        "test_order_of_samples_does_not_matter": "quadruples are drawn in the order of the batch"
    }

    def make_loss(self, **kwargs: Any) -> Any:
        return GradMLLoss(**kwargs)


class TestGradMLAll(GradMLContract):
    test_compiling_changes_nothing: Any = None  # test_grad_ml_loss.py compiles it

    def make_loss(self, **kwargs: Any) -> Any:
        return GradMLLoss(quadruples="all", w=0.5, **kwargs)


# -- on a GPU, real or simulated ------------------------------------------------------------------


class OnGpu(OurContract):
    """The most intricate loss of each kind; the others are compared with the CPU in test_gpu.py.

    Gradients are those of the CPU, and compilers need a real GPU.
    """

    device = "cuda"
    low_precision_rtol = 1e-5  # the order of sums is not fixed there
    pytestmark = pytest.mark.gpu
    test_compiling_changes_nothing: Any = None
    test_gradient_of_embeddings_is_the_derivative: Any = None
    test_gradient_of_parameters_is_the_derivative: Any = None


class TestHISTSparseOnGpu(OnGpu, TestHISTSparse):
    pass


class TestGradMLAllOnGpu(OnGpu, TestGradMLAll):
    pass

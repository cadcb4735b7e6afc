"""PML's own tests, with our classes in the place of PML's.

They are not part of this repository. Set PML_TESTS to a folder that holds the ``tests`` package of
pytorch-metric-learning without its ``src``, for example::

    git clone --depth 1 --branch v2.8.1 https://github.com/KevinMusgrave/pytorch-metric-learning
    mkdir pml_tests && cp -r pytorch-metric-learning/tests pml_tests/
    PML_TESTS=pml_tests python -m pytest tests/pml_extensions/test_pml_conformance.py

A test of PML imports the class under test by name into its module; that name is replaced for the
time of the test. What is not run, and why:

- Tests of PML's other losses: none of ours has their equation.
- ``test_cross_batch_memory``: ``test_loss`` and ``test_input_indices_tuple`` expect mined positions
  in the memory that are right for the first batch only, which ours mends (the former fails for PML
  2.9 itself); ``test_sanity_check`` runs in float32 only, because it takes minutes;
  ``test_all_losses`` gets GradMLLoss in place of its list, which it requires to be PML's.
- ``test_self_supervised_loss``: its list of losses is fixed by their class names.
- ``test_distributed``: does nothing without two GPUs, or (``test_single_proc``) calls the loss
  without labels; ``test_distributed.py`` of this repository takes its place.
- float16 in ``test_normalized_softmax_loss`` and float32 in ``test_proxy_nca_loss``: their own
  logits, and squared distances by ``torch.cdist``, are off by more than they allow near 0.
- ``test_proxy_nca_loss`` for SGSL: products of vectors that are not normalised are no distances.
- Tests of reducers, distances, miners, samplers, testers, trainers: they name no class of ours.
"""

from __future__ import annotations

import unittest
from collections.abc import Callable, Iterator
from math import sqrt
from types import ModuleType
from typing import Any

import pytest
import torch
from support.imports import pml_tests
from torch import Tensor

from pml_extensions.functional import Power
from pml_extensions.losses import (
    CrossBatchMemory,
    GradMLLoss,
    HeatedUpSoftmaxLoss,
    HISTLoss,
    NormalizedSoftmaxLoss,
    ProxyNCAPlusPlusLoss,
    StopGradientSoftmaxLoss,
    WarpedSoftmaxLoss,
)

pytestmark = [
    pytest.mark.pml,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
Make = Callable[..., Any]
#: Each loss with its own defaults, for tests that do not look at its value.
PROXY_LOSSES: dict[str, tuple[Any, dict[str, Any]]] = {
    "normalized_softmax": (NormalizedSoftmaxLoss, {}),
    "normalized_softmax_chunks": (NormalizedSoftmaxLoss, {"class_chunk_size": 3}),
    "proxy_nca_plus_plus": (ProxyNCAPlusPlusLoss, {}),
    "heated_up": (HeatedUpSoftmaxLoss, {"bias": "scaled"}),
    "heated_up_bn": (HeatedUpSoftmaxLoss, {"normalization": "bn"}),
    "sgsl": (StopGradientSoftmaxLoss, {}),
    "warped": (WarpedSoftmaxLoss, {"alpha": 1.0, "k1": 0.7, "k2": 1.3}),
    "hist": (HISTLoss, {}),
}
TUPLE_LOSSES: dict[str, tuple[Any, dict[str, Any]]] = {
    "grad_ml": (GradMLLoss, {}),
    "grad_ml_all": (GradMLLoss, {"quadruples": "all", "w": 0.5}),
}
LOSSES = PROXY_LOSSES | TUPLE_LOSSES
every_loss = pytest.mark.parametrize("name", LOSSES)


def without_arguments(name: str, *sizes: int) -> Any:
    """Return a subclass whose constructor knows all but PML's keywords."""
    cls, fixed = LOSSES[name]

    def __init__(self: Any, **kwargs: Any) -> None:
        cls.__init__(self, *(sizes if name in PROXY_LOSSES else ()), **fixed, **kwargs)

    return type(cls.__name__, (cls,), {"__init__": __init__})


def of_length(length: float) -> Callable[[Tensor], None]:
    """Return a weight_init_func that gives every proxy this length."""

    def initialise(proxies: Tensor) -> None:
        torch.nn.init.normal_(proxies)
        proxies.data = length * torch.nn.functional.normalize(proxies.data)

    return initialise


def _hist(scale: float, *sizes: int, **kwargs: Any) -> HISTLoss:
    loss = HISTLoss(*sizes, tau=scale / 2, hypergraph_weight=0, **kwargs)
    torch.nn.init.zeros_(loss.log_variances)
    return loss


#: Each loss at the values where it is a softmax over cosines times ``scale``, plus a constant
#: where its logits are negative squared distances. Where embeddings or proxies are not
#: normalised by the loss, the proxies start, and PML's test embeddings are made, at unit length.
COSINE_SOFTMAX: dict[str, Make] = {
    "normalized_softmax": lambda s, *a, **k: NormalizedSoftmaxLoss(*a, temperature=1 / s, **k),
    "normalized_softmax_chunks": lambda s, *a, **k: NormalizedSoftmaxLoss(
        *a, temperature=1 / s, class_chunk_size=3, **k
    ),
    "proxy_nca_plus_plus": lambda s, *a, **k: ProxyNCAPlusPlusLoss(*a, scale=sqrt(s / 2), **k),
    "heated_up": lambda s, *a, **k: HeatedUpSoftmaxLoss(*a, alpha=s, **k),
    "sgsl": lambda s, *a, **k: StopGradientSoftmaxLoss(
        *a, beta=0, label_smoothing=0, weight_init_func=of_length(s), **k
    ),
    "warped": lambda s, *a, **k: WarpedSoftmaxLoss(
        *a, scale=s / 2, own_warp=Power(2), other_warp=Power(2), weight_init_func=of_length(1), **k
    ),
    "hist": _hist,
}
every_cosine_softmax = pytest.mark.parametrize("name", COSINE_SOFTMAX)


class AsPMLs(torch.nn.Module):
    """One of our losses where PML's NormalizedSoftmaxLoss or ProxyNCALoss is expected.

    PML turns weights, value and logits into the type of the last embeddings, and its tests compute
    with them; ours stay float32 or float64.
    """

    def __init__(self, name: str, scale: float, *sizes: int, **kwargs: Any) -> None:
        super().__init__()
        self.loss = COSINE_SOFTMAX[name](scale, *sizes, **kwargs)
        self.scale = scale
        self.constant = scale if name in ("warped", "hist") else 0.0
        self.dtype = torch.float32

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        self.dtype = embeddings.dtype
        value: Tensor = self.loss(embeddings, labels).to(self.dtype)
        return value

    @property
    def proxies(self) -> Tensor:
        proxies: Tensor = self.loss.proxies.to(self.dtype)
        return proxies

    @property
    def W(self) -> Tensor:
        return self.proxies.t()

    def get_logits(self, embeddings: Tensor) -> Tensor:
        logits: Tensor = self.loss.get_logits(embeddings) + self.constant
        return logits.to(embeddings.dtype)


class AsProxyNCA(AsPMLs):
    def get_logits(self, embeddings: Tensor) -> Tensor:
        # PML's are squared distances, which the scale does not multiply: larger is less similar.
        return 2 - 2 / self.scale * super().get_logits(embeddings)


@pytest.fixture(scope="module")
def pml() -> Iterator[Callable[[str], ModuleType]]:
    """Import modules of PML's tests, on the CPU, under a name that is not that of our tests."""
    with pml_tests(
        "pml_tests", TEST_DEVICE="cpu", TEST_DTYPES="float16,float32,float64"
    ) as import_module:
        yield import_module


def run(module: ModuleType, case: str, test: str) -> None:
    # Many of PML's tests set no seed, and compare relatively what may by chance be almost 0.
    torch.manual_seed(0)
    result = unittest.TestResult()
    unittest.TestSuite([getattr(module, case)(test)]).run(result)
    assert result.testsRun == 1
    assert result.wasSuccessful(), "\n".join(text for _, text in result.failures + result.errors)


@every_cosine_softmax
@pytest.mark.filterwarnings("ignore:.*never joins")
def test_normalized_softmax(pml: Any, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    module = pml("losses.test_normalized_softmax_loss")
    angle_to_coord = module.angle_to_coord

    def make(temperature: float, num_classes: int, embedding_size: int, distance: Any) -> AsPMLs:
        assert not distance.normalize_embeddings
        return AsPMLs(name, 1 / temperature, num_classes, embedding_size)

    monkeypatch.setattr(module, "NormalizedSoftmaxLoss", make)
    monkeypatch.setattr(module, "TEST_DTYPES", [torch.float32, torch.float64])
    if name != "sgsl":
        # The test has no normalisation of embeddings, which only SGSL's first term does without.
        monkeypatch.setattr(module, "angle_to_coord", lambda a: angle_to_coord(a, normalized=True))
    run(module, "TestNormalizedSoftmaxLoss", "test_normalized_softmax_loss")


@pytest.mark.parametrize("name", [name for name in COSINE_SOFTMAX if name != "sgsl"])
def test_proxy_nca(pml: Any, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    module = pml("losses.test_proxy_nca_loss")
    angle_to_coord = module.angle_to_coord

    def make(softmax_scale: float, num_classes: int, embedding_size: int) -> AsPMLs:
        return AsProxyNCA(name, 2.0 * softmax_scale, num_classes, embedding_size)

    monkeypatch.setattr(module, "ProxyNCALoss", make)
    monkeypatch.setattr(module, "TEST_DTYPES", [torch.float16, torch.float64])
    if name == "warped":
        monkeypatch.setattr(module, "angle_to_coord", lambda a: angle_to_coord(a, normalized=True))
    run(module, "TestProxyNCALoss", "test_proxy_nca_loss")


@every_cosine_softmax
@pytest.mark.parametrize("regularizer", ["center_invariant", "regular_face"])
def test_weight_regularizers(
    pml: Any, monkeypatch: pytest.MonkeyPatch, name: str, regularizer: str
) -> None:
    module = pml(f"regularizers.test_{regularizer}_regularizer")

    def make(temperature: float, num_classes: int, embedding_size: int, **kwargs: Any) -> AsPMLs:
        return AsPMLs(name, 1 / temperature, num_classes, embedding_size, **kwargs)

    monkeypatch.setattr(module, "NormalizedSoftmaxLoss", make)
    case = f"Test{regularizer.title().replace('_', '')}Regularizer"
    run(module, case, f"test_{regularizer}_regularizer")


@every_loss
@pytest.mark.parametrize("test", ["test_multiple_losses", "test_input_indices_tuple"])
def test_multiple_losses(pml: Any, monkeypatch: pytest.MonkeyPatch, name: str, test: str) -> None:
    module = pml("losses.test_multiple_losses")
    monkeypatch.setattr(module, "ContrastiveLoss", without_arguments(name, 10, 2))
    monkeypatch.setattr(module, "TEST_DTYPES", [torch.float16, torch.float32])
    run(module, "TestMultipleLosses", test)


def test_losses_without_labels(pml: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    module = pml("losses.test_losses_without_labels")
    with_labels = [without_arguments(name, 10, 32)() for name in PROXY_LOSSES]
    with_pairs = [without_arguments(name)() for name in TUPLE_LOSSES]
    monkeypatch.setattr(module, "get_incompatible_losses", lambda: with_labels)
    monkeypatch.setattr(module, "get_compatible_losses", lambda: with_pairs)
    run(module, "TestLossesWithoutLabels", "test")


@every_loss
def test_setting_reducers(pml: Any, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    module = pml("reducers.test_setting_reducers")
    cls = without_arguments(name, 10, 2)
    monkeypatch.setattr(module, "ContrastiveLoss", cls)
    if len(cls().sub_loss_names()) == 1:
        # The test knows by this class that there is one sub-loss.
        monkeypatch.setattr(module, "TripletMarginLoss", cls)
    run(module, "TestSettingReducers", "test_setting_reducers")


@every_loss
def test_copied_reducer(pml: Any, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    module = pml("utils.test_module_with_records_and_reducer")
    cls = without_arguments(name, 10, 64)

    def make(pos_margin: float, neg_margin: float, **kwargs: Any) -> Any:
        return cls(**kwargs)

    monkeypatch.setattr(module, "ContrastiveLoss", make)
    run(module, "TestModuleWithRecordsAndReducer", "test_deepcopy_reducer")


@pytest.mark.parametrize("name", TUPLE_LOSSES)
@pytest.mark.parametrize(
    "test",
    ["test_remove_self_comparisons", "test_queue", "test_ref_mining", "test_reset_queue"],
)
def test_memory_of_our_losses(
    pml: Any, monkeypatch: pytest.MonkeyPatch, name: str, test: str
) -> None:
    module = pml("losses.test_cross_batch_memory")
    monkeypatch.setattr(module, "CrossBatchMemory", CrossBatchMemory)
    monkeypatch.setattr(module, "ContrastiveLoss", without_arguments(name))
    run(module, "TestCrossBatchMemory", test)


@pytest.mark.parametrize("name", TUPLE_LOSSES)
def test_memory_is_searched_by_our_losses(
    pml: Any, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    module = pml("losses.test_cross_batch_memory")
    case = module.TestCrossBatchMemory
    monkeypatch.setattr(module, "CrossBatchMemory", CrossBatchMemory)
    monkeypatch.setattr(case, "load_valid_loss_fns", lambda self: [without_arguments(name)()])
    run(module, "TestCrossBatchMemory", "test_all_losses")


@pytest.mark.parametrize(
    "test",
    [
        "test_with_distance_weighted_miner",
        pytest.param("test_sanity_check", marks=pytest.mark.slow),
    ],
)
def test_our_memory_of_pmls_losses(pml: Any, monkeypatch: pytest.MonkeyPatch, test: str) -> None:
    module = pml("losses.test_cross_batch_memory")
    monkeypatch.setattr(module, "CrossBatchMemory", CrossBatchMemory)
    monkeypatch.setattr(module, "TEST_DTYPES", [torch.float32])
    run(module, "TestCrossBatchMemory", test)

"""What PML's own tests ask of its losses, asked of ours.

PML's package ships no tests, so their cases are written here again, with loops as oracles: those of
``test_normalized_softmax_loss``, ``test_proxy_nca_loss``, both tests of regularizers,
``test_multiple_losses``, ``test_losses_without_labels``, ``test_setting_reducers`` and
``test_module_with_records_and_reducer`` (PML 2.8.1). Those of the cross-batch memory are in
``losses/test_cross_batch_memory.py``, those of the calculator and the testers in
``evaluation/test_accuracy_calculator.py``. PML's other tests name no class that ours replace.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import support.losses
import torch
from pytorch_metric_learning import losses as pml_losses
from pytorch_metric_learning import miners, reducers, regularizers
from pytorch_metric_learning.utils import loss_and_miner_utils as lmu
from support.losses import Make
from torch import Tensor

from pml_extensions.functional import Power
from pml_extensions.losses import (
    ChunkedSoftmax,
    GradMLLoss,
    HeatedUpSoftmaxLoss,
    HISTLoss,
    NormalizedSoftmaxLoss,
    ProxyNCAPlusPlusLoss,
    StopGradientSoftmaxLoss,
    WarpedSoftmaxLoss,
)

CLASSES = 10
PROXY_LOSSES: dict[str, Make] = {
    **{name: partial(make, CLASSES) for name, make in support.losses.PROXY_LOSSES.items()},
    "normalized_chunks": partial(NormalizedSoftmaxLoss, CLASSES, softmax=ChunkedSoftmax(3)),
}
TUPLE_LOSSES: dict[str, Make] = {
    "grad_ml": lambda d, **k: GradMLLoss(**k),
    "grad_ml_all": lambda d, **k: GradMLLoss(quadruples="all", w=0.5, **k),
}
LOSSES = PROXY_LOSSES | TUPLE_LOSSES
every_loss = pytest.mark.parametrize("make", LOSSES.values(), ids=LOSSES.keys())
proxy_losses = pytest.mark.parametrize("make", PROXY_LOSSES.values(), ids=PROXY_LOSSES.keys())
tuple_losses = pytest.mark.parametrize("make", TUPLE_LOSSES.values(), ids=TUPLE_LOSSES.keys())


def of_length(length: float) -> Callable[[Tensor], None]:
    """Return a weight_init_func that gives every proxy this length."""

    def initialise(proxies: Tensor) -> None:
        torch.nn.init.normal_(proxies)
        proxies.data = length * torch.nn.functional.normalize(proxies.data)

    return initialise


def _hist(scale: float) -> HISTLoss:
    loss = HISTLoss(CLASSES, 2, tau=scale / 2, hypergraph_weight=0)
    torch.nn.init.zeros_(loss.log_variances)
    return loss


#: Each loss with the values for which it is a softmax over ``scale`` times the cosines, if the
#: embeddings have unit length; two have minus half the scale times squared distances as logits.
COSINE_SOFTMAX: dict[str, Callable[[float], Any]] = {
    "normalized_softmax": lambda s: NormalizedSoftmaxLoss(CLASSES, 2, temperature=1 / s),
    "normalized_softmax_chunks": lambda s: NormalizedSoftmaxLoss(
        CLASSES, 2, temperature=1 / s, softmax=ChunkedSoftmax(3)
    ),
    "proxy_nca_plus_plus": lambda s: ProxyNCAPlusPlusLoss(CLASSES, 2, scale=math.sqrt(s / 2)),
    "heated_up": lambda s: HeatedUpSoftmaxLoss(CLASSES, 2, alpha=s),
    "sgsl": lambda s: StopGradientSoftmaxLoss(
        CLASSES, 2, beta=0, label_smoothing=0, weight_init_func=of_length(s)
    ),
    "warped": lambda s: WarpedSoftmaxLoss(
        CLASSES,
        2,
        scale=s / 2,
        own_warp=Power(2),
        other_warp=Power(2),
        weight_init_func=of_length(1),
    ),
    "hist": _hist,
}


@pytest.mark.parametrize("name", COSINE_SOFTMAX)
@pytest.mark.parametrize("scale", [2.0, 10.0, 20.0])
@pytest.mark.parametrize(
    ("dtype", "rtol"), [(torch.float16, 1e-2), (torch.float32, 1e-5), (torch.float64, 1e-7)]
)
@pytest.mark.filterwarnings("ignore:.*never joins")
def test_a_softmax_over_cosines(name: str, scale: float, dtype: torch.dtype, rtol: float) -> None:
    torch.manual_seed(0)
    loss = COSINE_SOFTMAX[name](scale)
    if dtype == torch.float64:
        loss = loss.double()
    radians = [math.radians(degree) for degree in range(180)]
    x = torch.tensor([(math.cos(a), math.sin(a)) for a in radians], dtype=dtype, requires_grad=True)
    labels = torch.randint(CLASSES, (len(x),))
    value = loss(x, labels)
    value.backward()

    directions = [(p / p.norm()).tolist() for p in loss.proxies.detach().double()]
    logits = [[scale * (u * math.cos(a) + v * math.sin(a)) for u, v in directions] for a in radians]
    expected = 0.0
    for row, label in zip(logits, labels.tolist(), strict=True):
        largest = max(row)
        log_sum = largest + math.log(sum(math.exp(logit - largest) for logit in row))
        expected += (log_sum - row[label]) / len(logits)
    assert value.item() == pytest.approx(expected, rel=rtol)
    # A squared distance of unit vectors is 2 - 2 cosines.
    constant = scale if name in ("warped", "hist") else 0.0
    torch.testing.assert_close(
        loss.get_logits(x).double() + constant,
        torch.tensor(logits, dtype=torch.float64),
        rtol=1e-2,
        atol=scale * rtol,
    )
    assert x.grad is not None
    assert x.grad.isfinite().all()


def center_invariant(proxies: list[list[float]]) -> float:
    squares = [sum(w * w for w in p) for p in proxies]
    mean = sum(squares) / len(squares)
    return sum((square - mean) ** 2 / 4 for square in squares) / len(squares)


def regular_face(proxies: list[list[float]]) -> float:
    units = [[w / math.sqrt(sum(v * v for v in p)) for w in p] for p in proxies]
    nearest = [
        max(
            sum(v * w for v, w in zip(one, other, strict=True))
            for j, other in enumerate(units)
            if j != i
        )
        for i, one in enumerate(units)
    ]
    return sum(nearest) / len(nearest)


@proxy_losses
@pytest.mark.parametrize(
    ("regularizer", "by_loops"),
    [
        (regularizers.CenterInvariantRegularizer, center_invariant),
        (regularizers.RegularFaceRegularizer, regular_face),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_weight_regularizers(
    make: Make, regularizer: Any, by_loops: Any, dtype: torch.dtype
) -> None:
    values = []
    for options in ({}, {"weight_regularizer": regularizer(), "weight_reg_weight": 0.1}):
        torch.manual_seed(0)
        loss = make(64, **options)
        # The lengths differ, which the first of them looks at.
        loss.proxies.data *= torch.linspace(0.5, 2, CLASSES).unsqueeze(1)
        x = torch.nn.functional.normalize(torch.randn(60, 64)).to(dtype)
        values.append(loss(x, torch.randint(CLASSES, (60,))).item())
    added = 0.1 * by_loops(loss.proxies.double().tolist())
    assert added != 0
    assert values[1] == pytest.approx(values[0] + added, rel=1e-5)


@every_loss
@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("mined", ["by its own miner", "given"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_multiple_losses(make: Make, named: bool, mined: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    ours, other = make(2), pml_losses.TripletMarginLoss(0.1)
    miner = miners.MultiSimilarityMiner()
    x = torch.randn(60, 2).to(dtype).requires_grad_()
    labels = torch.randint(CLASSES, (60,))
    indices = miner(x, labels)
    parts: Any = {"ours": ours, "other": other} if named else [ours, other]
    weights: Any = {"ours": 1, "other": 0.23} if named else [1, 0.23]
    if mined == "given":
        both = pml_losses.MultipleLosses(parts, weights=weights)
        value = both(x, labels, indices)
        expected = ours(x, labels, indices) + 0.23 * other(x, labels, indices)
    else:
        chosen: Any = {"other": miner} if named else [None, miner]
        both = pml_losses.MultipleLosses(parts, chosen, weights)
        value = both(x, labels)
        expected = ours(x, labels) + 0.23 * other(x, labels, indices)
        with pytest.raises(AssertionError):
            both(x, labels, indices)
    torch.testing.assert_close(value, expected)
    value.backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()


def all_kinds_of_pairs(x: Tensor, labels: Tensor) -> list[tuple[Tensor, ...]]:
    return [
        lmu.get_all_pairs_indices(labels),
        miners.MultiSimilarityMiner()(x, labels),
        miners.TripletMarginMiner()(x, labels),
    ]


@tuple_losses
def test_pairs_take_the_place_of_labels(make: Make) -> None:
    torch.manual_seed(0)
    x, labels, loss = torch.randn(32, 32), torch.randint(CLASSES, (32,)), make(32)
    for pairs in all_kinds_of_pairs(x, labels):
        value = loss(x, labels, pairs)
        assert value != 0
        assert loss(x, indices_tuple=pairs) == value
        assert loss(x, indices_tuple=pairs, ref_emb=x) == value
    for reference in ({}, {"ref_emb": x}):
        with pytest.raises(ValueError, match="labels are required"):
            loss(x, **reference)


@proxy_losses
def test_proxies_need_labels_whatever_the_pairs(make: Make) -> None:
    torch.manual_seed(0)
    x, labels, loss = torch.randn(32, 32), torch.randint(CLASSES, (32,)), make(32)
    assert loss(x, labels).isfinite()
    for pairs in all_kinds_of_pairs(x, labels):
        with pytest.raises(ValueError, match="labels are required"):
            loss(x, indices_tuple=pairs)


REDUCERS = (reducers.ThresholdReducer(low=0), reducers.MeanReducer(), reducers.AvgNonZeroReducer())


@every_loss
@pytest.mark.parametrize("reducer", REDUCERS, ids=lambda r: type(r).__name__)
def test_every_sub_loss_has_the_reducer_that_was_given(make: Make, reducer: Any) -> None:
    loss = make(2, reducer=reducer)
    names = loss.sub_loss_names()
    own = [loss.reducer] if len(names) == 1 else list(loss.reducer.reducers.values())
    assert len(own) == len(names)
    assert {type(each) for each in own} == {type(reducer)}


@every_loss
def test_reducers_of_sub_losses_count_apart(make: Make) -> None:
    torch.manual_seed(0)
    given = reducers.AvgNonZeroReducer(collect_stats=True)
    loss = make(64, reducer=given, collect_stats=True)
    names = loss.sub_loss_names()
    raw = copy.deepcopy(loss)
    raw.reducer = reducers.DoNothingReducer()
    x, labels = torch.randn(128, 64), torch.randint(CLASSES, (128,))
    entries = raw(x, labels)
    loss(x, labels)
    own = {names[0]: loss.reducer} if len(names) == 1 else loss.reducer.reducers
    for name in names:
        assert own[name].num_past_filter == (entries[name]["losses"] > 0).sum()
    if len(names) > 1:
        assert all(each is not given for each in own.values())

"""Every class that a list shows can run."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from reality_check.config.classes import _UNUSABLE, NAMESPACES, build, find_class, registered_names
from reality_check.training.module import loss_value
from reality_check.utils.errors import UsageError

CLASSES, SIZE = 8, 16
#: Of classes that cannot do without.
NEEDED: dict[str, dict[str, Any]] = {
    "CrossBatchMemory": {"loss": "ContrastiveLoss"},
    "MultipleLosses": {"losses": ["ContrastiveLoss", "TripletMarginLoss"]},
    "P2SGradLoss": {"descriptors_dim": SIZE},
    "RankedListLoss": {"margin": 0.4, "Tn": 10},
    "WarpedSoftmaxLoss": {"alpha": 4.0, "k1": 0.9, "k2": 1.2},
    "ThresholdReducer": {"low": 0.1},
    "SparseCentersRegularizer": {"centers_per_class": 10},
}
#: A loss with weights and a divisor, which all but one part go with.
LOSS, OTHER = "ProxyAnchorLoss", {"SparseCentersRegularizer": "SoftTripleLoss"}


def gradient(loss: str, arguments: dict[str, Any], miner: Any = None) -> torch.Tensor:
    """Of random embeddings, by a loss as the harness builds it."""
    extra = {"num_classes": CLASSES, "embedding_size": SIZE}
    built = build(find_class(loss, "loss"), arguments, f"loss {loss}", extra)
    x = torch.randn(4 * CLASSES, SIZE, generator=torch.Generator().manual_seed(0))
    x.requires_grad_()
    loss_value(built, miner, x.clone(), torch.arange(CLASSES).repeat_interleave(4)).backward()
    assert x.grad is not None
    return x.grad


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind in NAMESPACES for name in registered_names(kind)]
)
@pytest.mark.filterwarnings("ignore")
def test_what_is_listed_takes_a_step(kind: str, name: str) -> None:
    needed = NEEDED.get(name, {})
    if kind == "optimizer":
        rows = torch.nn.Embedding(4, 3, sparse=name == "SparseAdam")
        before = rows(torch.tensor([1])).sum()
        before.backward()
        find_class(name, kind)([rows.weight], lr=0.1).step()
        assert rows(torch.tensor([1])).sum() < before
    elif kind == "loss":
        assert gradient(name, needed).any()
    elif kind == "miner":
        assert gradient("ContrastiveLoss", {}, build(find_class(name, kind), {}, name, {})).any()
    else:
        argument = kind.replace("regularizer", "weight_regularizer")
        loss = "ContrastiveLoss" if kind == "distance" else OTHER.get(name, LOSS)
        assert gradient(loss, {argument: {"class": name, **needed}}).any()


@pytest.mark.parametrize("name", _UNUSABLE)
def test_what_cannot_run_is_not_listed_and_says_why(name: str) -> None:
    assert not any(name in registered_names(kind) for kind in NAMESPACES)
    with pytest.raises(UsageError, match=r"cannot run here: .* reality-check show \w+ lists"):
        find_class(name, "loss")

"""HISTLoss: both terms against the paper's formulas written down with explicit hyperedges."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from pytorch_metric_learning.reducers import DoNothingReducer
from support.losses import chunked
from torch import Tensor

from pml_extensions.losses import HISTLoss

CLASSES, SIZE, HIDDEN = 5, 4, 6


def make(**kwargs: Any) -> HISTLoss:
    torch.manual_seed(0)
    loss = HISTLoss(CLASSES, SIZE, hidden_size=HIDDEN, **kwargs).double()
    loss.log_variances.data += 0.5
    return loss


def batch(n: int = 7) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(n, SIZE, generator=generator, dtype=torch.float64)
    return x, torch.tensor([0, 2, 2, 4, 0, 0, 2])[:n]


def squared_distances(loss: HISTLoss, x: Tensor) -> Tensor:
    """Mahalanobis distances to every class, shape (N, C), by direct difference."""
    difference = F.normalize(x)[:, None] - F.normalize(loss.proxies)
    return (difference.square() / F.relu6(loss.log_variances).exp()).sum(dim=2)


def hypergraph_losses(loss: HISTLoss, x: Tensor, labels: Tensor, training: bool) -> Tensor:
    """The network's cross-entropies; one column of H for each class of the batch."""
    present = labels.unique()
    own = labels[:, None] == present
    h = torch.where(own, 1.0, (-loss.alpha * squared_distances(loss, x)[:, present]).exp())
    node, edge = h.sum(dim=1), h.sum(dim=0)
    g = torch.diag(node**-0.5) @ h @ torch.diag(1 / edge) @ h.t() @ torch.diag(node**-0.5)
    norm = loss.norm
    statistics = (None, None) if training else (norm.running_mean, norm.running_var)
    hidden = F.batch_norm(g @ loss.embed(x), *statistics, norm.weight, norm.bias, training)
    hidden = F.leaky_relu(hidden, 0.1)
    return F.cross_entropy(g @ loss.classify(hidden), labels, reduction="none")


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("chunk", [None, 2])
def test_both_terms_and_their_gradients(training: bool, chunk: int | None) -> None:
    x, labels = batch()
    loss = make(
        tau=20.0,
        alpha=1.3,
        hypergraph_weight=0.7,
        softmax=chunked(chunk),
        reducer=DoNothingReducer(),
    ).train(training)
    a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
    expected = {
        "distribution_loss": F.cross_entropy(
            -20 * squared_distances(loss, a), labels, reduction="none"
        ),
        "hypergraph_loss": 0.7 * hypergraph_losses(loss, a, labels, training),
    }
    actual = {name: sub["losses"] for name, sub in loss(b, labels).items()}
    torch.testing.assert_close(actual, expected)
    weights = torch.linspace(1, 2, len(labels), dtype=torch.float64)
    grads = []
    for terms, leaf in ((expected, a), (actual, b)):
        total = sum((value * weights).sum() for value in terms.values())
        grads.append(torch.autograd.grad(total, [leaf, *loss.parameters()]))
    torch.testing.assert_close(grads[1], grads[0])


def test_running_statistics_follow_torchs_batch_norm() -> None:
    x, labels = batch()
    loss = make()
    peer = torch.nn.BatchNorm1d(HIDDEN).double()
    captured = {}
    original = loss._batch_norm
    loss._batch_norm = lambda h: captured.setdefault("h", h) is h and original(h)
    loss(x, labels)
    peer(captured["h"])
    torch.testing.assert_close(loss.norm.running_mean, peer.running_mean)
    torch.testing.assert_close(loss.norm.running_var, peer.running_var)


def test_logits_are_scaled_negative_distances() -> None:
    x, _ = batch()
    loss = make(tau=3.0)
    torch.testing.assert_close(loss.get_logits(x), -3 * squared_distances(loss, x))


def test_parameter_groups_cover_everything_once() -> None:
    loss = make()
    grouped = [loss.proxies, loss.log_variances, *loss.hypergraph_parameters()]
    assert {id(p) for p in grouped} == {id(p) for p in loss.parameters()}
    assert len(grouped) == len(list(loss.parameters()))


def test_a_batch_of_one_uses_the_running_statistics() -> None:
    x, labels = batch(1)
    loss = make()
    torch.testing.assert_close(loss(x, labels), make().eval()(x, labels))
    assert (loss.norm.running_mean == 0).all()


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"tau": 0}, "tau must be finite and greater than 0"),
        ({"alpha": -1}, "alpha must be"),
        ({"hypergraph_weight": -1}, "hypergraph_weight must be finite and at least 0"),
        ({"hidden_size": 0}, "hidden_size must be a whole number"),
    ],
)
def test_bad_arguments(kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        HISTLoss(3, 2, **kwargs)

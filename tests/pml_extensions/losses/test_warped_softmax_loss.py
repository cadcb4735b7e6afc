"""WarpedSoftmaxLoss: the closed-form gradient, identities, exact distances, initialisation."""

from __future__ import annotations

import math
import warnings
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from pytorch_metric_learning.reducers import DoNothingReducer
from support.losses import chunked
from torch import Tensor

from pml_extensions.functional import Piecewise, Power, Scaled
from pml_extensions.losses import WarpedSoftmaxLoss


def batch() -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(4)
    x = 2 * torch.randn(12, 3, generator=generator, dtype=torch.float64)
    proxies = 2 * torch.randn(5, 3, generator=generator, dtype=torch.float64)
    return x, proxies, torch.arange(12) % 5


def make(proxies: Tensor, alpha: float, k1: float, k2: float, **kwargs: Any) -> WarpedSoftmaxLoss:
    loss = WarpedSoftmaxLoss(*proxies.shape, alpha, k1, k2, **kwargs).to(proxies.dtype)
    loss.proxies.data.copy_(proxies)
    return loss


@pytest.mark.parametrize("alpha", [0.01, 3.0, math.inf])
@pytest.mark.parametrize("multiplier", [0.0, 1.0, 1.5])
def test_gradient_is_the_papers_closed_form(alpha: float, multiplier: float) -> None:
    x, proxies, labels = batch()
    k1, k2, scale = 0.6, 1.4, 1.7
    loss = make(proxies, alpha, k1, k2, delta_multiplier=multiplier, scale=scale)
    e = x.clone().requires_grad_()
    loss(e, labels).backward()
    grad_e, grad_p = torch.zeros_like(x), torch.zeros_like(proxies)
    for i, y in enumerate(labels.tolist()):
        unit = [(x[i] - p) / (x[i] - p).norm() for p in proxies]
        t = [(x[i] - p).norm().item() for p in proxies]
        inside = t[y] < alpha
        own = (k1 + multiplier * (1 - k1)) * t[y] if inside else k2 * t[y] + (1 - k2) * alpha
        weights = [math.exp(-scale * (own if j == y else t[j])) for j in range(5)]
        for j in range(5):
            p = weights[j] / sum(weights)
            pull = (1 - p) * (k1 if inside else k2) if j == y else -p
            grad_e[i] += scale * pull * unit[j] / len(x)
            grad_p[j] -= scale * pull * unit[j] / len(x)
    torch.testing.assert_close(e.grad, grad_e)
    torch.testing.assert_close(loss.proxies.grad, grad_p)


def test_gradcheck_outside_alpha_only() -> None:
    x, proxies, labels = batch()

    def check(alpha: float) -> bool:
        loss = make(proxies, alpha, 0.6, 1.4)
        return bool(
            torch.autograd.gradcheck(
                lambda e: loss(e, labels), (x.clone().requires_grad_(),), raise_exception=False
            )
        )

    assert check(1e-3)
    assert not check(1e3), "inside alpha the gradient is not the derivative of the value"


def test_inside_alpha_the_value_is_the_plain_softmax() -> None:
    x, proxies, labels = batch()
    plain = F.cross_entropy(-torch.cdist(x, proxies), labels)
    torch.testing.assert_close(make(proxies, 1e3, 0.3, 1.9)(x, labels), plain)
    torch.testing.assert_close(make(proxies, math.inf, 0.3, 1.9)(x, labels), plain)
    torch.testing.assert_close(make(proxies, 2.0, 1.0, 1.0)(x, labels), plain)


def test_distance_equal_to_alpha_counts_as_outside() -> None:
    proxies = torch.tensor([[0.0, 0.0], [9.0, 0.0]], dtype=torch.float64)
    x = torch.tensor([[2.0, 0.0]], dtype=torch.float64)
    own, other = 2.0, 7.0  # the outer branch at alpha; the inner one with m = 0 would give 1
    loss = make(proxies, 2.0, 0.5, 1.5, delta_multiplier=0.0)(x, torch.tensor([0]))
    assert loss.item() == pytest.approx(math.log1p(math.exp(own - other)))


def test_logits_are_scaled_negative_distances() -> None:
    x, proxies, _ = batch()
    loss = make(proxies, 2.0, 0.5, 1.5, scale=2.5)
    torch.testing.assert_close(loss.get_logits(x), -2.5 * torch.cdist(x, proxies))
    assert (loss.get_logits(proxies).argmax(dim=1) == torch.arange(5)).all()


def test_close_points_far_from_the_origin_keep_their_digits() -> None:
    # Expanding |e - p|^2 in float32 is off by 17 % here (papers.md 5.3).
    far = torch.full((1, 64), 8.0)
    step = torch.zeros(2, 64)
    step[0, 0], step[1, 1] = 0.125, 0.25
    proxies, x = far + step, far.clone().requires_grad_()
    loss = make(proxies, 1e3, 0.5, 1.5)
    torch.testing.assert_close(
        loss.get_logits(x).detach(), torch.tensor([[-0.125, -0.25]]), rtol=1e-6, atol=0
    )
    loss(x, torch.tensor([0])).backward()
    p = math.exp(-0.125) / (math.exp(-0.125) + math.exp(-0.25))
    expected = torch.zeros(1, 64)
    expected[0, 0], expected[0, 1] = -0.5 * (1 - p), 1 - p
    torch.testing.assert_close(x.grad, expected, rtol=1e-3, atol=1e-5)


def test_digits_do_not_depend_on_where_the_classes_lie() -> None:
    generator = torch.Generator().manual_seed(0)
    centre = 30 * torch.randn(16, generator=generator)
    proxies = centre + 0.1 * torch.randn(8, 16, generator=generator)
    x = centre + 0.1 * torch.randn(32, 16, generator=generator)
    labels = torch.arange(32) % 8
    exact = make(proxies.double(), 0.5, 0.6, 1.4, scale=5.0)
    single = make(proxies, 0.5, 0.6, 1.4, scale=5.0)
    a, b = x.double().requires_grad_(), x.clone().requires_grad_()
    for loss, embeddings in ((exact, a), (single, b)):
        loss(embeddings, labels).backward()
    assert a.grad is not None
    assert exact.proxies.grad is not None
    torch.testing.assert_close(b.grad, a.grad.float(), rtol=1e-4, atol=1e-6)
    proxy_grad = exact.proxies.grad.float()
    torch.testing.assert_close(single.proxies.grad, proxy_grad, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("constant", [1e5, math.nan])
def test_one_embedding_far_off_leaves_the_others_their_digits(constant: float) -> None:
    torch.manual_seed(0)
    loss = WarpedSoftmaxLoss(20, 16, alpha=3, k1=0.5, k2=1.5, reducer=DoNothingReducer())
    x, labels = torch.randn(64, 16), torch.arange(64) % 20
    exact = -torch.cdist(x[:-1].double(), loss.proxies.double()).float()
    alone = loss(x[:-1], labels[:-1])["loss"]["losses"]
    x[-1] = constant
    torch.testing.assert_close(loss.get_logits(x)[:-1], exact, rtol=1e-5, atol=0)
    together = loss(x, labels)["loss"]["losses"][:-1]
    torch.testing.assert_close(together, alone, rtol=1e-5, atol=1e-6)


def test_a_warp_of_infinite_slope_at_zero_has_finite_gradients_there() -> None:
    loss = WarpedSoftmaxLoss(3, 4, own_warp=torch.sqrt, other_warp=torch.sqrt)
    x = loss.proxies.detach()[:1].clone().requires_grad_()
    loss(x, torch.tensor([1])).backward()
    assert x.grad is not None
    assert loss.proxies.grad is not None
    assert x.grad.isfinite().all()
    assert loss.proxies.grad.isfinite().all()
    assert (x.grad != 0).any()


def test_the_own_distance_is_a_statistic() -> None:
    x, proxies, labels = batch()
    loss = make(proxies, 2.0, 0.5, 1.5, collect_stats=True)
    assert loss._record_these_stats == ["mean_own_distance"]
    assert loss.mean_own_distance == 0
    loss(x[:0], labels[:0])
    assert loss.mean_own_distance == 0
    loss(x, labels)
    expected = (x - proxies[labels]).norm(dim=1).mean().item()
    assert loss.mean_own_distance == pytest.approx(expected)


def test_without_statistics_no_distance_is_recorded() -> None:
    x, proxies, labels = batch()
    loss = make(proxies, 2.0, 0.5, 1.5, collect_stats=False)
    loss(x, labels)
    assert not hasattr(loss, "_record_these_stats")
    # The attribute is there nevertheless, and reading it waits for no device.
    assert loss.mean_own_distance == 0


def test_official_initialisation() -> None:
    torch.manual_seed(0)
    loss = WarpedSoftmaxLoss(200, 100, 1.0, 0.5, 1.5)
    assert loss.proxies.std().item() == pytest.approx(math.sqrt(2 / 200), rel=0.02)


def test_values_outside_the_theory_warn() -> None:
    with pytest.warns(UserWarning, match="k1=1.2"):
        WarpedSoftmaxLoss(3, 2, 1.0, 1.2, 1.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loss = WarpedSoftmaxLoss(3, 2, 1.0, 1.0, 1.0)
    with pytest.warns(UserWarning, match="k2=0.5"):
        loss.set_phase(k2=0.5)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("alpha", 0),
        ("alpha", math.nan),
        ("k1", -0.5),
        ("k2", math.inf),
        ("delta_multiplier", -1),
        ("scale", 0),
        ("scale", None),
    ],
)
def test_bad_arguments(name: str, value: Any) -> None:
    arguments = {"alpha": 1.0, "k1": 0.5, "k2": 1.5, name: value}
    with pytest.raises(ValueError, match=f"{name} must be"):
        WarpedSoftmaxLoss(3, 2, **arguments)


TABLE_III = {
    "t": (Power(1), None, lambda t: t, lambda t: t),
    "t^2": (Power(2), Power(2), lambda t: t**2, lambda t: t**2),
    "sqrt": (Power(0.5), Power(0.5), lambda t: t**0.5, lambda t: t**0.5),
    "t^1.5": (Power(1.5), Power(1.5), lambda t: t**1.5, lambda t: t**1.5),
    "0.97 t": (Scaled(0.97), None, lambda t: 0.97 * t, lambda t: t),
    "2 t": (Scaled(2.0), None, lambda t: 2 * t, lambda t: t),
    "detached": (Power(1), lambda t: t.detach(), lambda t: t, lambda t: t.detach()),
    "lambda": (lambda t: (1 + t).log(), None, lambda t: (1 + t).log(), lambda t: t),
}


@pytest.mark.parametrize("name", TABLE_III)
@pytest.mark.parametrize("chunk", [None, 2])
def test_plugged_warps(name: str, chunk: int | None) -> None:
    x, proxies, labels = batch()
    own_warp, other_warp, f1, f2 = TABLE_III[name]
    loss = WarpedSoftmaxLoss(
        5, 3, scale=1.3, own_warp=own_warp, other_warp=other_warp, softmax=chunked(chunk)
    ).double()
    a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
    p = proxies.clone().requires_grad_()
    loss.proxies.data.copy_(proxies)
    t = (a[:, None] - p).norm(dim=2)
    own = F.one_hot(labels, 5).bool()
    expected = F.cross_entropy(-1.3 * torch.where(own, f1(t), f2(t)), labels)
    value = loss(b, labels)
    torch.testing.assert_close(value, expected)
    value.backward()
    expected.backward()
    torch.testing.assert_close(b.grad, a.grad)
    torch.testing.assert_close(loss.proxies.grad, p.grad)
    torch.optim.Adam(loss.parameters()).step()
    loss.proxies.data.copy_(proxies)
    torch.testing.assert_close(loss.get_logits(x), -1.3 * f2(t).detach())
    assert loss.get_extra_state().tolist() == [1.3]


def test_the_piecewise_warp_as_a_plugin_is_the_default() -> None:
    x, proxies, labels = batch()
    plugged = WarpedSoftmaxLoss(5, 3, own_warp=Piecewise(2.0, 0.5, 1.5, 1.2)).double()
    plugged.proxies.data.copy_(proxies)
    default = make(proxies, 2.0, 0.5, 1.5, delta_multiplier=1.2)
    torch.testing.assert_close(plugged(x, labels), default(x, labels))


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({}, "needs alpha, k1 and k2, but alpha is missing"),
        ({"alpha": 1.0, "k1": 0.5}, "but k2 is missing"),
        ({"own_warp": Power(2), "k1": 0.5}, "own_warp replaces .* k1=0.5 was given as well"),
        ({"own_warp": Power(2), "alpha": 1.0, "k1": 0.5, "k2": 1.5}, "alpha=1.0 was given"),
    ],
)
def test_one_warp_is_needed(kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        WarpedSoftmaxLoss(3, 2, **kwargs)


@pytest.mark.parametrize("chunk_size", [None, 30])
@pytest.mark.parametrize("apart", [1e-2, 1e-3, 1e-4])
@pytest.mark.parametrize("near", [1, 2, 9])
def test_gradient_where_embeddings_nearly_meet_other_classes(
    near: int, apart: float, chunk_size: int | None
) -> None:
    """In float32 as in float64, also of the sample that decides all the others' sum."""
    generator = torch.Generator().manual_seed(0)
    proxies = torch.randn(100, 512, generator=generator)
    labels = torch.arange(64)
    x = proxies[labels] + 0.1 * torch.randn(64, 512, generator=generator)
    x[:2] = proxies[70]
    proxies[71 : 70 + near] = proxies[70] + apart * torch.randn(near - 1, 512, generator=generator)
    x[:2] += apart * torch.randn(2, 512, generator=generator)
    grads = []
    for dtype in (torch.float32, torch.float64):
        loss = make(proxies.to(dtype), 5.0, 0.5, 1.5, softmax=chunked(chunk_size))
        e = x.detach().to(dtype).requires_grad_()
        loss(e, labels).backward()
        grads.append([p.grad.double() for p in (e, loss.proxies)])  # type: ignore[union-attr]
    for single, double in zip(*grads, strict=True):
        assert (single - double).norm() < 1e-6 * double.norm()

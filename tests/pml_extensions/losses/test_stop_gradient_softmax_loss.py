"""StopGradientSoftmaxLoss: join rule, smoothing, stop-gradient and identities."""

from __future__ import annotations

import math
import warnings
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from pytorch_metric_learning.reducers import DoNothingReducer
from torch import Tensor
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode

from pml_extensions.losses import ClassSampler, StopGradientSoftmaxLoss


def batch(classes: int = 6, size: int = 4) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(10, size, generator=generator, dtype=torch.float64)
    proxies = torch.randn(classes, size, generator=generator, dtype=torch.float64)
    return x, proxies, torch.arange(10) % classes


def make(proxies: Tensor, **kwargs: Any) -> StopGradientSoftmaxLoss:
    loss = StopGradientSoftmaxLoss(*proxies.shape, **kwargs).double()
    loss.proxies.data.copy_(proxies)
    return loss


def test_gamma_one_is_cross_entropy_of_cosines() -> None:
    x, proxies, labels = batch()
    total = make(proxies, gamma=1.0, join_mode="always")(x, labels)
    softmax = make(proxies, beta=0.0)(x, labels)
    cosines = F.normalize(x) @ F.normalize(proxies).t()
    torch.testing.assert_close(total - softmax, F.cross_entropy(cosines, labels))


def test_term_equals_a_plain_loop() -> None:
    x, proxies, labels = batch()
    gamma, expected = 12.0, 0.0
    for i, label in enumerate(labels.tolist()):
        cosines = [(x[i] @ w / (x[i].norm() * w.norm())).item() for w in proxies]
        others = sum(math.exp(gamma * s) for j, s in enumerate(cosines) if j != label)
        expected += math.log1p(math.exp(math.log(others) / gamma - cosines[label])) / len(x)
    total = make(proxies, gamma=gamma, beta=2.5, join_mode="always")(x, labels)
    softmax = make(proxies, beta=0.0)(x, labels)
    assert (total - softmax).item() == pytest.approx(2.5 * expected, rel=1e-12)


@pytest.mark.parametrize("eps", [0.0, 0.1, 0.4])
def test_smoothing_conventions(eps: float) -> None:
    x, proxies, labels = batch()
    logits, classes = x @ proxies.t(), len(proxies)
    torch_like = make(proxies, beta=0, label_smoothing=eps, smoothing_convention="torch")
    official = make(proxies, beta=0, label_smoothing=eps, join_mode="always")
    torch.testing.assert_close(
        torch_like(x, labels), F.cross_entropy(logits, labels, label_smoothing=eps)
    )
    torch.testing.assert_close(
        official(x, labels),
        F.cross_entropy(logits, labels, label_smoothing=eps * classes / (classes - 1)),
    )


def test_logits_are_those_of_the_softmax() -> None:
    x, proxies, labels = batch()
    loss = make(proxies, beta=0, label_smoothing=0)
    torch.testing.assert_close(loss.get_logits(x), x @ proxies.t())
    torch.testing.assert_close(F.cross_entropy(loss.get_logits(x), labels), loss(x, labels))


def test_the_gate_opens_at_the_threshold() -> None:
    x, proxies, labels = batch()
    softmax = make(proxies, beta=0)(x, labels).item()
    joined = make(proxies, join_mode="always")(x, labels).item()
    assert make(proxies, join_threshold=softmax - 1e-6)(x, labels).item() == softmax
    assert make(proxies, join_threshold=softmax + 1e-6)(x, labels).item() == joined
    assert make(proxies, join_threshold=None)(x, labels).item() == joined


def test_a_first_term_equal_to_the_threshold_joins() -> None:
    x, proxies, _ = batch()
    x, labels = x[:1], torch.tensor([2])
    softmax = make(proxies, beta=0)(x, labels).item()
    assert make(proxies, join_threshold=softmax)(x, labels).item() > softmax


def test_a_threshold_can_count_from_the_entropy_of_the_labels() -> None:
    x, proxies, labels = batch()
    own, other = 0.6, 0.4 / 5
    entropy = -own * math.log(own) - 5 * other * math.log(other)
    options = {"label_smoothing": 0.4, "join_threshold_from": "entropy"}
    softmax = make(proxies, beta=0, label_smoothing=0.4)(x, labels).item()
    joined = make(proxies, join_mode="always", label_smoothing=0.4)(x, labels).item()
    gap = softmax - entropy
    assert make(proxies, join_threshold=gap - 1e-6, **options)(x, labels).item() == softmax
    assert make(proxies, join_threshold=gap + 1e-6, **options)(x, labels).item() == joined
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        StopGradientSoftmaxLoss(11318, 2, **options)


@pytest.mark.parametrize("of", ["all", "negatives"])
def test_the_entropy_is_that_of_the_classes_of_the_step(of: Any) -> None:
    sampler = ClassSampler(0.01, of)
    options = {"label_smoothing": 0.4, "join_threshold_from": "entropy", "join_threshold": 0.3}
    loss = StopGradientSoftmaxLoss(
        10000, 16, reducer=DoNothingReducer(), class_sampler=sampler, **options
    )
    x, labels = torch.randn(8, 16), torch.arange(8)
    terms = loss(x, labels)  # untrained: the softmax is at the logarithm of the classes kept
    kept = 100 if of == "all" else 108
    softmax = terms["softmax_loss"]["losses"].mean().item()
    assert softmax == pytest.approx(math.log(kept), rel=0.01)
    entropy = -0.6 * math.log(0.6) - 0.4 * math.log(0.4 / (kept - 1))
    assert (terms["stop_gradient_loss"]["losses"] == 0).all()
    loss.join_threshold = softmax - entropy + 0.05
    assert (loss(x, labels)["stop_gradient_loss"]["losses"] > 0).all()
    loss.join_threshold = softmax - entropy - 0.05
    assert (loss(x, labels)["stop_gradient_loss"]["losses"] == 0).all()


def test_gate_uses_the_smoothed_value() -> None:
    x, proxies, labels = batch()
    plain = make(proxies, beta=0, label_smoothing=0)(x, labels).item()
    smoothed = make(proxies, beta=0, label_smoothing=0.4)(x, labels).item()
    assert plain != smoothed
    threshold = (plain + smoothed) / 2
    value = make(proxies, label_smoothing=0.4, join_threshold=threshold)(x, labels).item()
    assert (value > smoothed) == (smoothed < plain)


@pytest.mark.filterwarnings("ignore:label_smoothing=0.1 keeps")
def test_the_terms_are_sub_losses() -> None:
    x, proxies, labels = batch()
    for mode, joined in (("always", True), ("per_batch", False)):
        loss = make(proxies, join_mode=mode, join_threshold=0.001, reducer=DoNothingReducer())
        terms = {name: sub["losses"] for name, sub in loss(x, labels).items()}
        assert list(terms) == loss.sub_loss_names() == ["softmax_loss", "stop_gradient_loss"]
        assert (terms["stop_gradient_loss"] > 0).all() == joined
        assert (terms["stop_gradient_loss"] == 0).all() != joined
        softmax = make(proxies, beta=0.0)(x, labels)
        torch.testing.assert_close(terms["softmax_loss"].mean(), softmax)


class _Products(TorchDispatchMode):
    """Counts the matrix products that involve all classes."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.classes = classes
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (torch.ops.aten.mm.default, torch.ops.aten.mm.out):
            self.count += any(self.classes in a.shape for a in args if isinstance(a, Tensor))
        return func(*args, **(kwargs or {}))


def test_both_terms_share_their_products() -> None:
    loss = StopGradientSoftmaxLoss(97, 4, join_mode="always")
    x = torch.randn(10, 4, requires_grad=True)
    with _Products(97) as counted:
        loss(x, torch.arange(10)).backward()
    assert counted.count == 3, "one forward, two backward"


def test_latch_flips_in_training_only_and_stays() -> None:
    x, proxies, labels = batch()
    softmax = make(proxies, beta=0, label_smoothing=0)(x, labels).item()
    loss = make(proxies, label_smoothing=0, join_mode="latch", join_threshold=softmax + 0.1)
    loss.eval()
    assert loss(x, labels).item() == softmax
    assert not loss.joined
    loss.train()
    joined = loss(x, labels).item()
    assert joined > softmax
    assert loss.joined
    worse = -3 * x  # far above the threshold, which no longer matters
    assert loss(worse, labels).item() > make(proxies, beta=0, label_smoothing=0)(worse, labels)
    resumed = make(proxies, label_smoothing=0, join_mode="latch", join_threshold=0.001)
    resumed.load_state_dict(loss.state_dict())
    assert resumed(x, labels).item() == joined


def test_the_latch_of_a_loss_left_on_the_cpu_answers_on_the_device_of_the_batch() -> None:
    loss = StopGradientSoftmaxLoss(6, 4, join_mode="latch").eval()
    assert loss._is_joined(torch.zeros(3, device="meta"), 6).device.type == "meta"
    assert loss.joined.device.type == "cpu"


@pytest.mark.parametrize("mode", ["per_batch", "always", "latch"])
def test_what_a_checkpoint_and_a_record_hold(mode: str) -> None:
    loss = StopGradientSoftmaxLoss(6, 4, join_mode=mode, collect_stats=True)
    state = {"proxies", "_extra_state"} | ({"joined"} if mode == "latch" else set())
    assert loss.state_dict().keys() == state
    numbers = {"num_classes": 6, "embedding_size": 4, "gamma": 30.0, "beta": 1.0}
    numbers |= {"label_smoothing": 0.1, "join_threshold": 3.0}
    assert {name: float(getattr(loss, name)) for name in loss._record_these} == numbers
    assert not hasattr(loss, "_record_these_stats")


def test_one_class_has_no_loss() -> None:
    x = torch.randn(4, 3, requires_grad=True)
    value = StopGradientSoftmaxLoss(1, 3)(x, torch.zeros(4, dtype=torch.long))
    value.backward()
    assert value.item() == 0
    assert x.grad is not None
    assert x.grad.abs().max() == 0


def test_a_threshold_below_the_entropy_of_the_targets_warns() -> None:
    # papers.md 1.2: the smoothed cross-entropy of SOP's 11,318 classes stays above 4.407 at 0.4.
    with pytest.warns(UserWarning, match=r"4\.407.*never joins"):
        StopGradientSoftmaxLoss(11318, 2, label_smoothing=0.4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        StopGradientSoftmaxLoss(11318, 2, label_smoothing=0.1)
        StopGradientSoftmaxLoss(11318, 2, label_smoothing=0.4, join_mode="always")
        StopGradientSoftmaxLoss(11318, 2, label_smoothing=0.4, join_threshold=None)
        # Spread over 57 classes, the least value is 2.28.
        StopGradientSoftmaxLoss(11318, 2, label_smoothing=0.4, class_sampler=ClassSampler(0.005))
    with pytest.warns(UserWarning, match=r"3\.443.*never joins"):
        StopGradientSoftmaxLoss(11318, 2, label_smoothing=0.4, class_sampler=ClassSampler(0.09))
    # No finite logits reach the entropy itself.
    with pytest.warns(UserWarning, match=r"0\.693.*never joins"):
        StopGradientSoftmaxLoss(2, 2, label_smoothing=0.5, join_threshold=math.log(2))


def test_official_initialisation() -> None:
    torch.manual_seed(0)
    assert StopGradientSoftmaxLoss(200, 100).proxies.std().item() == pytest.approx(1e-3, rel=0.02)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"gamma": 0}, "gamma must be finite and greater than 0"),
        ({"beta": -1}, "beta must be finite and at least 0"),
        ({"label_smoothing": 1.0}, "label_smoothing must be at least 0 and below 1"),
        (
            {"smoothing_convention": "pytorch"},
            "^smoothing_convention must be one of 'official', 'torch'",
        ),
        ({"join_mode": "never"}, "^join_mode must be one of 'per_batch', 'latch', 'always'"),
        ({"join_threshold_from": "ln C"}, "^join_threshold_from must be one of 'zero', 'entropy'"),
        ({"join_threshold": 0}, "join_threshold must be greater than 0"),
    ],
)
def test_bad_arguments(kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        StopGradientSoftmaxLoss(3, 2, **kwargs)


def test_ranks_agree_on_the_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    """In training; with real processes: tests/pml_extensions/test_distributed.py."""
    x, proxies, labels = batch()
    halves = (slice(5), slice(5, 10))
    means = [make(proxies, beta=0)(x[half], labels[half]).item() for half in halves]
    # Between both ranks' values, above the mean over ranks: alone one would join and one not.
    loss = make(proxies, join_threshold=(sum(means) / 2 + max(means)) / 2)

    def add_the_other_rank(sum_and_count: Tensor) -> None:
        sum_and_count.add_(torch.tensor([5 * sum(means), 10.0]) - sum_and_count)

    monkeypatch.setattr(torch.distributed, "all_reduce", add_the_other_rank)
    torch.distributed.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    try:
        joined = [
            [loss.train(mode)(x[half], labels[half]).item() > mean for mode in (False, True)]
            for half, mean in zip(halves, means, strict=True)
        ]
    finally:
        torch.distributed.destroy_process_group()
    assert sorted(joined) == [[False, True], [True, True]]

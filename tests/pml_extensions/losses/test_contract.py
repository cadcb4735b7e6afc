"""What each loss owes to PML and to its users, whatever its equation."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from pytorch_metric_learning import losses as pml_losses
from pytorch_metric_learning import miners, reducers, regularizers
from torch import Tensor

from pml_extensions.losses import (
    GradMLLoss,
    HeatedUpSoftmaxLoss,
    StopGradientSoftmaxLoss,
    WarpedSoftmaxLoss,
)

CLASSES, SIZE = 5, 7
Make = Callable[..., Any]
PROXY_LOSSES: dict[str, Make] = {
    "sgsl": lambda **k: StopGradientSoftmaxLoss(CLASSES, SIZE, **k),
    "sgsl_latch": lambda **k: StopGradientSoftmaxLoss(CLASSES, SIZE, join_mode="latch", **k),
    "warped": lambda **k: WarpedSoftmaxLoss(CLASSES, SIZE, 2.5, 0.7, 1.3, **k),
    "heated_l2": lambda **k: HeatedUpSoftmaxLoss(CLASSES, SIZE, bias="scaled", **k),
    "heated_bn": lambda **k: HeatedUpSoftmaxLoss(
        CLASSES, SIZE, normalization="bn", bn_shift=True, **k
    ),
}
LOSSES: dict[str, Make] = {
    **PROXY_LOSSES,
    "grad_ml": lambda **k: GradMLLoss(**k),
    "grad_ml_all": lambda **k: GradMLLoss(quadruples="all", k=1.0, **k),
}
every_loss = pytest.mark.parametrize("make", LOSSES.values(), ids=LOSSES.keys())
every_proxy_loss = pytest.mark.parametrize("make", PROXY_LOSSES.values(), ids=PROXY_LOSSES.keys())


def seeded(make: Make, **kwargs: Any) -> Any:
    torch.manual_seed(0)
    return make(**kwargs)


def batch(dtype: torch.dtype = torch.float32, n: int = 20) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(n, SIZE, generator=generator, dtype=torch.float64).to(dtype)
    return x.requires_grad_(), torch.arange(n) % CLASSES


def entries(make: Make, x: Tensor, labels: Tensor, *args: Any) -> Tensor:
    losses: Tensor = seeded(make, reducer=reducers.DoNothingReducer())(x, labels, *args)["loss"][
        "losses"
    ]
    return losses


@every_loss
def test_reducers_see_the_entries(make: Make) -> None:
    x, labels = batch()
    values = entries(make, x, labels).detach()
    median = values.median().item()
    class_weights = torch.linspace(0.5, 2, CLASSES)
    raw = seeded(make, reducer=reducers.DoNothingReducer())(x, labels)["loss"]
    expected = {
        reducers.MeanReducer(): values.mean(),
        reducers.SumReducer(): values.sum(),
        reducers.ThresholdReducer(low=median): values[values > median].mean(),
        reducers.PerAnchorReducer(): values.mean(),
        reducers.ClassWeightedReducer(class_weights): (
            values * class_weights[labels[raw["indices"]]]
        ).mean(),
    }
    for reducer, value in expected.items():
        result = seeded(make, reducer=reducer)(x, labels)
        torch.testing.assert_close(result.detach(), value, msg=lambda m, r=reducer: f"{r}: {m}")
        result.backward()


@every_loss
def test_embedding_regularizer_is_added(make: Make) -> None:
    x, labels = batch()
    plain = seeded(make)(x, labels)
    regularized = seeded(
        make, embedding_regularizer=regularizers.LpRegularizer(), embedding_reg_weight=0.3
    )(x, labels)
    torch.testing.assert_close(regularized, plain + 0.3 * x.norm(dim=1).mean())


@every_proxy_loss
def test_weight_regularizer_is_added(make: Make) -> None:
    x, labels = batch()
    loss = seeded(make, weight_regularizer=regularizers.LpRegularizer(), weight_reg_weight=0.3)
    plain = seeded(make)(x, labels)
    torch.testing.assert_close(loss(x, labels), plain + 0.3 * loss.proxies.norm(dim=1).mean())


@every_proxy_loss
def test_weight_init_func_is_used(make: Make) -> None:
    loss = make(weight_init_func=lambda w: torch.nn.init.constant_(w, 0.25))
    assert loss.proxies.shape == (CLASSES, SIZE)
    assert (loss.proxies == 0.25).all()


@every_proxy_loss
def test_miner_weights_multiply_the_samples(make: Make) -> None:
    x, labels = batch()
    # Sample 0 is named twice and 5 and 1 once, so the weights are 1, 1/2, 1/2 and 0 elsewhere.
    triplets = (torch.tensor([0, 0]), torch.tensor([5, 5]), torch.tensor([1, 2]))
    weights = torch.zeros(20)
    weights[[0, 5]], weights[[1, 2]] = 1.0, 0.5
    torch.testing.assert_close(
        entries(make, x, labels, triplets), entries(make, x, labels) * weights
    )


@every_loss
def test_works_with_a_miner_and_in_multiple_losses(make: Make) -> None:
    x, labels = batch()
    mined = miners.MultiSimilarityMiner()(x.detach(), labels)
    single = seeded(make)(x, labels, mined)
    assert single.isfinite()
    both = pml_losses.MultipleLosses([seeded(make), pml_losses.ContrastiveLoss()], weights=[2, 1])
    expected = 2 * single + pml_losses.ContrastiveLoss()(x, labels, mined)
    torch.testing.assert_close(both(x, labels, mined), expected)


@every_loss
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision_embeddings_leave_parameters_in_float32(
    make: Make, dtype: torch.dtype
) -> None:
    x, labels = batch(dtype)
    loss = seeded(make)
    value = loss(x, labels)
    value.backward()
    assert value.dtype == torch.float32
    assert x.grad is not None
    assert x.grad.dtype == dtype
    assert all(p.dtype == p.grad.dtype == torch.float32 for p in loss.parameters())
    exact = x.detach().float().requires_grad_()
    torch.testing.assert_close(value, seeded(make)(exact, labels), rtol=0, atol=0)


@every_loss
def test_autocast_changes_nothing(make: Make) -> None:
    x, labels = batch()
    plain, cast = seeded(make), seeded(make)
    expected = plain(x, labels)
    expected.backward()
    expected_grad, x.grad = x.grad, None
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = cast(x, labels)
        logits = cast.get_logits(x) if hasattr(cast, "get_logits") else value
    value.backward()
    torch.testing.assert_close(value, expected, rtol=0, atol=0)
    torch.testing.assert_close(x.grad, expected_grad, rtol=0, atol=0)
    assert logits.dtype == torch.float32
    for parameter, other in zip(cast.parameters(), plain.parameters(), strict=True):
        assert parameter.dtype == torch.float32
        torch.testing.assert_close(parameter.grad, other.grad, rtol=0, atol=0)


@every_loss
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_an_optimizer_steps_after_any_dtype(make: Make, dtype: torch.dtype) -> None:
    loss = seeded(make)
    weight = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.Adam([weight, *loss.parameters()], lr=0.01)
    for step_dtype in (torch.float32, dtype, torch.float32):
        x, labels = batch()
        optimizer.zero_grad()
        loss((x.detach() * weight).to(step_dtype), labels).backward()
        optimizer.step()
    assert all(p.isfinite().all() and p.dtype == torch.float32 for p in loss.parameters())


DEGENERATE = {
    "empty": (torch.zeros(0, SIZE), torch.zeros(0, dtype=torch.long)),
    "one": (torch.ones(1, SIZE), torch.tensor([3])),
    "one_class": (torch.eye(4, SIZE), torch.tensor([2, 2, 2, 2])),
    "zeros": (torch.zeros(8, SIZE), torch.arange(8) % 4),
    "coincident": (torch.ones(8, SIZE), torch.arange(8) % 4),
    "tiny": (torch.full((8, SIZE), 1e-30), torch.arange(8) % 4),
    "huge": (torch.full((8, SIZE), 1e4), torch.arange(8) % 4),
}


@every_loss
@pytest.mark.parametrize("name", DEGENERATE)
def test_degenerate_batches_are_finite(make: Make, name: str) -> None:
    embeddings, labels = DEGENERATE[name]
    x = embeddings.clone().requires_grad_()
    loss = seeded(make)
    value = loss(x, labels)
    value.backward()
    assert value.isfinite()
    assert x.grad is not None
    assert x.grad.isfinite().all()
    assert all(p.grad is None or p.grad.isfinite().all() for p in loss.parameters())


@every_proxy_loss
def test_embeddings_on_their_proxies_are_finite(make: Make) -> None:
    loss = seeded(make)
    x = loss.proxies.detach().clone().requires_grad_()
    loss(x, torch.arange(CLASSES)).backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()
    assert loss.proxies.grad.isfinite().all()


@every_loss
def test_a_nan_embedding_shows_in_the_loss(make: Make) -> None:
    x, labels = batch()
    bad = x.detach().clone()
    bad[3, 2] = torch.nan
    assert seeded(make)(bad, labels).isnan()


@every_proxy_loss
@pytest.mark.parametrize(
    ("label", "message"),
    [(CLASSES, "a label is 5; labels must be 0..4"), (-1, "a label is -1"), (-100, "-100")],
)
def test_labels_out_of_range_are_named(make: Make, label: int, message: str) -> None:
    x, labels = batch()
    labels = labels.clone()
    labels[4] = label
    with pytest.raises(ValueError, match=message):
        make()(x, labels)


@every_proxy_loss
def test_label_dtypes(make: Make) -> None:
    x, labels = batch()
    expected = seeded(make)(x, labels)
    torch.testing.assert_close(seeded(make)(x, labels.int()), expected)
    with pytest.raises(ValueError, match="must be integers"):
        make()(x, labels.float())


@every_loss
def test_calls_that_cannot_be_meant_are_refused(make: Make) -> None:
    x, labels = batch()
    with pytest.raises(ValueError, match="labels are required"):
        make()(x)
    with pytest.raises(ValueError, match="ref_emb is not supported"):
        make()(x, labels, ref_emb=x.detach().clone(), ref_labels=labels)
    with pytest.raises(ValueError, match=r"must have shape \(batch_size"):
        make()(x[:, :, None], labels)
    with pytest.raises(ValueError, match="takes no distance"):
        make(distance=object())


@every_proxy_loss
def test_wrong_embedding_size_is_refused(make: Make) -> None:
    x, labels = batch()
    with pytest.raises(ValueError, match=r"shape \(batch_size, 7\), but got \(20, 6\)"):
        make()(x[:, :6], labels)


@every_proxy_loss
def test_order_of_samples_and_names_of_classes_do_not_matter(make: Make) -> None:
    x, labels = batch(torch.float64)
    expected = entries(make, x, labels)
    order = torch.randperm(20, generator=torch.Generator().manual_seed(2))
    torch.testing.assert_close(entries(make, x[order], labels[order]), expected[order])

    renamed = torch.tensor([3, 0, 4, 1, 2])
    loss = seeded(make, reducer=reducers.DoNothingReducer())
    loss.proxies.data[renamed] = loss.proxies.data.clone()
    torch.testing.assert_close(loss(x, renamed[labels])["loss"]["losses"], expected)


@every_proxy_loss
def test_phase_survives_a_checkpoint(make: Make, tmp_path: Any) -> None:
    x, labels = batch()
    loss = seeded(make)
    changed = {name: 1.7 + i for i, name in enumerate(loss.phase_checks)}
    if "k1" in changed:
        changed["k1"] = 0.3
    before = loss(x, labels)
    loss.set_phase(**changed)
    after = loss(x, labels)
    assert not torch.isclose(after, before)
    torch.save(loss.state_dict(), tmp_path / "loss.pt")
    resumed = make()
    resumed.load_state_dict(torch.load(tmp_path / "loss.pt", weights_only=True))
    torch.testing.assert_close(resumed(x, labels), after, rtol=0, atol=0)
    assert {name: getattr(resumed, name).item() for name in changed} == changed
    buffers = dict(resumed.named_buffers())
    assert all(name in buffers and not buffers[name].requires_grad for name in changed)


@every_proxy_loss
def test_unknown_phase_names_change_nothing(make: Make) -> None:
    loss = make()
    known = next(iter(loss.phase_checks))
    value = getattr(loss, known).item()
    with pytest.raises(ValueError, match=rf"no phase value 'sigma'; the names are .*{known}"):
        loss.set_phase(**{known: value + 1, "sigma": 1.0})
    with pytest.raises(ValueError, match=f"{known} must be"):
        loss.set_phase(**{known: -1.0})
    with pytest.raises(ValueError, match=f"{known} must be a number"):
        loss.set_phase(**{known: "fast"})
    assert getattr(loss, known).item() == value


@every_proxy_loss
def test_changing_the_precision_of_the_module_keeps_the_phase(make: Make) -> None:
    loss = make()
    name = next(iter(loss.phase_checks))
    loss.set_phase(**{name: 28.4001})
    assert getattr(loss.bfloat16().float(), name).item() == 28.4001


@every_loss
def test_copies_compute_the_same(make: Make) -> None:
    x, labels = batch()
    loss = make() if make in (LOSSES["grad_ml"], LOSSES["grad_ml_all"]) else seeded(make)
    expected = loss(x, labels)
    for other in (copy.deepcopy(loss), pickle.loads(pickle.dumps(loss))):
        torch.testing.assert_close(other(x, labels), expected)


@every_proxy_loss
@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"num_classes": 0}, "num_classes must be a whole number"),
        ({"num_classes": 2.5}, "num_classes must be a whole number"),
        ({"embedding_size": -1}, "embedding_size must be a whole number"),
    ],
)
def test_sizes_are_checked(make: Make, kwargs: dict[str, Any], message: str) -> None:
    cls = type(make())
    values = {"num_classes": 3, "embedding_size": 2, **kwargs}
    if cls is WarpedSoftmaxLoss:
        values |= {"alpha": 1.0, "k1": 0.5, "k2": 1.5}
    with pytest.raises(ValueError, match=message):
        cls(**values)


@every_proxy_loss
def test_sizes_are_recorded(make: Make) -> None:
    # PML records 0 for a name that a loss lists but never sets.
    loss = make()
    assert (loss.num_classes, loss.embedding_size) == (CLASSES, SIZE)
    assert {"num_classes", "embedding_size", *loss.phase_checks} <= set(loss._record_these)

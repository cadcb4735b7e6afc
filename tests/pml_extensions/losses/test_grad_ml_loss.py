"""GradMLLoss: against explicit loops over quadruples and pairs."""

from __future__ import annotations

import inspect
import itertools
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from pytorch_metric_learning import distances, miners, reducers, samplers
from pytorch_metric_learning.reducers import DoNothingReducer, MeanReducer
from pytorch_metric_learning.utils import loss_and_miner_utils as lmu
from support.examples import examples
from support.paths import DOCS
from support.tensors import Outputs
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from pml_extensions.losses import GradMLLoss

PAGE = DOCS / "losses" / "grad_ml.md"
WEIGHTS = (0.5, 1.7, 0.2, 1.1, 0.0, 0.6)
UNBALANCED = [7, 7, 3, 7, 5, 3, 5, 7, 5, 5, 3, 9, 3]
both_quadruples = pytest.mark.parametrize("quadruples", ["disjoint", "all"])
powers_and_weights = pytest.mark.parametrize(("k", "w"), [(1.0, 1.0), (2.0, 0.5), (2.75, 1.3)])


def embeddings(n: int, size: int = 3, seed: int = 6) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, size, generator=generator, dtype=torch.float64)


def six(w: float) -> tuple[float, ...]:
    return (1, 1, w, w, w, w)


def quadruple(x: Tensor, q: tuple[int, ...], k: float, a: tuple[float, ...]) -> tuple[float, float]:
    """Return the positive and the negative terms of Eq. 10."""
    x1, x2, y1, y2 = (x[i] for i in q)
    pairs = [(x1, x2), (y1, y2), (x1, y1), (x1, y2), (x2, y1), (x2, y2)]
    terms = [w * float((p - q).norm() ** k) for w, (p, q) in zip(a, pairs, strict=True)]
    return sum(terms[:2]), -sum(terms[2:])


def all_means(
    x: Tensor, labels: list[int], k: float, a: tuple[float, ...]
) -> list[tuple[float, float]]:
    """Return the means over all ordered quadruples of each pair of classes, by brute force."""
    members = {c: [i for i, other in enumerate(labels) if other == c] for c in labels}
    members = {c: m for c, m in members.items() if len(m) > 1}
    means = []
    for first, second in itertools.combinations(members.values(), 2):
        values = [
            quadruple(x, (*pair, *other), k, a)
            for x_class, y_class in ((first, second), (second, first))
            for pair in itertools.permutations(x_class, 2)
            for other in itertools.permutations(y_class, 2)
        ]
        pos, neg = zip(*values, strict=True)
        means.append((sum(pos) / len(pos), sum(neg) / len(neg)))
    return means


def check(result: dict[str, Any], expected: list[tuple[float, float]], indices: list[int]) -> None:
    for name, values in zip(("pos_loss", "neg_loss"), zip(*expected, strict=True), strict=True):
        sub_loss = result[name]
        assert sub_loss["reduction_type"] == "element"
        assert sub_loss["indices"].tolist() == indices
        torch.testing.assert_close(sub_loss["losses"], torch.tensor(values, dtype=torch.float64))


@powers_and_weights
def test_disjoint_equals_a_loop(k: float, w: float) -> None:
    x, labels = embeddings(13), torch.tensor(UNBALANCED)
    unit = F.normalize(x)
    expected = [quadruple(unit, q, k, six(w)) for q in ((0, 1, 2, 5), (3, 7, 10, 12))]
    loss = GradMLLoss(k, w, reducer=DoNothingReducer())
    check(loss(x, labels), expected, [0, 3])
    assert loss.num_unused_samples == 5
    mean = sum(pos + neg for pos, neg in expected) / 2
    assert GradMLLoss(k, w)(x, labels).item() == pytest.approx(mean)


@powers_and_weights
def test_all_equals_a_loop_over_unbalanced_classes(k: float, w: float) -> None:
    labels = [4, 0, 4, 2, 0, 2, 2, 9, 4, 4]
    x = embeddings(10)
    expected = all_means(F.normalize(x), labels, k, six(w))
    loss = GradMLLoss(k, w, quadruples="all", reducer=DoNothingReducer())
    # Classes in order of first appearance: 4 and 0, 4 and 2, 0 and 2.
    check(loss(x, torch.tensor(labels)), expected, [0, 0, 1])
    assert loss.num_unused_samples == 1
    mean = sum(pos + neg for pos, neg in expected) / 3
    value = GradMLLoss(k, w, quadruples="all")(x, torch.tensor(labels))
    assert value.item() == pytest.approx(mean)


def test_closed_form_for_squares() -> None:
    x, w = embeddings(4), 0.7
    unit = F.normalize(x)
    within = (unit[0] - unit[1]).square().sum() + (unit[2] - unit[3]).square().sum()
    means = (unit[:2].mean(0) - unit[2:].mean(0)).square().sum()
    value = GradMLLoss(2.0, w)(x, torch.tensor([0, 0, 1, 1]))
    torch.testing.assert_close(value, (1 - w) * within - 4 * w * means)


@pytest.mark.parametrize("k", [1.0, 2.0, 2.5])
def test_term_weights(k: float) -> None:
    x, labels = embeddings(13), torch.tensor(UNBALANCED)
    unit = F.normalize(x)
    expected = [quadruple(unit, q, k, WEIGHTS) for q in ((0, 1, 2, 5), (3, 7, 10, 12))]
    loss = GradMLLoss(k, term_weights=WEIGHTS, reducer=DoNothingReducer())
    check(loss(x, labels), expected, [0, 3])
    # Over all ordered quadruples only the means of the first two and of the last four count.
    expected = all_means(unit, UNBALANCED, k, WEIGHTS)
    loss = GradMLLoss(k, term_weights=WEIGHTS, quadruples="all", reducer=DoNothingReducer())
    check(loss(x, labels), expected, [0, 0, 2])


@both_quadruples
def test_w_is_short_for_six_weights(quadruples: Any) -> None:
    x, labels = embeddings(13), torch.tensor(UNBALANCED)
    short = GradMLLoss(2.5, 0.3, quadruples=quadruples)
    other = GradMLLoss(2.5, quadruples=quadruples, term_weights=six(0.3))
    torch.testing.assert_close(short(x, labels), other(x, labels), rtol=0, atol=0)
    # w may change during training.
    short.w = 0.9
    assert short(x, labels) != other(x, labels)


@pytest.mark.parametrize("k", [1.0, 2.0, 3.5])
@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_all_pairs_of_a_balanced_batch_are_all_quadruples(k: float, weights: Any) -> None:
    x, labels = embeddings(12), torch.arange(12) % 4
    expected = GradMLLoss(k, quadruples="all", term_weights=weights)(x, labels)
    pairs = lmu.get_all_pairs_indices(labels)
    actual = GradMLLoss(k, term_weights=weights)(x, labels, pairs)
    torch.testing.assert_close(actual, expected)
    # The same pairs with the batch's copy as the reference.
    others = GradMLLoss(k, term_weights=weights)(x, labels, pairs, x.clone(), labels.clone())
    torch.testing.assert_close(others, expected)


MINERS = {
    "multi_similarity": miners.MultiSimilarityMiner(epsilon=0.2),
    "triplets": miners.TripletMarginMiner(margin=0.3, type_of_triplets="semihard"),
    "batch_hard": miners.BatchHardMiner(),
}


@pytest.mark.parametrize("miner", MINERS.values(), ids=MINERS.keys())
@pytest.mark.parametrize("with_reference", [False, True])
@pytest.mark.parametrize("quadruples", ["disjoint", "all"])
def test_mined_pairs_equal_a_loop(miner: Any, with_reference: bool, quadruples: Any) -> None:
    k, w = 1.5, 0.8
    x, labels = embeddings(13).requires_grad_(), torch.tensor(UNBALANCED)
    y, ref_labels = (
        embeddings(9, seed=7).requires_grad_(),
        torch.tensor([3, 5, 5, 7, 1, 3, 9, 9, 7]),
    )
    reference = (y, ref_labels) if with_reference else (None, None)
    mined = miner(x.detach(), labels, *((y.detach(), ref_labels) if with_reference else ()))
    anchors, p, other_anchors, n = mined if len(mined) == 4 else (*mined[:2], mined[0], mined[2])
    unit, others = F.normalize(x), F.normalize(y if with_reference else x)
    expected = {
        "pos": [2 * (unit[i] - others[j]).norm() ** k for i, j in zip(anchors, p, strict=True)],
        "neg": [
            -4 * w * (unit[i] - others[j]).norm() ** k
            for i, j in zip(other_anchors, n, strict=True)
        ],
    }
    loss = GradMLLoss(k, w, quadruples=quadruples, reducer=DoNothingReducer())
    result = loss(x, labels, mined, *reference)
    for name, rows, columns in (("pos", anchors, p), ("neg", other_anchors, n)):
        sub_loss = result[f"{name}_loss"]
        assert len(rows) > 0
        assert sub_loss["reduction_type"] == f"{name}_pair"
        assert [i.tolist() for i in sub_loss["indices"]] == [rows.tolist(), columns.tolist()]
        torch.testing.assert_close(sub_loss["losses"], torch.stack(expected[name]))

    value = GradMLLoss(k, w)(x, labels, mined, *reference)
    mean = sum(torch.stack(values).mean() for values in expected.values())
    torch.testing.assert_close(value, mean)
    leaves = (x, y) if with_reference else (x,)
    for gradient, wanted in zip(
        torch.autograd.grad(value, leaves), torch.autograd.grad(mean, leaves), strict=True
    ):
        torch.testing.assert_close(gradient, wanted)


def test_reference_of_another_size_takes_all_pairs() -> None:
    k, w = 2.0, 0.8
    x, labels = embeddings(6), torch.tensor([0, 0, 1, 2, 2, 3])
    y, ref_labels = embeddings(4, seed=7), torch.tensor([2, 0, 5, 2])
    unit, others = F.normalize(x), F.normalize(y)
    pos, neg = [], []
    for i, j in itertools.product(range(6), range(4)):
        distance = float((unit[i] - others[j]).norm())
        if labels[i] == ref_labels[j]:
            pos.append(2 * distance**k)
        else:
            neg.append(-4 * w * distance**k)
    loss = GradMLLoss(k, w, reducer=DoNothingReducer())
    result = loss(x, labels, ref_emb=y, ref_labels=ref_labels)
    for name, values in (("pos_loss", pos), ("neg_loss", neg)):
        torch.testing.assert_close(
            result[name]["losses"], torch.tensor(values, dtype=torch.float64)
        )
    a1, p, a2, n = lmu.get_all_pairs_indices(labels, ref_labels)
    assert torch.equal(torch.stack(result["pos_loss"]["indices"]), torch.stack([a1, p]))
    assert torch.equal(torch.stack(result["neg_loss"]["indices"]), torch.stack([a2, n]))


@both_quadruples
@pytest.mark.parametrize("shared", ["labels", "embeddings"])
def test_a_reference_that_shares_one_tensor_with_the_batch_is_one(
    quadruples: Any, shared: str
) -> None:
    k, w = 1.5, 0.8
    x, labels = embeddings(13), torch.tensor(UNBALANCED)
    y, ref_labels = embeddings(13, seed=7), labels.roll(1)
    reference = (y, labels) if shared == "labels" else (x, ref_labels)
    distances = torch.cdist(F.normalize(x), F.normalize(reference[0]))
    matches = labels.unsqueeze(1) == reference[1]
    differs = ~matches
    if shared == "labels":
        matches.fill_diagonal_(False)  # PML takes both for the same samples
    expected = 2 * distances[matches].pow(k).mean() - 4 * w * distances[differs].pow(k).mean()
    value = GradMLLoss(k, w, quadruples=quadruples)(x, labels, None, *reference)
    torch.testing.assert_close(value, expected)


def test_labels_may_be_left_out_if_pairs_are_given() -> None:
    x, labels = embeddings(12), torch.arange(12) % 4
    pairs = lmu.get_all_pairs_indices(labels)
    loss = GradMLLoss()
    torch.testing.assert_close(loss(x, indices_tuple=pairs), loss(x, labels, pairs))
    expected = loss(x, labels, pairs, x.clone(), labels)
    torch.testing.assert_close(loss(x, indices_tuple=pairs, ref_emb=x.clone()), expected)


@pytest.mark.parametrize("missing", ["pos", "neg", "both"])
@pytest.mark.parametrize("listed", [True, False])
def test_a_missing_kind_of_pairs_is_zero(missing: str, listed: bool) -> None:
    x, y = embeddings(3).requires_grad_(), embeddings(2, seed=7)
    labels = torch.zeros(3, dtype=torch.long)
    ref_labels = torch.full((2,), 1 if missing == "pos" else 0)
    pairs = None
    if missing == "both":
        pairs = (torch.zeros(0, dtype=torch.long),) * 4
    elif listed:
        pairs = lmu.get_all_pairs_indices(labels, ref_labels)
    distance = torch.cdist(F.normalize(x), F.normalize(y))
    mean = {"pos": -4 * distance.square().mean(), "neg": 2 * distance.square().mean()}
    value = GradMLLoss()(x, labels, pairs, y, ref_labels)
    torch.testing.assert_close(value, mean.get(missing, torch.zeros_like(value)))
    value.backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()
    if listed and missing != "both":
        result = GradMLLoss(reducer=DoNothingReducer())(x, labels, pairs, y, ref_labels)
        assert result[f"{missing}_loss"]["losses"] == 0


@both_quadruples
@pytest.mark.parametrize("k", [1.0, 2.0, 2.5])
@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.filterwarnings("ignore:GradMLLoss without normalize_embeddings")
def test_gradcheck(quadruples: Any, k: float, normalize: bool) -> None:
    loss = GradMLLoss(
        k, normalize_embeddings=normalize, quadruples=quadruples, term_weights=WEIGHTS
    )
    labels = torch.tensor([0, 0, 1, 1, 2, 2, 0, 1, 8])
    x = embeddings(9).requires_grad_()
    assert torch.autograd.gradcheck(lambda e: loss(e, labels), (x,))


@pytest.mark.parametrize("k", [1.0, 2.0, 2.5])
def test_gradcheck_of_pairs(k: float) -> None:
    labels, ref_labels = torch.tensor([0, 1, 2, 0]), torch.tensor([0, 1, 1])
    x, y = embeddings(4).requires_grad_(), embeddings(3, seed=7).requires_grad_()
    loss = GradMLLoss(k, 0.6)
    assert torch.autograd.gradcheck(
        lambda e, r: loss(e, labels, ref_emb=r, ref_labels=ref_labels), (x, y)
    )


batches = st.integers(0, 2**32 - 1).flatmap(
    lambda seed: st.tuples(st.just(seed), st.lists(st.integers(0, 4), min_size=4, max_size=20))
)


@given(batches, st.sampled_from([1.0, 2.0, 2.75]), st.sampled_from(["disjoint", "all"]))
@examples(60)
@pytest.mark.filterwarnings("ignore:GradMLLoss without normalize_embeddings")
def test_symmetries(batch: tuple[int, list[int]], k: float, quadruples: Any) -> None:
    seed, names = batch
    labels, x = torch.tensor(names), embeddings(len(names), seed=seed)
    loss = GradMLLoss(k, 0.7, quadruples=quadruples)
    expected = loss(x, labels)
    if quadruples == "all":
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
        torch.testing.assert_close(loss(x[order], labels[order]), expected)
    renamed = torch.tensor([30, -2, 7, 0, 12])[labels]
    torch.testing.assert_close(loss(x, renamed), expected, rtol=0, atol=0)
    lengths = 0.1 + 3 * torch.rand(len(x), 1, dtype=x.dtype)
    torch.testing.assert_close(loss(lengths * x, labels), expected)

    raw = GradMLLoss(k, 0.7, normalize_embeddings=False, quadruples=quadruples)
    shift = 5 * embeddings(1, seed=seed + 1)
    torch.testing.assert_close(raw(x + shift, labels), raw(x, labels))
    torch.testing.assert_close(raw(3 * x, labels), 3**k * raw(x, labels))


@pytest.mark.parametrize("n", [0, 1, 3, 4])
@pytest.mark.parametrize("one_class", [True, False])
@both_quadruples
def test_a_batch_without_quadruples_has_loss_zero(n: int, one_class: bool, quadruples: Any) -> None:
    x = embeddings(n).requires_grad_()
    labels = torch.zeros(n, dtype=torch.long) if one_class else torch.arange(n)
    loss = GradMLLoss(quadruples=quadruples, reducer=MeanReducer())
    value = loss(x, labels)
    value.backward()
    assert value.item() == 0
    assert x.grad is not None
    assert not x.grad.any()
    assert loss.num_unused_samples == n


@both_quadruples
@pytest.mark.parametrize("k", [1.0, 2.0])
def test_a_nan_shows_in_the_loss(quadruples: Any, k: float) -> None:
    x, labels = embeddings(12), torch.arange(12) % 4
    x[5, 1] = torch.nan
    assert GradMLLoss(k, quadruples=quadruples)(x, labels).isnan()
    pairs = lmu.get_all_pairs_indices(labels)
    assert GradMLLoss(k)(x, labels, pairs).isnan()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_low_precision_is_computed_in_float32(dtype: torch.dtype) -> None:
    x, labels = embeddings(12, 8).to(dtype).requires_grad_(), torch.arange(12) % 4
    pairs = lmu.get_all_pairs_indices(labels)
    for args in ((labels,), (labels, pairs), (labels, pairs, x, labels), (labels, None, x, labels)):
        loss = GradMLLoss(2.5)
        wide = x.float()
        expected = loss(wide, *(wide if arg is x else arg for arg in args))
        value = loss(x, *args)
        assert value.dtype == torch.float32
        torch.testing.assert_close(value, expected, rtol=1e-6, atol=0)
        (gradient,) = torch.autograd.grad(value, x)
        assert gradient.dtype == dtype
        with torch.autocast("cpu", dtype=torch.bfloat16):
            torch.testing.assert_close(loss(x, *args), value, rtol=0, atol=0)


def test_reducers_see_the_sub_losses_apart() -> None:
    x, labels = embeddings(13), torch.tensor(UNBALANCED)
    raw = GradMLLoss(reducer=DoNothingReducer())(x, labels)
    pos, neg = raw["pos_loss"]["losses"], raw["neg_loss"]["losses"]
    reducer = reducers.MultipleReducers(
        {"pos_loss": reducers.SumReducer(), "neg_loss": reducers.MeanReducer()}
    )
    torch.testing.assert_close(GradMLLoss(reducer=reducer)(x, labels), pos.sum() + neg.mean())
    # The documented trap.
    value = GradMLLoss(reducer=reducers.AvgNonZeroReducer())(x, labels)
    torch.testing.assert_close(value, pos.mean())


def compiled(loss: GradMLLoss, backend: str, *, fullgraph: bool) -> Any:
    torch._dynamo.reset()
    return torch.compile(loss, backend=backend, fullgraph=fullgraph)


CALLS: dict[str, Any] = {
    "disjoint": lambda x, y: ({}, {"quadruples": "disjoint"}),
    "all_k2": lambda x, y: ({}, {"quadruples": "all", "k": 2.0}),
    "all_k3": lambda x, y: ({}, {"quadruples": "all", "k": 3.0}),
    "reference": lambda x, y: ({"ref_emb": y, "ref_labels": torch.arange(5)}, {}),
    "pairs": lambda x, y: ({"indices_tuple": MINERS["multi_similarity"](x, CLASSES)}, {}),
    "triplets": lambda x, y: ({"indices_tuple": MINERS["triplets"](x, CLASSES)}, {}),
}
CLASSES = torch.tensor(UNBALANCED)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["disjoint", "all_k3", "reference", "pairs", "triplets"])
def test_compiles_to_one_graph(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name.startswith("all") and torch.__version__ < (2, 6):
        pytest.skip("torch 2.5 cannot compile the sizes of all quadruples")
    x = embeddings(13).float()
    call, kwargs = CALLS[name](x, embeddings(5).float())
    sizes_are_waited_for = name in ("all_k3", "reference")  # the others need no option of torch
    monkeypatch.setattr(
        torch._dynamo.config, "capture_dynamic_output_shape_ops", sizes_are_waited_for
    )
    # Gradients of sizes that are not known; those of "disjoint": test_contract.py.
    backend = "aot_eager" if name == "all_k3" else "eager"
    fast = compiled(GradMLLoss(**kwargs), backend, fullgraph=True)
    # The compiled graph serves other labels too, with fewer quadruples and none.
    for labels in (CLASSES, torch.arange(13) % 5, torch.zeros(13, dtype=torch.long)):
        results = []
        for loss in (GradMLLoss(**kwargs), fast):
            leaf = x.clone().requires_grad_()
            value = loss(leaf, labels, **call)
            results.append((value.detach(), *torch.autograd.grad(value, leaf)))
        torch.testing.assert_close(*results)


@pytest.mark.slow
def test_compiles_with_breaks_by_default() -> None:
    x, kwargs = embeddings(13).float(), CALLS["all_k2"](None, None)[1]
    torch.testing.assert_close(
        compiled(GradMLLoss(**kwargs), "eager", fullgraph=False)(x, CLASSES),
        GradMLLoss(**kwargs)(x, CLASSES),
    )


class Waits(TorchDispatchMode):
    """Counts the operations for which the host waits for an accelerator."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.name().split("::")[-1].split(".")[0]
        self.count += name in ("nonzero", "_local_scalar_dense", "masked_select", "_unique2")
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", CALLS)
def test_the_host_waits_for_sizes_only(name: str) -> None:
    x = embeddings(13).float()
    call, kwargs = CALLS[name](x, embeddings(5).float())
    loss = GradMLLoss(**kwargs)
    with Waits() as waits:
        loss(x.requires_grad_(), CLASSES, **call).backward()
    expected = {"disjoint": 0, "pairs": 0, "triplets": 0, "reference": 2}
    assert waits.count == expected.get(name, 1)


def test_few_given_pairs_need_no_matrix_of_all_distances() -> None:
    x = embeddings(40)
    pairs = (torch.tensor([0, 1]), torch.tensor([10, 11]), torch.tensor([0]), torch.tensor([1]))
    with Outputs() as outputs:
        GradMLLoss()(x, indices_tuple=pairs)
    assert max(shape.numel() for shape in outputs.shapes) == x.numel()


def test_learns_under_a_sampler() -> None:
    torch.manual_seed(0)
    labels = torch.arange(40) // 5
    data = torch.eye(8)[labels] + 0.3 * torch.randn(40, 8)
    sampler = samplers.MPerClassSampler(labels, m=2, batch_size=16, length_before_new_iter=32)
    model, loss = torch.nn.Linear(8, 4), GradMLLoss(2.0, 0.5)
    of_all = GradMLLoss(2.0, 0.5, quadruples="all")
    before = of_all(model(data), labels).item()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(10):
        for rows in torch.tensor(list(sampler)).split(16):
            value = loss(model(data[rows]), labels[rows])
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
    # The sampler draws from numpy's own generator: over its seeds 0 to 59 it falls by 1.09 or more.
    assert of_all(model(data), labels).item() < before - 0.5


@pytest.mark.parametrize(("k", "poles"), [(1.5, False), (3.0, True)])
def test_above_two_the_minimum_is_two_opposite_points(k: float, poles: bool) -> None:
    torch.manual_seed(0)
    labels = torch.arange(16).repeat_interleave(2)
    vectors = torch.nn.Parameter(torch.randn(32, 8))
    loss, optimizer = GradMLLoss(k, 0.5, quadruples="all"), torch.optim.Adam([vectors], lr=0.05)
    for _ in range(300):
        optimizer.zero_grad()
        loss(vectors, labels).backward()
        optimizer.step()
    units = F.normalize(vectors.detach())
    cosines = (units @ units.T)[~torch.eye(32, dtype=torch.bool)].abs()
    assert bool(cosines.min() > 0.99) == poles
    if poles:
        # Half of the classes at each: 8 x 8 of 120 pairs of classes are 2 apart.
        value = loss(vectors.detach(), labels)
        torch.testing.assert_close(value.item(), -4 * 0.5 * 2**k * 64 / 120, rtol=1e-3, atol=0.0)


def test_raw_embeddings_warn() -> None:
    with pytest.warns(UserWarning, match="no lower bound"):
        GradMLLoss(normalize_embeddings=False)
    with pytest.warns(UserWarning, match="no lower bound"):
        GradMLLoss(normalize_embeddings=False, term_weights=(1, 1, 0, 0, 0.1, 0))


def test_what_is_recorded() -> None:
    assert {"k", "w"} <= set(GradMLLoss()._record_these)
    # w means nothing beside term_weights.
    assert "w" not in GradMLLoss(term_weights=WEIGHTS)._record_these
    # A statistic of the last batch, of which PML keeps records only on request.
    assert GradMLLoss(collect_stats=True)._record_these_stats == ["num_unused_samples"]
    assert not hasattr(GradMLLoss(collect_stats=False), "_record_these_stats")


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"k": 0.5}, "k must be finite and at least 1"),
        ({"w": -1}, "w must be finite and at least 0"),
        ({"quadruples": "some"}, "quadruples must be one of 'disjoint', 'all'"),
        ({"normalize_embeddings": "yes"}, "normalize_embeddings must be one of True, False"),
        ({"w": 0.5, "term_weights": WEIGHTS}, "w=0.5 and term_weights=.* were both given"),
        ({"term_weights": (1, 1, 1)}, "term_weights must be the six numbers a_1 to a_6 of Eq. 10"),
        ({"term_weights": 2.0}, "term_weights must be the six numbers"),
        ({"term_weights": (1, 1, 1, -1, 1, 1)}, r"term_weights\[3\] must be finite and at least 0"),
        ({"distance": distances.LpDistance()}, "GradMLLoss takes no distance"),
    ],
)
def test_bad_arguments(kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GradMLLoss(**kwargs)


def test_calls_that_cannot_be_meant_are_refused() -> None:
    x, labels = embeddings(6), torch.arange(6) % 3
    loss = GradMLLoss()
    with pytest.raises(ValueError, match="labels are required"):
        loss(x)
    with pytest.raises(ValueError, match="without ref_labels and indices_tuple"):
        loss(x, labels, ref_emb=embeddings(2))
    with pytest.raises(ValueError, match=r"shape \(batch_size, 3\), but got \(2, 4\)"):
        loss(x, labels, ref_emb=embeddings(2, 4), ref_labels=torch.zeros(2))
    with pytest.raises(ValueError, match=r"must hold 3 tensors .* but holds 2"):
        loss(x, labels, (labels, labels))
    with pytest.raises(ValueError, match="must be floating point"):
        loss(labels.unsqueeze(1), labels)


def test_the_page_prints_the_signature() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for name in inspect.signature(GradMLLoss.__init__).parameters:
        assert name in ("self", "kwargs") or f"* **{name}**:" in page


@both_quadruples
@pytest.mark.filterwarnings("default")
def test_batches_without_a_quadruple_are_reported_once(
    quadruples: str, recwarn: pytest.WarningsRecorder
) -> None:
    loss = GradMLLoss(quadruples=quadruples)
    for labels in ([0, 0, 1, 1], [0, 1, 2, 3, 3], [0, 1, 2, 3]):
        loss(embeddings(len(labels)), torch.tensor(labels))
    (warning,) = recwarn
    assert "two samples of each of two classes" in str(warning.message)


def test_a_divisor_is_not_known() -> None:
    with pytest.raises(ValueError, match=r"names no divisor .* write MeanReducer\(\)"):
        GradMLLoss(reducer=reducers.DivisorReducer())

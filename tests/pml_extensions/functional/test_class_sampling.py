"""Class samples: always the own classes, uniform in the others, the same for the same numbers."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from torch import Tensor

from pml_extensions.functional.class_sampling import gather_rows, presence, sample_classes


def sample(labels: list[int], classes: int, kept: int, seed: int = 0, draw: int = 0) -> Tensor:
    present = presence(torch.tensor(labels, dtype=torch.long), classes)
    return sample_classes(present, kept, torch.tensor(seed), torch.tensor(draw))


@examples(60)
@given(
    classes=st.integers(1, 200),
    seed=st.integers(0, 2**62),
    draw=st.integers(0, 2**40),
    data=st.data(),
)
def test_own_classes_are_kept_and_all_are_distinct(
    classes: int, seed: int, draw: int, data: st.DataObject
) -> None:
    labels = data.draw(st.lists(st.integers(0, classes - 1), max_size=20))
    kept = data.draw(st.integers(len(set(labels)), classes))
    chosen = sample(labels, classes, kept, seed, draw).tolist()
    assert chosen == sorted(set(chosen))
    assert len(chosen) == kept
    assert set(labels) <= set(chosen) <= set(range(classes))


def test_every_other_class_is_drawn_equally_often_and_independently() -> None:
    classes, kept, draws = 50, 15, 4000
    counts = torch.zeros(classes)
    together = torch.zeros(classes, classes)
    for draw in range(draws):
        chosen = torch.zeros(classes)
        chosen[sample([3, 7], classes, kept, seed=11, draw=draw)] = 1
        counts += chosen
        together += torch.outer(chosen, chosen)
    assert counts[3] == counts[7] == draws
    others = torch.ones(classes, dtype=torch.bool)
    others[[3, 7]] = False
    p = (kept - 2) / (classes - 2)
    # Five standard deviations of a binomial count, for the shares of classes and of pairs.
    spread = 5 * (draws * p * (1 - p)) ** 0.5
    assert (counts[others] - draws * p).abs().max() < spread
    pairs = together[others][:, others]
    pairs = pairs[~torch.eye(len(pairs), dtype=torch.bool)]
    q = p * (kept - 3) / (classes - 3)
    assert (pairs - draws * q).abs().max() < 5.5 * (draws * q * (1 - q)) ** 0.5


def test_equal_numbers_give_equal_samples_and_other_numbers_other_ones() -> None:
    first = sample([1], 1000, 100, seed=5, draw=2)
    assert torch.equal(first, sample([1], 1000, 100, seed=5, draw=2))
    assert not torch.equal(first, sample([1], 1000, 100, seed=5, draw=3))
    assert not torch.equal(first, sample([1], 1000, 100, seed=6, draw=2))
    # Neighbouring seeds and draws share no more classes than chance gives (10 of 100).
    for other in (sample([1], 1000, 100, 6, 2), sample([1], 1000, 100, 2, 5)):
        assert len(set(first.tolist()) & set(other.tolist())) < 30


def test_gathered_rows_have_the_same_gradient_dense_and_sparse() -> None:
    rows = torch.tensor([0, 3, 4])
    weights = torch.arange(6.0).view(3, 2)
    grads = []
    for sparse in (False, True):
        parameter = torch.randn(6, 2, requires_grad=True)
        gathered = gather_rows(parameter, rows, sparse)
        torch.testing.assert_close(gathered, parameter[rows])
        (gathered * weights).sum().backward()
        assert parameter.grad is not None
        assert parameter.grad.is_sparse == sparse
        grads.append(parameter.grad)
    expected = torch.zeros(6, 2)
    expected[rows] = weights
    torch.testing.assert_close(grads[0], expected)
    assert grads[1]._nnz() == 3
    torch.testing.assert_close(grads[1].to_dense(), expected)

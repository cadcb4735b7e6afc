"""Quadruples and their distances: against loops over the samples."""

from __future__ import annotations

import itertools
from collections import defaultdict

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from torch import Tensor

from pml_extensions._shared.quadruples import (
    all_quadruples,
    disjoint_quadruples,
    distances_of_pairs,
    padded_quadruples,
    pairs_where,
)

Quadruple = tuple[int, int, int, int]
some_labels = st.lists(st.integers(-3, 5), min_size=4, max_size=40)


def embeddings(n: int, size: int = 3) -> Tensor:
    generator = torch.Generator().manual_seed(6)
    return torch.randn(n, size, generator=generator, dtype=torch.float64)


def members_of(labels: list[int]) -> dict[int, list[int]]:
    members: dict[int, list[int]] = defaultdict(list)
    for index, label in enumerate(labels):
        members[label].append(index)
    return members


def disjoint_by_a_loop(labels: list[int]) -> list[Quadruple]:
    members = members_of(labels)
    quadruples = []
    for start in range(0, len(labels), 2):
        pairs = [m[start : start + 2] for m in members.values() if len(m) >= start + 2]
        for (x1, x2), (y1, y2) in zip(pairs[::2], pairs[1::2], strict=False):
            quadruples.append((x1, x2, y1, y2))
    return quadruples


def test_disjoint_quadruples_by_hand() -> None:
    #                       0  1  2  3  4  5  6  7  8  9 10 11 12
    labels = torch.tensor([7, 7, 3, 7, 5, 3, 5, 7, 5, 5, 3, 9, 3])
    # Round 0: 7 (0, 1), 3 (2, 5), 5 (4, 6); round 1: 7 (3, 7), 3 (10, 12), 5 (8, 9).
    index, exists = disjoint_quadruples(labels)
    assert index.tolist() == [[0, 1, 2, 5], [3, 7, 10, 12]]
    assert exists
    # A class with more pairs than the others never meets itself.
    assert disjoint_quadruples(torch.tensor([0, 0, 0, 0, 1, 1]))[0].tolist() == [[0, 1, 4, 5]]


@given(some_labels)
@examples(200)
def test_disjoint_quadruples_equal_a_loop(labels: list[int]) -> None:
    expected = disjoint_by_a_loop(labels)
    index, exists = disjoint_quadruples(torch.tensor(labels))
    assert exists.item() == bool(expected)
    if expected:
        assert [tuple(row) for row in index.tolist()] == expected
    else:
        assert index.shape == (1, 4)
    padded, count = padded_quadruples(torch.tensor(labels))
    assert (padded.shape, int(count)) == ((len(labels) // 4, 4), len(expected))
    if expected:
        filled = expected + expected[:1] * (len(padded) - len(expected))
        assert [tuple(row) for row in padded.tolist()] == filled


@given(some_labels, st.sampled_from([1.0, 2.0, 2.75]))
@examples(60)
def test_means_over_all_quadruples_equal_a_loop(labels: list[int], k: float) -> None:
    x = embeddings(len(labels))
    powers = [[float((a - b).norm() ** k) for b in x] for a in x]
    members = {c: m for c, m in members_of(labels).items() if len(m) > 1}
    within, between = [], []
    for a, b in itertools.combinations(members.values(), 2):
        quadruples = list(
            itertools.product(itertools.combinations(a, 2), itertools.combinations(b, 2))
        )
        within.append(
            sum(powers[x1][x2] + powers[y1][y2] for (x1, x2), (y1, y2) in quadruples)
            / len(quadruples)
        )
        between.append(
            sum(powers[i][j] for pair, other in quadruples for i in pair for j in other)
            / (4 * len(quadruples))
        )
    means = all_quadruples(x, torch.tensor(labels), k)
    assert means.exists.item() == bool(within)
    if within:
        firsts = [a[0] for a, _ in itertools.combinations(members.values(), 2)]
        assert means.first.tolist() == firsts
        assert means.num_used.item() == sum(len(m) for m in members.values())
        torch.testing.assert_close(means.within, torch.tensor(within, dtype=x.dtype))
        torch.testing.assert_close(means.between, torch.tensor(between, dtype=x.dtype))
    else:
        assert means.within.tolist() == means.between.tolist() == [0.0]
        assert means.num_used.item() == 0


def test_class_sums_equal_the_matrix_of_squares() -> None:
    labels = torch.tensor([4, 0, 4, 2, 0, 2, 2, 9, 4, 4])
    x = embeddings(10).requires_grad_()
    matrix = torch.cdist(x, x).square()
    is_member = torch.stack([labels == c for c in (4, 0, 2)]).double()
    sums, size = is_member @ matrix @ is_member.t(), is_member.sum(dim=1)
    within = sums.diagonal() / (size * (size - 1))
    between = sums / (size[:, None] * size)
    a, b = torch.tensor([0, 0, 1]), torch.tensor([1, 2, 2])
    expected = (within[a] + within[b]) * 3 - 0.7 * between[a, b]
    means = all_quadruples(x, labels, 2)
    actual = means.within * 3 - 0.7 * means.between
    torch.testing.assert_close(actual, expected)
    upstream = torch.tensor([1.0, -2.0, 0.3], dtype=torch.float64)
    (gradient,) = torch.autograd.grad(actual, x, upstream)
    (expected_gradient,) = torch.autograd.grad(expected, x, upstream)
    torch.testing.assert_close(gradient, expected_gradient)


@pytest.mark.parametrize("k", [2.0, 2.5])
def test_tight_classes_far_from_the_origin_keep_their_digits(k: float) -> None:
    labels = torch.arange(12) % 3
    exact = 500 + 0.01 * embeddings(12, 16)
    x = exact.float().requires_grad_()
    y = x.detach().double().requires_grad_()
    value, expected = (all_quadruples(z, labels, k) for z in (x, y))
    torch.testing.assert_close(value.within.double(), expected.within, rtol=2e-3, atol=0)
    torch.testing.assert_close(value.between.double(), expected.between, rtol=2e-3, atol=0)


@pytest.mark.parametrize("k", [1.0, 2.0, 2.5])
def test_coincident_samples_have_finite_gradients(k: float) -> None:
    x = torch.ones(8, 3, requires_grad=True)
    means = all_quadruples(x, torch.arange(8) % 4, k)
    (means.within - means.between).sum().backward()
    assert x.grad is not None
    assert x.grad.abs().max() == 0


def test_pairs_where() -> None:
    mask = torch.tensor([[False, True, False], [True, False, True]])
    (rows, columns), exists = pairs_where(mask)
    assert (rows.tolist(), columns.tolist(), exists.item()) == ([0, 1, 1], [1, 0, 2], True)
    (rows, columns), exists = pairs_where(torch.zeros(2, 3, dtype=torch.bool))
    assert (rows.tolist(), columns.tolist(), exists.item()) == ([0], [0], False)


@pytest.mark.parametrize("use_matrix", [None, True, False])
def test_distances_of_pairs(use_matrix: bool | None) -> None:
    y = embeddings(7)
    x = y[:5].clone().requires_grad_()
    lists = [([0, 4, 4], [6, 0, 0]), ([], []), ([2], [2])]
    pairs = [(torch.tensor(i).long(), torch.tensor(j).long()) for i, j in lists]
    results = distances_of_pairs(x, y, *pairs, use_matrix=use_matrix)
    for result, (rows, columns) in zip(results, lists, strict=True):
        expected = [float((y[i] - y[j]).norm()) for i, j in zip(rows, columns, strict=True)]
        torch.testing.assert_close(result, torch.tensor(expected, dtype=x.dtype))
    torch.cat(results).sum().backward()
    # Row 2 of both is the same point, and the rows 1 and 3 are in no pair.
    assert x.grad is not None
    assert x.grad[[1, 2, 3]].abs().max() == 0
    assert x.grad[[0, 4]].abs().min() > 0

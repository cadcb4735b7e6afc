"""Whether validation orders things as the test classes do, and what a further training scores."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reality_check.statistics._intervals import t_interval

_PERMUTATIONS = 10_000
#: Up to so many points every order is tried (5,040 of them).
_EXACT = 7


@dataclass(frozen=True)
class Agreement:
    """How far two measurements order the same things alike.

    Attributes:
        correlation: Spearman's, from -1 to 1; NaN where one of them does not vary.
        p_value: two-sided, for "the orders have nothing to do with each other", by permutation.
        n: number of things.
        alike: pairs of things that both order the same way.
        pairs: pairs that both order at all (no ties).
    """

    correlation: float
    p_value: float
    n: int
    alike: int
    pairs: int


def rank_agreement(groups: Sequence[tuple[Sequence[float], Sequence[float]]]) -> Agreement:
    """Return Spearman's rank correlation within groups, pooled over the groups.

    Ranks are taken within each group and centred, and only pairs within a group are counted: with
    the reproductions of each method as a group, nothing comes from differences between methods. One
    group gives the ordinary coefficient.

    Args:
        groups: for each, the two measurements of the same things in the same order.
    """
    ranked = [(_centred(x), _centred(y)) for x, y in groups if len(x) > 1]
    pairs = [pair for x, y in groups for pair in itertools.combinations(zip(x, y, strict=True), 2)]
    signs = [np.sign(a[0] - b[0]) * np.sign(a[1] - b[1]) for a, b in pairs]
    first = np.concatenate([x for x, _ in ranked]) if ranked else np.zeros(0)
    second = np.concatenate([y for _, y in ranked]) if ranked else np.zeros(0)
    scale = math.sqrt((first**2).sum() * (second**2).sum())
    correlation, p_value = math.nan, 1.0
    if scale > 0:
        correlation = float((first * second).sum() / scale)
        p_value = _permutation_p(ranked, correlation * scale)
    return Agreement(
        correlation,
        p_value,
        sum(len(x) for x, _ in ranked),
        sum(sign > 0 for sign in signs),
        sum(sign != 0 for sign in signs),
    )


def prediction_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Return the interval in which one further training is expected, ``m ± t s √(1 + 1/n)``.

    Args:
        values: of n trainings; ``None`` is returned for fewer than two.
    """
    interval = t_interval(values)
    if interval.half_width is None:
        return None
    reach = interval.half_width * math.sqrt(interval.n + 1)
    return interval.mean - reach, interval.mean + reach


def _centred(values: Sequence[float]) -> NDArray[np.float64]:
    """Return midranks minus their mean: half of how many values are lower minus how many higher."""
    return np.asarray(np.sign(np.subtract.outer(values, values)).sum(axis=1) / 2)


def _permutation_p(
    groups: Sequence[tuple[NDArray[np.float64], NDArray[np.float64]]], observed: float
) -> float:
    """Return the share of orders within groups whose sum of products is as far from 0."""
    if len(groups) == 1 and len(groups[0][0]) <= _EXACT:
        x, y = groups[0]
        products = np.array(list(itertools.permutations(y))) @ x
        return float((np.abs(products) >= abs(observed) - 1e-9).mean())
    generator = np.random.default_rng(0)
    products = np.zeros(_PERMUTATIONS)
    for x, y in groups:
        products += generator.permuted(np.tile(y, (_PERMUTATIONS, 1)), axis=1) @ x
    reached = int((np.abs(products) >= abs(observed) - 1e-9).sum())
    return (reached + 1) / (_PERMUTATIONS + 1)

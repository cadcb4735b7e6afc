"""Rank agreement between validation and test scores, and prediction of one further training."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reality_check.statistics._intervals import t_interval

_PERMUTATIONS = 10_000
#: Up to this number of points, all orders are tried (7 points have 5,040).
_MAX_EXACT_POINTS = 7


@dataclass(frozen=True)
class Agreement:
    """How similarly two measurements order the same things.

    Attributes:
        correlation: Spearman's rank correlation, from -1 to 1; NaN where a measurement is constant.
        p_value: two-sided permutation p-value for "the orders are unrelated".
        n: number of things that were ranked.
        alike: number of pairs that both measurements order the same way.
        pairs: number of pairs that neither measurement ties.
    """

    correlation: float
    p_value: float
    n: int
    alike: int
    pairs: int


def rank_agreement(groups: Sequence[tuple[Sequence[float], Sequence[float]]]) -> Agreement:
    """Return Spearman's rank correlation within groups, pooled over the groups.

    Ranks are taken within each group and centred, and only pairs within a group are counted. If
    each group holds the reproductions of one method, differences between methods do not contribute.
    A single group gives the ordinary coefficient.

    Args:
        groups: the two measurements of each group, of the same things in the same order.
    """
    ranked = [(_centred(x), _centred(y)) for x, y in groups if len(x) > 1]
    # For each pair: 1 if both measurements order it alike, -1 if not, and 0 for a tie
    signs = [
        np.sign(a[0] - b[0]) * np.sign(a[1] - b[1])
        for x, y in groups
        for a, b in itertools.combinations(zip(x, y, strict=True), 2)
    ]
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
        values: one score per training.

    Returns:
        Lower and upper end, or ``None`` for fewer than two values.
    """
    interval = t_interval(values)
    if interval.half_width is None:
        return None
    reach = interval.half_width * math.sqrt(interval.n + 1)
    return interval.mean - reach, interval.mean + reach


def _centred(values: Sequence[float]) -> NDArray[np.float64]:
    """Return midranks minus their mean."""
    # For each value, half of how many more values are below than above
    return np.asarray(np.sign(np.subtract.outer(values, values)).sum(axis=1) / 2)


def _permutation_p(
    groups: Sequence[tuple[NDArray[np.float64], NDArray[np.float64]]], observed: float
) -> float:
    """Return the share of permutations within groups with a correlation at least as far from 0.

    Args:
        groups: the centred ranks of both measurements in each group.
        observed: the sum of products of the ranks.
    """
    if len(groups) == 1 and len(groups[0][0]) <= _MAX_EXACT_POINTS:
        x, y = groups[0]
        sums = np.array(list(itertools.permutations(y))) @ x
        return float((np.abs(sums) >= abs(observed) - 1e-9).mean())  # up to rounding
    generator = np.random.default_rng(0)
    sums = np.zeros(_PERMUTATIONS)
    for x, y in groups:
        sums += generator.permuted(np.tile(y, (_PERMUTATIONS, 1)), axis=1) @ x
    extreme = int((np.abs(sums) >= abs(observed) - 1e-9).sum())
    return (extreme + 1) / (_PERMUTATIONS + 1)  # the observed order is one of them

"""Rank agreement between validation and test scores."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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


def rank_agreement(first: Sequence[float], second: Sequence[float]) -> Agreement:
    """Return Spearman's rank correlation of two measurements of the same things, with its test."""
    x, y = _centred(first), _centred(second)
    # For each pair: 1 if both measurements order it alike, -1 if not, and 0 for a tie
    signs = [
        np.sign(a[0] - b[0]) * np.sign(a[1] - b[1])
        for a, b in itertools.combinations(zip(first, second, strict=True), 2)
    ]
    scale = math.sqrt((x**2).sum() * (y**2).sum())
    correlation, p_value = math.nan, 1.0
    if scale > 0:
        correlation, p_value = float((x * y).sum() / scale), _permutation_p(x, y)
    alike, untied = sum(sign > 0 for sign in signs), sum(sign != 0 for sign in signs)
    return Agreement(correlation, p_value, len(x), alike, untied)


def _centred(values: Sequence[float]) -> NDArray[np.float64]:
    """Return midranks minus their mean."""
    # For each value, half of how many more values are below than above
    return np.asarray(np.sign(np.subtract.outer(values, values)).sum(axis=1) / 2)


def _permutation_p(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    """Return the share of permutations of ranks with a correlation at least as far from 0."""
    if len(x) <= _MAX_EXACT_POINTS:
        sums, chance = np.array(list(itertools.permutations(y))) @ x, 0
    else:
        generator, chance = np.random.default_rng(0), 1  # the observed order is one of them
        sums = generator.permuted(np.tile(y, (_PERMUTATIONS, 1)), axis=1) @ x
    extreme = (np.abs(sums) >= abs((x * y).sum()) - 1e-9).sum()  # up to rounding
    return float((extreme + chance) / (len(sums) + chance))

"""Ranks of several methods over several blocks (seeds, data sets), and which of them differ."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from reality_check.statistics._intervals import CONFIDENCE

_PERMUTATIONS = 10_000


@dataclass(frozen=True)
class Ranking:
    """Methods by their mean rank; rank 1 is the highest value of a block, ties share their mean.

    Attributes:
        methods: names, best mean rank first.
        mean_ranks: of each.
        blocks: number of blocks.
        statistic: Friedman's chi-square, corrected for ties (0 where every block is all ties).
        p_value: for "the methods are the same", by permuting within blocks.
        critical_difference: Nemenyi's: mean ranks farther apart differ.
        blocks_needed: the fewest blocks with which even the largest possible difference of mean
            ranks would exceed the critical one. With fewer, nothing can be told.
        groups: the largest sets of neighbours in the ranking that are not distinguishable, as
            (first, last) places.
    """

    methods: tuple[str, ...]
    mean_ranks: tuple[float, ...]
    blocks: int
    statistic: float
    p_value: float
    critical_difference: float
    blocks_needed: int
    groups: tuple[tuple[int, int], ...]

    @property
    def enough(self) -> bool:
        """Whether there are blocks enough for any difference to show."""
        return self.blocks >= self.blocks_needed

    @property
    def distinct(self) -> bool:
        """Whether the methods differ at all (Friedman), which comes before asking which do."""
        return self.enough and self.p_value < 1 - CONFIDENCE


def rank_methods(blocks: Sequence[Mapping[str, float]]) -> Ranking:
    """Return the ranking of methods over blocks, with Friedman's test and Nemenyi's differences.

    Source: Demšar (2006), "Statistical comparisons of classifiers over multiple data sets". Blocks
    must be independent: seeds that all methods share, or experiments on different data sets, but
    not the metrics and categories of the same runs.

    Args:
        blocks: for each, the value of every method (higher is better).

    Raises:
        ValueError: there are fewer than two methods, no block, or blocks name different methods.
    """
    names = list(blocks[0]) if blocks else []
    if len(names) < 2 or any(set(block) != set(names) for block in blocks):
        raise ValueError(
            f"{len(blocks)} blocks, the first of {names}, but ranks need at least one block and "
            "the same two or more methods in each; leave out the blocks that lack one."
        )
    values = np.array([[block[name] for name in names] for block in blocks], dtype=float)
    ranks = np.stack([midranks(-row) for row in values])
    means = ranks.mean(axis=0)
    order = np.argsort(means, kind="stable")
    count, methods = ranks.shape
    distance = critical_difference(methods, count)
    ordered = tuple(float(means[place]) for place in order)
    return Ranking(
        tuple(names[place] for place in order),
        ordered,
        count,
        *_friedman(ranks),
        distance,
        _blocks_needed(methods),
        _groups(ordered, distance),
    )


def critical_difference(methods: int, blocks: int, confidence: float = CONFIDENCE) -> float:
    """Return Nemenyi's critical difference of mean ranks, ``q √(k (k + 1) / (6 N))``.

    ``q`` is the quantile of the studentised range of k values with infinite degrees of freedom,
    over √2.

    Args:
        methods: k, at least two.
        blocks: N.
        confidence: for example 0.95.
    """
    return _studentised(methods, confidence) * math.sqrt(methods * (methods + 1) / (6 * blocks))


def _studentised(methods: int, confidence: float) -> float:
    if methods == 2:
        return float(ndtri((1 + confidence) / 2))
    from scipy.stats import studentized_range  # scipy.stats takes a second to import

    return float(studentized_range.ppf(confidence, methods, np.inf)) / math.sqrt(2)


def _blocks_needed(methods: int) -> int:
    """The fewest blocks whose critical difference is below the largest one there can be, k - 1."""
    needed = (critical_difference(methods, 1) / (methods - 1)) ** 2
    return math.floor(needed) + 1


def midranks(row: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ascending ranks from 1; ties share their mean."""
    _, place, counts = np.unique(row, return_inverse=True, return_counts=True)
    ends = counts.cumsum()
    return ((ends - counts + 1 + ends) / 2)[place]


def _friedman(ranks: NDArray[np.float64]) -> tuple[float, float]:
    """Friedman's chi-square and its p-value by permutation.

    The chi-square approximation is poor for few blocks, and the F approximation calls any perfect
    agreement certain, even of two blocks.
    """
    blocks, methods = ranks.shape
    spread = ((ranks - ranks.mean()) ** 2).sum()
    if spread == 0:
        return 0.0, 1.0

    def statistic(sums: NDArray[np.float64]) -> NDArray[np.float64]:
        between = ((sums / blocks - (methods + 1) / 2) ** 2).sum(axis=-1)
        return np.asarray(blocks * blocks * (methods - 1) * between / spread)

    observed = float(statistic(ranks.sum(axis=0)))
    generator = np.random.default_rng(0)
    sums = np.zeros((_PERMUTATIONS, methods))
    for row in ranks:
        sums += generator.permuted(np.tile(row, (_PERMUTATIONS, 1)), axis=1)
    reached = int((statistic(sums) >= observed - 1e-9).sum())
    return observed, (reached + 1) / (_PERMUTATIONS + 1)


def _groups(means: Sequence[float], distance: float) -> tuple[tuple[int, int], ...]:
    groups: list[tuple[int, int]] = []
    for first in range(len(means)):
        last = max(i for i in range(first, len(means)) if means[i] - means[first] <= distance)
        if last > first and (not groups or last > groups[-1][1]):
            groups.append((first, last))
    return tuple(groups)

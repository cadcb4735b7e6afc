"""Looks at a comparison while it grows: levels that are spent, so that errors stay below 5 %.

``docs/calibration.md`` shows on banks of real trials what they are worth for searches.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri, stdtr

from reality_check.statistics._differences import Difference
from reality_check.statistics._intervals import CONFIDENCE, t_quantile

Array = NDArray[np.float64]

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(128)
#: In standard deviations of the last look; nothing lies beyond.
_FAR = 12.0
#: The smallest p-value that is computed.
_LEAST = 1e-9


def nominal_levels(shares: Sequence[float], level: float = 1 - CONFIDENCE) -> list[float]:
    """Return the p-value below which a difference counts at each look, two-sided.

    The level is spent by the function of Lan and DeMets (1983) that resembles O'Brien and Fleming's
    rule: on each side ``2 - 2 Φ(z / √t)`` by the share t. The recursion is that of Armitage,
    McPherson and Rowe (1969): the density of those that go on, where increments are independent, at
    the nodes of Gauss and Legendre.

    Args:
        shares: of the information at each look, rising, at most 1.
        level: to be spent in all, half of it on each side.
    """
    where, mass, before, levels = np.zeros(1), np.ones(1), 0.0, []
    for share in shares:
        spread = math.sqrt(share - before)
        kept = 1 - 4 * float(ndtr(ndtri(level / 4) / math.sqrt(share)))
        reach = _FAR
        if _missing(_FAR, where, mass, spread, kept) > 0:
            reach = brentq(_missing, 0, _FAR, (where, mass, spread, kept))
        here = reach * _NODES
        steps = np.exp(-(((here[:, None] - where) / spread) ** 2) / 2) / math.sqrt(2 * math.pi)
        where, mass, before = here, reach * _WEIGHTS * (steps @ mass) / spread, share
        levels.append(2 * float(ndtr(-reach / math.sqrt(share))))
    return levels


def _missing(reach: float, where: Array, mass: Array, spread: float, kept: float) -> float:
    """The chance to go on within this reach at the next look, minus what it is to be."""
    inside = ndtr((reach - where) / spread) - ndtr((-reach - where) / spread)
    return float(mass @ inside) - kept


@dataclass(frozen=True)
class Look:
    """One of several looks at a comparison while it grows.

    Its p-values and intervals hold whatever the reason to stop here (the repeated confidence
    intervals of Jennison and Turnbull 1989): an interval leaves out 0 where p is below 5 %, and p
    is the level at which this look would be the first to count.

    Attributes:
        shares: of the largest comparison that each look up to this one has seen, rising.
    """

    shares: tuple[float, ...]

    @classmethod
    def at(cls, size: int, sizes: Sequence[int]) -> Look:
        """The look at ``size`` units of the planned ``sizes``, which rise."""
        return cls(tuple(one / sizes[-1] for one in sizes if one <= size))

    @property
    def level(self) -> float:
        """The p-value below which a single difference counts here."""
        return _level(self.shares)

    def p_value(self, p_value: float) -> float:
        """Return a two-sided p-value with the looks allowed for."""
        return _repeated(self.shares, p_value)

    def stretch(self, degrees: float) -> float:
        """How many times Student's an interval is, with these degrees of freedom."""
        return t_quantile(degrees, 1 - self.level) / t_quantile(degrees)

    def difference(self, difference: Difference) -> Difference:
        """Return a difference with the looks allowed for in its interval and test."""
        if difference.half_width is None or difference.degrees is None:
            return difference
        p_value = difference.p_value
        return replace(
            difference,
            half_width=self.stretch(difference.degrees) * difference.half_width,
            p_value=None if p_value is None else self.p_value(p_value),
        )


@lru_cache
def _level(shares: tuple[float, ...]) -> float:
    return nominal_levels(shares)[-1]


@lru_cache(maxsize=4096)
def _repeated(shares: tuple[float, ...], p_value: float) -> float:
    def beyond(logarithm: float) -> float:
        return nominal_levels(shares, math.exp(logarithm))[-1] - p_value

    if shares == (1.0,):
        return p_value
    low, high = math.log(_LEAST), math.log(0.999)
    if beyond(low) >= 0:
        return _LEAST
    return 1.0 if beyond(high) <= 0 else math.exp(brentq(beyond, low, high, xtol=1e-9))


def expected_share(
    sizes: Sequence[int], gap: float, methods: int = 2, draws: int = 2000, seed: int = 0
) -> float:
    """Return the mean share of the searches that are made until the best method stands apart.

    Simulated: searches scatter normally, one method is above all others, which are equal, and the
    campaign ends at the look where the leader is above all of them by Welch's tests after Holm's
    correction, or at the last.

    Args:
        sizes: searches at each look, rising, at least 3.
        gap: of the best to the others, in standard deviations of a search.
        methods: how many are compared, at least 2.
        draws: simulated campaigns.
        seed: the same seed gives the same share.
    """
    shares, pairs = [size / sizes[-1] for size in sizes], math.comb(methods, 2)
    steps = [nominal_levels(shares, (1 - CONFIDENCE) / (pairs - i)) for i in range(methods - 1)]
    scores = np.random.default_rng(seed).standard_normal((draws, methods, sizes[-1]))
    scores[:, 0] += gap
    spent = np.ones(draws)
    for look in reversed(range(len(sizes))):
        seen = scores[:, :, : sizes[look]]
        errors, means = seen.var(-1, ddof=1) / sizes[look], seen.mean(-1)
        best = means.argmax(-1)[:, None]
        others = np.arange(methods) != best
        u = np.take_along_axis(errors, best, 1)
        v = errors[others].reshape(draws, -1)
        gaps = np.take_along_axis(means, best, 1) - means[others].reshape(draws, -1)
        degrees = (u + v) ** 2 / (u**2 + v**2) * (sizes[look] - 1)
        p_values = np.sort(2 * stdtr(degrees, -gaps / np.sqrt(u + v)), -1)
        decided = (p_values < [levels[look] for levels in steps]).all(-1)
        spent[decided] = shares[look]
    return float(spent.mean())

"""Two methods compared over several data sets.

"A is above B on at least u of D data sets" is a partial conjunction (Benjamini and Heller 2008,
"Screening for partial conjunction hypotheses"; for data sets Dror et al. 2017, "Replicability
analysis for natural language processing", TACL).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scipy.special import chdtrc

from reality_check.statistics._differences import Difference
from reality_check.statistics._intervals import (
    CONFIDENCE,
    Centred,
    t_interval,
    t_quantile,
    two_sided_p,
)

#: From this number of data sets on, their differences say something about other data sets.
MIN_DATA_SETS = 6


@dataclass(frozen=True)
class SuiteComparison:
    """Two methods compared on several data sets.

    Attributes:
        better: the method with the higher mean score over all data sets.
        other: the other method.
        differences: ``better`` minus ``other`` on each data set; ``None`` where it is not known.
        above: adjusted p-values of "``better`` is above ``other`` on at least u data sets", for
            u = 1 to D.
        below: the same for "``other`` is above ``better``".
        pairs: the number of pairs that were tested together.
        mean: the mean difference on these data sets, each of which counts alike; without an
            interval if a difference has none.
        relative: the mean difference as a fraction of the measured score of ``other``, likewise.
        elsewhere: the mean difference on other data sets such as these; ``None`` for too few.
    """

    better: str
    other: str
    differences: tuple[Difference | None, ...]
    above: tuple[float, ...]
    below: tuple[float, ...]
    pairs: int
    mean: Centred
    relative: Centred
    elsewhere: Centred | None = None

    @property
    def num_above(self) -> int:
        """The largest u for which "above on at least u data sets" is shown; 0 if none is."""
        return sum(p < 1 - CONFIDENCE for p in self.above)

    @property
    def num_below(self) -> int:
        """The largest u for which "below on at least u data sets" is shown; 0 if none is."""
        return sum(p < 1 - CONFIDENCE for p in self.below)


def one_sided_p(difference: Difference | None, degrees: float, sign: int = 1) -> float:
    """Return the p-value of "the difference, times ``sign``, is at most 0"; 1 if it is untested.

    Combinations of p-values reach far into the tails, where Welch's test of two skewed estimates
    errs more often than it should, as if it had the degrees of freedom of one of them
    (docs/calibration.md, "Several data sets").

    Args:
        difference: a difference on one data set.
        degrees: the most degrees of freedom that its test may have: the fewest of both estimates.
        sign: 1, or -1 for the other direction.
    """
    if difference is None or difference.p_value is None or difference.degrees is None:
        return 1.0
    if not difference.error:
        return 0.5 if difference.mean == 0 else float(sign * difference.mean < 0)
    t = sign * difference.mean / difference.error
    half = two_sided_p(t, min(degrees, difference.degrees)) / 2
    return half if t > 0 else 1 - half


def at_least(p_values: Sequence[float], independent: bool) -> list[float]:
    """Return the p-values of "at least u of the D effects are there", for u = 1 to D.

    If fewer than u effects are there, then D - u + 1 null hypotheses are true, and the largest
    D - u + 1 p-values are at least as large as theirs. Fisher's test combines these if the data
    sets are independent, and Bonferroni's, which any dependence permits, otherwise. A statement on
    more data sets is never easier than one on fewer, so the largest u with a p-value below 0.05
    may be stated.

    Args:
        p_values: the one-sided p-value of each of the D data sets; 1 for one that is not tested.
        independent: whether the data sets share no draws.
    """
    ordered, combined, largest = sorted(p_values), list[float](), 0.0
    for first, smallest in enumerate(ordered):
        rest = ordered[first:]
        if not independent:
            p = min(1.0, len(rest) * smallest)
        elif smallest == 0:
            p = 0.0
        else:
            p = float(chdtrc(2 * len(rest), -2 * math.fsum(map(math.log, rest))))
        largest = max(largest, p)
        combined.append(largest)
    return combined


def adjust_pairs(
    pairs: Sequence[tuple[Sequence[float], Sequence[float]]],
) -> list[tuple[tuple[float, ...], tuple[float, ...]]]:
    """Return p-values of :func:`at_least` adjusted for both directions and for all pairs.

    All statements together are free of error in 95 % of suites. Each of m pairs has the level
    0.05 / m, half of it for each direction, in which at least 1, 2, ... data sets are tested one
    after the other. A pair passes its level on to the others once all D data sets are shown. For
    one data set this is Holm's correction of two-sided p-values; in general it is a graphical
    procedure (Bretz et al. 2009, "A graphical approach to sequentially rejective multiple test
    procedures"). (Holm's own order would err: a pair that differs on one data set of three still
    has true null hypotheses, on more of them.)

    Args:
        pairs: for each pair, the p-values of both directions, ascending with u = 1 to D.
    """
    adjusted = [tuple([1.0] * len(side) for side in sides) for sides in pairs]
    statements = sorted(
        (p, u, pair, direction)
        for pair, sides in enumerate(pairs)
        for direction, side in enumerate(sides)
        for u, p in enumerate(side)
    )
    left, exhausted, largest = len(pairs), set[int](), 0.0
    for p, u, pair, direction in statements:
        if pair in exhausted:
            continue
        largest = max(largest, min(1.0, 2 * left * p))
        adjusted[pair][direction][u] = largest
        if u + 1 == len(pairs[pair][direction]):  # all data sets
            exhausted.add(pair)
            left -= 1
    return [(tuple(above), tuple(below)) for above, below in adjusted]


def mean_over_data_sets(differences: Sequence[Difference | None], independent: bool) -> Centred:
    """Return the mean difference on these data sets (fixed effects), each counting alike.

    Errors of independent data sets add up as squares, with the degrees of freedom of Satterthwaite
    (1946), "An approximate distribution of estimates of variance components"; otherwise they add up
    themselves, the most that any dependence permits, with the fewest degrees of freedom.

    Returns:
        The mean, without an interval if a difference has none; NaN if one is not known.
    """
    known = [d for d in differences if d is not None]
    if len(known) < len(differences):
        return Centred(math.nan, None)
    mean = math.fsum(d.mean for d in known) / len(known)
    errors = [d.error for d in known if d.error is not None]
    degrees = [d.degrees for d in known if d.degrees is not None]
    if len(errors) < len(known):
        return Centred(mean, None)
    squares = [error**2 for error in errors]
    total = math.fsum(squares)
    if not independent:
        error, freedom = math.fsum(errors), min(degrees)
    else:
        error = math.sqrt(total)
        shares = zip(squares, degrees, strict=True)
        inverse = math.fsum((square / total) ** 2 / d for square, d in shares if square)
        freedom = 1 / inverse if inverse else math.inf
    return Centred(mean, t_quantile(freedom) * error / len(known))


def on_other_data_sets(differences: Sequence[Difference | None]) -> Centred | None:
    """Return the mean difference on data sets such as these (random effects).

    It is Hartung's and Knapp's (2001) t-interval, "On tests of the overall treatment effect in
    meta-analysis with normally distributed responses", with equal weights.

    Returns:
        The mean with its interval; ``None`` for fewer than :data:`MIN_DATA_SETS` data sets.
    """
    known = [d.mean for d in differences if d is not None]
    if len(known) < max(MIN_DATA_SETS, len(differences)):
        return None
    return t_interval(known)

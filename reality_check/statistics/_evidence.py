"""Whether an interval rests on so little that it may not hold: a rule, not a theorem.

Coverage cannot be computed from a sample, but some samples show why it may be low: a few trials,
or retrainings, score far apart from the others, and how often that happens is hardly known. The
thresholds were chosen on half of the 26 worlds of ``benchmarks/worlds.py``, and judged on the
others; ``docs/calibration.md`` has the figures, and says what no sample can show.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import betaincinv

from reality_check.statistics._intervals import Estimate
from reality_check.statistics._subsets import MAX_LEFT_OUT, Array, left_out, subset_shares

#: Retrained trials hardly matter that win fewer subsets than this share of what the best one wins.
_LEAST_SHARE = 0.05
#: A gap between trials counts if it is wider than so many standard deviations of the larger side.
_TRIALS_APART = 2.1
#: The same for the test scores of retrainings, of which there are fewer.
_TESTS_APART = 6.0
#: Where the lower side wins less than this share of subsets, its trials are failures; where it wins
#: more, those of the upper side are rare.
_RARELY_WINS = 0.05
#: By how many half-widths of the interval the estimate moves with the true share of the trials
#: above the gap, of which the sample gives a 90 % interval: for rare trials, and for failures.
_RARE_MOVES = 0.2
_FAILURES_MOVE = 0.5
#: Fewest distinct test scores.
_DISTINCT = 4


class Weakness(NamedTuple):
    """Why an interval may not hold.

    Attributes:
        reason: ``"untested"``: too many subsets are won by trials that were not retrained, so that
            there is no interval; ``"diverged"``: retrainings diverged, which :func:`weak_evidence`
            finds ``"apart"``; ``"rare"``: few trials score far above the others, and how often a
            search finds such a trial is hardly known; ``"failures"``: the same for searches that
            find nothing but failures; ``"coarse"``: hardly any two test scores differ; ``"apart"``:
            the test scores of some retrainings are far from those of the others.
        number: the number of trials that were retrained (``"untested"``), of trials above the gap
            (``"rare"``) or below it (``"failures"``), of distinct test scores, or of retrainings
            that are apart.
        of: the number of trials, or of retrainings whose weight matters.
    """

    reason: str
    number: int
    of: int


def weak_evidence(
    validation: Sequence[float], tests: Mapping[int, float], budget: int, estimate: Estimate
) -> Weakness | None:
    """Return the reason why the interval of :func:`all_subsets` may not hold, or ``None``.

    Args:
        validation: validation scores of all T trials, in the unit of ``tests``.
        tests: test scores of the retrained trials, by position in ``validation``.
        budget: N, the number of trials of a subset.
        estimate: what :func:`all_subsets` returns for these.

    Returns:
        The first reason that applies, in the order of :class:`Weakness`.
    """
    if left_out(validation, tests, budget) > MAX_LEFT_OUT:
        return Weakness("untested", len(tests), len(validation))
    if estimate.half_width is None:
        return None
    if weakness := _unknown_share(np.sort(validation), budget, estimate.half_width):
        return weakness
    shares = subset_shares(validation, tests, budget)
    least = _LEAST_SHARE * max(shares.values())
    # Ascending test scores of the retrainings whose weight matters
    counted = np.sort([tests[trial] for trial, share in shares.items() if share >= least])
    distinct = len(np.unique(counted.round(9)))
    if distinct < min(_DISTINCT, len(counted)):
        return Weakness("coarse", distinct, len(counted))
    gaps, spreads = _gaps(counted)
    apart = (gaps > _TESTS_APART * spreads) & (gaps > estimate.half_width)
    split = int(np.argmax(gaps * apart))  # the widest gap that counts
    if not apart[split]:
        return None
    # The smaller side of the gap is apart.
    return Weakness("apart", min(split + 1, len(gaps) - split), len(counted))


def _gaps(scores: Array) -> tuple[Array, Array]:
    """Return the gaps between ascending scores, and the standard deviation of the larger side."""
    size = len(scores)
    spreads = [(scores[:k] if 2 * k >= size else scores[k:]).std() for k in range(1, size)]
    return np.diff(scores), np.array(spreads)


def _unknown_share(scores: Array, budget: int, half_width: float) -> Weakness | None:
    """Return the weakness of a gap, if the estimate depends on the share of trials above it.

    Args:
        scores: validation scores of all trials, ascending.
        budget: number of trials of a search.
        half_width: half-width of the estimate's interval.
    """
    trials, below = len(scores), np.arange(1, len(scores))
    gaps, spreads = _gaps(scores)
    # A 90 % interval of the share below the gap (Clopper and Pearson 1934), and so of the share of
    # searches that find nothing above it.
    ends = [below, below + 1], [trials - below + 1, trials - below], [[0.05], [0.95]]
    # By how much the estimate moves: the gap times half of the interval's width
    moves = gaps * np.diff(betaincinv(*ends) ** budget, axis=0)[0] / 2
    rare = (below / trials) ** budget > _RARELY_WINS
    limit = np.where(rare, _RARE_MOVES, _FAILURES_MOVE) * half_width
    weak = (gaps > _TRIALS_APART * spreads) & (moves > limit)
    split = int(np.argmax(moves * weak))  # the weak gap that moves the estimate most
    if not weak[split]:
        return None
    if rare[split]:
        return Weakness("rare", trials - 1 - split, trials)
    return Weakness("failures", split + 1, trials)

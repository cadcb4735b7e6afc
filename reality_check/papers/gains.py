"""Which gains of a printed table are larger than luck: of seeds, of searches, of the selection.

A printed mean is taken for theta + s / √searches + r / √n, with theta the expected score of the
loss after such a search, s the luck of a search and r that of a retraining. What a table does not
print is taken from measurements (``configs/noise.yaml``, and the intervals of published tables).
``docs/claim.md`` has the formulas and what they are worth on tables whose truth is known.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from reality_check.config.yaml_text import read_yaml
from reality_check.papers.printed_tables import PrintedTable, TableRow, published_sds
from reality_check.statistics import (
    CONFIDENCE,
    Shares,
    holm,
    planned_error,
    satterthwaite,
    smallest_detectable,
    t_quantile,
    two_sided_p,
)
from reality_check.utils.config_files import configs_root
from reality_check.utils.errors import UsageError
from reality_check.utils.text import nearest

Outcome = Literal["distinguishable", "the settings only", "not distinguishable"]
#: Searches of each method that :func:`searches_for` tries, and retrainings of each winner.
_MOST_SEARCHES, RETRAININGS = 1000, 2


@dataclass(frozen=True)
class Spread:
    """A variance, and how well it is known.

    Attributes:
        variance: its estimate.
        degrees: of freedom, of a multiple of chi-square with that mean and spread.
        source: where it is from, in a phrase.
    """

    variance: float
    degrees: float
    source: str

    @property
    def sd(self) -> float:
        return math.sqrt(self.variance)


@dataclass(frozen=True)
class Noise:
    """The luck that a table's means contain, in points.

    Attributes:
        network: of training one network.
        search: of a search, over that of training one network.
        selection: what choosing by the test classes adds, over the sd of training one network.
        classes: variance of a difference over draws of test classes; 0 where only these are meant.
    """

    network: Spread
    search: Spread
    selection: float
    classes: float = 0.0

    def of(self, row: TableRow) -> tuple[float, float]:
        """Return squared standard errors of a row: of its retrainings, and of its searches."""
        training = self.network.variance / (row.networks * row.n)
        return training, self.network.variance * self.search.variance / row.searches

    @property
    def allowance(self) -> float:
        """Return what selection on test classes may add to one side only."""
        return self.selection * self.network.sd


@dataclass(frozen=True)
class Gain:
    """One comparison of two rows.

    Attributes:
        first: what is said to be better, or is printed higher.
        second: what it is compared with.
        difference: of the printed means, in points.
        seeds: half-width of the interval if searches and selection had no luck.
        all: half-width with the luck of searches, and what selection may add.
        p_seeds: two-sided, for "the settings retrain alike", after Holm's correction.
        p: for "the losses are alike", after Holm's correction.
        outcome: what follows.
        searches: of each method that would settle a true difference of this size; ``None`` where a
            thousand would not, or it is settled.
    """

    first: TableRow
    second: TableRow
    difference: float
    seeds: float
    all: float
    p_seeds: float
    p: float
    outcome: Outcome = "not distinguishable"
    searches: int | None = None


def pooled(variances: Sequence[float], source: str) -> Spread:
    """Return the mean of variances, with degrees of freedom that say how much they differ.

    A multiple of chi-square with d degrees has the squared coefficient of variation 2 / d.
    """
    mean = math.fsum(variances) / len(variances)
    if len(variances) < 2:
        return Spread(mean, 1.0, source)
    square = math.fsum((v - mean) ** 2 for v in variances) / (len(variances) - 1)
    return Spread(mean, 2 * mean**2 / square if square else 1e9, source)


def noise_of(
    table: PrintedTable, seed_sd: float | None = None, classes: int | None = None
) -> Noise:
    """Return the noise of a table: as printed, as given, or as measured elsewhere.

    Args:
        table: of one metric.
        seed_sd: of training one network, in points.
        classes: how many test classes there are, if other ones of the kind are meant too.

    Raises:
        UsageError: nothing is known of the metric; it says what to give.
    """
    measured = read_yaml(configs_root() / "noise.yaml")
    shortest = min(row.trials for row in table.rows)
    trials = max((n for n in measured["trials"] if n <= shortest), default=min(measured["trials"]))
    of_trials = measured["trials"][trials]
    source = f"searches of {trials} trials, six measured populations"
    search = pooled([ratio**2 for ratio in of_trials["search"]], source)
    by_classes = measured["classes"]
    spread = pooled([sd**2 for sd in by_classes["sd"]], "").variance * by_classes["number"]
    return Noise(
        _network(table, seed_sd),
        search,
        max(of_trials["selection"]),
        spread / classes if classes else 0.0,
    )


def _network(table: PrintedTable, seed_sd: float | None) -> Spread:
    if seed_sd is not None:
        return Spread(seed_sd**2, math.inf, "given by --seed-sd")
    printed = [row for row in table.rows if row.sd is not None]
    if printed:
        degrees = sum(row.n - 1 for row in printed)
        sums = math.fsum((row.n - 1) * row.networks * (row.sd or 0) ** 2 for row in printed)
        return Spread(sums / degrees, degrees, "printed in the table")
    metric = table.rows[0].metric
    known = published_sds("P@1" if metric == "R@1" else metric)
    if not known:
        raise UsageError(
            f"{table.source} prints no sd, and none is known of {table.rows[0].metric}; give that "
            "of a retraining in points with --seed-sd."
        )
    reader = table.reader if table.reader in known else next(iter(known))
    source = f"of {len(known[reader])} losses in the Reality Check on {reader}"
    if reader != table.reader:
        source += ", since none is known of this data set"
    return pooled([4 * sd**2 for sd in known[reader]], source)


def judge_gains(table: PrintedTable, noise: Noise, proposed: str | None = None) -> list[Gain]:
    """Decide all comparisons of a table of one metric, with Holm's correction over them.

    Args:
        table: of one metric (:meth:`PrintedTable.of`).
        noise: that its means contain.
        proposed: method that is compared with each other one; ``None`` compares every pair.
    """
    gains = [_gain(first, second, noise) for first, second in _pairs(table, proposed)]
    seeds, whole = holm([gain.p_seeds for gain in gains]), holm([gain.p for gain in gains])
    corrected = [
        replace(gain, p_seeds=p_seeds, p=p)
        for gain, p_seeds, p in zip(gains, seeds, whole, strict=True)
    ]
    return [_decided(gain, noise, len(gains)) for gain in corrected]


def _pairs(table: PrintedTable, proposed: str | None) -> Iterator[tuple[TableRow, TableRow]]:
    """Yield the proposed method with each other one, or every pair, the higher first.

    Raises:
        UsageError: the table has no such method, or fewer than two.
    """
    names = [row.method for row in table.rows]
    if len(names) < 2:
        raise UsageError(
            f"{table.source} has {len(names)} method with {table.rows[0].metric}; a comparison "
            "needs two."
        )
    if proposed is not None:
        if proposed not in names:
            raise UsageError(
                f"{table.source} has no method {proposed!r}; it has {', '.join(names)}."
                f"{nearest(proposed, names)}"
            )
        own = table.rows[names.index(proposed)]
        yield from ((own, row) for row in table.rows if row is not own)
        return
    yield from itertools.combinations(sorted(table.rows, key=lambda row: -row.mean), 2)


def _gain(first: TableRow, second: TableRow, noise: Noise) -> Gain:
    """Return a comparison before the correction."""
    difference, network = first.mean - second.mean, noise.network.degrees
    training, searches = map(sum, zip(noise.of(first), noise.of(second), strict=True))
    # Each of the two methods has a luck of its own; a product is as uncertain as both factors.
    known = 1 / (1 / (2 * noise.search.degrees) + 1 / network)
    degrees = satterthwaite(training, network, searches, known)
    error = math.sqrt(training + searches + noise.classes)
    allowance = noise.allowance if "test" in (first.selected_on, second.selected_on) else 0.0
    return Gain(
        first,
        second,
        difference,
        seeds=t_quantile(network) * math.sqrt(training),
        all=t_quantile(degrees) * error + allowance,
        p_seeds=two_sided_p(difference / math.sqrt(training), network),
        p=two_sided_p(max(0.0, abs(difference) - allowance) / error, degrees),
    )


def _decided(gain: Gain, noise: Noise, comparisons: int) -> Gain:
    """Return the comparison with what follows from the corrected p-values."""
    level = 1 - CONFIDENCE
    if gain.p < level:
        return replace(gain, outcome="distinguishable")
    searches = searches_for(abs(gain.difference), noise, gain.first.networks, comparisons)
    outcome: Outcome = "the settings only" if gain.p_seeds < level else "not distinguishable"
    return replace(gain, outcome=outcome, searches=searches)


def searches_for(difference: float, noise: Noise, networks: int, comparisons: int) -> int | None:
    """Return how many searches of each method find a true difference in 80 % of cases.

    With fresh seeds, selection on validation classes, two retrainings of each winner, and Welch's
    test over the means of searches after Holm's strictest step.
    """
    training = noise.network.variance / networks
    shares = Shares(noise.network.variance * noise.search.variance, training)

    def detects(searches: int) -> bool:
        error = planned_error(shares, searches, RETRAININGS)
        return smallest_detectable(error, searches - 1, pairs=comparisons) <= difference

    planned = range(3, _MOST_SEARCHES + 1)
    enough = bisect.bisect_left(planned, True, key=detects)
    return planned[enough] if enough < len(planned) else None

"""Tests whether gains in a printed table exceed the luck of seeds, searches and selection.

A printed mean is modelled as theta + s / √searches + r / √n, where theta is the expected score of
the loss after such a search, s the luck of a search and r the luck of a retraining. Variances that
a table does not print are taken from measurements (``configs/noise.yaml``, and the intervals of
published tables). ``docs/claim.md`` has the formulas, and tests them on tables whose truth is
known.
"""

from __future__ import annotations

import bisect
import itertools
import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, variance
from typing import Literal

from reality_check.config.yaml_text import read_yaml
from reality_check.papers.printed_tables import PrintedTable, TableRow, published_sds
from reality_check.statistics import (
    CONFIDENCE,
    MIN_TESTED,
    Shares,
    Simultaneous,
    planned_error,
    satterthwaite,
    simultaneous_p,
    simultaneous_quantile,
    smallest_detectable,
    welch_degrees,
)
from reality_check.utils.config_files import configs_root
from reality_check.utils.errors import UsageError
from reality_check.utils.text import nearest

Outcome = Literal["distinguishable", "the settings only", "not distinguishable"]
#: The most searches of each method that :func:`searches_for` tries.
_MAX_SEARCHES = 1000
#: Retrainings of each winner that :func:`searches_for` assumes.
RETRAININGS = 2


@dataclass(frozen=True)
class Spread:
    """A variance, and how well it is known.

    Attributes:
        variance: the estimate.
        degrees: degrees of freedom of the estimate, taken as a scaled chi-square variable.
        source: a phrase that says where the estimate comes from.
    """

    variance: float
    degrees: float
    source: str

    @property
    def sd(self) -> float:
        """The standard deviation."""
        return math.sqrt(self.variance)


@dataclass(frozen=True)
class Noise:
    """The noise in the means of a table, in points.

    Attributes:
        network: variance of training one network.
        search: variance of a search.
        selection: how much selection on the test classes may add to one side of a comparison.
        classes: variance of a difference over draws of test classes; 0 if other test classes are
            not considered.
    """

    network: Spread
    search: Spread
    selection: float
    classes: float = 0.0


@dataclass(frozen=True)
class Gain:
    """One comparison of two rows.

    Attributes:
        first: the row that is claimed to be better, or has the higher mean.
        second: the row with which ``first`` is compared.
        difference: difference of the printed means, in points.
        half_width_seeds: half-width of the simultaneous interval by the noise of retraining alone:
            that of both rows if each prints an sd of three or more, else that of the table.
        half_width: half-width by all noise, including what selection may add.
        corrected_p: two-sided p-value for "the losses are alike", corrected for all comparisons;
            below 0.05 exactly if ``difference ± half_width`` does not contain 0.
        outcome: the verdict.
        searches_needed: number of searches of each method that would find a true difference of this
            size; ``None`` if a thousand would not, or if the losses are distinguishable already.
    """

    first: TableRow
    second: TableRow
    difference: float
    half_width_seeds: float
    half_width: float
    corrected_p: float
    outcome: Outcome
    searches_needed: int | None


def pooled(variances: Sequence[float], source: str) -> Spread:
    """Return the mean of variances, with degrees of freedom that reflect how much they differ.

    A scaled chi-square variable with d degrees has the squared coefficient of variation 2 / d.
    """
    mean = fmean(variances)
    if len(variances) < 2:
        return Spread(mean, 1.0, source)
    scatter = variance(variances, mean)
    return Spread(mean, 2 * mean**2 / scatter if scatter else 1e9, source)


def noise_of(
    table: PrintedTable, seed_sd: float | None = None, classes: int | None = None
) -> Noise:
    """Return the noise of a table: as given, as printed, or as measured elsewhere.

    Args:
        table: a table of one metric.
        seed_sd: sd of training one network, in points; ``None`` if unknown.
        classes: number of test classes; ``None`` if other test classes are not considered.

    Raises:
        UsageError: no sd is known for the metric; the message says what to give.
    """
    measured = read_yaml(configs_root() / "noise.yaml")
    shortest = min(row.trials for row in table.rows)
    trials = max((n for n in measured["trials"] if n <= shortest), default=min(measured["trials"]))
    of_classes = measured["classes"]
    # The variance for one test class, which falls with their number
    per_class = fmean(sd**2 for sd in of_classes["sd"]) * of_classes["number"]
    network = _network_noise(table, seed_sd)
    return Noise(
        network,
        *luck_of_searches(network, measured["network"], trials, **measured["trials"][trials]),
        per_class / classes if classes else 0.0,
    )


def luck_of_searches(
    network: Spread,
    measured: Sequence[float],
    trials: int,
    search: Sequence[float],
    selection: Sequence[float],
) -> tuple[Spread, float]:
    """Return the variance of a search, and what selection on the test classes may add, in points.

    Both grow with the noise of training, but are never smaller than measured: many test images
    reduce the noise of training one network, not the luck of choosing its settings.

    Args:
        network: variance of training one network of the table.
        measured: sd of training one network of each measured population, in points.
        trials: number of trials of a search.
        search: of each population, the sd of a search over that of training one network.
        selection: of each population, the gain by selection over the sd of training one network.
    """
    sds = [max(network.sd, sd) for sd in measured]
    source = f"searches of {trials} trials, {len(sds)} measured populations"
    luck = pooled([sd**2 for sd in map(operator.mul, search, sds)], source)
    return luck, max(map(operator.mul, selection, sds))


def _network_noise(table: PrintedTable, seed_sd: float | None) -> Spread:
    """Return the variance of training one network: as given, as printed, or as published."""
    if seed_sd is not None:
        return Spread(seed_sd**2, math.inf, "given by --seed-sd")
    printed = [row for row in table.rows if row.sd is not None]
    if printed:
        degrees = sum(row.n - 1 for row in printed)
        squares = math.fsum((row.n - 1) * row.networks * (row.sd or 0) ** 2 for row in printed)
        return Spread(squares / degrees, degrees, "printed in the table")
    metric = table.rows[0].metric
    sds_by_reader = published_sds("P@1" if metric == "R@1" else metric)
    if not sds_by_reader:
        raise UsageError(
            f"{table.source} prints no sd, and none is known of {table.rows[0].metric}; give that "
            "of a retraining in points with --seed-sd."
        )
    reader = table.reader if table.reader in sds_by_reader else next(iter(sds_by_reader))
    source = f"of {len(sds_by_reader[reader])} losses in the Reality Check on {reader}"
    if reader != table.reader:
        source += ", since none is known of this data set"
    # Published sds are of means of four networks.
    return pooled([4 * sd**2 for sd in sds_by_reader[reader]], source)


def correction_of(table: PrintedTable, proposed: str | None) -> Simultaneous:
    """Return the correction for the comparisons of a table.

    The method with the highest mean was, in effect, chosen by its mean. Whichever method had been
    the luckiest would be in its place, so its comparisons are corrected as every pair is.

    Args:
        table: a table of one metric.
        proposed: method that is compared with each other one; ``None`` compares every pair.
    """
    highest = max(row.mean for row in table.rows)
    tied = (row.method for row in table.rows if row.mean == highest)
    return "Tukey" if proposed in (None, *tied) else "Dunnett"


def judge_gains(
    table: PrintedTable, noise: Noise, correction: Simultaneous, proposed: str | None = None
) -> list[Gain]:
    """Decide all comparisons of a table of one metric.

    Args:
        table: a table of one metric (:meth:`PrintedTable.of`).
        noise: the noise of its means.
        correction: for what the p-values and intervals are corrected (:func:`correction_of`).
        proposed: method to compare with each other one; ``None`` compares every pair.

    Raises:
        UsageError: the table has no such method, or fewer than two.
    """
    names = [row.method for row in table.rows]
    if len(names) < 2:
        raise UsageError(
            f"{table.source} has {len(names)} method with {table.rows[0].metric}; a comparison "
            "needs two."
        )
    if proposed is None:  # in each pair, the higher mean comes first
        pairs = [*itertools.combinations(sorted(table.rows, key=lambda row: -row.mean), 2)]
    elif proposed in names:
        first = table.rows[names.index(proposed)]
        pairs = [(first, row) for row in table.rows if row is not first]
    else:
        raise UsageError(
            f"{table.source} has no method {proposed!r}; it has {', '.join(names)}."
            f"{nearest(proposed, names)}"
        )
    return [_gain(*pair, noise, len(names), correction, len(pairs)) for pair in pairs]


def _gain(
    first: TableRow,
    second: TableRow,
    noise: Noise,
    methods: int,
    correction: Simultaneous,
    comparisons: int,
) -> Gain:
    """Return a comparison with its outcome.

    Args:
        first: the row that is claimed to be better, or has the higher mean.
        second: the other row.
        noise: the noise of the means.
        methods: number of methods of the table.
        correction: the correction for all comparisons.
        comparisons: number of comparisons.
    """
    rows, network_degrees = (first, second), noise.network.degrees
    difference = first.mean - second.mean
    training = noise.network.variance * sum(1 / (row.networks * row.n) for row in rows)
    search = noise.search.variance * sum(1 / row.searches for row in rows)
    # The variance of a search may be a product, whose relative uncertainty is that of both factors.
    # Methods of one table share the data set, so two of them do not show it better than one.
    search_degrees = 1 / (1 / noise.search.degrees + 1 / network_degrees)
    degrees = satterthwaite(training, network_degrees, search, search_degrees)
    error = math.sqrt(training + search + noise.classes)
    allowance = noise.selection if "test" in (first.selected_on, second.selected_on) else 0.0
    p = simultaneous_p(max(0.0, abs(difference) - allowance) / error, degrees, methods, correction)
    # One method may retrain less steadily than others, so settings are compared by Welch's test
    printed = [row.sd**2 / row.n for row in rows if row.sd and row.n >= MIN_TESTED]
    if both_print := len(printed) == 2:
        training = sum(printed)
        network_degrees = satterthwaite(printed[0], first.n - 1, printed[1], second.n - 1)
    seeds = simultaneous_quantile(network_degrees, methods, correction) * math.sqrt(training)
    outcome: Outcome = "distinguishable"
    searches_needed = None
    if p >= 1 - CONFIDENCE:
        apart = both_print and abs(difference) > seeds
        outcome = "the settings only" if apart else "not distinguishable"
        searches_needed = searches_for(abs(difference), noise, first.networks, comparisons)
    return Gain(
        first,
        second,
        difference,
        seeds,
        simultaneous_quantile(degrees, methods, correction) * error + allowance,
        p,
        outcome,
        searches_needed,
    )


def searches_for(difference: float, noise: Noise, networks: int, comparisons: int) -> int | None:
    """Return how many searches of each method find a true difference in 80 % of cases.

    This assumes fresh seeds, selection on validation classes, two retrainings of each winner, and
    Welch's test over the means of searches at the level of Holm's strictest step. The result is
    ``None`` if more than 1,000 searches are needed.
    """
    training = noise.network.variance / networks
    shares = Shares(noise.search.variance, training)

    def detects(searches: int) -> bool:
        error = planned_error(shares, searches, RETRAININGS)
        degrees = welch_degrees(searches - 1)
        least = smallest_detectable(math.sqrt(2) * error, degrees, pairs=comparisons)
        return least <= difference

    planned = range(3, _MAX_SEARCHES + 1)
    enough = bisect.bisect_left(planned, True, key=detects)
    return planned[enough] if enough < len(planned) else None

"""What a division of a budget is worth: thousands of campaigns drawn from banks of real trials.

    python benchmarks/calibration.py benchmarks/banks/caltech101_lite0.csv
    python benchmarks/calibration.py benchmarks/banks/caltech101_lite0.csv --resolution
    python benchmarks/calibration.py benchmarks/banks/caltech101_lite0.csv --quantiles
    python benchmarks/calibration.py benchmarks/banks/caltech101_lite0.csv --multiples

A bank (``benchmarks/trial_bank.py``) has, of each method, some hundred trials of a random search,
each with its validation value and the test scores of two fresh retrainings. A campaign draws from
it *with* replacement, so that a search of N trials is N independent draws and the expected test
score of its winner, theta(N), is known exactly. (Without replacement, a campaign that takes a fifth
of the bank would vary too little.)

The population is the bank smoothed: what a trial is worth is the mean of the 21 trials nearest by
validation plus the deviation of one of them from its own such mean, drawn anew each time; the noise
of a retraining is the difference of two retrainings of one of them over √2, with a random sign. The
mean of two retrainings holds half of a retraining's variance, which is taken off by shrinking the
deviations. ``--discrete`` keeps the deviation of each trial to itself: a search of 50 in a bank
of 250 then has one of a handful of winners, and a trial that is drawn twice is a tie.

Printed, for every division: how often a method is called different from itself (one pair; any of
the six pairs of four, after Holm), how often the interval holds theta, and how often the methods of
the bank are told apart, rightly and wrongly. All scores are MAP@R in points.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

from reality_check.statistics import (
    jackknife_error,
    scatter_error,
    skew_allowance,
    subset_degrees,
    subset_estimates,
)

Array = NDArray[np.float64]

NEAREST = 21
REACH = NEAREST // 2
FAMILY = 4
LEVEL = 0.05


@dataclass(frozen=True)
class Population:
    """A method's trials, the worst by validation first.

    Attributes:
        name: of the method.
        local: mean test score of the nearest trials.
        own: what a trial is worth above that.
        noise: standard deviation of its retrainings, as far as two show it.
        smooth: whether ``own`` is drawn among the nearest.
    """

    name: str
    local: Array
    own: Array
    noise: Array
    smooth: bool

    def ranks(self, size: tuple[int, ...], generator: np.random.Generator) -> Array:
        """Validation of new trials: where they are among those of the bank."""
        drawn = generator.random(size) * len(self.local)
        return drawn if self.smooth else np.floor(drawn)

    def worth(self, ranks: Array, generator: np.random.Generator) -> Array:
        """The expected test score of trials at these ranks."""
        place = ranks.astype(np.int64)
        own = self._near(place, generator) if self.smooth else place
        return self.local[place] + self.own[own]

    def retraining(self, ranks: Array, generator: np.random.Generator) -> Array:
        """By how much a fresh retraining differs from what the trial is worth."""
        near = self._near(ranks.astype(np.int64), generator)
        return generator.choice([-1.0, 1.0], size=ranks.shape) * self.noise[near]

    def theta(self, budget: int) -> float:
        """The expected test score of the winner of a search of independent draws."""
        trials = len(self.local)
        places = np.arange(trials)[:, None] + np.arange(-REACH, REACH + 1)
        near = self.own[np.clip(places, 0, trials - 1)].mean(1)
        chances = np.diff((np.arange(trials + 1) / trials) ** budget)
        return float(chances @ (self.local + (near if self.smooth else self.own)))

    def _near(self, place: NDArray[np.int64], generator: np.random.Generator) -> NDArray[np.int64]:
        steps = generator.integers(-REACH, REACH + 1, size=place.shape)
        return np.clip(place + steps, 0, len(self.local) - 1)


@dataclass(frozen=True)
class Campaigns:
    """Estimates of one method by many campaigns, with their errors.

    ``allowance`` is what multiplies Student's intervals; units of all subsets are ``weighted``.
    """

    mean: Array
    error: Array
    degrees: Array
    allowance: float = 1.0
    weighted: bool = False

    def p(self, other: Campaigns, shift: float = 0.0) -> tuple[Array, Array]:
        """Welch's p-values of ``self + shift - other``, and the differences.

        Where units are weighted, the degrees of freedom are at most those of one estimate.
        """
        gap, u, v = self.mean + shift - other.mean, self.error**2, other.error**2
        degrees = (u + v) ** 2 / (u**2 / self.degrees + v**2 / other.degrees)
        if self.weighted:
            degrees = np.minimum(degrees, np.maximum(self.degrees, other.degrees))
        return 2 * stdtr(degrees, -np.abs(gap) / np.sqrt(u + v)), gap

    def covers(self, truth: float, multiple: float | None = None) -> float:
        """How often the 95 % interval, or a multiple of Student's, holds the truth."""
        reach = (self.allowance if multiple is None else multiple) * self._reach
        return float((np.abs(self.mean - truth) <= reach).mean())

    def above(self, truth: float) -> float:
        """How often Student's interval lies above the truth."""
        return float((self.mean - truth > self._reach).mean())

    @property
    def _reach(self) -> Array:
        return stdtrit(self.degrees, 1 - LEVEL / 2) * self.error


@dataclass(frozen=True)
class Division:
    """One way to spend a budget on a method.

    Attributes:
        name: as it is printed.
        trainings: how many, of all folds together.
        budget: N, the trials of a search.
        draw: campaigns of a method.
    """

    name: str
    trainings: int
    budget: int
    draw: Callable[[Population, int, np.random.Generator], Campaigns]


def repeated(searches: int, budget: int, reproductions: int) -> Division:
    """K searches; the unit is the search, or with one search the reproduction (the old rule)."""

    def draw(method: Population, campaigns: int, generator: np.random.Generator) -> Campaigns:
        winners = method.ranks((campaigns, searches, budget), generator).max(-1, keepdims=True)
        repeats = np.repeat(winners, reproductions, -1)
        scores = method.worth(winners, generator) + method.retraining(repeats, generator)
        units = scores[:, 0] if searches == 1 else scores.mean(-1)
        count = units.shape[-1]
        error = units.std(-1, ddof=1) / math.sqrt(count)
        allowance = skew_allowance(budget) if searches > 1 else 1.0
        return Campaigns(units.mean(-1), error, np.full(campaigns, count - 1.0), allowance)

    name = f"{searches} x {budget}, {reproductions} each"
    return Division(name, searches * (budget + reproductions), budget, draw)


def subsets(trials: int, best: int, budget: int, degrees: float | None = None) -> Division:
    """All subsets of one search, the best retrained once."""

    def draw(method: Population, campaigns: int, generator: np.random.Generator) -> Campaigns:
        ranks = np.sort(method.ranks((campaigns, trials), generator), -1)
        scores = method.worth(ranks, generator) + method.retraining(ranks, generator)
        scores[:, : trials - best] = np.nan
        mean, deleted = subset_estimates(ranks, scores, budget)
        freedom = subset_degrees(trials, budget) if degrees is None else degrees
        error = np.maximum(jackknife_error(deleted), scatter_error(ranks, scores, budget))
        return Campaigns(mean, error, np.full(campaigns, freedom), weighted=True)

    name = f"all subsets: {trials}, best {best}, N = {budget}"
    return Division(name, trials + best, budget, draw)


#: The first two are the published division and a small one, by the rule that the unit is the
#: retraining; the next ones cost as much as the first, except for the deep one.
DIVISIONS = (
    repeated(1, 50, 10),
    repeated(1, 10, 10),
    repeated(3, 16, 3),
    repeated(5, 10, 2),
    repeated(10, 5, 1),
    repeated(5, 50, 2),
    subsets(50, 15, 10),
)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("bank", type=Path)
    parser.add_argument("--campaigns", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--resolution", action="store_true", help="what a budget can tell apart")
    parser.add_argument("--quantiles", action="store_true", help="degrees of freedom")
    parser.add_argument("--multiples", action="store_true", help="coverage of wider intervals")
    parser.add_argument("--discrete", action="store_true", help="the bank as it is, not smoothed")
    options = parser.parse_args()
    start = time.process_time()
    methods = read(options.bank, not options.discrete)
    print("\n".join(describe(methods)), end="\n\n")
    if options.resolution:
        print("\n".join(resolution(methods, options.campaigns, options.seed)))
    elif options.quantiles:
        print("\n".join(quantiles(methods, options.campaigns, options.seed)))
    elif options.multiples:
        print("\n".join(multiples(methods, options.campaigns, options.seed)))
    else:
        print("\n".join(divisions(methods, DIVISIONS, options.campaigns, options.seed)))
    print(f"\n{options.campaigns} campaigns a method, {time.process_time() - start:.0f} CPU s")


def read(bank: Path, smooth: bool = True) -> list[Population]:
    """The populations of a bank, scores in points, in alphabetical order."""
    with bank.open(newline="") as file:
        rows = list(csv.DictReader(file))
    trials: dict[str, list[tuple[float, float, float]]] = {}
    for row in rows:
        values = (float(row["validation"]), float(row["test_0"]), float(row["test_1"]))
        trials.setdefault(row["method"], []).append(values)
    names = sorted(trials)
    return [population(name, 100 * np.array(sorted(trials[name])), smooth) for name in names]


def population(name: str, trials: Array, smooth: bool) -> Population:
    """A method's population from validation value and two retrainings of each trial, sorted."""
    noise = np.abs(trials[:, 1] - trials[:, 2]) / math.sqrt(2)
    mean = trials[:, 1:].mean(1)
    local = _nearest_mean(mean)
    spread = _nearest_mean((mean - local) ** 2)
    own = np.maximum(0.0, 1 - _nearest_mean(noise**2) / 2 / np.maximum(spread, 1e-12))
    return Population(name, local, np.sqrt(own) * (mean - local), noise, smooth)


def _nearest_mean(values: Array) -> Array:
    """The mean over the nearest trials by validation; there are fewer at the ends."""
    window = np.ones(NEAREST)
    return np.convolve(values, window, "same") / np.convolve(np.ones(len(values)), window, "same")


# -- tables --------------------------------------------------------------------------------------


def describe(methods: Sequence[Population]) -> Iterator[str]:
    """What the populations are like, where winners of searches are."""
    budgets = (5, 10, 16, 50)
    names = (f"theta({budget})" for budget in budgets)
    yield row("method", "trials", *names, "sd of searches (10)", "sd of a retraining")
    yield "|---" * (4 + len(budgets)) + "|"
    for method in methods:
        generator = np.random.default_rng(0)
        winners = method.ranks((20_000, 10), generator).max(-1)
        between = method.worth(winners, generator).std()
        training = method.retraining(winners, generator).std()
        thetas = " | ".join(f"{method.theta(n):.2f}" for n in budgets)
        yield f"| {method.name} | {len(method.local)} | {thetas} | {between:.2f} | {training:.2f} |"


def divisions(
    methods: Sequence[Population], kinds: Sequence[Division], campaigns: int, seed: int
) -> Iterator[str]:
    """False verdicts and coverage by method, then power by pair of methods."""
    drawn = {kind.name: draw_families(methods, kind, campaigns, seed) for kind in kinds}
    yield row("division", "trainings", *(f"{m.name}: pair, family, covers" for m in methods))
    yield "|---" * (2 + len(methods)) + "|"
    for kind in kinds:
        cells = [false_verdicts(drawn[kind.name][m.name], m.theta(kind.budget)) for m in methods]
        yield row(kind.name, kind.trainings, *cells)
    yield ""
    pairs = list(itertools.combinations(methods, 2))
    yield row("division", *(f"{a.name} and {b.name}" for a, b in pairs), "mean found, wrong")
    yield "|---" * (2 + len(pairs)) + "|"
    for kind in kinds:
        found = [told(drawn[kind.name], a, b, kind.budget) for a, b in pairs]
        cells = [f"{gap:+.2f}: {100 * p:.0f}, {100 * w:.1f}" for gap, p, w in found]
        mean = np.mean(found, axis=0)
        yield row(kind.name, *cells, f"{100 * mean[1]:.1f}, {100 * mean[2]:.1f}")


def draw_families(
    methods: Sequence[Population], kind: Division, campaigns: int, seed: int
) -> dict[str, list[Campaigns]]:
    """Of each method as many independent campaigns as a family has."""
    generator = np.random.default_rng(seed)
    return {m.name: [kind.draw(m, campaigns, generator) for _ in range(FAMILY)] for m in methods}


def false_verdicts(family: Sequence[Campaigns], truth: float) -> str:
    """A method against itself: false per pair and per family after Holm, and coverage."""
    p_values = np.array([a.p(b)[0] for a, b in itertools.combinations(family, 2)])
    any_of_all = (p_values.min(0) < LEVEL / len(p_values)).mean()  # Holm's first step
    covered = np.mean([campaigns.covers(truth) for campaigns in family])
    return f"{100 * (p_values < LEVEL).mean():.1f}, {100 * any_of_all:.1f}, {100 * covered:.1f}"


def told(
    drawn: dict[str, list[Campaigns]], first: Population, second: Population, budget: int
) -> tuple[float, float, float]:
    """The true difference of two methods, how often it is found, and how often its reverse."""
    truth = first.theta(budget) - second.theta(budget)
    pairs = itertools.product(drawn[first.name], drawn[second.name])
    p_values, gaps = (np.array(values) for values in zip(*(a.p(b) for a, b in pairs), strict=True))
    right = np.sign(gaps) == np.sign(truth)
    distinct = p_values < LEVEL
    return truth, float((distinct & right).mean()), float((distinct & ~right).mean())


def resolution(methods: Sequence[Population], campaigns: int, seed: int) -> Iterator[str]:
    """Standard error, bias, and the true difference that 80 % of campaigns find, by budget."""
    kinds = [repeated(k, 10, 2) for k in (3, 5, 10, 20)] + [repeated(k, 50, 2) for k in (3, 5, 10)]
    kinds += [subsets(t, 3 * t // 10, 10) for t in (30, 50, 100, 200)]
    yield row("division", "trainings", *(f"{m.name}: error, bias, 80 %" for m in methods))
    yield "|---" * (2 + len(methods)) + "|"
    for kind in kinds:
        drawn = draw_families(methods, kind, campaigns, seed)
        cells = []
        for method in methods:
            family = drawn[method.name]
            means = np.concatenate([campaigns.mean for campaigns in family])
            bias = means.mean() - method.theta(kind.budget)
            cells.append(f"{means.std():.2f}, {bias:+.2f}, {detectable(*family[:2]):.2f}")
        yield row(kind.name, kind.trainings, *cells)


def detectable(first: Campaigns, second: Campaigns, power: float = 0.8) -> float:
    """By how much the first must be above the second to be found so in 80 % of campaigns."""
    low, high = 0.0, 100.0
    for _ in range(40):
        middle = (low + high) / 2
        p_values, gaps = first.p(second, middle)
        if ((p_values < LEVEL) & (gaps > 0)).mean() > power:
            high = middle
        else:
            low = middle
    return high


def quantiles(methods: Sequence[Population], campaigns: int, seed: int) -> Iterator[str]:
    """Candidates for the degrees of freedom of all subsets: false per pair, and coverage."""
    yield row("all subsets", "degrees", *(f"{m.name}: pair, family, covers" for m in methods))
    yield "|---" * (2 + len(methods)) + "|"
    for trials, best, budget in (
        (50, 50, 5),
        (50, 25, 5),
        (50, 15, 8),
        (50, 15, 10),
        (50, 15, 16),
        (50, 15, 25),
        (20, 10, 5),
        (100, 30, 10),
        (200, 60, 50),
    ):
        own = subset_degrees(trials, budget)
        for name, degrees in (("normal", 1e9), ("own", own), ("2 own", 2 * own)):
            kind = subsets(trials, best, budget, degrees)
            drawn = draw_families(methods, kind, campaigns, seed)
            cells = [false_verdicts(drawn[m.name], m.theta(budget)) for m in methods]
            yield row(kind.name, f"{name} {degrees:.1f}" if degrees < 1e8 else name, *cells)


def multiples(methods: Sequence[Population], campaigns: int, seed: int) -> Iterator[str]:
    """Coverage of multiples of Student's intervals, and how often those are too high."""
    yield row("division", *(f"{m.name}: × 1, × 1.1, × 1.2; above" for m in methods))
    yield "|---" * (1 + len(methods)) + "|"
    for kind in DIVISIONS[2:]:
        drawn = draw_families(methods, kind, campaigns, seed)
        cells = []
        for method in methods:
            family, truth = drawn[method.name], method.theta(kind.budget)
            held = [np.mean([c.covers(truth, m) for c in family]) for m in (1.0, 1.1, 1.2)]
            above = np.mean([c.above(truth) for c in family])
            cells.append(", ".join(f"{100 * share:.1f}" for share in held) + f"; {100 * above:.1f}")
        yield row(kind.name, *cells)


def row(*cells: object) -> str:
    """A line of a table."""
    return "| " + " | ".join(map(str, cells)) + " |"


if __name__ == "__main__":
    main()

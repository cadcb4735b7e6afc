"""What racing saves, and whether its verdicts hold: simulations on two banks and in made-up worlds.

    python benchmarks/racing.py benchmarks/banks/curves_ms.csv benchmarks/banks/curves_ns.csv
    python benchmarks/racing.py benchmarks/banks/curves_ns.csv benchmarks/banks/curves_ms.csv
    python benchmarks/racing.py worlds
    python benchmarks/racing.py benchmarks/banks/curves_ms.csv --jackknife     # or curves_ns, late
    python benchmarks/racing.py benchmarks/banks/curves_ms.csv --weak          # the same

A raced search of T trials trains all of them on a quarter of the first fold; the best share s0 by
validation finishes that fold, the best s1 of the T trials the second fold, and the best s2 all
others (of two folds: s0, s1). Those that finish are the finalists. Either their own networks are
scored on the test classes ("own"), or the r best are retrained ("re"), or theta of retrained
winners is estimated from own scores plus the mean of re - own over some trials, drawn by the
weights of the estimate ("difference"). A trial that is stopped ranks below all finalists.

A campaign draws its trials with replacement from the first bank, whose theta(N) is known. Copies of
a row have validation scores that differ by less than a millionth of a point, in random order, and
equal test scores. Where two methods share their draws, they have the same rows, and each adds noise
of its own: to test scores what a training and its repetition show, to the validation of a fold
twice as much, as a test score is the mean of four networks. With two folds, "own" is the mean of
two networks, so that the same noise is added once more.

Printed: cost in full trainings of one fold; standard deviation and bias of the estimate, in points;
and in percent, how often the 95 % interval holds theta(N), on the rows and with noise; how often a
loss is called different from itself (a pair; any of the six pairs of four after Holm) with draws of
its own and with shared ones, and from the other bank's loss, lifted to the same theta(N), with the
exact upper 95 % bound in brackets; and how often a true difference is found with the right sign:
one point with draws of its own, with shared draws, and the other bank's loss.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv
from worlds import World, diverging, spike

from reality_check.statistics import (
    MAX_LEFT_OUT,
    Estimate,
    estimate_difference,
    jackknife_error,
    subset_degrees,
    subset_estimates,
    subset_weights,
    t_quantile,
    weak_evidence,
)

Array = NDArray[np.float64]

STEPS = (25, 50, 75, 100, 150, 200)
LEVEL = 0.05
#: Fixed on ``curves_ms`` before they were tried on ``curves_ns`` and in the worlds.
FIXED = (0.6, 0.45, 0.36)
GREEDY = (0.5, 0.4, 0.32)
TWO_FOLDS = (0.6, 0.5)


@dataclass(frozen=True)
class Trials:
    """Trials of many campaigns, each array of shape (campaigns, trials).

    Attributes:
        quarter: validation after a quarter of the first fold.
        folds: validation of each fold, shape (campaigns, trials, 4).
        own: test score of the search's own networks.
        re: test score of a retraining.
    """

    quarter: Array
    folds: Array
    own: Array
    re: Array

    def rungs(self, folds: int) -> list[Array]:
        """Validation after each rung of a search with so many folds."""
        means = [self.folds[..., :n].mean(-1) for n in sorted({1, 2, folds})]
        return [self.quarter, *means]


@dataclass(frozen=True, eq=False)
class Bank:
    """Trials that were trained, and what is added to the scores of those that are drawn.

    Attributes:
        name: as it is printed.
        rows: arrays of shape (rows,).
        training: standard deviation of the test scores of repeated trainings.
        noise: standard deviations of what is added to a fold's validation and to test scores.
        lift: what else is added to test scores.
    """

    name: str
    rows: Trials
    training: float
    noise: tuple[float, float] = (0.0, 0.0)
    lift: float = 0.0

    def of(self, folds: int, shared: bool = False) -> Bank:
        """The bank for searches with so many folds, whose draws are shared or not."""
        tests = (folds == 2) + shared * 4 / folds
        return replace(self, noise=(2 * self.training * shared, self.training * math.sqrt(tests)))

    def draw(self, shape: tuple[int, int], generator: np.random.Generator) -> NDArray[np.int64]:
        """Draw which rows the trials are."""
        return generator.integers(len(self.rows.own), size=shape)

    def trials(self, drawn: NDArray[np.int64], generator: np.random.Generator) -> Trials:
        """The trials of these rows."""
        normal = generator.standard_normal((*drawn.shape, 6))
        folds = (self.noise[0] + 1e-7) * normal[..., :4]
        tests = self.noise[1] * normal[..., 4:] + self.lift
        return Trials(
            self.rows.quarter[drawn] + folds[..., 0],
            self.rows.folds[drawn] + folds,
            self.rows.own[drawn] + tests[..., 0],
            self.rows.re[drawn] + tests[..., 1],
        )


def read(path: Path) -> Bank:
    """A bank with curves."""
    with path.open(newline="") as file:
        table = list(csv.DictReader(file))
    curves = [[[float(r[f"f{fold}_s{s}"]) for s in STEPS] for fold in range(4)] for r in table]
    best = np.maximum.accumulate(curves, -1)
    own, re = np.array([[float(r["test_search"]), float(r["test_retrain"])] for r in table]).T
    rows = Trials(best[:, 0, STEPS.index(50)], best[..., -1], own, re)
    return Bank(path.stem, rows, float(np.std(own - re)) / math.sqrt(2))


@dataclass(frozen=True, eq=False)
class Made:
    """A world of ``benchmarks/worlds.py`` with folds, in points.

    Attributes:
        name: as it is printed.
        quarter: the score to expect after a quarter of a fold, from the final one and x.
        world: scores at x, the noise of validation (of the mean of four folds) and of a test.
        lift: what is added to test scores.
    """

    name: str
    quarter: Callable[[Array, Array], Array] = lambda score, _: 0.8 * score
    world: World = field(default_factory=lambda: World("cone"))
    lift: float = 0.0

    def of(self, folds: int, shared: bool = False) -> Made:
        """The same world: its trainings always have noise."""
        return self

    def draw(self, shape: tuple[int, int], generator: np.random.Generator) -> Array:
        """Draw hyper-parameters."""
        return generator.random((*shape, self.world.dimensions))

    def trials(self, drawn: Array, generator: np.random.Generator) -> Trials:
        """The trials with these hyper-parameters."""
        score = 100 * self.world.score(drawn)
        normal = generator.standard_normal((*score.shape, 7))
        validation, test = (100 * noise for noise in self.world.noise)
        lost = generator.random(score.shape) < self.world.diverging[0]
        folds = score[..., None] + 2 * validation * normal[..., :4]
        quarter = self.quarter(score, drawn) + 2 * validation * normal[..., 0] + normal[..., 6]
        own, re = (np.where(lost, 0, score + test * normal[..., i]) + self.lift for i in (4, 5))
        return Trials(np.where(lost, 0, quarter), np.where(lost[..., None], 0, folds), own, re)


COARSE = World("", noise=(0.03, 0.005))
MADE = (
    Made("cone: folds agree"),
    Made("folds hardly agree", world=COARSE),
    Made("3 % of trials 5 points better", world=spike(0.03)),
    Made("20 % of trials diverge", world=diverging(0.2)),
    Made("another optimum at a quarter", lambda _, x: 24 - 10 * np.abs(x[..., 0] - 0.8)),
    Made("nothing seen at a quarter", lambda score, _: 0 * score),
    Made("late: the better, the worse at a quarter", lambda score, _: 40 - score),
)


@dataclass(frozen=True)
class Design:
    """A search.

    Attributes:
        trials: T.
        budget: N.
        race: shares of the T trials that go on after each rung but the last; empty for no race.
        retrained: how many of the best are retrained; 0 to score the search's own networks.
        drawn: how many retrainings are drawn for the difference estimator; 0 for none.
        folds: of the split.
    """

    trials: int
    budget: int
    race: tuple[float, ...] = ()
    retrained: int = 0
    drawn: int = 0
    folds: int = 4

    def __str__(self) -> str:
        scored = f"re, r = {self.retrained}" if self.retrained else "own"
        scored = f"difference, {self.drawn}" if self.drawn else scored
        text = f"{self.trials}, N = {self.budget}, {scored}"
        text += f", {self.folds} folds" * (self.folds != 4)
        tested = self.retrained or [self.trials, *self.going_on][-1]
        lost = 1 - float(subset_weights(self.trials, self.budget)[-tested:].sum())
        text += f", no interval ({lost:.1%} left out)" * (lost > MAX_LEFT_OUT)
        return text + (f": {', '.join(map(str, self.going_on))}" if self.race else "")

    @property
    def going_on(self) -> list[int]:
        """The number of trials that go on after each rung."""
        return [math.ceil(share * self.trials - 1e-9) for share in self.race]

    def cost(self, retrained: float) -> float:
        """Full trainings of one fold, with so many retrainings."""
        counts = [self.trials, *(self.going_on or [self.trials] * min(3, self.folds))]
        parts = (0.25, 0.75, 1, self.folds - 2)
        raced = sum(c * part for c, part in zip(counts, parts, strict=False))
        return raced + self.folds * retrained

    @property
    def column(self) -> str:
        """Which score of trials the design estimates."""
        return "re" if self.retrained or self.drawn else "own"

    def run(self, rungs: Sequence[Array]) -> tuple[Array, NDArray[np.bool_]]:
        """Race; return the validation by which trials are ranked, and which have a test score."""
        value, on = rungs[0 if self.race else -1], np.ones(rungs[0].shape, dtype=bool)
        trials = value.shape[-1]
        for share, now, after in zip(self.race, rungs, rungs[1:], strict=False):
            ranked = np.where(on, now, -np.inf)
            count = math.ceil(share * trials - 1e-9)
            on = ranked >= np.partition(ranked, -count, -1)[..., -count, None]
            value = np.where(on, after, value)
        lowest = np.where(on, value, np.inf).min(-1, keepdims=True)
        value = np.where(on, value, np.minimum(value, lowest - 1e-6))
        if self.retrained:
            on = np.argsort(np.argsort(-value, -1), -1) < self.retrained
        return value, on

    def estimates(self, trials: Trials, generator: np.random.Generator) -> tuple[Array, Array]:
        """The estimates, (campaigns,), and without each trial, (campaigns, trials)."""
        value, tested = self.run(trials.rungs(self.folds))
        scores = trials.re if self.retrained else trials.own
        mean, deleted = subset_estimates(value, np.where(tested, scores, np.nan), self.budget)
        if not self.drawn:
            return mean, deleted
        # How often each trial is drawn, by the weights of the estimate
        order = np.argsort(-value, -1)[:, : tested[0].sum()]
        weights = subset_weights(self.trials, self.budget)[::-1][: order.shape[1]]
        counts = np.zeros(value.shape)
        chosen = generator.multinomial(self.drawn, weights / weights.sum(), len(order))
        np.put_along_axis(counts, order, chosen, -1)
        sums = counts * (trials.re - trials.own)
        total, left = sums.sum(-1, keepdims=True), self.drawn - counts
        # A deletion takes the trial's own score and its retraining.
        return mean + total[:, 0] / self.drawn, deleted + (total - sums) / np.maximum(left, 1)

    @property
    def retrainings(self) -> float:
        """How many trials are retrained, on average."""
        if not self.drawn:
            return self.retrained
        weights = subset_weights(self.trials, self.budget)
        return float((1 - (1 - weights) ** self.drawn).sum())

    def each(self, trials: Trials, generator: np.random.Generator) -> list[Estimate]:
        """The estimates of campaigns one by one, as the product has them."""
        means, without = self.estimates(trials, generator)
        degrees, n = subset_degrees(self.trials, self.budget), self.trials
        reach, errors = t_quantile(degrees), jackknife_error(without)
        return [
            Estimate(mean, reach * error, error, degrees, n, deleted)
            for mean, error, deleted in zip(means.tolist(), errors.tolist(), without, strict=True)
        ]


Population = Bank | Made


def theta(design: Design, population: Population, searches: int = 100_000) -> float:
    """The expected test score of the winner of a search that nobody raced."""
    generator, total = np.random.default_rng(1), 0.0
    for _ in range(10):
        drawn = population.draw((searches // 10, design.budget), generator)
        trials = population.trials(drawn, generator)
        best = trials.rungs(design.folds)[-1].argmax(-1)[:, None]
        total += float(np.take_along_axis(getattr(trials, design.column), best, -1).mean())
    return total / 10


def equal(design: Design, other: Population, population: Population) -> Population:
    """Another population, lifted to the same theta."""
    return replace(other, lift=theta(design, population) - theta(design, other))


@dataclass
class Campaigns:
    """Many campaigns of one design."""

    design: Design
    count: int
    generator: np.random.Generator

    def run(self, population: Population, methods: int = 1) -> list[list[Estimate]]:
        """Estimates of methods that share their draws."""
        drawn = population.draw((self.count, self.design.trials), self.generator)
        return [
            self.design.each(population.trials(drawn, self.generator), self.generator)
            for _ in range(methods)
        ]

    def family(self, methods: Sequence[Sequence[Estimate]], shared: bool) -> str:
        """How often equal methods are called different: a pair, and a family after Holm."""
        pairs = itertools.combinations(range(len(methods)), 2)
        p = {(i, j): p_values(methods[i], methods[j], shared)[0] for i, j in pairs}
        pair = np.concatenate([p[0, 1], p[2, 3]]) < LEVEL
        return f"{rate(pair)}; {rate(np.min(list(p.values()), 0) < LEVEL / len(p))}"


def p_values(
    first: Sequence[Estimate], second: Sequence[Estimate], shared: bool = False, lift: float = 0.0
) -> tuple[Array, Array]:
    """The p-value and the difference of ``first + lift`` and ``second``, for each campaign."""
    if lift:
        first = [replace(each, mean=each.mean + lift) for each in first]
    found = [estimate_difference(a, b, float(shared)) for a, b in zip(first, second, strict=True)]
    return np.array([each.p_value for each in found]), np.array([each.mean for each in found])


def power(p: Array, difference: Array, sign: float = 1.0) -> str:
    """How often a difference is found with the right sign, in percent."""
    return f"{100 * ((p < LEVEL) & (difference * sign > 0)).mean():.0f}"


def rate(wrong: NDArray[np.bool_]) -> str:
    """A share in percent, and its exact upper 95 % bound."""
    k, n = int(wrong.sum()), len(wrong)
    return f"{100 * k / n:.1f} ({100 * betaincinv(k + 1, n - k, 0.95):.1f})"


def covers(estimates: Sequence[Estimate], truth: float) -> str:
    """How often the interval holds the truth, in percent."""
    return f"{100 * np.mean([each.low <= truth <= each.high for each in estimates]):.1f}"


HEAD = (
    "T, budget, scored: trials after each rung",
    "cost",
    "sd",
    "bias",
    "covers: rows, with noise",
    "false, own draws: pair; family",
    "false, shared draws",
    "false, another loss of equal theta",
    "found, 1 point: own draws, shared",
    "found, another loss",
)


def line(design: Design, population: Population, other: Population, count: int) -> str:
    """The row of a design."""
    campaigns = Campaigns(design, count, np.random.default_rng(design.trials))
    mine, noisy = population.of(design.folds), population.of(design.folds, shared=True)
    other = other.of(design.folds)
    truth = theta(design, mine)
    methods = [campaigns.run(mine)[0] for _ in range(4)]
    shared = campaigns.run(noisy, 4)
    alone, together = [*itertools.chain(*methods)], [*itertools.chain(*shared)]
    gap = theta(design, other) - truth
    (another,) = campaigns.run(other)
    means = np.array([each.mean for each in methods[0]])
    return row(
        design,
        f"{design.cost(design.retrainings):.0f}",
        f"{means.std():.2f}",
        f"{np.mean([each.mean for each in alone]) - truth:+.2f}",
        f"{covers(alone, truth)}, {covers(together, theta(design, noisy))}",
        campaigns.family(methods, shared=False),
        campaigns.family(shared, shared=True),
        rate(p_values(another, methods[0], lift=-gap)[0] < LEVEL),
        power(*p_values(*methods[:2], lift=1.0))
        + ", "
        + power(*p_values(*shared[:2], shared=True, lift=1.0)),
        f"{gap:+.2f}: {power(*p_values(another, methods[0]), np.sign(gap))}",
    )


def row(*cells: object) -> str:
    """A line of a table."""
    return f"| {' | '.join(map(str, cells))} |"


DESIGNS = (
    Design(50, 10, (), 15),
    Design(50, 10, (1, 0.6, 0.44), 15),
    Design(50, 10, GREEDY),
    Design(60, 10),
    Design(60, 10, FIXED),
    Design(68, 10, GREEDY),
    Design(80, 10, FIXED),
    Design(100, 10),
    Design(100, 10, FIXED),
    Design(100, 10, GREEDY),
    Design(100, 20, FIXED),
    Design(150, 10, GREEDY),
    Design(60, 10, FIXED, drawn=8),
    Design(100, 10, FIXED, drawn=12),
    Design(100, 10, FIXED, 32),
    Design(30, 5, (0.7, 0.6, 0.5)),
    Design(16, 5, (), 16, folds=2),
    *(Design(16, 5, race, folds=2) for race in ((), (0.75, 0.6))),
    *(Design(trials, 5, TWO_FOLDS, folds=2) for trials in (24, 32, 48)),
)
#: From less to more greedy; the choice was made among these.
QUOTAS = (
    *(Design(60, 10, race) for race in ((), (1, 1, 0.36), (1, 0.6, 0.36), (0.8, 0.6, 0.45))),
    *(Design(60, 10, race) for race in ((0.7, 0.5, 0.36), FIXED, GREEDY, (0.4, 0.35, 0.32))),
    *(Design(100, 10, race) for race in ((0.8, 0.6, 0.45), FIXED, GREEDY, (0.4, 0.35, 0.32))),
    Design(100, 10, (0.4, 0.3, 0.22)),
    *(Design(24, 5, race, folds=2) for race in ((), (0.75, 0.6), TWO_FOLDS, (0.5, 0.5))),
)
IN_WORLDS = (
    *(Design(60, 10, race) for race in ((), FIXED, (1, *FIXED[1:]))),
    *(Design(100, 10, race) for race in (FIXED, GREEDY)),
    Design(32, 5, TWO_FOLDS, folds=2),
)


def again(design: Design, population: Population, count: int) -> str:
    """The row of the jackknife that races again without each trial, beside the one that does not.

    Both ratios are the root of the mean squared error by the standard deviation of the estimates.
    """
    generator = np.random.default_rng(0)
    population = population.of(design.folds)
    drawn = population.draw((count, design.trials), generator)
    trials = population.trials(drawn, generator)
    mean, deleted = design.estimates(trials, generator)
    raced = np.empty_like(deleted)
    for trial in range(design.trials):
        left = Trials(*(np.delete(getattr(trials, each.name), trial, 1) for each in fields(Trials)))
        raced[:, trial] = design.estimates(left, generator)[0]
    reach = t_quantile(subset_degrees(design.trials, design.budget))
    errors, off = (
        [jackknife_error(d) for d in (deleted, raced)],
        np.abs(mean - theta(design, population)),
    )
    ratios = ", ".join(f"{np.sqrt((e**2).mean()) / mean.std():.2f}" for e in errors)
    held = ", ".join(f"{100 * (off <= reach * e).mean():.1f}" for e in errors)
    return row(population.name, design, ratios, f"{np.corrcoef(errors)[0, 1]:.3f}", held)


def spoken(design: Design, population: Population, count: int) -> str:
    """The row of how often the report says that an interval rests on little, raced and not."""
    cells = []
    for each in (replace(design, race=()), design):
        generator = np.random.default_rng(0)
        mine = population.of(each.folds)
        trials = mine.trials(mine.draw((count, each.trials), generator), generator)
        values, tested = each.run(trials.rungs(each.folds))
        found = Counter(
            weakness.reason if (weakness := weak_evidence(v, tests, each.budget, e)) else "none"
            for v, t, own, e in zip(
                values, tested, trials.own, each.each(trials, generator), strict=True
            )
            for tests in [dict(zip(np.flatnonzero(t).tolist(), own[t].tolist(), strict=True))]
        )
        cells.append(", ".join(f"{reason} {100 * n / count:.0f}" for reason, n in found.items()))
    return row(population.name, design, *cells)


def lines(options: argparse.Namespace) -> Iterator[str]:
    """The table that was asked for."""
    populations: Sequence[Population] = MADE
    if options.banks != [Path("worlds")]:
        populations = [read(bank) for bank in options.banks]
    raced = [design for design in IN_WORLDS if design.race]
    for wanted, function, head in (
        (
            options.jackknife,
            again,
            ("error by sd: as shipped, raced again", "correlation", "covers"),
        ),
        (options.weak, spoken, ("not raced", "raced")),
    ):
        if wanted:
            yield from head_of("", "design", *head)
            yield from (function(d, p, options.campaigns // 10) for p in populations for d in raced)
            return
    if populations is MADE:
        for world in MADE:
            yield from head_of(world.name, *HEAD[1:])
            yield from (line(design, world, MADE[0], options.campaigns) for design in IN_WORLDS)
        return
    yield from head_of(*HEAD)
    for design in QUOTAS if options.quotas else DESIGNS:
        yield line(design, populations[0], populations[1], options.campaigns)


def head_of(*cells: object) -> tuple[str, str]:
    """The head of a table."""
    return row(*cells), "|---" * len(cells) + "|"


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("banks", type=Path, nargs="+", help="a bank and another one, or: worlds")
    parser.add_argument("--campaigns", type=int, default=10_000)
    parser.add_argument("--quick", action="store_true", help="300 campaigns")
    parser.add_argument("--quotas", action="store_true", help="the quotas of which one was chosen")
    parser.add_argument("--jackknife", action="store_true", help="race again in each deletion")
    parser.add_argument("--weak", action="store_true", help="how often weak evidence is reported")
    options = parser.parse_args()
    if options.quick:
        options.campaigns = 300
    start = time.process_time()
    for text in lines(options):
        print(text, flush=True)
    print(f"{options.campaigns} campaigns a cell, {time.process_time() - start:.0f} CPU s")


if __name__ == "__main__":
    main()

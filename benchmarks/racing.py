"""What racing saves, and whether its verdicts hold: simulations on two banks and in made-up worlds.

    python benchmarks/racing.py quotas
    python benchmarks/racing.py curves_ms           # or curves_ns
    python benchmarks/racing.py worlds
    python benchmarks/racing.py jackknife
    python benchmarks/racing.py weak

A raced search of T trials trains all of them on a quarter of the first fold. The best share s0 of
the T trials by validation finishes that fold, the best s1 the second fold, and the best s2 all
others (with two folds: s0 and s1). Those that finish are the finalists. Either their own networks
are scored on the test classes ("own"), or the r best are retrained ("re"), or the score of
retrained winners is estimated as that of own networks plus the mean of re - own over some trials,
drawn by their weights in the estimate ("difference"). A stopped trial ranks below all finalists.

With a pilot, the first 16 trials finish the first fold whatever they score. If their ranks after a
quarter and after that fold have a correlation (Spearman's) below 0.7, all other trials do too.

A campaign draws its trials with replacement from a bank, whose theta(N) is known. Copies of a row
have the same test scores, and validation scores that differ by a millionth of a point, so that one
of them wins at random. Methods that share their draws have the same rows, and noise of their own:
on test scores as much as a repeated training shows, on the validation of a fold twice as much,
since a test score is the mean of four networks. Two folds give two networks, whose mean has the
same noise once more.

Printed: cost in full trainings of one fold; standard deviation and bias of the estimate, in points;
and in percent, how often the 95 % interval holds theta(N), for the rows and with noise; how often a
loss is called different from itself (a pair; at least one of the six pairs of four, after Holm),
with draws of its own and with shared draws, and from another loss of the same theta(N), each with
its exact upper 95 % bound in brackets; how often a difference of one point is found, with draws of
its own and with shared draws; and how often that to another loss is. The other loss is that of the
other bank, or the world in which folds agree.
"""

from __future__ import annotations

import argparse
import itertools
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv
from worlds import World, diverging, row, spike

from reality_check.statistics import (
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
Estimates = Sequence[Estimate]

FOLDER = Path(__file__).parent / "banks"
LEVEL = 0.05
#: By table: T, N, shares that go on after each rung, retrained, drawn for the difference, folds,
#: pilot. Shares and the pilot's rule were fixed on ``curves_ms`` (``quotas``), before ``curves_ns``
#: and the worlds were run; the first row of each is not raced.
TABLES = {
    "quotas": """
        60  10  1/1/1            0  0  4  0
        60  10  1/1/0.36         0  0  4  0
        60  10  1/0.4/0.32       0  0  4  0
        60  10  0.8/0.6/0.45     0  0  4  0
        60  10  0.7/0.5/0.36     0  0  4  0
        60  10  0.6/0.45/0.36    0  0  4  0
        60  10  0.5/0.4/0.32     0  0  4  0
        60  10  0.4/0.35/0.32    0  0  4  0
        100 10  0.6/0.45/0.36    0  0  4  0
        100 10  0.5/0.4/0.32     0  0  4  0
        100 10  0.4/0.35/0.32    0  0  4  0
        24  5   1/1              0  0  2  0
        24  5   0.75/0.55        0  0  2  0
        24  5   0.5/0.5          0  0  2  0
    """,
    "banks": """
        50  10  1/1/1           15  0  4  0
        50  10  1/0.6/0.44      15  0  4  0
        50  10  0.5/0.4/0.32     0  0  4 16
        60  10  1/1/1            0  0  4  0
        60  10  0.6/0.45/0.36    0  0  4  0
        60  10  0.6/0.45/0.36    0  0  4 16
        60  10  1/0.4/0.32       0  0  4  0
        64  10  0.5/0.4/0.32     0  0  4 16
        80  10  0.5/0.4/0.32     0  0  4 16
        100 10  1/1/1            0  0  4  0
        100 10  0.6/0.45/0.36    0  0  4  0
        100 10  0.5/0.4/0.32     0  0  4 16
        100 10  0.6/0.45/0.36    0  0  4 16
        136 10  0.6/0.45/0.36    0  0  4 16
        100 20  0.6/0.45/0.36    0  0  4  0
        60  10  0.6/0.45/0.36    0  8  4  0
        100 10  0.6/0.45/0.36    0 16  4  0
        80  10  0.5/0.4/0.32    26  0  4 16
        54  8   0.6/0.5/0.42     0  0  4 16
        30  5   0.7/0.6/0.55     0  0  4  0
        46  5   0.7/0.6/0.55     0  0  4  0
        16  5   1/1             16  0  2  0
        16  5   1/1              0  0  2  0
        16  5   0.75/0.55        0  0  2  0
        32  5   0.75/0.55        0  0  2  0
        16  5   1/0.55           0  0  2  0
        24  5   1/0.55           0  0  2  0
        32  5   1/0.55           0  0  2  0
        40  5   1/0.55           0  0  2  0
    """,
    "worlds": """
        60  10  1/1/1            0  0  4  0
        60  10  0.6/0.45/0.36    0  0  4  0
        60  10  1/0.4/0.32       0  0  4  0
        60  10  0.6/0.45/0.36    0  0  4 16
        100 10  0.6/0.45/0.36    0  0  4  0
        100 10  0.6/0.45/0.36    0  0  4 16
        100 10  0.5/0.4/0.32     0  0  4 16
        32  5   0.75/0.55        0  0  2  0
        32  5   1/0.55           0  0  2  0
    """,
}
AGREES = 0.7
#: Scores of a trial: validation after a quarter of the first fold, after one, two and four folds;
#: test scores of its own networks and of a retraining. This is how noise of the four folds' and of
#: the test scores adds up to them.
MIX = np.zeros((6, 6))
MIX[:4, :4] = [[1, 1, 0.5, 0.25], [0, 0, 0.5, 0.25], [0, 0, 0, 0.25], [0, 0, 0, 0.25]]
MIX[4:, 4:] = np.eye(2)


def noise(
    shape: tuple[int, ...], fold: float, test: float, generator: np.random.Generator
) -> Array:
    """Noise of scores, (*shape, 6)."""
    return (generator.standard_normal((*shape, 6)) * [*[fold] * 4, *[test] * 2]) @ MIX


@dataclass(frozen=True, eq=False)
class Bank:
    """Trials that were trained, and what is added to the scores of those that are drawn.

    Attributes:
        name: as it is printed.
        rows: scores, (rows, 6).
        training: standard deviation of the test scores of repeated trainings.
        noises: standard deviations of what is added to a fold's validation and to test scores.
        lift: what else is added to test scores.
    """

    name: str
    rows: Array
    training: float
    noises: tuple[float, float] = (1e-6, 0.0)
    lift: float = 0.0

    def of(self, folds: int, shared: bool = False) -> Bank:
        """The bank for searches with so many folds, whose draws are shared or not."""
        tests = (folds == 2) + shared * 4 / folds
        noises = (2 * self.training * shared + 1e-6, self.training * math.sqrt(tests))
        return replace(self, noises=noises)

    def scores(
        self, shape: tuple[int, int], generator: np.random.Generator, methods: int = 1
    ) -> Iterator[Array]:
        """Scores of methods that share their draws, each (*shape, 6)."""
        rows = self.rows[generator.integers(len(self.rows), size=shape)]
        return (rows + noise(shape, *self.noises, generator) for _ in range(methods))


def read(name: str) -> Bank:
    """A bank with curves."""
    table = np.loadtxt(FOLDER / f"{name}.csv", delimiter=",", skiprows=1)
    # The columns: the trial, six checkpoints of each of four folds, two test scores.
    best = np.maximum.accumulate(table[:, 1:25].reshape(-1, 4, 6), -1)
    rungs = [best[:, 0, 1], *(best[:, :folds, -1].mean(1) for folds in (1, 2, 4))]
    training = float(np.std(table[:, 25] - table[:, 26])) / math.sqrt(2)
    return Bank(name, np.column_stack([*rungs, table[:, 25:]]), training)


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
        """The same world, whose trainings always have noise."""
        return self

    def scores(
        self, shape: tuple[int, int], generator: np.random.Generator, methods: int = 1
    ) -> Iterator[Array]:
        """Scores of methods that share their hyper-parameters, each (*shape, 6)."""
        x = generator.random((*shape, self.world.dimensions))
        return (self._train(x, generator) for _ in range(methods))

    def _train(self, x: Array, generator: np.random.Generator) -> Array:
        score = 100 * self.world.score(x)
        validation, test = self.world.noise
        scores = score[..., None] + noise(score.shape, 200 * validation, 100 * test, generator)
        scores[..., 0] += self.quarter(score, x) - score + generator.normal(size=score.shape)
        scores *= (generator.random(score.shape) >= self.world.diverging[0])[..., None]
        return scores + self.lift * (np.arange(6) > 3)


Population = Bank | Made

MADE = (
    Made("folds agree"),
    Made("folds hardly agree", world=World("", noise=(0.03, 0.005))),
    Made("3 % of trials 5 points better", world=spike(0.03)),
    Made("20 % of trials diverge", world=diverging(0.2)),
    Made("another optimum at a quarter", lambda _, x: 24 - 10 * np.abs(x[..., 0] - 0.8)),
    Made("nothing seen at a quarter", lambda score, _: 0 * score),
    Made("the better, the worse at a quarter", lambda score, _: 40 - score),
    Made("the best tenth is late", lambda score, _: 0.8 * score - 8 * (score > 27.8)),
)


@dataclass(frozen=True)
class Design:
    """A search.

    Attributes:
        trials: T.
        budget: N.
        race: shares of the T trials that go on after each rung but the last.
        retrained: how many of the best are retrained; 0 to score the search's own networks.
        drawn: how many retrainings are drawn for the difference estimator; 0 for none.
        folds: of the split.
        pilot: how many trials are not stopped at a quarter.
    """

    trials: int
    budget: int
    race: tuple[float, ...]
    retrained: int
    drawn: int
    folds: int
    pilot: int

    def __str__(self) -> str:
        scored = f"re {self.retrained}" if self.retrained else "own"
        scored += f" and difference {self.drawn}" * bool(self.drawn)
        going_on = ", ".join(str(math.ceil(s * self.trials - 1e-9)) for s in self.race)
        pilot = " with a pilot" * bool(self.pilot)
        return f"{self.trials}, N = {self.budget}, {scored}, {self.folds} folds: {going_on}{pilot}"

    def run(self, scores: Array, by_fold: bool = False) -> tuple[Array, NDArray[np.bool_], Array]:
        """Race; return by which validation trials are ranked, who has a test score, and the cost.

        Stopped trials are just below the lowest finalist or, ``by_fold``, at the mean of their
        folds if that is lower still. The cost, (campaigns,), is without retrainings.
        """
        last = 1 + self.folds // 2
        rungs = np.moveaxis(scores, -1, 0)[: last + 1]
        value, on = rungs[0], np.ones(rungs[0].shape, dtype=bool)
        cost = np.full(len(value), value.shape[1] / 4)
        for step, share in enumerate(self.race[:last]):
            ranked = np.where(on, rungs[step], -np.inf)
            count = math.ceil(share * value.shape[1] - 1e-9)
            on = on & (ranked >= np.partition(ranked, -count)[:, -count, None])
            if self.pilot and not step:
                first = rungs[:2, :, : self.pilot].argsort(-1).argsort(-1)
                squares = ((first[0] - first[1]) ** 2).sum(-1)
                agreement = 1 - 6 * squares / (self.pilot**3 - self.pilot)
                on |= (agreement < AGREES)[:, None] | (np.arange(value.shape[1]) < self.pilot)
            value = np.where(on, rungs[step + 1], value)
            cost += (0.75, 1, 2)[step] * on.sum(-1)
        lowest = np.where(on, value, np.inf).min(-1, keepdims=True) - 1e-6
        below = np.minimum(value, lowest) if by_fold else lowest
        value = np.where(on | (value == 0), value, below)
        if self.retrained:
            on = np.argsort(np.argsort(-value)) < self.retrained
        return value, on, cost

    def estimates(
        self, scores: Array, generator: np.random.Generator
    ) -> tuple[Array, Array, Array]:
        """Estimates, (campaigns,), those without each trial, (campaigns, T), and the cost."""
        value, tested, cost = self.run(scores)
        own, re = scores[..., 4], scores[..., 5]
        known = np.where(tested, re if self.retrained else own, np.nan)
        mean, deleted = subset_estimates(value, known, self.budget)
        cost += self.folds * self.retrained
        if self.drawn:
            order = np.argsort(-value)[:, : tested[0].sum()]
            weights = subset_weights(value.shape[1], self.budget)[::-1][: order.shape[1]]
            chosen = generator.multinomial(self.drawn, weights / weights.sum(), len(order))
            counts = np.zeros(value.shape)
            np.put_along_axis(counts, order, chosen, -1)
            cost += self.folds * (counts > 0).sum(-1)
            sums = counts * (re - own)
            total = sums.sum(-1)
            mean += total / self.drawn
            # Without a trial, its retraining is missing too.
            deleted += (total[:, None] - sums) / np.maximum(self.drawn - counts, 1)
        return mean, deleted, cost

    def run_each(self, scores: Array, generator: np.random.Generator) -> tuple[Estimates, float]:
        """The estimates of campaigns one by one, and the mean cost."""
        means, without, cost = self.estimates(scores, generator)
        degrees = subset_degrees(self.trials, self.budget)
        reach, errors = t_quantile(degrees), jackknife_error(without).tolist()
        return [
            Estimate(mean, reach * error, error, degrees, self.trials, deleted)
            for mean, error, deleted in zip(means.tolist(), errors, without, strict=True)
        ], float(cost.mean())


def theta(design: Design, population: Population, searches: int = 100_000) -> float:
    """The expected test score of the winner of a search without a race."""
    generator, total = np.random.default_rng(1), 0.0
    for _ in range(10):
        (scores,) = population.scores((searches // 10, design.budget), generator)
        best = scores[..., 1 + design.folds // 2].argmax(-1)
        test = scores[..., 5 if design.retrained or design.drawn else 4]
        total += float(test[np.arange(len(best)), best].mean())
    return total / 10


def p_values(
    first: Estimates, second: Estimates, shared: float = 0.0, lift: float = 0.0
) -> tuple[Array, Array]:
    """The p-value and the mean of the difference of ``first + lift`` and ``second``."""
    if lift:
        first = [replace(each, mean=each.mean + lift) for each in first]
    found = [estimate_difference(a, b, shared) for a, b in zip(first, second, strict=True)]
    return np.array([each.p_value for each in found]), np.array([each.mean for each in found])


def power(p: Array, difference: Array, sign: float = 1.0) -> str:
    """How often a difference is found with the right sign, in percent."""
    return f"{100 * ((p < LEVEL) & (difference * sign > 0)).mean():.0f}"


def rate(wrong: NDArray[np.bool_]) -> str:
    """A share in percent, and its exact upper 95 % bound."""
    k, n = int(wrong.sum()), len(wrong)
    return f"{100 * k / n:.1f} ({100 * betaincinv(k + 1, max(n - k, 1e-9), 0.95):.1f})"


def family(methods: Sequence[Estimates], shared: float) -> str:
    """How often equal methods are called different: a pair, and a family of four after Holm."""
    pairs = itertools.combinations(range(len(methods)), 2)
    p = {(i, j): p_values(methods[i], methods[j], shared)[0] for i, j in pairs}
    pair = np.concatenate([p[0, 1], p[2, 3]]) < LEVEL
    return f"{rate(pair)}; {rate(np.min(list(p.values()), 0) < LEVEL / len(p))}"


def covers(methods: Sequence[Estimates], truth: float) -> str:
    """How often the interval holds the truth, in percent."""
    held = [each.low <= truth <= each.high for each in itertools.chain(*methods)]
    return f"{100 * np.mean(held):.1f}"


HEAD = (
    "cost | sd | bias | covers: rows, with noise | false, own draws: pair; family | "
    "false, shared draws: pair; family | false, another loss | "
    "finds 1 point: own draws, shared | finds another loss"
)


def line(design: Design, population: Population, other: Population, count: int) -> str:
    """The row of a design."""
    generator = np.random.default_rng(design.trials)
    mine, noisy = population.of(design.folds), population.of(design.folds, shared=True)
    other = other.of(design.folds)

    def run(methods: int, population: Population) -> tuple[list[Estimates], float]:
        drawn = population.scores((count, design.trials), generator, methods)
        found = [design.run_each(scores, generator) for scores in drawn]
        return [each for each, _ in found], found[0][1]

    methods = [run(1, mine)[0][0] for _ in range(3)]
    (fourth,), cost = run(1, mine)
    methods.append(fourth)
    shared, (another,) = run(4, noisy)[0], run(1, other)[0]
    truth, means = theta(design, mine), np.array([[e.mean for e in each] for each in methods])
    gap = theta(design, other) - truth
    found = [power(*p_values(*e[:2], s, 1.0)) for e, s in ((methods, 0.0), (shared, 1.0))]
    return row(
        design,
        f"{cost:.0f}",
        f"{means.std():.2f}",
        f"{means.mean() - truth:+.2f}",
        f"{covers(methods, truth)}, {covers(shared, theta(design, noisy))}",
        family(methods, 0.0),
        family(shared, 1.0),
        rate(p_values(another, fourth, lift=-gap)[0] < LEVEL),
        ", ".join(found),
        f"{gap:+.2f}: {power(*p_values(another, fourth), np.sign(gap))}",
    )


def again(design: Design, population: Population, count: int) -> str:
    """The row of the jackknife as it is, and of one that races again without each trial."""
    generator = np.random.default_rng(0)
    population = population.of(design.folds)
    (scores,) = population.scores((count, design.trials), generator)
    mean, deleted, _ = design.estimates(scores, generator)
    raced = [
        design.estimates(np.delete(scores, trial, 1), generator)[0]
        for trial in range(design.trials)
    ]
    errors = [jackknife_error(each) for each in (deleted, np.stack(raced, -1))]
    off = np.abs(mean - theta(design, population))
    reach = t_quantile(subset_degrees(design.trials, design.budget))
    return row(
        population.name,
        design,
        ", ".join(f"{np.sqrt((e**2).mean()) / mean.std():.2f}" for e in errors),
        f"{np.corrcoef(errors)[0, 1]:.2f}",
        ", ".join(f"{100 * (off <= reach * e).mean():.1f}" for e in errors),
    )


def spoken(design: Design, population: Population, count: int) -> str:
    """The row of how often the report says that an interval rests on little."""
    cells = []
    unraced = replace(design, race=(1, 1, 1), pilot=0)
    for each, by_fold in ((unraced, False), (design, True), (design, False)):
        generator = np.random.default_rng(0)
        (scores,) = population.of(each.folds).scores((count, each.trials), generator)
        said = [
            weak_evidence(
                values, {i: own[i] for i in np.flatnonzero(on).tolist()}, each.budget, estimate
            )
            for values, on, own, estimate in zip(
                *each.run(scores, by_fold)[:2],
                scores[..., 4],
                each.run_each(scores, generator)[0],
                strict=True,
            )
        ]
        found = Counter(weakness.reason for weakness in said if weakness)
        cells.append(", ".join(f"{reason} {100 * n / count:.0f}" for reason, n in found.items()))
    return row(population.name, design, *cells)


def lines(table: str, count: int) -> Iterator[str]:
    """A table."""
    banks = [read("curves_ms"), read("curves_ns")]
    ways = {
        "jackknife": (again, "error by sd: as it is, raced again | correlation | covers"),
        "weak": (spoken, "not raced | raced, stopped trials by their folds | all at one value"),
    }
    if table in ways:
        way, head = ways[table]
        yield from heading(f"of | design | {head}")
        for population in (*banks, *MADE):
            for design in designs("worlds")[1:]:
                yield way(design, population, count // 20)
    elif table == "worlds":
        for world in MADE:
            yield from heading(f"{world.name} | {HEAD}")
            yield from (line(design, world, MADE[0], count) for design in designs(table))
    else:
        if table == "curves_ns":
            banks.reverse()
        yield from heading(f"{banks[0].name} | {HEAD}")
        for design in designs("quotas" if table == "quotas" else "banks"):
            yield line(design, *banks, count)


def designs(table: str) -> list[Design]:
    """The designs of a table."""
    rows = [text.split() for text in TABLES[table].split("\n") if text.strip()]
    return [
        Design(int(t), int(n), tuple(map(float, race.split("/"))), *map(int, rest))
        for t, n, race, *rest in rows
    ]


def heading(text: str) -> tuple[str, str]:
    """The head of a table."""
    return row(text), "|---" * len(text.split("|")) + "|"


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    tables = ("quotas", "curves_ms", "curves_ns", "worlds", "jackknife", "weak")
    parser.add_argument("table", choices=tables)
    parser.add_argument("--campaigns", type=int, default=10_000)
    parser.add_argument("--quick", action="store_true", help="200 campaigns")
    options = parser.parse_args()
    count, start = 200 if options.quick else options.campaigns, time.process_time()
    for text in lines(options.table, count):
        print(text, flush=True)
    print(f"{count} campaigns, {time.process_time() - start:.0f} CPU s")


if __name__ == "__main__":
    main()

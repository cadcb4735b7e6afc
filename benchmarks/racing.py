"""What racing saves, and whether its verdicts hold: simulations on two banks and in made-up worlds.

    python benchmarks/racing.py curves_ms --quotas
    python benchmarks/racing.py curves_ms           # or curves_ns
    python benchmarks/racing.py worlds
    python benchmarks/racing.py all --jackknife
    python benchmarks/racing.py all --weak

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
import csv
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
Estimates = Sequence[Estimate]

FOLDER = Path(__file__).parent / "banks"
LEVEL = 0.05
#: Quotas and the pilot were fixed on ``curves_ms``, before ``curves_ns`` and the worlds were run.
FIXED = (0.6, 0.45, 0.36)
GREEDY = (0.5, 0.4, 0.32)
TWO_FOLDS = (0.75, 0.55)
PILOT = 16
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

    def draw(self, shape: tuple[int, int], generator: np.random.Generator) -> NDArray[np.int64]:
        """Draw which rows the trials are."""
        return generator.integers(len(self.rows), size=shape)

    def trials(self, drawn: NDArray[np.int64], generator: np.random.Generator) -> Array:
        """The scores of these rows, (*shape, 6)."""
        return self.rows[drawn] + noise(drawn.shape, *self.noises, generator)


def read(name: str) -> Bank:
    """A bank with curves."""
    with (FOLDER / f"{name}.csv").open(newline="") as file:
        table = np.array([list(map(float, line)) for line in list(csv.reader(file))[1:]])
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

    def draw(self, shape: tuple[int, int], generator: np.random.Generator) -> Array:
        """Draw hyper-parameters."""
        return generator.random((*shape, self.world.dimensions))

    def trials(self, drawn: Array, generator: np.random.Generator) -> Array:
        """The scores of trials with these hyper-parameters, (*shape, 6)."""
        score = 100 * self.world.score(drawn)
        validation, test = self.world.noise
        scores = score[..., None] + noise(score.shape, 200 * validation, 100 * test, generator)
        scores[..., 0] += self.quarter(score, drawn) - score + generator.normal(size=score.shape)
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
        race: shares of the T trials that go on after each rung but the last; empty for no race.
        retrained: how many of the best are retrained; 0 to score the search's own networks.
        drawn: how many retrainings are drawn for the difference estimator; 0 for none.
        folds: of the split.
        pilot: how many trials are not stopped at a quarter.
    """

    trials: int
    budget: int
    race: tuple[float, ...] = ()
    retrained: int = 0
    drawn: int = 0
    folds: int = 4
    pilot: int = 0

    def __str__(self) -> str:
        going_on = [math.ceil(share * self.trials - 1e-9) for share in self.race]
        text = f"{self.trials}, N = {self.budget}, "
        text += f"re {self.retrained}" if self.retrained else "own"
        text += f" and difference {self.drawn}" * bool(self.drawn)
        text += f", {self.folds} folds" * (self.folds == 2)
        text += f": {', '.join(map(str, going_on))}" * bool(going_on)
        text += " with a pilot" * bool(self.pilot)
        tested = self.retrained or [self.trials, *going_on][-1]
        lost = 1 - float(subset_weights(self.trials, self.budget)[-tested:].sum())
        return text + f" (no interval: {lost:.1%} left out)" * (lost > MAX_LEFT_OUT)

    def run(self, scores: Array) -> tuple[Array, NDArray[np.bool_], Array]:
        """Race; return by which validation trials are ranked, who has a test score, and the cost.

        The cost, (campaigns,), is without retrainings.
        """
        last = 1 + self.folds // 2
        rungs = np.moveaxis(scores, -1, 0)[: last + 1]
        value, on = rungs[0], np.ones(rungs[0].shape, dtype=bool)
        cost = np.full(len(value), value.shape[1] / 4)
        for step, share in enumerate((self.race or (1, 1, 1))[:last]):
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
        lowest = np.where(on, value, np.inf).min(-1, keepdims=True)
        value = np.where(on, value, np.minimum(value, lowest - 1e-6))
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
        drawn = population.draw((searches // 10, design.budget), generator)
        scores = population.trials(drawn, generator)
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
    "cost",
    "sd",
    "bias",
    "covers: rows, with noise",
    "false, own draws: pair; family",
    "false, shared draws: pair; family",
    "false, another loss",
    "finds 1 point: own draws, shared",
    "finds another loss",
)


def line(design: Design, population: Population, other: Population, count: int) -> str:
    """The row of a design."""
    generator = np.random.default_rng(design.trials)
    mine, noisy = population.of(design.folds), population.of(design.folds, shared=True)
    other = other.of(design.folds)

    def run(methods: int, population: Population) -> tuple[list[Estimates], float]:
        drawn = population.draw((count, design.trials), generator)
        found = [
            design.run_each(population.trials(drawn, generator), generator) for _ in range(methods)
        ]
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


PLAIN = (1, 0.4, 0.32)
DESIGNS = (
    Design(50, 10, (), 15),
    Design(50, 10, (1, 0.6, 0.44), 15),
    Design(50, 10, GREEDY, pilot=PILOT),
    Design(60, 10),
    Design(60, 10, FIXED),
    Design(60, 10, FIXED, pilot=PILOT),
    Design(60, 10, PLAIN),
    Design(64, 10, GREEDY, pilot=PILOT),
    Design(80, 10, GREEDY, pilot=PILOT),
    Design(100, 10),
    Design(100, 10, FIXED),
    Design(100, 10, GREEDY, pilot=PILOT),
    Design(100, 20, FIXED),
    Design(150, 10, GREEDY, pilot=PILOT),
    Design(60, 10, FIXED, drawn=8),
    Design(100, 10, FIXED, drawn=16),
    Design(80, 10, GREEDY, 26, pilot=PILOT),
    Design(30, 5, (0.7, 0.6, 0.55)),
    Design(16, 5, (), 16, folds=2),
    Design(16, 5, folds=2),
    *(Design(trials, 5, TWO_FOLDS, folds=2) for trials in (16, 32)),
    *(Design(trials, 5, (1, 0.55), folds=2) for trials in (16, 24, 32, 40)),
)
#: The choice was made among these, from less to more greedy.
QUOTAS = (
    *(Design(60, 10, race) for race in ((), (1, 1, 0.36), PLAIN, (0.8, 0.6, 0.45))),
    *(Design(60, 10, race) for race in ((0.7, 0.5, 0.36), FIXED, GREEDY, (0.4, 0.35, 0.32))),
    *(Design(100, 10, race) for race in (FIXED, GREEDY, (0.4, 0.35, 0.32), (0.4, 0.3, 0.22))),
    *(Design(24, 5, race, folds=2) for race in ((), TWO_FOLDS, (0.6, 0.5), (0.5, 0.5))),
)
IN_WORLDS = (
    Design(60, 10),
    Design(60, 10, FIXED),
    Design(60, 10, PLAIN),
    Design(80, 10, GREEDY, pilot=PILOT),
    Design(100, 10, GREEDY),
    Design(100, 10, GREEDY, pilot=PILOT),
    Design(32, 5, TWO_FOLDS, folds=2),
    Design(32, 5, (1, 0.55), folds=2),
)


def again(design: Design, population: Population, count: int) -> str:
    """The row of the jackknife as it is, and of one that races again without each trial."""
    generator = np.random.default_rng(0)
    population = population.of(design.folds)
    drawn = population.draw((count, design.trials), generator)
    scores = population.trials(drawn, generator)
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
    for each in (replace(design, race=(), pilot=0), design):
        generator = np.random.default_rng(0)
        drawn = population.draw((count, each.trials), generator)
        scores = population.of(each.folds).trials(drawn, generator)
        found: Counter[str] = Counter()
        rows = zip(*each.run(scores)[:2], scores[..., 4], strict=True)
        for (values, on, own), estimate in zip(
            rows, each.run_each(scores, generator)[0], strict=True
        ):
            tests = {int(trial): float(own[trial]) for trial in np.flatnonzero(on)}
            weakness = weak_evidence(values, tests, each.budget, estimate)
            found[weakness.reason if weakness else "none"] += 1
        cells.append(", ".join(f"{reason} {100 * n / count:.1f}" for reason, n in found.items()))
    return row(population.name, design, *cells)


def lines(options: argparse.Namespace) -> Iterator[str]:
    """The table that was asked for."""
    banks = {name: read(name) for name in ("curves_ms", "curves_ns")}
    count = options.campaigns
    ways = {
        again: ("error by sd: as it is, raced again", "correlation", "covers"),
        spoken: ("not raced", "raced"),
    }
    if options.jackknife or options.weak:
        way = again if options.jackknife else spoken
        yield from head("of", "design", *ways[way])
        for population in (*banks.values(), *MADE):
            yield from (way(each, population, count // 10) for each in IN_WORLDS[1:7])
    elif options.what == "worlds":
        for world in MADE:
            yield from head(world.name, *HEAD)
            yield from (line(design, world, MADE[0], count) for design in IN_WORLDS)
    else:
        bank = banks.pop(options.what)
        yield from head(bank.name, *HEAD)
        for design in QUOTAS if options.quotas else DESIGNS:
            yield line(design, bank, *banks.values(), count)


def head(*cells: str) -> tuple[str, str]:
    """The head of a table."""
    return row(*cells), "|---" * len(cells) + "|"


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("curves_ms", "curves_ns", "worlds", "all"))
    parser.add_argument("--campaigns", type=int, default=10_000)
    parser.add_argument("--quick", action="store_true", help="200 campaigns")
    parser.add_argument("--quotas", action="store_true", help="those among which was chosen")
    parser.add_argument("--jackknife", action="store_true", help="races again in each deletion")
    parser.add_argument("--weak", action="store_true", help="how often weak evidence is reported")
    options = parser.parse_args()
    if options.quick:
        options.campaigns = 200
    start = time.process_time()
    for text in lines(options):
        print(text, flush=True)
    print(f"{options.campaigns} campaigns, {time.process_time() - start:.0f} CPU s")


if __name__ == "__main__":
    main()

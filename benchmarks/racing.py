"""What racing saves, and whether its verdicts hold: simulations on two banks and in made-up worlds.

    python benchmarks/racing.py quotas
    python benchmarks/racing.py curves_ms           # or curves_ns
    python benchmarks/racing.py worlds
    python benchmarks/racing.py jackknife
    python benchmarks/racing.py images              # or phases: the banks that judge what ships
    python benchmarks/racing.py pairs               # real pairs of equal losses in these two banks
    python benchmarks/racing.py families            # fifteen equal losses

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
its own and with shared draws; and how often that to another loss is. The other loss is the other
one of the bank or of the other bank, or the world in which folds agree.

The banks ``images`` and ``phases`` come from runs of the program: two methods, each beside a copy
that shares its draws, without a race. ``benchmarks/banks/NAME.yaml`` says how to make them.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from calibration import Campaigns
from numpy.typing import NDArray
from scipy.special import betaincinv
from worlds import World, diverging, row, spike

from reality_check import load_results
from reality_check.config.metrics import PRIMARY
from reality_check.statistics import (
    Estimate,
    estimate_difference,
    jackknife_error,
    scatter_error,
    subset_degrees,
    subset_estimates,
    subset_weights,
    t_quantile,
)

Array = NDArray[np.float64]
Estimates = Sequence[Estimate]

LEVEL = 0.05
#: By table: T, N, shares that go on after each rung, retrained, drawn for the difference, folds,
#: pilot. Quotas were chosen on ``curves_ms`` (``quotas``); the pilot's rule in sight of both banks
#: and the worlds, and to do without a rung at a quarter after the worlds.
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
        80  10  0.5/0.4/0.32    26  0  4 16
        60  10  1/1/1            0  0  4  0
        60  10  0.6/0.45/0.36    0  0  4  0
        60  10  0.6/0.45/0.36    0  0  4 16
        52  10  1/0.45/0.36      0  0  4  0
        86  10  1/0.45/0.36      0  0  4  0
        118 10  1/0.45/0.36      0  0  4  0
        100 10  1/1/1            0  0  4  0
        100 10  0.6/0.45/0.36    0  0  4  0
        100 10  0.5/0.4/0.32     0  0  4 16
        100 20  0.6/0.45/0.36    0  0  4  0
        84  8   1/0.45/0.38      0  0  4  0
        32  5   1/0.6/0.55       0  0  4  0
        42  5   1/0.6/0.55       0  0  4  0
        60  10  0.6/0.45/0.36    0  8  4  0
        100 10  0.6/0.45/0.36    0 16  4  0
        16  5   1/1             16  0  2  0
        16  5   1/1              0  0  2  0
        16  5   0.75/0.55        0  0  2  0
        32  5   0.75/0.55        0  0  2  0
        16  5   1/0.55           0  0  2  0
        24  5   1/0.55           0  0  2  0
        20  5   1/0.55           0  0  2  0
        32  5   1/0.55           0  0  2  0
        32  5   1/0.65           0  0  2  0
        40  5   1/0.55           0  0  2  0
    """,
    "presets": """
        118 10  1/0.45/0.36      0  0  4  0
        32  5   1/0.6/0.55       0  0  4  0
        32  5   1/1/1            0  0  4  0
        32  5   1/0.65           0  0  2  0
        20  5   1/0.55           0  0  2  0
        50  10  1/1/1           15  0  4  0
    """,
    "pairs": """
        32  5   1/0.6/0.55       0  0  4  0
        32  5   1/0.65           0  0  2  0
        16  5   1/0.6/0.55       0  0  4  0
        16  5   1/0.55           0  0  2  0
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
        86  10  1/0.45/0.36      0  0  4  0
    """,
}
AGREES = 0.7
#: Banks from runs of the program.
OWN = ("images", "phases")


@dataclass(frozen=True, eq=False)
class Population:
    """What trials are drawn from.

    A trial has six scores: validation after a quarter of the first fold, after one, two and four
    folds, and the test scores of its own networks and of a retraining.

    Attributes:
        name: as it is printed.
        draw: draws trials, and returns what they score before noise, (*shape, 6).
        noises: standard deviations of what is added to a fold's validation and to test scores.
        training: standard deviation of repeated trainings of a row of a bank.
        diverging: share of trials.
    """

    name: str
    draw: Callable[[tuple[int, int], np.random.Generator], Array]
    noises: tuple[float, float] = (1e-6, 0.0)
    training: float = 0.0
    diverging: float = 0.0

    def of(self, folds: int, shared: bool = False) -> Population:
        """The population for searches with so many folds, whose draws are shared or not."""
        fold, test = self.noises
        more = self.training * math.sqrt((folds == 2) + shared * 4 / folds)
        return replace(self, noises=(2 * self.training * shared + fold, test + more))

    def scores(
        self, shape: tuple[int, int], generator: np.random.Generator, methods: int = 1
    ) -> Iterator[Array]:
        """Scores of methods that share their draws, each (*shape, 6)."""
        drawn = self.draw(shape, generator)
        fold, test = self.noises
        for _ in range(methods):
            normal = generator.standard_normal(drawn.shape)
            folds = [fold * normal[..., :n].mean(-1) for n in (1, 1, 2, 4)]
            scores = drawn + np.stack([*folds, *np.moveaxis(test * normal[..., 4:], -1, 0)], -1)
            if self.diverging:
                scores[generator.random(shape) < self.diverging] = 0
            yield scores


def read(name: str) -> Population:
    """A bank with curves."""
    table = np.loadtxt(f"benchmarks/banks/{name}.csv", delimiter=",", skiprows=1)
    # The columns: the trial, six checkpoints of each of four folds, two test scores.
    best = np.maximum.accumulate(table[:, 1:25].reshape(-1, 4, 6), -1)
    rungs = [best[:, 0, 1], *(best[:, :folds, -1].mean(1) for folds in (1, 2, 4))]
    rows = np.column_stack([*rungs, table[:, 25:]])
    training = float(np.std(rows[:, 4] - rows[:, 5])) / math.sqrt(2)
    return Population(name, from_rows(rows), training=training)


def read_own(name: str) -> dict[str, Population]:
    """The methods of a bank that came from a run of the program."""
    found = {}
    for method, (rows, _) in own_rows(name).items():
        noise = float(np.std(rows[:, 4] - rows[:, 5])) / math.sqrt(2)
        found[method] = Population(f"{name}: {method}", from_rows(rows), training=noise)
    return found


def own_rows(name: str) -> dict[str, tuple[Array, Array]]:
    """The scores of each method of such a bank, and those of its copy, (trials, 6)."""
    with open(f"benchmarks/banks/{name}.csv", newline="") as file:
        lines = list(csv.DictReader(file))
    found = {}
    for method in dict.fromkeys(line["method"] for line in lines):
        mine = [line for line in lines if line["method"] == method]
        rows, copies = (np.array([scores_of(line, c) for line in mine]) for c in ("", "_again"))
        found[method] = rows, copies
    return found


def from_rows(rows: Array) -> Callable[[tuple[int, int], np.random.Generator], Array]:
    """Draws rows with replacement."""
    return lambda shape, generator: rows[generator.integers(len(rows), size=shape)]


def scores_of(line: dict[str, str], copy: str = "") -> list[float]:
    """The six scores of a trial or of its copy; that of a quarter is unknown."""
    folds = [float(line[f"validation{copy}_{fold}"]) for fold in range(4)]
    tests = [float(line["test"]), float(line["test_again"])]
    rungs = [folds[0], folds[0], (folds[0] + folds[1]) / 2, sum(folds) / 4]
    return rungs + (tests[::-1] if copy else tests)


def write_own(run: str, out: str) -> None:
    """Write a bank from a run of methods with controls that share their draws, in points."""
    results = load_results(run)
    tests = {
        (row.method, row.trial): 100 * row.value
        for row in results.rows
        if (row.category, row.metric) == ("aggregate", PRIMARY)
    }
    with open(out, "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        columns = (f"{name}_{f}" for name in ("validation", "validation_again") for f in range(4))
        writer.writerow(["method", "trial", *columns, "test", "test_again"])
        methods = {method.name: method for method in results.methods}
        for copy in (method for method in results.methods if method.control_of):
            method = methods[copy.control_of]
            for trial, again in zip(method.search, copy.search, strict=True):
                index = trial.trial_index
                folds = [100 * v for v in (*trial.fold_values, *again.fold_values)]
                scores = [*folds, tests[method.name, index], tests[copy.name, index]]
                writer.writerow([method.name, index, *(f"{v:.4f}" for v in scores)])


def made(
    name: str,
    quarter: Callable[[Array, Array], Array] = lambda score, _: 0.8 * score,
    world: World | None = None,
) -> Population:
    """A world of ``benchmarks/worlds.py`` with folds, in points.

    Args:
        name: as it is printed.
        quarter: the score to expect after a quarter of a fold, from the final one and x.
        world: scores at x, and the noise of validation (of the mean of four folds) and of a test.
    """
    world = world or World(name)

    def draw(shape: tuple[int, int], generator: np.random.Generator) -> Array:
        x = generator.random((*shape, world.dimensions))
        score = 100 * world.score(x)
        first = quarter(score, x) + generator.normal(size=shape)
        return np.stack([first, *[score] * 5], -1)

    noises = (200 * world.noise[0], 100 * world.noise[1])
    return Population(name, draw, noises, diverging=world.diverging[0])


MADE = (
    made("folds agree"),
    made("folds hardly agree", world=World("", noise=(0.03, 0.005))),
    made("3 % of trials 5 points better", world=spike(0.03)),
    made("20 % of trials diverge", world=diverging(0.2)),
    made("another optimum at a quarter", lambda _, x: 24 - 10 * np.abs(x[..., 0] - 0.8)),
    made("nothing seen at a quarter", lambda score, _: 0 * score),
    made("the better, the worse at a quarter", lambda score, _: 40 - score),
    made("the best tenth is late", lambda score, _: 0.8 * score - 8 * (score > 27.8)),
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
        text = f"T = {self.trials}, N = {self.budget}, {scored}, {self.folds} folds, {self.race}"
        return text + " with a pilot" * bool(self.pilot)

    def run(self, scores: Array) -> tuple[Array, NDArray[np.bool_], Array]:
        """Race; return by which validation trials are ranked, who has a test score, and the cost.

        The cost, (campaigns,), is without retrainings.
        """
        last = 1 + self.folds // 2
        rungs = np.moveaxis(scores, -1, 0)[: last + 1]
        value, on = rungs[0], np.ones(rungs[0].shape, dtype=bool)
        cost = np.full(len(value), value.shape[1] / 4)
        for step, share in enumerate(self.race[:last]):
            ranked = np.where(on, rungs[step], -np.inf)
            on = on & (np.argsort(np.argsort(-ranked)) < share * value.shape[1] - 1e-9)
            if self.pilot and not step:
                first = rungs[:2, :, : self.pilot].argsort(-1).argsort(-1)
                squares = ((first[0] - first[1]) ** 2).sum(-1)
                agreement = 1 - 6 * squares / (self.pilot**3 - self.pilot)
                on |= (agreement < AGREES)[:, None] | (np.arange(value.shape[1]) < self.pilot)
            value = np.where(on, rungs[step + 1], value)
            cost += (0.75, 1, 2)[step] * on.sum(-1)
        lowest = np.where(on, value, np.inf).min(-1, keepdims=True) - 1e-6
        value = np.where(on, value, lowest)
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

    def errors(self, scores: Array, without: Array) -> Array:
        """The standard errors, (campaigns,), from the estimates without each trial."""
        errors = jackknife_error(without)
        if self.retrained:
            value, tested, _ = self.run(scores)
            known = np.where(tested, scores[..., 5], np.nan)
            errors = np.maximum(errors, scatter_error(value, known, self.budget))
        return errors

    def run_each(self, scores: Array, generator: np.random.Generator) -> Estimates:
        """The estimates of campaigns one by one."""
        means, without, _ = self.estimates(scores, generator)
        degrees = subset_degrees(self.trials, self.budget)
        reach, errors = t_quantile(degrees), self.errors(scores, without).tolist()
        return [
            Estimate(mean, reach * error, error, degrees, self.trials, deleted)
            for mean, error, deleted in zip(means.tolist(), errors, without, strict=True)
        ]


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


def fifteen(design: Design, population: Population, count: int) -> str:
    """How often one of fifteen equal losses with own draws is called different, after Holm.

    By Welch's test with Satterthwaite's degrees of freedom, and with those of one estimate.
    """
    generator, population = np.random.default_rng(0), population.of(design.folds)
    degrees = np.full(count, subset_degrees(design.trials, design.budget))
    losses = []
    for _ in range(15):
        (scores,) = population.scores((count, design.trials), generator)
        mean, without, _ = design.estimates(scores, generator)
        losses.append(Campaigns(mean, design.errors(scores, without), degrees))
    cells = []
    for weighted in (False, True):
        alike = [replace(loss, weighted=weighted) for loss in losses]
        p_values = np.array([a.p(b)[0] for a, b in itertools.combinations(alike, 2)])
        cells.append(rate(p_values.min(0) < LEVEL / len(p_values)))
    return row(*cells)


def covers(methods: Sequence[Estimates], truth: float) -> str:
    """How often the interval holds the truth, in percent."""
    held = [each.low <= truth <= each.high for each in itertools.chain(*methods)]
    return f"{100 * np.mean(held):.1f}"


HEAD = (
    "cost | sd | bias | covers: rows, with noise | false, own draws: pair; family | "
    "false, shared draws: pair; family | false, another loss | "
    "finds 1 point: own draws, shared | finds another loss"
)
FIFTEEN = "Satterthwaite's degrees | those of one estimate"
AGAIN = "error by sd: as it is, raced again | correlation | covers"


def other_loss(name: str) -> Population:
    """The other loss of a bank, that of the other bank, or a world."""
    twin = {"curves_ms": "curves_ns", "curves_ns": "curves_ms"}.get(name)
    if ":" not in name:
        return read(twin) if twin else MADE[0]
    (other,) = (p for p in read_own(name.partition(":")[0]).values() if p.name != name)
    return other


def line(design: Design, population: Population, count: int) -> str:
    """The row of what a design costs and finds."""
    generator = np.random.default_rng(design.trials)
    mine, noisy = population.of(design.folds), population.of(design.folds, shared=True)
    other = other_loss(population.name).of(design.folds)

    def run(population: Population, methods: int = 1) -> list[Estimates]:
        scores = population.scores((count, design.trials), generator, methods)
        return [design.run_each(each, generator) for each in scores]

    methods = [run(mine)[0] for _ in range(4)]
    shared, (another,) = run(noisy, 4), run(other)
    _, _, cost = design.estimates(*mine.scores((count, design.trials), generator), generator)
    truth, means = theta(design, mine), np.array([[e.mean for e in each] for each in methods])
    gap = theta(design, other) - truth
    found = [power(*p_values(*e[:2], s, 1.0)) for e, s in ((methods, 0.0), (shared, 1.0))]
    return row(
        f"{cost.mean():.0f}",
        f"{means.std():.2f}",
        f"{means.mean() - truth:+.2f}",
        f"{covers(methods, truth)}, {covers(shared, theta(design, noisy))}",
        family(methods, 0.0),
        family(shared, 1.0),
        rate(p_values(another, methods[3], lift=-gap)[0] < LEVEL),
        ", ".join(found),
        f"{gap:+.2f}: {power(*p_values(another, methods[3]), np.sign(gap))}",
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
        ", ".join(f"{np.sqrt((e**2).mean()) / mean.std():.2f}" for e in errors),
        f"{np.corrcoef(errors)[0, 1]:.2f}",
        ", ".join(f"{100 * (off <= reach * e).mean():.1f}" for e in errors),
    )


def lines(table: str, count: int) -> Iterator[str]:
    """A table."""
    banks = [read("curves_ms"), read("curves_ns")]
    populations = {
        "worlds": MADE,
        "curves_ms": banks[:1],
        "quotas": banks[:1],
        "curves_ns": banks[1:],
    }
    made = {name: [*read_own(name).values()] for name in OWN}
    populations |= made | {"families": [*banks, *itertools.chain(*made.values())]}
    way, text = (line, HEAD) if table in populations else (again, AGAIN)
    if table == "families":
        way, text = fifteen, FIFTEEN
    yield row("of", "design", text)
    yield "|---" * (3 + text.count("|")) + "|"
    for population in populations.get(table, (*banks, *MADE[:2])):
        for design in designs(table):
            cells = way(design, population, count // 20 if way is again else count)
            yield f"| {population.name} | {design} {cells}"


def designs(table: str) -> list[Design]:
    """The designs of a table."""
    kinds = {"curves_ms": "banks", "curves_ns": "banks", "jackknife": "worlds"}
    kinds |= dict.fromkeys((*OWN, "families"), "presets")
    rows = [text.split() for text in TABLES[kinds.get(table, table)].strip().split("\n")]
    return [
        Design(int(t), int(n), tuple(map(float, race.split("/"))), *map(int, rest))
        for t, n, race, *rest in rows
    ]


def real_pairs(bank: str, design: Design) -> Iterator[str]:
    """Equal losses whose trials are those of the bank, each used once with each kind of draws."""
    generator = np.random.default_rng(0)
    for method, both in own_rows(bank).items():
        first, again = (
            design.run_each(each.reshape(-1, design.trials, each.shape[1]), generator)
            for each in both
        )
        rolled = [*again[1:], again[0]]
        for draws, others, shared in (("own", rolled, 0.0), ("shared", again, 1.0)):
            p, means = p_values(first, others, shared)
            found = f"{(p < LEVEL).sum()} of {len(p)}, least p {p.min():.3f}"
            sizes = " ".join(f"{mean:+.2f}" for mean in means)
            yield row(f"{bank}: {method}", design, draws, found, sizes)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    tables = ("quotas", "curves_ms", "curves_ns", "worlds", "jackknife", *OWN, "pairs", "families")
    parser.add_argument("table", choices=tables)
    parser.add_argument(
        "--bank-of", metavar="RUN", help="write the bank of this run (images, phases)"
    )
    parser.add_argument("--campaigns", type=int, default=10_000)
    parser.add_argument("--quick", action="store_true", help="200 campaigns")
    options = parser.parse_args()
    if options.bank_of:
        write_own(options.bank_of, f"benchmarks/banks/{options.table}.csv")
        return
    if options.table == "pairs":
        for bank, design in itertools.product(OWN, designs("pairs")):
            print(*real_pairs(bank, design), sep="\n")
        return
    count, start = 200 if options.quick else options.campaigns, time.process_time()
    for text in lines(options.table, count):
        print(text, flush=True)
    print(f"{count} campaigns, {time.process_time() - start:.0f} CPU s")


if __name__ == "__main__":
    main()

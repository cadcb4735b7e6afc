"""How often verdicts over several data sets err, and what they find: simulations from the banks.

    python benchmarks/suites.py

A suite compares losses on D data sets, on each by all subsets of one random search. Its data sets
are methods of the banks: three each of ``caltech101_lite0`` and ``omniglot_lite0``, ``curves_ms``,
``curves_ns``, and two each of ``images`` and ``phases``, in an order in which neighbours are of
different banks. ``benchmarks/racing.py`` says how trials and their noise are drawn. Trials of the
banks with ``lite0`` have one validation score, which stands for that of every fold. The designs are
those of the presets ``features`` (T = 32, N = 5) and ``features_precise`` (T = 118, N = 10).

On a data set, losses have draws of their own, or share them. Over data sets, draws are independent,
and Fisher's test combines the data sets; or they are the *same on all*, which is the worst
dependence: all data sets are one method of a bank, with the same rows and with noise of their own.
Bonferroni's test combines these (T = 32 only), and what Fisher's would do is printed beside.
*All curves_ms*, for example, has independent draws too, but every data set is like that one, which
is hard. *Two losses* are Multi-Similarity and normalized softmax on Caltech-101, Omniglot,
``images`` and the banks with curves, moved to the same theta(N) on each.

Printed, in percent, with the exact upper 95 % bound in brackets:

1. How often anything false is said of two equal losses, and of the six pairs of four (a family);
   beside it, how often a count of separate verdicts with p < 0.05 says anything false. D = 1 is
   what a report on one data set says.
2. The same of losses that differ on some data sets only, where it is false to say that one is above
   on more. In the family, each of four losses is 10 points above the next one, on one data set.
3. How often a loss that is better by 1 or by 2 points on all data sets is above on at least 1, 2,
   ... D of them: by counting separate verdicts with p < 0.05, by what reports say, and by
   Bonferroni's test, which is to count verdicts after Holm's correction over data sets.
4. How often the interval of the mean difference holds the true one, and its half-width in points,
   beside the mean of those of single data sets.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from racing import (
    LEVEL,
    OWN,
    Array,
    Design,
    Population,
    designs,
    from_rows,
    rate,
    read,
    read_own,
    row,
    theta,
)
from scipy.special import stdtr, stdtrit

from reality_check.statistics import (
    Difference,
    adjust_pairs,
    at_least,
    jackknife_error,
    mean_over_data_sets,
    subset_degrees,
)

Counts = NDArray[np.int64]

COPIES = 4
PAIRS = tuple(itertools.combinations(range(COPIES), 2))
SIZES = (2, 3, 4)
CURVES = ("curves_ms", "curves_ns")
#: The methods of which single comparisons with draws of their own err most.
HARD = ("curves_ms", "omniglot_lite0: normalized_softmax")
#: Two losses that several banks have.
LOSSES = (
    *(
        (f"{bank}: multi_similarity", f"{bank}: normalized_softmax")
        for bank in ("caltech101_lite0", "omniglot_lite0", "images")
    ),
    CURVES,
)
#: On how many of how many data sets the first loss is better.
PARTLY = ((1, 2), (1, 3), (2, 3))


def heads(name: str) -> Iterator[Population]:
    """The methods of a bank of ``benchmarks/trial_bank.py``."""
    with open(f"benchmarks/banks/{name}.csv", newline="") as file:
        lines = list(csv.DictReader(file))
    for method in dict.fromkeys(line["method"] for line in lines):
        columns = (*["validation"] * 4, "test_0", "test_1")
        mine = [[float(line[c]) for c in columns] for line in lines if line["method"] == method]
        rows = 100 * np.array(mine)
        noise = float(np.std(rows[:, 4] - rows[:, 5])) / math.sqrt(2)
        yield Population(f"{name}: {method}", from_rows(rows), training=noise)


def worlds() -> list[Population]:
    """The methods of all banks; neighbours are of different banks."""
    caltech, omniglot = (list(heads(f"{name}_lite0")) for name in ("caltech101", "omniglot"))
    images, phases = (list(read_own(name).values()) for name in OWN)
    curves = [read(name) for name in CURVES]
    thirds = [caltech[:2], omniglot[:2], curves, images, phases]
    return [*itertools.chain(*zip(*thirds, strict=True)), caltech[2], omniglot[2]]


def differences(
    design: Design, first: tuple[Array, Array], second: tuple[Array, Array], shared: bool
) -> Array:
    """``estimate_difference`` for many campaigns: means, errors, degrees, and those of one loss."""
    (a, without_a), (b, without_b) = first, second
    own = subset_degrees(design.trials, design.budget)
    if shared:
        error = jackknife_error(without_a - without_b)
        degrees = np.full(len(a), min(own + 1, design.trials - 1))
    else:
        u, v = jackknife_error(without_a) ** 2, jackknife_error(without_b) ** 2
        error, degrees = np.sqrt(u + v), np.full(len(a), own)  # Satterthwaite's are never fewer
    return np.stack([a - b, error, degrees, np.full(len(a), own)], -1)


def compared(
    design: Design, population: Population, shared: bool, sizes: tuple[int, int], seed: int
) -> Array:
    """The differences of all pairs of copies, (data sets, pairs, campaigns, 4).

    Args:
        design: of the searches.
        population: what trials are drawn from.
        shared: whether the copies share their draws.
        sizes: the number of campaigns, and that of data sets with the same draws.
        seed: of the draws.
    """
    (count, members), generator = sizes, np.random.default_rng(seed)
    noisy = population.of(design.folds, shared=shared or members > 1)
    shape = (count, design.trials)

    def run(copies: int) -> list[tuple[Array, Array]]:
        scores = noisy.scores(shape, generator, copies)
        return [design.estimates(each, generator)[:2] for each in scores]

    runs = [run(COPIES * members)] if shared else [run(members) for _ in range(COPIES)]
    found = list(itertools.chain(*runs))

    def pair(i: int, j: int, member: int) -> Array:
        mine, other = found[i * members + member], found[j * members + member]
        return differences(design, mine, other, shared)

    return np.stack([[pair(i, j, member) for i, j in PAIRS] for member in range(members)])


@dataclass(frozen=True, eq=False)
class Bank:
    """Differences of copies of one loss, from which suites are put together.

    Attributes:
        name: as it is printed.
        values: of :func:`differences`, (worlds, data sets, pairs, campaigns, 4).
        dependent: whether the data sets of a suite have the same draws.
    """

    name: str
    values: Array
    dependent: bool

    def suites(self, size: int) -> Array:
        """Suites of so many data sets, each campaign in one: (suites, pairs, data sets, 4).

        The worlds take turns to be the first data set, and their neighbours are the others.
        """
        campaigns, chosen = np.arange(self.values.shape[3]), []
        for step in range(size):
            member, on = (step, 0) if self.dependent else (0, step)
            world = (campaigns + on) % len(self.values)
            chosen.append(self.values[world, member, :, campaigns])
        return np.stack(chosen, 2)


def above(suites: Array, lift: Array | float = 0.0, separate: bool = False) -> Array:
    """One-sided p-values of "the first loss is above", where it is ``lift`` better, (..., D).

    They are those of :func:`one_sided_p`, or those of ``separate`` verdicts.
    """
    mean, error, degrees, single = np.moveaxis(suites, -1, 0)
    degrees = degrees if separate else np.minimum(degrees, single)
    return np.asarray(stdtr(degrees, -(mean + lift) / error))


def stated(p: Array, independent: bool) -> Counts:
    """On how many data sets the one is said to be above, and below: (suites, pairs, 2)."""
    found = np.zeros((*p.shape[:2], 2), dtype=np.int64)
    # The p-value of a combination is at least the product of those that it combines.
    least = np.minimum(p.prod(-1), (1 - p).prod(-1)).min(-1)
    for suite in np.flatnonzero(least < LEVEL / 2):
        sides = [
            (at_least(pair, independent), at_least([1 - each for each in pair], independent))
            for pair in p[suite].tolist()
        ]
        found[suite] = [
            [sum(each < LEVEL for each in side) for side in pair] for pair in adjust_pairs(sides)
        ]
    return found


def counted(p: Array) -> Counts:
    """The same by counting separate verdicts, without any correction."""
    return np.stack([(p < LEVEL / 2).sum(-1), (p > 1 - LEVEL / 2).sum(-1)], -1)


def wrong(found: Counts, true: int = 0) -> NDArray[np.bool_]:
    """Whether anything false is said, if the first is above on ``true`` data sets: (suites,)."""
    return np.any((found[..., 0] > true) | (found[..., 1] > 0), axis=-1)


# -- the tables ----------------------------------------------------------------------------------


def equal(banks: Sequence[Bank]) -> Iterator[list[str]]:
    """A loss and itself, or two losses that score the same."""
    yield ["suite", "D", "test", "pair", "family", "counted: pair", "counted: family"]
    for bank, size in itertools.product(banks, (1, *SIZES)):
        p, plain = (above(bank.suites(size), separate=one) for one in (False, True))
        families = [p[:, :1], p] if p.shape[1] > 1 else [p]
        gap = [""] * (2 - len(families))
        separate = [rate(wrong(counted(plain[:, : each.shape[1]]))) for each in families]
        tests = ("Bonferroni", "Fisher") if bank.dependent else ("Fisher",)
        for test in tests:
            said = [rate(wrong(stated(each, test == "Fisher"))) for each in families]
            yield [bank.name, str(size), test, *said, *gap, *separate, *gap]


def partly(banks: Sequence[Bank]) -> Iterator[list[str]]:
    """A loss that is better on some data sets only."""
    points = (1, 3, 10)
    yield [
        "suite", "better on", *(f"by {n}" for n in points),
        *(f"counted: by {n}" for n in points), "family",
    ]  # fmt: skip
    for bank, (better, size) in itertools.product(banks, PARTLY):
        suites, on = bank.suites(size), (np.arange(size) < better).astype(np.float64)
        pairs = [above(suites[:, :1], n * on) for n in points]
        # Of losses i and j, the first is j - i times 10 points above.
        lifts = np.array([[10.0 * (j - i)] for i, j in PAIRS]) * on
        family = stated(above(suites, lifts), not bank.dependent)
        yield [
            bank.name,
            f"{better} of {size}",
            *(rate(wrong(stated(p, not bank.dependent), better)) for p in pairs),
            *(rate(wrong(counted(above(suites[:, :1], n * on, True)), better)) for n in points),
            rate(wrong(family, better)),
        ]


def powers(banks: Sequence[Bank]) -> Iterator[list[str]]:
    """A loss that is better on all data sets."""
    yield ["suite", "D", "points", "a separate verdict", "counted", "said", "by Bonferroni"]
    for bank, size, points in itertools.product(banks, SIZES, (1, 2)):
        p, plain = (above(bank.suites(size)[:, :1], points, one) for one in (False, True))
        separate = f"{100 * (plain < LEVEL / 2).mean():.0f}"
        ways = [counted(plain), stated(p, not bank.dependent), stated(p, False)]
        cells = [
            ", ".join(f"{100 * (found[:, 0, 0] > u).mean():.0f}" for u in range(size))
            for found in ways
        ]
        yield [bank.name, str(size), str(points), separate, *cells]


def means(banks: Sequence[Bank]) -> Iterator[list[str]]:
    """The mean difference."""
    yield ["suite", "D", "covers", "half-width", "of single data sets"]
    for bank, size in itertools.product(banks, SIZES):
        suites = bank.suites(size)
        found = [mean_over_data_sets(each, not bank.dependent) for each in first_pairs(suites)]
        width = np.array([each.half_width for each in found])
        held = np.abs([each.mean for each in found]) <= width
        _, error, degrees, _ = np.moveaxis(suites[:, 0], -1, 0)
        single = (stdtrit(degrees, 1 - LEVEL / 2) * error).mean()
        numbers = f"{100 * held.mean():.1f}", f"{width.mean():.2f}", f"{single:.2f}"
        yield [bank.name, str(size), *numbers]


def first_pairs(suites: Array) -> list[list[Difference]]:
    """The differences of the first pair on the data sets of each suite."""
    return [
        [Difference(mean, None, None, (0, 0), error, free) for mean, error, free, _ in data_sets]
        for data_sets in suites[:, 0].tolist()
    ]


def banks_of(count: int) -> Iterator[Bank]:
    """What the tables are about."""
    populations = worlds()
    for design, shared in itertools.product(designs("presets")[:2], (False, True)):
        small = design.trials == 32
        for members in (1, 4) if small else (1,):
            values = np.stack(
                [
                    compared(design, population, shared, (count, members), seed)
                    for seed, population in enumerate(populations)
                ]
            )
            name = f"T = {design.trials}, {'shared' if shared else 'own'} draws"
            if members > 1:
                name += ", the same on all data sets"
            yield Bank(name, values, members > 1)


def hard_banks(count: int) -> Iterator[Bank]:
    """Suites whose data sets are all like one of the methods that err most."""
    found = {population.name: population for population in worlds()}
    for design, name in itertools.product(designs("presets")[:2], HARD):
        values = [
            compared(design, found[name], False, (count, 1), 100 + seed)
            for seed in range(max(SIZES))
        ]
        yield Bank(f"T = {design.trials}, own draws, all {name}", np.stack(values), False)


def other_losses(count: int) -> Iterator[Bank]:
    """Two losses that score the same on each data set, with draws of their own."""
    found = {population.name: population for population in worlds()}
    for design in designs("presets")[:2]:
        values = []
        for seed, pair in enumerate(LOSSES):
            generator = np.random.default_rng(200 + seed)
            both = [found[name].of(design.folds) for name in pair]
            scores = [next(each.scores((count, design.trials), generator)) for each in both]
            first, second = (design.estimates(each, generator)[:2] for each in scores)
            gap = theta(design, both[0]) - theta(design, both[1])
            values.append(differences(design, first, second, False) - [gap, 0.0, 0.0, 0.0])
        yield Bank(f"T = {design.trials}, two losses", np.array(values)[:, None, None], False)


def show(rows: Sequence[Sequence[str]]) -> None:
    """Print a table with columns of equal width."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for line in [rows[0], ["-" * width for width in widths], *rows[1:]]:
        print(row(*(cell.ljust(width) for cell, width in zip(line, widths, strict=True))))
    print(flush=True)


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--campaigns", type=int, default=10_000, help="suites a row")
    options = parser.parse_args()
    start = time.process_time()
    banks = list(banks_of(options.campaigns))
    more = [*hard_banks(options.campaigns), *other_losses(options.campaigns)]
    for table in (equal, partly, powers, means):
        print(f"{table.__doc__}\n")
        show(list(table(banks if table in (partly, powers) else [*banks, *more])))
    print(f"{options.campaigns} suites a row, {time.process_time() - start:.0f} CPU s")


if __name__ == "__main__":
    main()

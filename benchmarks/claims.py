"""What ``reality-check claim`` is worth: made-up tables of banks of trials, whose truth is known.

    python benchmarks/claims.py benchmarks/banks/*.csv
    python benchmarks/claims.py benchmarks/banks/*.csv --measure

A table has six methods. Each is a population of a bank (``benchmarks/calibration.py``), moved by
some points, so that its expected score after a search of N trials, theta, is known exactly. In half
of the tables all are equal, in the others apart by normal numbers with an sd of 2 points. Every
method is searched once and its winner retrained n times; with "selected on test" the printed score
is the best of the N trials on the test classes.

A table is **right** if no gain is called distinguishable whose true difference is nil or has the
other sign. Since p < 0.05 after Holm's correction, at most 5 % of tables may be wrong. Printed
beside it is how often a true difference is found, and in how many tables of equal losses a rule is
right that knows the luck of seeds alone. ``--elsewhere`` takes the luck of searches from the other
bank, as a user of another data set does. ``--measure`` prints numbers of ``configs/noise.yaml``.
"""

from __future__ import annotations

import argparse
import itertools
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from calibration import Population, read, row

from reality_check.papers.gains import Noise, judge_gains, noise_of, pooled
from reality_check.papers.printed_tables import PrintedTable, TableRow

METHODS = 6
BUDGETS = (10, 50)
#: Networks of which a score of the banks is the mean: their folds.
FOLDS = 2


@dataclass(frozen=True)
class Kind:
    """How the tables of a kind are made.

    Attributes:
        name: as it is printed.
        retrainings: of each winner.
        budget: trials of each search.
        prints_sd: whether the table has their sd.
        on_test: whether the test classes chose.
        one_population: whether all methods are one population, moved; else each is any of the bank.
    """

    name: str
    retrainings: int = 5
    budget: int = 10
    prints_sd: bool = True
    on_test: bool = False
    one_population: bool = True


KINDS = (
    Kind("5 retrainings, sd printed"),
    Kind("10 retrainings, sd printed, searches of 50", 10, 50),
    Kind("1 training, no sd (given by --seed-sd)", 1, prints_sd=False),
    Kind("5 retrainings, other losses", one_population=False),
    Kind("1 training, selected on test", 1, prints_sd=False, on_test=True),
)


@dataclass(frozen=True)
class Made:
    """A table, and the true theta of each method."""

    table: PrintedTable
    truth: dict[str, float]
    seed_sd: float | None


def make(methods: Sequence[Population], kind: Kind, spread: float, seed: int) -> Made:
    """A table whose methods are apart by normal numbers of this sd, or all equal for 0."""
    draw = np.random.default_rng(seed)
    one = methods[draw.integers(len(methods))]
    rows, truth = [], {}
    for number in range(METHODS):
        who = one if kind.one_population else methods[draw.integers(len(methods))]
        name, moved = f"m{number}", float(draw.normal(0, spread)) if spread else 0.0
        truth[name] = one.theta(kind.budget) + moved
        shift = truth[name] - who.theta(kind.budget)
        scores = shift + _printed(who, kind, draw)
        printed = float(scores.std(ddof=1)) if kind.prints_sd else None
        rows.append(
            TableRow(
                method=name, metric="MAP@R", mean=float(scores.mean()), n=len(scores), sd=printed,
                trials=kind.budget, networks=FOLDS,
                selected_on="test" if kind.on_test else "validation",
            )
        )  # fmt: skip
    sd = None if kind.prints_sd else training_sd(one)
    return Made(PrintedTable("made up", "", tuple(rows)), truth, sd)


def _printed(who: Population, kind: Kind, draw: np.random.Generator) -> np.ndarray:
    trials = who.ranks((kind.budget,), draw)
    if kind.on_test:
        return (who.worth(trials, draw) + who.retraining(trials, draw)).max(keepdims=True)
    winner = trials.max(keepdims=True)
    winners = np.repeat(winner, kind.retrainings)
    return who.worth(winner, draw) + who.retraining(winners, draw)


def training_sd(who: Population) -> float:
    """The sd of training one network, of winners of searches."""
    draw = np.random.default_rng(0)
    winners = who.ranks((20_000, BUDGETS[0]), draw).max(-1)
    return float(who.retraining(winners, draw).std()) * math.sqrt(FOLDS)


def measured(who: Population, budget: int) -> tuple[float, float]:
    """The luck of a search, and what selection on test adds, in sds of training one network."""
    draw = np.random.default_rng(1)
    trials = who.ranks((20_000, budget), draw)
    search = who.worth(trials.max(-1), draw).std()
    best = (who.worth(trials, draw) + who.retraining(trials, draw)).max(-1).mean()
    one = training_sd(who)
    return float(search / one), float((best - who.theta(budget)) / one)


@dataclass
class Count:
    """Of tables and their comparisons."""

    tables: int = 0
    wrong: int = 0
    different: int = 0
    found: int = 0
    settings_wrong: int = 0

    def add(self, made: Made, noise: Noise) -> None:
        """Judge a table and compare with the truth."""
        wrong = settings = False
        for gain in judge_gains(made.table, noise):
            true = made.truth[gain.first.method] - made.truth[gain.second.method]
            right = true > 1e-9  # the first is printed higher
            self.different += abs(true) > 1e-9
            if gain.outcome == "distinguishable":
                self.found += right
                wrong |= not right
            settings |= gain.outcome != "not distinguishable" and not right
        self.tables += 1
        self.wrong += wrong
        self.settings_wrong += settings


def run(
    banks: Sequence[Sequence[Population]], kind: Kind, spread: float, tables: int, elsewhere: bool
) -> Count:
    """Judge tables of all banks in turn, by their noise or by that of the other banks alone."""
    places = range(len(banks)) if elsewhere else ()
    noises = [noise_elsewhere(banks, place, kind.budget) for place in places]
    count = Count()
    for number in range(tables):
        place = number % len(banks)
        made = make(banks[place], kind, spread, number)
        noise = noise_of(made.table, made.seed_sd)
        if elsewhere:
            other = noises[place]
            noise = replace(noise, search=other.search, selection=other.selection)
        count.add(made, noise)
    return count


def noise_elsewhere(banks: Sequence[Sequence[Population]], place: int, budget: int) -> Noise:
    """The noise as the banks but one show it."""
    found = [measured(m, budget) for i, bank in enumerate(banks) if i != place for m in bank]
    search = pooled([ratio**2 for ratio, _ in found], "the other bank")
    return Noise(search, search, max(added for _, added in found))


def table_of_results(
    banks: Sequence[Sequence[Population]], tables: int, elsewhere: bool
) -> Iterator[str]:
    """A row for each kind of table: equal methods, and methods that differ."""
    head = ("equal: right", "differing: right", "found", "seeds alone, equal: right")
    yield row("tables of six methods", *head)
    yield "|---" * 5 + "|"
    for kind in KINDS:
        none = run(banks, kind, 0.0, tables, elsewhere)
        some = run(banks, kind, 2.0, tables, elsewhere)
        yield row(
            kind.name,
            f"{100 * (1 - none.wrong / none.tables):.1f}",
            f"{100 * (1 - some.wrong / some.tables):.1f}",
            f"{100 * (some.found / some.different):.1f}",
            f"{100 * (1 - none.settings_wrong / none.tables):.1f}",
        )


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("banks", type=Path, nargs="+")
    parser.add_argument("--tables", type=int, default=400)
    parser.add_argument("--elsewhere", action="store_true", help="noise of the other banks alone")
    parser.add_argument("--measure", action="store_true", help="the numbers of configs/noise.yaml")
    options = parser.parse_args()
    start = time.process_time()
    banks = [read(bank) for bank in options.banks]
    if options.measure:
        for budget in BUDGETS:
            found = [measured(method, budget) for method in itertools.chain(*banks)]
            for name, values in zip(("search", "selection"), zip(*found, strict=True), strict=True):
                print(f"{budget} {name}: [{', '.join(f'{value:.2f}' for value in values)}]")
        return
    print("\n".join(table_of_results(banks, options.tables, options.elsewhere)))
    print(f"\n{options.tables} tables in each cell, {time.process_time() - start:.0f} CPU s")


if __name__ == "__main__":
    main()

"""What ``reality-check claim`` is worth: made-up tables of banks of trials, whose truth is known.

    python benchmarks/claims.py benchmarks/banks/*_lite0.csv
    python benchmarks/claims.py benchmarks/banks/*_lite0.csv --elsewhere
    python benchmarks/claims.py benchmarks/banks/*_lite0.csv --measure

A table has six methods. Each is a population of a bank (``benchmarks/calibration.py``), moved by
some points, so that its expected score after a search of N trials, theta, is known exactly. In half
of the tables all are equal, in the others apart by normal numbers with an sd of 2 points. Every
method is searched once and its winner retrained n times; with "selected on test" the printed score
is the best of the N trials on the test classes.

Four questions are asked of each table: every pair; one method, named beforehand, with each other
one; the method with the highest mean with each other one, as the tool corrects it; and the same,
corrected as if the method had been named beforehand.

A table is **right** if no gain is called distinguishable whose true difference is nil or has the
other sign. Since corrected p-values below 0.05 count, at most 5 % of tables may be wrong. Its
intervals **hold** if all of them do. Printed beside it is how often a true difference is found, and
in how many tables of equal losses a rule is right that knows the luck of seeds alone.
``--elsewhere`` takes the luck of searches from the other bank, as a user of another data set does.
``--measure`` prints numbers of ``configs/noise.yaml``.
"""

from __future__ import annotations

import argparse
import itertools
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from calibration import Population, read, row

from reality_check.papers import gains
from reality_check.papers.gains import Gain, Noise, judge_gains, luck_of_searches, noise_of
from reality_check.papers.printed_tables import PrintedTable, TableRow
from reality_check.statistics import Simultaneous, simultaneous_quantile

METHODS = 6
BUDGETS = (10, 50)
#: Networks of which a score of the banks is the mean: their folds.
FOLDS = 2
QUESTIONS = ("every pair", "named beforehand", "the highest", "the highest as if named beforehand")


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
        quieter: by what the noise of a retraining is divided; a larger test set does that.
        networks: of a retraining, as the table says it.
    """

    name: str
    retrainings: int = 5
    budget: int = 10
    prints_sd: bool = True
    on_test: bool = False
    one_population: bool = True
    quieter: float = 1.0
    networks: int = FOLDS


KINDS = (
    Kind("5 retrainings, sd printed"),
    Kind("10 retrainings, sd printed, searches of 50", 10, 50),
    Kind("1 training, no sd (given by --seed-sd)", 1, prints_sd=False),
    Kind("5 retrainings, other losses", one_population=False),
    Kind("1 training, selected on test", 1, prints_sd=False, on_test=True),
    Kind("5 retrainings, a fifth of their noise", quieter=5),
    Kind("5 retrainings of 4 folds, networks left at 1", quieter=math.sqrt(2), networks=1),
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
        printed = float(scores.std(ddof=1)) or None if kind.prints_sd else None
        rows.append(
            TableRow(
                method=name, metric="MAP@R", mean=float(scores.mean()), n=len(scores), sd=printed,
                trials=kind.budget, networks=kind.networks,
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
    return who.worth(winner, draw) + who.retraining(winners, draw) / kind.quieter


def training_sd(who: Population) -> float:
    """The sd of training one network, of winners of searches."""
    draw = np.random.default_rng(0)
    winners = who.ranks((20_000, BUDGETS[0]), draw).max(-1)
    return float(who.retraining(winners, draw).std()) * math.sqrt(FOLDS)


def measured(who: Population, budget: int) -> tuple[float, float, float]:
    """The sd of training one network; in its multiples a search's luck, and selection's gain."""
    draw = np.random.default_rng(1)
    trials = who.ranks((20_000, budget), draw)
    search = who.worth(trials.max(-1), draw).std()
    best = (who.worth(trials, draw) + who.retraining(trials, draw)).max(-1).mean()
    one = training_sd(who)
    return one, float(search / one), float((best - who.theta(budget)) / one)


@dataclass
class Count:
    """Of tables and their comparisons."""

    tables: int = 0
    wrong: int = 0
    held: int = 0
    different: int = 0
    found: int = 0
    seeds_wrong: int = 0

    def add(self, found: Sequence[Gain], truth: dict[str, float]) -> None:
        """Compare the gains of a table with the truth."""
        wrong = seeds_wrong = False
        held = True
        for gain in found:
            true = truth[gain.first.method] - truth[gain.second.method]
            right = true * gain.difference > 1e-9
            self.different += abs(true) > 1e-9
            if gain.outcome == "distinguishable":
                self.found += right
                wrong |= not right
            held &= abs(gain.difference - true) <= gain.half_width
            seeds_wrong |= abs(gain.difference) > gain.half_width_seeds and not right
        self.tables += 1
        self.wrong += wrong
        self.held += held
        self.seeds_wrong += seeds_wrong


def answers(table: PrintedTable, noise: Noise) -> Iterator[list[Gain]]:
    """The gains of a table, for each of the questions."""
    highest = max(table.rows, key=lambda row: row.mean).method
    every = judge_gains(table, noise, "Tukey")
    yield every
    yield judge_gains(table, noise, "Dunnett", table.rows[0].method)
    yield [gain for gain in every if gain.first.method == highest]
    yield judge_gains(table, noise, "Dunnett", highest)


def run(
    banks: Sequence[Sequence[Population]], kind: Kind, spread: float, tables: int, elsewhere: bool
) -> list[list[Count]]:
    """For each question and bank, of tables judged by their noise or by that of the other banks."""
    counts = [[Count() for _ in banks] for _ in QUESTIONS]
    for place, bank in enumerate(banks):
        others = [m for i, other in enumerate(banks) if i != place for m in other]
        luck = [measured(m, kind.budget) for m in others] if elsewhere else []
        for number in range(place, tables, len(banks)):
            made = make(bank, kind, spread, number)
            noise = noise_of(made.table, made.seed_sd)
            if luck:
                sds, search, selection = zip(*luck, strict=True)
                there = luck_of_searches(noise.network, sds, kind.budget, search, selection)
                noise = Noise(noise.network, *there)
            for of_banks, found in zip(counts, answers(made.table, noise), strict=True):
                of_banks[place].add(found, made.truth)
    return counts


def share(counts: Sequence[Count], of: str, among: str = "tables") -> str:
    """Percent of the tables, or comparisons, of all banks."""
    return (
        f"{100 * sum(getattr(c, of) for c in counts) / sum(getattr(c, among) for c in counts):.1f}"
    )


def right(count: Count) -> str:
    """Percent of tables that are right."""
    return f"{100 * (1 - count.wrong / count.tables):.1f}"


def table_of_results(
    banks: Sequence[Sequence[Population]], tables: int, elsewhere: bool
) -> Iterator[str]:
    """A row for each kind of table: equal methods, then methods that differ."""
    kinds = [
        (
            kind,
            run(banks, kind, 0.0, tables, elsewhere),
            run(banks, kind, 2.0, tables // 2, elsewhere),
        )
        for kind in KINDS
    ]
    yield row("six equal methods: right, by bank", *QUESTIONS, "every pair, seeds alone")
    yield "|---" * (2 + len(QUESTIONS)) + "|"
    for kind, none, _ in kinds:
        cells = (", ".join(map(right, of_banks)) for of_banks in none)
        alone = 100 - float(share(none[0], "seeds_wrong"))
        yield row(kind.name, *cells, f"{alone:.1f}")
    yield ""
    yield row("six methods that differ: right, hold, found", *QUESTIONS)
    yield "|---" * (1 + len(QUESTIONS)) + "|"
    for kind, _, some in kinds:
        yield row(
            kind.name,
            *(
                f"{100 - float(share(counts, 'wrong')):.1f}, {share(counts, 'held')}, "
                f"{share(counts, 'found', 'different')}"
                for counts in some
            ),
        )


def judge_quickly() -> None:
    """Replace what takes most of the time.

    A corrected p-value is below 0.05 exactly if t is above the critical value, which is computed
    once for all degrees of freedom that round to the same tenth. The number of searches that a
    difference needs is not judged here.
    """

    def critical(degrees: float, methods: int, test: Simultaneous) -> float:
        return simultaneous_quantile(round(degrees, 1), methods, test)

    gains.simultaneous_quantile = critical
    gains.simultaneous_p = lambda t, *family: float(abs(t) <= critical(*family))
    gains.searches_for = lambda *_: None


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
            names = ("network", "search", "selection")
            for name, values in zip(names, zip(*found, strict=True), strict=True):
                print(f"{budget} {name}: [{', '.join(f'{value:.2f}' for value in values)}]")
        return
    judge_quickly()
    print("\n".join(table_of_results(banks, options.tables, options.elsewhere)))
    tables = (
        f"{options.tables} tables of equal methods, {options.tables // 2} of methods that differ"
    )
    print(f"\n{tables}, {time.process_time() - start:.0f} CPU s")


if __name__ == "__main__":
    main()

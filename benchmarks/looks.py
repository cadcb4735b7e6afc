"""Stopping as soon as the answer is clear: what it saves, and that errors stay below 5 %.

    python benchmarks/looks.py benchmarks/banks/caltech101_lite0.csv
    python benchmarks/looks.py benchmarks/banks/omniglot_lite0.csv

A campaign is looked at several times while it grows, and ends where a difference is found. Who
does that at p < 0.05 each time finds too much. Here the level is spent by the function of Lan and
DeMets (1983) that resembles O'Brien and Fleming's rule, on each side 2 - 2 Phi(z / sqrt(t)) at a
share t of the largest campaign: a difference counts at look k where Welch's p is below the nominal
level of that look, which follows from the joint normal distribution of the looks. That p-values of
Student's t are compared with levels of a normal distribution is an approximation, and so is the
growth by shares of trials; the bank (``benchmarks/calibration.py``) shows what they are worth.

Printed by division: the nominal levels, and in percent how often a method is called different from
itself at any look (one pair; any of the six pairs of four, at a sixth of the level), and how often
without the correction; for every pair of methods of the bank how often the difference is found, at
the one look of a fixed campaign and at any look, and the mean share of the trainings spent.

Last, campaigns of four methods as ``protocol.search.looks`` ends them, where one method stands
above all others by Welch's tests at the spent level after Holm's correction: the best of two
methods of the bank and three copies of the other. How often that is found, with which share of the
searches; how often two copies are called different there; how often the repeated interval of the
difference from one copy holds the truth, and by how many points that difference is too large on
average.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from calibration import FAMILY, LEVEL, Array, Campaigns, Population, read, row

from reality_check.statistics import (
    jackknife_error,
    nominal_levels,
    subset_degrees,
    subset_estimates,
)

BUDGET = 10


@dataclass(frozen=True)
class Growing:
    """A division of a budget that is looked at while it grows.

    Attributes:
        name: as it is printed.
        looks: sizes, the last one the largest: searches, or trials of one search.
        draw: estimates of campaigns at every look.
    """

    name: str
    looks: tuple[int, ...]
    draw: Callable[[Population, int, np.random.Generator], list[Campaigns]]

    @property
    def shares(self) -> Array:
        """How much of the largest campaign each look has seen."""
        return np.array(self.looks) / self.looks[-1]


def searches(*looks: int) -> Growing:
    """Searches of 10 trials, 2 retrainings each."""

    def draw(method: Population, count: int, generator: np.random.Generator) -> list[Campaigns]:
        winners = method.ranks((count, looks[-1], BUDGET), generator).max(-1, keepdims=True)
        repeats = np.repeat(winners, 2, -1)
        units = (method.worth(winners, generator) + method.retraining(repeats, generator)).mean(-1)
        found = []
        for seen in looks:
            error = units[:, :seen].std(-1, ddof=1) / np.sqrt(seen)
            found.append(Campaigns(units[:, :seen].mean(-1), error, np.full(count, seen - 1.0)))
        return found

    return Growing(f"searches of 10, looks at {_listed(looks)}", looks, draw)


def trials(*looks: int) -> Growing:
    """All subsets of one search, the best 30 % retrained once, N = 10."""

    def draw(method: Population, count: int, generator: np.random.Generator) -> list[Campaigns]:
        drawn = method.ranks((count, looks[-1]), generator)
        scores = method.worth(drawn, generator) + method.retraining(drawn, generator)
        found = []
        for seen in looks:
            order = np.argsort(drawn[:, :seen], -1)
            ranks = np.take_along_axis(drawn, order, -1)
            kept = np.take_along_axis(scores, order, -1)
            kept[:, : seen - 3 * seen // 10] = np.nan
            mean, deleted = subset_estimates(ranks, kept, BUDGET)
            degrees = np.full(count, subset_degrees(seen, BUDGET))
            found.append(Campaigns(mean, jackknife_error(deleted), degrees))
        return found

    return Growing(f"trials of one search, looks at {_listed(looks)}", looks, draw)


def _listed(looks: Sequence[int]) -> str:
    return ", ".join(map(str, looks))


GROWING = (
    searches(5, 10),
    searches(3, 5, 10),
    searches(4, 6, 8, 10),
    searches(5, 10, 15, 20),
    trials(30, 50),
    trials(30, 50, 100),
)


@dataclass(frozen=True)
class Found:
    """Of many campaigns of a pair: found at any look, with the right sign, and at which look."""

    any_look: Array
    first: Array

    @staticmethod
    def of(
        one: Sequence[Campaigns], other: Sequence[Campaigns], levels: Sequence[float], sign: float
    ) -> Found:
        """Look by look; ``sign`` 0 takes differences in either direction."""
        hits = []
        for a, b, level in zip(one, other, levels, strict=True):
            p_values, gaps = a.p(b)
            hits.append((p_values < level) & ((sign == 0) | (np.sign(gaps) == sign)))
        crossed = np.array(hits)
        last = len(levels) - 1
        return Found(crossed.any(0), np.where(crossed.any(0), crossed.argmax(0), last))


def answers(
    methods: Sequence[Population], kinds: Sequence[Growing], campaigns: int, seed: int
) -> Iterator[str]:
    """All tables."""
    drawn = {}
    for kind in kinds:
        generator = np.random.default_rng(seed)
        drawn[kind.name] = {
            m.name: [kind.draw(m, campaigns, generator) for _ in range(FAMILY)] for m in methods
        }
    yield row("division", "nominal levels", *(f"{m.name}: pair, family, naive" for m in methods))
    yield "|---" * (2 + len(methods)) + "|"
    for kind in kinds:
        levels = nominal_levels(kind.shares)
        cells = [false_findings(drawn[kind.name][m.name], kind) for m in methods]
        yield row(kind.name, ", ".join(f"{level:.2g}" for level in levels), *cells)
    yield ""
    pairs = list(itertools.combinations(methods, 2))
    yield row("division", *(f"{a.name} and {b.name}" for a, b in pairs))
    yield "|---" * (1 + len(pairs)) + "|"
    for kind in kinds:
        yield row(kind.name, *(power(drawn[kind.name], kind, a, b) for a, b in pairs))
    yield ""
    yield row("division", *(f"{a.name} and {b.name}" for a, b in pairs))
    yield "|---" * (1 + len(pairs)) + "|"
    for kind in kinds:
        if kind.name.startswith("searches"):
            yield row(kind.name, *(ended(drawn[kind.name], kind, a, b) for a, b in pairs))


def rejected(p_values: Array, levels: Sequence[float]) -> Array:
    """Holm's step-down test, shape (pairs, campaigns); levels for the smallest p-value first."""
    order = np.argsort(p_values, axis=0)
    below = np.take_along_axis(p_values, order, 0) < np.array(levels)[:, None]
    found = np.zeros_like(below)
    np.put_along_axis(found, order, np.logical_and.accumulate(below, axis=0), 0)
    return found


def ended(
    drawn: dict[str, list[list[Campaigns]]], kind: Growing, first: Population, second: Population
) -> str:
    """Campaigns of the better method and three copies of the other, as the program ends them."""
    best, copied = sorted((first, second), key=lambda method: -method.theta(BUDGET))
    truth = best.theta(BUDGET) - copied.theta(BUDGET)
    methods = [drawn[best.name][0], *drawn[copied.name][:3]]
    pairs = list(itertools.combinations(range(4), 2))
    by_rank = [nominal_levels(kind.shares, LEVEL / (len(pairs) - i)) for i in range(len(pairs))]
    own = nominal_levels(kind.shares)
    count = len(methods[0][0].mean)
    running, at = np.ones(count, bool), dict.fromkeys(("right", "false", "holds"), 0)
    spent, excess = 0.0, 0.0
    for look, share in enumerate(kind.shares):
        seen = [method[look] for method in methods]
        tested = [seen[a].p(seen[b]) for a, b in pairs]
        found = rejected(np.array([p for p, _ in tested]), [levels[look] for levels in by_rank])
        leader = np.argmax([one.mean for one in seen], axis=0)
        involved = np.array([np.isin(leader, pair) for pair in pairs])
        decided = (found | ~involved).all(0)
        end = running & (decided if share < 1 else True)
        gaps, shifted = tested[0][1], seen[0].p(seen[1], -truth)[0]
        at["right"] += (end & decided & (leader == 0)).sum()
        at["false"] += (end & found[[0 not in pair for pair in pairs]].any(0)).sum()
        at["holds"] += (end & (shifted >= own[look])).sum()
        spent, excess = spent + share * end.sum(), excess + (gaps[end] - truth).sum()
        running &= ~end
    shares = (at["right"], spent, at["false"], at["holds"])
    text = "{:.0f}, {:.0f}, {:.1f}, {:.1f}".format(*(100 * part / count for part in shares))
    return f"+{truth:.2f}: {text}, {excess / count:+.2f}"


def false_findings(family: Sequence[Sequence[Campaigns]], kind: Growing) -> str:
    """A method against itself: with the levels spent, and with 5 % at every look."""
    pairs = list(itertools.combinations(family, 2))
    levels, sixth = (nominal_levels(kind.shares, LEVEL / n) for n in (1, len(pairs)))
    single = np.mean([Found.of(a, b, levels, 0).any_look for a, b in pairs])
    any_pair = np.any([Found.of(a, b, sixth, 0).any_look for a, b in pairs], axis=0).mean()
    naive = [LEVEL] * len(levels)
    peeked = np.mean([Found.of(a, b, naive, 0).any_look for a, b in pairs])
    return ", ".join(f"{100 * share:.1f}" for share in (single, any_pair, peeked))


def power(
    drawn: dict[str, list[list[Campaigns]]], kind: Growing, first: Population, second: Population
) -> str:
    """Found by the largest campaign alone and at any look, and the share of trainings spent."""
    truth = first.theta(BUDGET) - second.theta(BUDGET)
    levels, fixed = nominal_levels(kind.shares), [0.0] * (len(kind.looks) - 1) + [LEVEL]
    pairs = list(itertools.product(drawn[first.name], drawn[second.name]))
    growing = [Found.of(a, b, levels, np.sign(truth)) for a, b in pairs]
    once = [Found.of(a, b, fixed, np.sign(truth)).any_look for a, b in pairs]
    spent = np.mean([kind.shares[found.first] for found in growing])
    found = np.mean([one.any_look for one in growing])
    sign = "−" if truth < 0 else "+"
    shares = (np.mean(once), found, spent)
    return f"{sign}{abs(truth):.2f}: " + ", ".join(f"{100 * share:.0f}" for share in shares)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("bank", type=Path)
    parser.add_argument("--campaigns", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    start = time.process_time()
    print("\n".join(answers(read(options.bank), GROWING, options.campaigns, options.seed)))
    print(f"\n{options.campaigns} campaigns a method, {time.process_time() - start:.0f} CPU s")


if __name__ == "__main__":
    main()

"""What a sample cannot show: intervals in 26 worlds, and whether the report warns of weak ones.

    python benchmarks/worlds.py

In a world, a trial has hyper-parameters x, uniform in the unit cube, a validation score f(x) +
noise and, once retrained, a test score g(x) + noise. Where nothing else is said, x has two
dimensions, f = g = 0.30 - 0.12 |x - 0.5|, and the standard deviation of both noises is 0.005.
Worlds differ in one thing that may mislead an interval: trials or retrainings diverge, scores are
rounded, a small region is much better.

Printed, for each world and design: how often the 95 % interval holds theta(N), the expected test
score of the winner of a search of N trials; in how many campaigns the sample holds the cause of
the trouble; and how often ``weak_evidence`` gives a reason among the campaigns that hold it, and
among the others. The cause is held where trials with it, for example of the better region, win at
least one in a hundred searches of N of these trials; rounding and repeated settings always are.

The thresholds of ``weak_evidence`` were chosen on every second world (``--half fit``), and judged
on the others (``--half judge``).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from reality_check.statistics import (
    Estimate,
    jackknife_error,
    scatter_error,
    subset_degrees,
    subset_estimates,
    subset_shares,
    t_quantile,
    weak_evidence,
)

Array = NDArray[np.float64]

#: Trials of a search, how many of the best are retrained, and the budget N.
DESIGNS = ((50, 15, 10), (16, 16, 5))
#: The least share of searches that trials with the cause win, where a sample holds it.
HELD = 0.01


@dataclass(frozen=True)
class Trials:
    """Validation scores, test scores of a retraining, and which trials have the cause."""

    validation: Array
    test: Array
    cause: NDArray[np.bool_]


def cone(x: Array, slope: float = 0.12) -> Array:
    """The score at x where nothing else is said."""
    return 0.30 - slope * np.linalg.norm(x - 0.5, axis=-1)


@dataclass(frozen=True)
class World:
    """A world of trials.

    Attributes:
        name: as it is printed.
        score: the score at x, before noise.
        dimensions: of x.
        noise: standard deviations of validation and of test.
        drop: what the test score at x loses, which validation does not show.
        cause: which x have the cause.
        bins: number of values of each hyper-parameter; 0 for any value.
        diverging: the shares of trials and of retrainings that diverge and score 0.
        steps: steps of validation and test scores; 0 for no rounding.
        always: whether every sample holds the cause.
        tails: degrees of freedom of the test noise, Student's; 0 for normal noise.
    """

    name: str
    score: Callable[[Array], Array] = cone
    dimensions: int = 2
    noise: tuple[float, float] = (0.005, 0.005)
    drop: Callable[[Array], Array] | None = None
    cause: Callable[[Array], NDArray[np.bool_]] | None = None
    bins: int = 0
    diverging: tuple[float, float] = (0.0, 0.0)
    steps: tuple[float, float] = (0.0, 0.0)
    always: bool = False
    tails: float = 0.0

    def trials(self, shape: tuple[int, ...], generator: np.random.Generator) -> Trials:
        """Draw trials, each with the test score of a retraining."""
        x = generator.random((*shape, self.dimensions))
        if self.bins:
            x = (np.floor(x * self.bins) + 0.5) / self.bins
        score = self.score(x)
        normal = generator.standard_normal((2, *shape))
        if self.tails:
            normal[1] = generator.standard_t(self.tails, shape)
        lost = 0.0 if self.drop is None else self.drop(x)
        scores = [score + self.noise[0] * normal[0], score - lost + self.noise[1] * normal[1]]
        scores = [
            np.clip(np.round(s / step) * step if step else s, 0, 1)
            for s, step in zip(scores, self.steps, strict=True)
        ]
        diverged = [generator.random(shape) < share for share in self.diverging]
        cause = diverged[0] | diverged[1] if self.cause is None else self.cause(x)
        validation = np.where(diverged[0], 0.0, scores[0])
        return Trials(validation, np.where(diverged[0] | diverged[1], 0.0, scores[1]), cause)

    def theta(self, budget: int, searches: int = 200_000) -> float:
        """The expected test score of the winner of a search."""
        generator, total = np.random.default_rng(1), 0.0
        for _ in range(20):
            drawn = self.trials((searches // 20, budget), generator)
            best = drawn.validation.argmax(-1)[:, None]
            total += float(np.take_along_axis(drawn.test, best, -1).mean())
        return total / 20


def region(x: Array, share: float, dimension: int = 1) -> NDArray[np.bool_]:
    """Which x lie in the first part of a hyper-parameter's range."""
    return np.asarray(x[..., dimension] < share)


def spike(share: float) -> World:
    """A small region is five points better."""
    better = partial(region, share=share)

    def score(x: Array) -> Array:
        return 0.25 - 0.05 * np.abs(x[..., 0] - 0.5) + 0.05 * better(x)

    return World(f"{share:.0%} of trials 5 points better", score, cause=better)


def working(share: float) -> World:
    """Only a part of all trials work."""

    def fails(x: Array) -> NDArray[np.bool_]:
        return ~region(x, share, 0)

    def score(x: Array) -> Array:
        return np.where(fails(x), 0.03, 0.30 - 0.1 * np.abs(x[..., 1] - 0.5))

    return World(f"{share:.0%} of trials work, the others score 3", score, cause=fails)


def diverging(trials: float = 0.0, retrainings: float = 0.0) -> World:
    """Some trainings diverge."""
    what = f"{trials:.0%} of trials" if trials else f"{retrainings:.0%} of retrainings"
    return World(f"{what} diverge", diverging=(trials, retrainings))


def cliff(x: Array) -> NDArray[np.bool_]:
    """Where the test score alone is low."""
    return np.asarray((x[..., 0] > 0.5) & (x[..., 0] < 0.6))


#: Those with even numbers are for choosing thresholds, the others judge them.
WORLDS = (
    World("a cone over two hyper-parameters"),
    World("over one, slope 0.3", partial(cone, slope=0.3), dimensions=1),
    World("over six, slope 0.15", partial(cone, slope=0.15), dimensions=6),
    diverging(0.05),
    diverging(0.2),
    diverging(0.6),
    diverging(retrainings=0.01),
    diverging(retrainings=0.05),
    diverging(retrainings=0.2),
    World("validation in steps of 1 point", steps=(0.01, 0), always=True),
    World("validation in steps of 3 points", steps=(0.03, 0), always=True),
    World("one hyper-parameter of five values", dimensions=1, bins=5, always=True),
    World("two of three values each", bins=3, always=True),
    World("validation with noise of 10 points", noise=(0.1, 0.005)),
    World("validation with noise of 3 points", noise=(0.03, 0.005)),
    World(
        "test 10 points lower in a tenth near the best",
        drop=lambda x: 0.1 * cliff(x),
        cause=cliff,
    ),
    spike(0.01),
    spike(0.03),
    spike(0.1),
    working(0.3),
    working(0.1),
    World("test noise of long tails", noise=(0.005, 0.004), tails=2),
    World("test in steps of 1 point", steps=(0, 0.01), always=True),
    World(
        "all near 100, test in steps of 0.5",
        lambda x: 1.0 - 0.01 * np.abs(x[..., 0] - 0.5),
        noise=(0.002, 0.002),
        steps=(0, 0.005),
        always=True,
    ),
    World("all settings are equal, noise of 1 point", partial(cone, slope=0), noise=(0.01, 0.01)),
    World("no noise", noise=(0, 0)),
)
HALVES = {"fit": WORLDS[::2], "judge": WORLDS[1::2], "all": WORLDS}


@dataclass(frozen=True)
class Campaigns:
    """Campaigns of a design in a world: which intervals hold, hold the cause, and are warned of."""

    covers: NDArray[np.bool_]
    holds: NDArray[np.bool_]
    speaks: NDArray[np.bool_]

    @property
    def is_sound(self) -> bool:
        """Whether intervals cover at least 90 %."""
        return float(self.covers.mean()) >= 0.9

    def cells(self) -> tuple[str, str, str, str]:
        """Coverage, share with the cause, share warned of with it, and without it, in percent."""
        return (
            f"{100 * self.covers.mean():.1f}"
            if self.is_sound
            else f"**{100 * self.covers.mean():.1f}**",
            f"{100 * self.holds.mean():.0f}",
            _percent(self.speaks[self.holds]),
            _percent(self.speaks[~self.holds]),
        )


def campaigns(
    world: World, design: tuple[int, int, int], count: int, generator: np.random.Generator
) -> Campaigns:
    """Run campaigns, each a search whose best trials are retrained."""
    trials, best, budget = design
    drawn, truth = world.trials((count, trials), generator), world.theta(budget)
    ranks = np.argsort(np.argsort(-drawn.validation, kind="stable"))
    # Diverged trials are not trained again: they score 0.
    retrained = (ranks < best) | (drawn.validation == 0)
    cause = drawn.cause & (retrained | (world.diverging[1] == 0))
    scores = np.where(retrained, drawn.test, np.nan)
    means, deleted = subset_estimates(drawn.validation, scores, budget)
    degrees = subset_degrees(trials, budget)
    scatter = scatter_error(drawn.validation, scores, budget)
    errors = np.maximum(jackknife_error(deleted), scatter)
    reaches = t_quantile(degrees) * errors
    holds, speaks = np.full(count, world.always), np.zeros(count, dtype=bool)
    for number, validation in enumerate(drawn.validation):
        kept = np.flatnonzero(retrained[number]).tolist()
        tests = dict(zip(kept, drawn.test[number, kept].tolist(), strict=True))
        estimate = Estimate(means[number], reaches[number], errors[number], degrees, trials)
        speaks[number] = weak_evidence(validation, tests, budget, estimate) is not None
        causes = np.flatnonzero(cause[number])
        if causes.size and not world.always:
            shares = subset_shares(validation, dict.fromkeys(range(trials), 0.0), budget)
            holds[number] = sum(shares[trial] for trial in causes.tolist()) >= HELD
    return Campaigns(np.abs(means - truth) <= reaches + 1e-12, holds, speaks)


def _percent(values: NDArray[np.bool_]) -> str:
    """The share in percent; a dash for fewer than 20 campaigns."""
    return f"{100 * values.mean():.0f}" if len(values) >= 20 else "-"


def rows(worlds: Sequence[World], count: int, seed: int) -> Iterator[str]:
    """The table, and what it comes to."""
    yield row("world", *(f"{t} trials, {b} retrained, N = {n}" for t, b, n in DESIGNS))
    yield "|---" * (1 + len(DESIGNS)) + "|"
    unsound, sound = [], []
    for world in worlds:
        cells = []
        for design in DESIGNS:
            found = campaigns(world, design, count, np.random.default_rng(seed))
            cells.append("; ".join(found.cells()))
            kept = found.speaks[~found.holds if found.is_sound else found.holds]
            if len(kept) >= 20:
                (sound if found.is_sound else unsound).append((float(kept.mean()), world.name))
        yield row(world.name, *cells)
    for text, found in (
        ("Least with the cause, where less than 90 % hold", sorted(unsound)[:3]),
        ("Most without it, where 90 % hold", sorted(sound)[:-4:-1]),
    ):
        yield f"{text}: " + ", ".join(f"{100 * share:.0f} ({name})" for share, name in found)


def row(*cells: object) -> str:
    """A line of a table."""
    return f"| {' | '.join(map(str, cells))} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--campaigns", type=int, default=1500)
    parser.add_argument("--half", choices=sorted(HALVES), default="all")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    start = time.process_time()
    for line in rows(HALVES[options.half], options.campaigns, options.seed):
        print(line, flush=True)
    print(f"{options.campaigns} campaigns a cell, {time.process_time() - start:.0f} CPU s")


if __name__ == "__main__":
    main()

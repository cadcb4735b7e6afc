"""False verdicts and coverage on simulated nested data, for docs/statistics.md.

    python benchmarks/nested.py

A campaign's trials have qualities that are skewed like those of a random search (a ceiling, and
many middling ones: minus exponential values). Validation shows a quality with noise, a retraining
with noise of its own. The columns differ in how much the winners of searches of 10 differ in
quality, in units of the noise of one retraining: 0, 0.5, 1 and 2. Each cell has how often a method
is called different from itself at 5 %, and how often the 95 % interval of one holds the truth.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable

import numpy as np
from calibration import LEVEL, Array, Campaigns, row

from reality_check.statistics import (
    jackknife_error,
    scatter_error,
    skew_allowance,
    subset_degrees,
    subset_estimates,
)

RATIOS = (0.0, 0.5, 1.0, 2.0)
BUDGET = 10
#: Noise of a validation value, in units of the standard deviation of the qualities.
SEEN = 0.3

Draw = Callable[[np.random.Generator, int, float], Campaigns]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--campaigns", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    start = time.process_time()
    unit_mean, unit_sd = _winners(np.random.default_rng(options.seed))
    print(row("sd between searches / of a retraining", *RATIOS))
    print("|---" * (1 + len(RATIOS)) + "|")
    for name, draw in DESIGNS.items():
        generator = np.random.default_rng(options.seed + 1)
        cells = []
        for ratio in RATIOS:
            scale = ratio / unit_sd
            first, second = (draw(generator, options.campaigns, scale) for _ in range(2))
            false = (first.p(second)[0] < LEVEL).mean()
            truth = scale * unit_mean
            covered = (first.covers(truth) + second.covers(truth)) / 2
            cells.append(f"{false:.1%}, {covered:.1%}")
        print(row(name, *cells))
    print(f"\n{options.campaigns} campaigns a cell, {time.process_time() - start:.0f} CPU s")


def _trials(generator: np.random.Generator, *shape: int) -> tuple[Array, Array]:
    """Validation values and qualities, the latter with a standard deviation of 1."""
    quality = -generator.exponential(size=shape)
    return quality + SEEN * generator.standard_normal(shape), quality


def _winners(generator: np.random.Generator) -> tuple[float, float]:
    """Mean and standard deviation of the qualities of winners."""
    validation, quality = _trials(generator, 500_000, BUDGET)
    won = np.take_along_axis(quality, validation.argmax(-1)[:, None], -1)
    return float(won.mean()), float(won.std())


def repeated(searches: int, reproductions: int) -> Draw:
    """K searches of R retrainings; of one search the unit is the retraining (the old rule)."""

    def draw(generator: np.random.Generator, campaigns: int, scale: float) -> Campaigns:
        validation, quality = _trials(generator, campaigns, searches, BUDGET)
        won = np.take_along_axis(quality, validation.argmax(-1)[..., None], -1)
        noise = generator.standard_normal((campaigns, searches, reproductions))
        scores = scale * won + noise
        units = scores[:, 0] if searches == 1 else scores.mean(-1)
        count = units.shape[-1]
        error = units.std(-1, ddof=1) / math.sqrt(count)
        allowance = skew_allowance(BUDGET) if searches > 1 else 1.0
        return Campaigns(units.mean(-1), error, np.full(campaigns, count - 1.0), allowance)

    return draw


def subsets(trials: int, best: int) -> Draw:
    """All subsets of one search, the best retrained once."""

    def draw(generator: np.random.Generator, campaigns: int, scale: float) -> Campaigns:
        validation, quality = _trials(generator, campaigns, trials)
        scores = scale * quality + generator.standard_normal(quality.shape)
        place = np.argsort(np.argsort(validation, -1), -1)
        scores[place < trials - best] = np.nan
        mean, deleted = subset_estimates(validation, scores, BUDGET)
        degrees = np.full(campaigns, subset_degrees(trials, BUDGET))
        error = np.maximum(jackknife_error(deleted), scatter_error(validation, scores, BUDGET))
        return Campaigns(mean, error, degrees, weighted=True)

    return draw


DESIGNS: dict[str, Draw] = {
    "1 search, 10 retrainings, over retrainings": repeated(1, 10),
    **{f"{k} searches, {r} each": repeated(k, r) for k, r in ((3, 3), (5, 2), (10, 1), (10, 3))},
    **{f"all subsets of {t}, best {r}": subsets(t, r) for t, r in ((30, 12), (50, 15), (100, 30))},
}

if __name__ == "__main__":
    main()

"""What a verdict costs and finds: the published division, two without a race, and the presets.

    python benchmarks/verdict_cost.py
    python benchmarks/verdict_cost.py --run     # also train; takes half an hour of a core

A row is a protocol for one loss, in the categories aggregate and ensemble. Trainings of a fold are
counted from its plan. False verdicts (a loss against itself, draws of its own, p < 0.05) and how
often one point is found come from campaigns on the bank ``curves_ms`` (see ``racing.py``), in the
category aggregate. The published division retrains the winner of one search of 50 trials ten times;
its reproductions are compared by Welch's test, as the Reality Check's intervals are. So are the
means of five searches whose winners are retrained twice. All searches are random ones. ``--run``
trains normalized softmax on 10,000 made-up vectors of 768 numbers and 100 classes, one process on
one thread: seconds with evaluation, baselines and reports.
"""

from __future__ import annotations

import argparse

import numpy as np
from features import CATEGORIES, experiment, verdict
from racing import LEVEL, Array, Design, Population, p_values, power, rate, read
from scipy.stats import ttest_ind
from worlds import row

from reality_check.config import Protocol
from reality_check.launch.cost import count_trainings

#: By the rules of ``features``.
PROTOCOLS = {
    "the published division": [
        "features",
        "protocol.search={kind: one, trials: 50, sampler: random}",
        "protocol.reproductions=10",
    ],
    "5 x 10": [
        "features",
        "protocol.search={kind: repeated, trials: 10, repeats: 5, sampler: random}",
        "protocol.reproductions=2",
    ],
    "features_retrained": ["features_retrained"],
    "features_precise": ["features_precise"],
    "features": ["features"],
}
BANK = "curves_ms"


def retrained(
    bank: Population, protocol: Protocol, count: int, generator: np.random.Generator
) -> Array:
    """What is compared of searches: their means, or the reproductions of a single one."""
    search, again = protocol.search, protocol.reproductions
    (scores,) = bank.scores((count * search.repeats, search.trials), generator)
    winners = scores[np.arange(len(scores)), scores[..., 3].argmax(-1), 5]
    noise = bank.training * generator.standard_normal((len(winners), again))
    every = winners[:, None] + noise
    return every if search.repeats == 1 else every.mean(1).reshape(count, search.repeats)


def compared(bank: Population, protocol: Protocol, count: int) -> tuple[str, str]:
    """False verdicts, and how often a point is found."""
    generator, search = np.random.default_rng(0), protocol.search
    if search.budget is None:
        first, second = (retrained(bank, protocol, count, generator) for _ in range(2))
        test = ttest_ind(first, second, axis=1, equal_var=False).pvalue
        lifted = ttest_ind(first + 1, second, axis=1, equal_var=False).pvalue
        return rate(test < LEVEL), power(lifted, (first + 1 - second).mean(1))
    best = search.settings if search.retrain == "best" else 0
    shares = (1.0, *(search.race or (1.0, 1.0)))
    design = Design(search.trials, search.budget, shares, best, 0, protocol.split.folds, 0)
    mine, theirs = (
        design.run_each(next(bank.scores((count, search.trials), generator)), generator)
        for _ in range(2)
    )
    wrong = p_values(mine, theirs)[0] < LEVEL
    return rate(wrong), power(*p_values(mine, theirs, lift=1.0))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--run", action="store_true")
    parser.add_argument("--campaigns", type=int, default=2000)
    options = parser.parse_args()
    bank = read(BANK).of(4)
    head = ["trainings of a fold", "false verdicts, %", "finds one point, %"]
    print(row("protocol", *head, *["seconds, CPU seconds"] * options.run))
    print("|---" * (4 + options.run) + "|")
    for name, (base, *changes) in PROTOCOLS.items():
        overrides = [f"protocol={base}", CATEGORIES, *changes]
        made = experiment(*overrides)
        cells = [str(count_trainings(made)), *compared(bank, made.protocol, options.campaigns)]
        if options.run:
            cells.append(", ".join(f"{each:.0f}" for each in verdict(*overrides)))
        print(row(name, *cells), flush=True)


if __name__ == "__main__":
    main()

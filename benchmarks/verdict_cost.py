"""What a verdict costs and finds: the published division, 50 trials as before, and the presets.

    python benchmarks/verdict_cost.py
    python benchmarks/verdict_cost.py --run     # also train; takes half an hour of a core

A row is a protocol for one loss, in the categories aggregate and ensemble. Trainings of a fold are
counted from its plan. False verdicts (a loss against itself, draws of its own, p < 0.05) and how
often one point is found come from campaigns on the bank ``curves_ms`` (see ``racing.py``), in the
category aggregate. The published division retrains the winner of one search of 50 trials ten times;
its reproductions are compared by Welch's test, as the Reality Check's intervals are. ``--run``
trains normalized softmax on 10,000 made-up vectors of 768 numbers and 100 classes, one process on
one thread: seconds with evaluation, baselines and reports.
"""

from __future__ import annotations

import argparse

import numpy as np
from features import experiment, verdict
from racing import LEVEL, Array, Design, Population, p_values, power, rate, read
from scipy.stats import ttest_ind
from worlds import row

from reality_check.config import Protocol
from reality_check.launch.cost import count_trainings

#: As the rules of ``features`` have them; the first is the division of the published protocol.
PROTOCOLS = {
    "the published division": ["features", "protocol.search={kind: one, trials: 50, sampler: gp}"],
    "features_retrained": ["features_retrained"],
    "features_precise": ["features_precise"],
    "features": ["features"],
}
PUBLISHED_REPRODUCTIONS = 10
BANK = "curves_ms"


def published(scores: Array, again: Array) -> Array:
    """The reproductions of winners, (campaigns, reproductions), from the noise of each."""
    winners = scores[..., 3].argmax(-1)
    return scores[np.arange(len(winners)), winners, 5][:, None] + again


def compared(bank: Population, protocol: Protocol, count: int) -> tuple[str, str]:
    """False verdicts, and how often a point is found."""
    generator, search = np.random.default_rng(0), protocol.search
    drawn = [next(bank.scores((count, search.trials), generator)) for _ in range(2)]
    if search.budget is None:
        shape = (count, PUBLISHED_REPRODUCTIONS)
        first, second = (
            published(scores, bank.training * generator.standard_normal(shape)) for scores in drawn
        )
        test = ttest_ind(first, second, axis=1, equal_var=False).pvalue
        lifted = ttest_ind(first + 1, second, axis=1, equal_var=False).pvalue
        return rate(test < LEVEL), power(lifted, (first + 1 - second).mean(1))
    retrained = search.settings if search.retrain == "best" else 0
    shares = (1.0, *(search.race or (1.0, 1.0)))
    design = Design(search.trials, search.budget, shares, retrained, 0, protocol.split.folds, 0)
    mine, theirs = (design.run_each(scores, generator) for scores in drawn)
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
        if changes:
            changes.append(f"protocol.reproductions={PUBLISHED_REPRODUCTIONS}")
        every = [*changes, "protocol.categories=[aggregate,ensemble]"]
        made = experiment(f"protocol={base}", *every)
        cells = [str(count_trainings(made)), *compared(bank, made.protocol, options.campaigns)]
        if options.run:
            cells.append(", ".join(f"{each:.0f}" for each in verdict(base, *changes)))
        print(row(name, *cells), flush=True)


if __name__ == "__main__":
    main()

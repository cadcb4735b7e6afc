"""How far repeated searches lie apart, by sampler: random, TPE and the Gaussian process.

    python benchmarks/sampler_spread.py FEATURES

Independent searches of normalized softmax on the features of ``benchmarks/trial_bank.py``, each
with seeds of its own; the winner of each is retrained. Printed: the mean test score, the standard
deviation between the expected scores of searches (that of the means, without the share of the
retrainings), and that of a retraining. TPE and the Gaussian process draw their first trials at
random, as ``startup_trials`` has it.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from statistics import fmean

import numpy as np
import optuna
import torch
import trial_bank
from optuna.samplers import GPSampler, RandomSampler, TPESampler

from reality_check.config.values import Range
from reality_check.data import read_tensors
from reality_check.data.splits import class_splits
from reality_check.statistics import variance_shares
from reality_check.studies.sampler import sampler_arguments
from reality_check.utils.seeds import derive

SAMPLERS = {"random": RandomSampler, "tpe": TPESampler, "gp": GPSampler}


def main() -> None:
    """See the head of this file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("features", type=Path)
    for name, default in {"searches": 8, "trials": 20, "startup": 8, "retrainings": 3}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    torch.set_num_threads(1)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    data = read_tensors(options.features)
    x, y = torch.from_numpy(data.samples.array().astype(np.float32)), data.labels
    splits = class_splits(int(y.max()) + 1, 2, "kfold")
    space, settings_of = trial_bank.methods()["normalized_softmax"]

    def train(params: dict[str, float], seed: int, test: bool) -> float:
        return trial_bank.train_folds(x, y, splits, settings_of(params), seed, test)

    def suggest(trial: optuna.Trial) -> dict[str, float]:
        drawn = {}
        for name, value in space.items():
            assert isinstance(value, Range)
            drawn[name] = trial.suggest_float(name, value.low, value.high, log=value.log)
        return drawn

    print("| sampler | searches | mean | sd between searches | sd of a retraining |")
    print("|---|---|---|---|---|")
    for name, kind in SAMPLERS.items():
        tests = []
        for search in range(options.searches):
            seed = derive(0, name, search)
            sampler = kind(seed=seed % 2**31, **sampler_arguments(name, options.startup))
            study = optuna.create_study(direction="maximize", sampler=sampler)
            study.optimize(
                lambda trial, seed=seed: train(suggest(trial), derive(seed, trial.number), False),
                n_trials=options.trials,
            )
            again = range(options.retrainings)
            best = study.best_params
            tests.append([100 * train(best, derive(seed, "again", n), True) for n in again])
        shares = variance_shares(tests)
        between, within = (
            math.nan if part is None else math.sqrt(part)
            for part in (shares.search, shares.training)
        )
        division = f"{options.searches} x {options.trials}"
        mean = fmean(map(fmean, tests))
        print(f"| {name} | {division} | {mean:.2f} | {between:.2f} | {within:.2f} |", flush=True)


if __name__ == "__main__":
    main()

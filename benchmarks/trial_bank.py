"""Make a bank of real trials, from which ``benchmarks/calibration.py`` draws campaigns.

    python benchmarks/trial_bank.py FEATURES --out benchmarks/banks/NAME.csv --trials 300

``FEATURES`` is a folder of ``reality-check embed``. A trial draws
the values that a method of ``configs/methods/quick`` searches, all independently, and trains a
linear head on the training classes of each fold. Its value is the mean over folds of the best
validation MAP@R; each test score that of one fresh retraining with the same values. One line a
trial is appended as soon as it is done; the same command continues. ``--shard I/N`` makes every
N-th trial, for several processes. ``benchmarks/lite0.py`` says where the features come from.
"""

from __future__ import annotations

import argparse
import csv
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from torch import Tensor

from pml_extensions.evaluation import RetrievalMetrics
from pml_extensions.functional import directions
from reality_check.config import load_experiment
from reality_check.config.values import Range, Searched
from reality_check.data import read_tensors
from reality_check.data.batch_sampler import build_sampler
from reality_check.data.splits import ClassSplits, class_splits
from reality_check.training.methods import FilledMethod, build_loss, fill_method, search_space
from reality_check.utils.seeds import derive
from reality_check.utils.spread import evenly_spread

METHODS = ("quick/normalized_softmax", "quick/multi_similarity", "quick/contrastive")
STEPS, EVALUATE_EVERY, EMBEDDING_SIZE, RETRAININGS = 100, 20, 64, 2
BATCH_SIZE, SAMPLES_PER_CLASS = 32, 4
HEADER = ("method", "trial", "validation", *(f"test_{n}" for n in range(RETRAININGS)), "params")


def main() -> None:
    """Append trials to the bank until it is full."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("features", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--trials", type=int, default=300)
    parser.add_argument("--folds", type=int, default=2)
    parser.add_argument("--classes", type=int, default=None, help="so many, evenly spread")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--shard", default="0/1")
    options = parser.parse_args()
    torch.set_num_threads(1)
    shard, shards = map(int, options.shard.split("/"))
    data = read_tensors(options.features)
    features, y = data.samples.array().astype(np.float32), data.labels
    if options.classes is not None:
        taken = np.isin(y, evenly_spread(int(y.max()) + 1, options.classes))
        features, y = features[taken], np.unique(y[taken], return_inverse=True)[1]
    x = torch.from_numpy(features)
    splits = class_splits(int(y.max()) + 1, options.folds, "kfold")
    done = _done(options.out)
    for trial in range(shard, options.trials, shards):
        for name, (space, settings_of) in methods().items():
            if (name, trial) in done:
                continue
            params = {key: draw(options.seed, key, trial, value) for key, value in space.items()}
            validation, *tests = (
                train_folds(
                    x, y, splits, settings_of(params), derive(options.seed, trial, run), run > 0
                )
                for run in range(1 + RETRAININGS)
            )
            _append(options.out, [name, trial, validation, *tests, _text(params)])


def methods() -> dict[str, Any]:
    """Of each method what is searched, and how to fill in what was drawn."""
    changes = [f"methods=[{', '.join(METHODS)}]"]
    experiment = load_experiment("quickstart", changes)

    def entry(method: Any) -> Any:
        space = {
            name: value
            for name, value in search_space(method, experiment.protocol).items()
            if name != "learning_rates.trunk"
        }
        space["learning_rates.embedder"] = Range(low=1e-4, high=3e-2, log=True)

        def settings_of(params: Mapping[str, Any]) -> FilledMethod:
            known = {**params, "learning_rates.trunk": 0.0}
            return fill_method(method, experiment.protocol, known)

        return space, settings_of

    return {method.name: entry(method) for method in experiment.methods}


def draw(seed: int, name: str, trial: int, value: Searched) -> float:
    """Draw a value that depends on its name, not on the method."""
    assert isinstance(value, Range)
    share = np.random.default_rng(derive(seed, "draw", name, trial)).uniform()
    if value.log:
        return float(value.low * (value.high / value.low) ** share)
    return float(value.low + (value.high - value.low) * share)


def train_folds(
    x: Tensor, y: np.ndarray, splits: ClassSplits, settings: FilledMethod, seed: int, test: bool
) -> float:
    """The best validation MAP@R, or the test MAP@R at that step: mean over the folds."""
    tested = np.flatnonzero(np.isin(y, splits.test))
    results = []
    for number, fold in enumerate(splits.folds):
        train, validation = (
            np.flatnonzero(np.isin(y, part)) for part in (fold.train, fold.validation)
        )
        labels = np.searchsorted(np.array(fold.train), y[train])
        head, best = _train(
            x[train], labels, x[validation], y[validation], settings, derive(seed, number)
        )
        if test:
            best = 0.0 if head is None else map_at_r(x[tested] @ head, y[tested])
        results.append(best)
    return float(np.mean(results))


def _train(
    x: Tensor, y: np.ndarray, x_val: Tensor, y_val: np.ndarray, settings: FilledMethod, seed: int
) -> tuple[Tensor | None, float]:
    """Train a linear head; return that of the best evaluation. A diverged one counts as 0."""
    torch.manual_seed(seed % 2**31)
    head = torch.nn.Linear(x.shape[1], EMBEDDING_SIZE, bias=False)
    loss = build_loss(settings, len(np.unique(y)), EMBEDDING_SIZE)
    rates = {"embedder": settings.params["learning_rates.embedder"], "loss": None}
    groups = [{"params": head.parameters(), "lr": rates["embedder"]}]
    if list(loss.parameters()):
        groups.append({"params": loss.parameters(), "lr": settings.learning_rates["loss"]})
    optimizer = torch.optim.Adam(groups)
    sampler = build_sampler(y, BATCH_SIZE, SAMPLES_PER_CLASS, seed)
    labels = torch.from_numpy(y)
    best: tuple[Tensor | None, float] = (None, 0.0)
    for step in range(1, STEPS + 1):
        rows = torch.from_numpy(np.asarray(sampler.next_batch()))
        value = loss(head(x[rows]), labels[rows])
        if not torch.isfinite(value):
            return None, 0.0
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        if step % EVALUATE_EVERY == 0:
            with torch.no_grad():
                weight = head.weight.detach().T.clone()
                score = map_at_r(x_val @ weight, y_val)
            if score > best[1]:
                best = weight, score
    return best


def map_at_r(embeddings: Tensor, labels: np.ndarray) -> float:
    """MAP@R of unit vectors."""
    metrics = RetrievalMetrics(normalize=True, metrics=["mean_average_precision_at_r"])
    scores = metrics.per_query(directions(embeddings), labels)
    return float(np.nanmean(scores["mean_average_precision_at_r"]))


def _text(params: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={value:.6g}" for name, value in params.items())


def _done(out: Path) -> set[tuple[str, int]]:
    if not out.exists():
        return set()
    with out.open(newline="") as file:
        return {(row["method"], int(row["trial"])) for row in csv.DictReader(file)}


def _append(out: Path, row: list[Any]) -> None:
    new = not out.exists()
    cells = [f"{cell:.6f}" if isinstance(cell, float) else cell for cell in row]
    with out.open("a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if new:
            writer.writerow(HEADER)
        writer.writerow(cells)


if __name__ == "__main__":
    main()

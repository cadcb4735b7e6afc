"""GPU hours of the full protocol for one loss, computed from rates that are given.

    python benchmarks/cost.py
    python benchmarks/cost.py --rate 1000 --epochs 40 80 --experiments cub200_mlrc sop_appendix_d

Trainings, intervals and batches are read from the experiments; nothing is trained. ``--rate``
is the images per second of training that the GPU reaches in sum, over all processes that share it
(``python benchmarks/training.py --device cuda --folds 4`` measures it). An evaluated image costs a
third of a trained one: a forward pass of the three that forward and backward take. How many epochs
a training lasts until its patience ends depends on loss and data, so several are printed.
"""

from __future__ import annotations

import argparse

from reality_check.config import Experiment, load_experiment

#: Images of the classes to train and validate, and of those to test.
DATA = {"cub200": (5864, 5924), "cars196": (8054, 8131), "sop": (59551, 60502)}
DEFAULT = [f"{data}_{rules}" for rules in ("mlrc", "appendix_d") for data in DATA]
FORWARD = 1 / 3


def main() -> None:
    """Print a table of hours."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rate", type=float, default=2500.0, help="images per second of training")
    parser.add_argument("--epochs", type=int, nargs="*", default=[25, 50, 100, 200])
    parser.add_argument("--experiments", nargs="*", default=DEFAULT)
    options = parser.parse_args()
    print(f"GPU hours for one loss at {options.rate:,.0f} images/s, by mean epochs of a training")
    print(f"{'':24}{'trainings':>10}" + "".join(f"{epochs:>8}" for epochs in options.epochs))
    for name in options.experiments:
        experiment = load_experiment(name, [])
        hours = [images(experiment, name, e) / options.rate / 3600 for e in options.epochs]
        cells = "".join(f"{value:8.1f}" for value in hours)
        print(f"{name:24}{trainings(experiment):>10}" + cells)


def trainings(experiment: Experiment) -> int:
    """Fold runs of one loss: search, reproductions, complete."""
    protocol = experiment.protocol
    runs = (protocol.search.trials + protocol.reproductions) * protocol.split.folds
    return runs + (protocol.reproductions if "complete" in protocol.categories else 0)


def images(experiment: Experiment, name: str, epochs: int) -> float:
    """Images that pass forward and backward, those that are only evaluated counted by a third."""
    protocol, training = experiment.protocol, experiment.protocol.training
    trainval, test = DATA[name.split("_")[0]]
    trained = epochs * training.iterations_per_epoch * training.batch_size
    evaluations = epochs / training.evaluate_every + 2  # and the two of the untrained network
    validated = evaluations * trainval / protocol.split.folds * FORWARD
    folds = (protocol.search.trials + protocol.reproductions) * protocol.split.folds
    scored = protocol.reproductions * protocol.split.folds * test * FORWARD
    total = folds * (trained + validated) + scored
    if "complete" in protocol.categories:
        total += protocol.reproductions * (trained + test * FORWARD)
    return total


if __name__ == "__main__":
    main()

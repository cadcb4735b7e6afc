"""GPU hours of the full protocol for one loss, from the least and from the most of what it takes.

    python benchmarks/cost.py
    python benchmarks/cost.py --rate 1000 2000 --epochs 40 80 --experiments cub200_mlrc
    python benchmarks/cost.py --epochs-of runs/mine runs/other     # how many epochs your own took

Trainings, intervals and batches are read from the experiments; nothing is trained. What nobody has
measured on a GPU is a range, and so are the hours (`INPUTS` says what each is, and whether it was
measured). An evaluated image costs a third of a trained one: a forward pass of the three that
forward and backward take. How many epochs a training lasts until its patience ends depends on loss
and data, so several are printed; ``--epochs-of`` counts those of finished output folders.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from reality_check.config import Experiment, load_experiment
from reality_check.studies.recorded_experiment import read_experiment


class Input(NamedTuple):
    """A range, and where it is from."""

    least: float
    most: float
    source: str


INPUTS = {
    "rate": Input(1000, 4000, "images/s of training; not measured"),
    "start": Input(4, 20, "s from a worker's start to its first step; 4 to 5 measured on a CPU"),
    "upload": Input(2e9, 2e10, "bytes/s to a GPU; not measured"),
    "ranking": Input(1e-3, 2e-2, "s to rank 1,500 embeddings; the most is measured on a CPU"),
    "workers": Input(1, 8, "started for one loss, each of which uploads the data set"),
}
#: Images of the classes to train and validate, and of those to test.
DATA = {"cub200": (5864, 5924), "cars196": (8054, 8131), "sop": (59551, 60502)}
DEFAULT = [f"{data}_{rules}" for rules in ("mlrc", "appendix_d") for data in DATA]
FORWARD = 1 / 3
BYTES = 256 * 256 * 3


def main() -> None:
    """Print a table of hours, or of epochs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    rate = INPUTS["rate"]
    parser.add_argument("--rate", type=float, nargs=2, default=[rate.least, rate.most])
    parser.add_argument("--epochs", type=int, nargs="*", default=[15, 25, 50, 100, 200])
    parser.add_argument("--experiments", nargs="*", default=DEFAULT)
    parser.add_argument("--epochs-of", nargs="*", type=Path, metavar="FOLDER")
    options = parser.parse_args()
    if options.epochs_of:
        for folder in options.epochs_of:
            print(f"{folder}: {epochs_in_words(sorted(epochs_spent(folder)))}")
        return
    for name, (least, most, source) in INPUTS.items():
        print(f"{name:10}{least:>14,g} to {most:<14,g} {source}")
    print("\nGPU hours for one loss, by mean epochs of a training; in brackets what is not steps")
    print(f"{'':20}{'trainings':>10}" + "".join(f"{epochs:>26}" for epochs in options.epochs))
    for name in options.experiments:
        experiment = load_experiment(name, [])
        cells = [hours(experiment, name, epochs, *options.rate) for epochs in options.epochs]
        print(f"{name:20}{trainings(experiment):>10}" + "".join(f"{cell:>26}" for cell in cells))


def hours(experiment: Experiment, name: str, epochs: int, slow: float, fast: float) -> str:
    """The least and the most hours, and those of ranking, uploads and starts in them."""
    passed = images(experiment, name, epochs)
    rest = [seconds_besides(experiment, name, epochs, most) / 3600 for most in (False, True)]
    least, most = (passed / rate / 3600 + r for rate, r in zip((fast, slow), rest, strict=True))
    return f"{least:.1f} to {most:.1f} ({rest[0]:.2f} to {rest[1]:.1f})"


def trainings(experiment: Experiment) -> int:
    """Fold runs of one loss: search, reproductions, complete."""
    protocol = experiment.protocol
    runs = (protocol.search.trials + protocol.reproductions) * protocol.split.folds
    return runs + (protocol.reproductions if "complete" in protocol.categories else 0)


def evaluations(experiment: Experiment, epochs: int) -> float:
    """Of one training, with the two of the untrained network."""
    return epochs / experiment.protocol.training.evaluate_every + 2


def images(experiment: Experiment, name: str, epochs: int) -> float:
    """Images that pass forward and backward, those that are only evaluated counted by a third."""
    protocol, training = experiment.protocol, experiment.protocol.training
    trainval, test = DATA[name.split("_")[0]]
    trained = epochs * training.iterations_per_epoch * training.batch_size
    validated = evaluations(experiment, epochs) * trainval / protocol.split.folds * FORWARD
    folds = (protocol.search.trials + protocol.reproductions) * protocol.split.folds
    scored = protocol.reproductions * protocol.split.folds * test * FORWARD
    total = folds * (trained + validated) + scored
    if "complete" in protocol.categories:
        total += protocol.reproductions * (trained + test * FORWARD)
    return total


def seconds_besides(experiment: Experiment, name: str, epochs: int, most: bool) -> float:
    """What ranking, uploads and the starts of workers take, at least or at most."""
    by_kind = {key: value.most if most else value.least for key, value in INPUTS.items()}
    rate = INPUTS["upload"].least if most else INPUTS["upload"].most
    protocol, data = experiment.protocol, DATA[name.split("_")[0]]
    folds = (protocol.search.trials + protocol.reproductions) * protocol.split.folds
    # Ranks are of all with all: twice the images take four times as long.
    validation = (data[0] / protocol.split.folds / 1500) ** 2
    ranked = folds * evaluations(experiment, epochs) * validation
    ranked += protocol.reproductions * 2 * (protocol.split.folds + 2) * (data[1] / 1500) ** 2
    uploads = sum(data) * BYTES / rate
    return by_kind["ranking"] * ranked + by_kind["workers"] * (by_kind["start"] + uploads)


def epochs_spent(folder: Path) -> Iterator[int]:
    """Of every finished training of an output folder."""
    for work in read_experiment(folder).states().ready():
        for trial in work.complete.values():
            yield from trial.epochs_spent


def epochs_in_words(epochs: list[int]) -> str:
    """The mean and the quartiles."""
    if len(epochs) < 2:
        return "fewer than two trainings are finished"
    quarters = ", ".join(f"{value:g}" for value in statistics.quantiles(epochs))
    return (
        f"{len(epochs)} trainings took {statistics.mean(epochs):.1f} epochs; quartiles {quarters}"
    )


if __name__ == "__main__":
    main()

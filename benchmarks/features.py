"""What a comparison on vectors costs, beside a bare loop of the same head and loss.

    python benchmarks/features.py                       # a step, the start of a fold run
    python benchmarks/features.py --stacked             # several heads trained at once (torch.func)
    python benchmarks/features.py --protocol features   # one loss by a protocol, with reports
    python benchmarks/features.py --million /big/folder # 1,000,000 x 768 float16 from disk

Ratios are medians of turns in one process. The evaluation of validation vectors, beside PML's, is
in ``benchmarks/evaluation.py``.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from pytorch_metric_learning.losses import NormalizedSoftmaxLoss

from reality_check.api import run
from reality_check.config import Experiment, Training, load_experiment
from reality_check.data import SampleSet, TensorSet, load_dataset, split_dataset
from reality_check.data.tensors import Tensors
from reality_check.training.fold import FoldTask
from reality_check.training.methods import fill_method, middle_params
from reality_check.training.trainer import Trainer

CPU = torch.device("cpu")
BATCH, WIDTH, SIZE, CLASSES = 32, 768, 128, 100
CATEGORIES = "protocol.categories=[aggregate,ensemble]"


def main() -> None:
    """Parse the command line and print what was asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--stacked", action="store_true")
    parser.add_argument("--protocol", metavar="NAME")
    parser.add_argument("--million", type=Path, metavar="DIR")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, one thread")
    if options.million is not None:
        million(options.million)
    elif options.protocol:
        wall, cpu = verdict(f"protocol={options.protocol}", CATEGORIES)
        text = f"`{options.protocol}`, one loss, 10,000 x {WIDTH}"
        print(f"{text}: {wall:.0f} s of wall time, {cpu:.0f} CPU s")
    elif options.stacked:
        stacked(options.rounds)
    else:
        steps(options.rounds)


def vectors(count: int, classes: int, name: str = "vectors") -> TensorSet:
    """Noisy class centres."""
    draw = np.random.default_rng(0)
    labels = np.repeat(np.arange(classes), count // classes)
    centres = draw.normal(size=(classes, WIDTH)).astype(np.float32)
    x = centres[labels] + 2 * draw.normal(size=(len(labels), WIDTH)).astype(np.float32)
    return TensorSet(Tensors.from_array(x), labels, tuple(map(str, range(classes))), name)


def experiment(*changes: str) -> Experiment:
    """One loss by the protocol ``features``, whose data set is not read."""
    text = (
        "name: features\ndataset: {name: v, reader: tensors, path: v.npz}\nmodel: identity\n"
        "protocol: features\nmethods: [quick/normalized_softmax]\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "features.yaml"
        file.write_text(text)
        return load_experiment(file, list(changes))


def trainer(
    made: Experiment,
    train: SampleSet,
    validation: SampleSet | None,
    out: Path,
    device: torch.device = CPU,
    training: Training | None = None,
) -> Trainer:
    """A fold run of its method, with the middle of every range."""
    method, rules = made.methods[0], made.protocol
    settings = fill_method(method, rules, middle_params(method, rules))
    fixed = (1, 0) if validation is None else None
    task = FoldTask(
        settings, made.model, training or rules.training, SIZE, 1, 2, fixed_epochs=fixed
    )
    return Trainer(task, train, validation, out, device)


def in_turns(rounds: int, *variants: Callable[[], object]) -> list[float]:
    """Median seconds of each."""
    times: list[list[float]] = [[] for _ in variants]
    for _ in range(rounds + 1):
        for found, variant in zip(times, variants, strict=True):
            begin = time.perf_counter()
            variant()
            found.append(time.perf_counter() - begin)
    return [statistics.median(found[1:]) for found in times]


class Bare:
    """The same head, loss and optimisers on one batch, again and again."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.head = torch.nn.Linear(WIDTH, SIZE)
        self.loss = NormalizedSoftmaxLoss(CLASSES, SIZE, temperature=0.1)
        self.optimizers = [torch.optim.Adam(part.parameters()) for part in (self.head, self.loss)]
        self.x = torch.randn(BATCH, WIDTH)
        self.y = torch.arange(BATCH)

    def steps(self, count: int) -> None:
        """Train."""
        for _ in range(count):
            value = self.loss(self.head(self.x), self.y)
            for optimizer in self.optimizers:
                optimizer.zero_grad(set_to_none=True)
            value.backward()
            for optimizer in self.optimizers:
                optimizer.step()


def steps(rounds: int) -> None:
    """A training step, and what a fold run takes before its first one."""
    made, data, bare = experiment(), vectors(6000, CLASSES), Bare()
    ours = trainer(made, data, None, Path("nowhere"))
    ours.build()
    per_round = 100
    ours_s, bare_s = in_turns(
        rounds, lambda: ours.train_steps(per_round), lambda: bare.steps(per_round)
    )
    print(
        f"step, batch {BATCH}, {WIDTH} -> {SIZE}, {CLASSES} classes: ours "
        f"{ours_s / per_round * 1e3:.2f} ms, bare loop {bare_s / per_round * 1e3:.2f} ms, ratio "
        f"{ours_s / bare_s:.2f}"
    )
    fold = split_dataset(data, made.protocol.split).folds[0]

    def start() -> None:
        sets = data.subset(fold.train), data.subset(fold.validation)
        trainer(made, *sets, Path("nowhere")).build()

    (seconds,) = in_turns(rounds, start)
    print(f"start of a fold run, its subsets included: {seconds * 1e3:.1f} ms")


def stacked(rounds: int) -> None:
    """K heads trained one after the other, and K at once by torch.func.vmap."""
    x, y = torch.randn(BATCH, WIDTH), torch.arange(BATCH)
    for count in (2, 4, 8):
        alone = [Bare() for _ in range(count)]
        weights = {
            "w": torch.randn(count, SIZE, WIDTH, requires_grad=True),
            "b": torch.randn(count, SIZE, requires_grad=True),
            "p": torch.randn(count, SIZE, CLASSES, requires_grad=True),
        }
        optimizer = torch.optim.Adam(weights.values())

        def value(w: torch.Tensor, b: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
            cosines = torch.nn.functional.normalize(x @ w.t() + b) @ torch.nn.functional.normalize(
                p, dim=0
            )
            return torch.nn.functional.cross_entropy(cosines / 0.1, y)

        def together(
            weights: dict[str, torch.Tensor] = weights,
            optimizer: torch.optim.Optimizer = optimizer,
            each: Callable[..., torch.Tensor] = value,
        ) -> None:
            for _ in range(50):
                optimizer.zero_grad(set_to_none=True)
                torch.func.vmap(each)(weights["w"], weights["b"], weights["p"]).sum().backward()
                optimizer.step()

        def in_a_row(alone: list[Bare] = alone) -> None:
            for one in alone:
                one.steps(50)

        first, second = in_turns(rounds, in_a_row, together)
        print(f"{count} heads: at once / one after the other {second / first:.2f}")


def verdict(*changes: str) -> tuple[float, float]:
    """Wall and CPU seconds of one loss on 10,000 x 768 vectors of 100 classes, with reports.

    Args:
        changes: overrides of the experiment.
    """
    data = vectors(10_000, CLASSES)
    with tempfile.TemporaryDirectory() as folder:
        np.savez(Path(folder) / "v.npz", x=data.samples.array(), y=data.labels)
        begin = time.perf_counter()
        before = cpu_seconds()
        run(experiment(*changes, f"dataset.path={folder}/v.npz"), Path(folder) / "out")
        return time.perf_counter() - begin, cpu_seconds() - before


def cpu_seconds() -> float:
    """CPU seconds of this process and of those that it has started and that have ended."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(used.ru_utime + used.ru_stime for used in both)


def million(folder: Path) -> None:
    """Training and validation on a million vectors that lie on the disk."""
    count, classes = 1_000_000, 10_000
    file = folder / "million.npy"
    if not file.exists():
        draw = np.random.default_rng(0)
        array = np.lib.format.open_memmap(file, "w+", np.float16, (count, WIDTH))
        for first in range(0, count, 10_000):
            array[first : first + 10_000] = draw.normal(size=(10_000, WIDTH))
        np.save(folder / "labels.npy", np.repeat(np.arange(classes), count // classes))
        del array
    rules = ["protocol.training.max_epochs=1", "protocol.split.folds=20"]
    changes = [*rules, f"dataset.path={file}", "dataset.y=labels.npy"]
    made = experiment(*changes)
    begin = time.perf_counter()
    data = load_dataset(made.dataset)
    fold = split_dataset(data, made.protocol.split).folds[0]
    read = time.perf_counter() - begin
    with tempfile.TemporaryDirectory() as out:
        sets = data.subset(fold.train), data.subset(fold.validation)
        trainer(made, *sets, Path(out)).run()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"1,000,000 x {WIDTH} float16: read and checked in {read:.0f} s; an epoch and three "
        f"evaluations of {len(sets[1]):,} in {time.perf_counter() - begin - read:.0f} s; peak "
        f"{peak:.1f} GiB, mapped pages of the file included"
    )


if __name__ == "__main__":
    main()

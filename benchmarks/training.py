"""Images per second of training: the bare model, our loop, and PyTorch's DataLoader.

    python benchmarks/training.py                         # what can run here
    python benchmarks/training.py --cases conv4-28 --threads 1 --rounds 9
    python benchmarks/training.py --cases resnet50-224 --device cuda

Variants, in turns in one process, the same network, loss and optimisers in all:

- floor: the network and the loss on one random batch, again and again;
- ours: a fold run's steps (sampling, gathering, augmentation, loss, optimisers);
- DataLoader: torchvision's transforms of PIL images, PML's MPerClassSampler, ``--workers``
  processes (needs torchvision).

Also printed: evaluation of a validation fold as a share of the interval between two evaluations (of
the protocol mlrc: 2 epochs of 100 batches of 32), seconds from the start of a process to its first
step, and bytes written by a fold run. ``--folds N`` (with --device cuda) trains N folds at once in
processes of their own.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from reality_check.config import Model, Training
from reality_check.data import ImageSet
from reality_check.models.pipeline import input_shape
from reality_check.training.fold import FoldTask
from reality_check.training.methods import FilledMethod
from reality_check.training.module import TrainingModule, loss_value
from reality_check.training.trainer import Trainer
from reality_check.utils import checkpoints
from reality_check.utils.processes import keep_freed_memory

VALIDATION = {"classes": 25, "each": 60}  # as many images as a fold of CUB validates on
_PHOTOGRAPHS: dict[str, Any] = {
    "images": {"classes": 75, "each": 58, "size": 256, "channels": 3},
    "augmentation": {"resized_crop_scale": (0.16, 1.0), "horizontal_flip": 0.5, "crop_size": 224},
    "batches": (32,),
}
CASES: dict[str, dict[str, Any]] = {
    "conv4-28": {
        "model": {"trunk": "conv4", "pooling": "flatten"},
        "images": {"classes": 482, "each": 20, "size": 28, "channels": 1},
        "augmentation": {"rotation": 10, "scale": (0.9, 1.1), "translation": 0.06},
        "batches": (32, 128),
    },
    "conv4_pool-28": {
        "model": {"trunk": "conv4_pool", "pooling": "flatten"},
        "images": {"classes": 482, "each": 20, "size": 28, "channels": 1},
        "augmentation": {"rotation": 10, "scale": (0.9, 1.1), "translation": 0.06},
        "batches": (32,),
        "epoch": 20,
    },
    "resnet18-64": {
        "model": {"trunk": "resnet18"},
        "images": {"classes": 75, "each": 58, "size": 64, "channels": 3},
        "augmentation": {"resized_crop_scale": (0.16, 1.0), "horizontal_flip": 0.5},
        "batches": (32,),
        "epoch": 20,  # the protocol's 100 take a minute on a CPU
    },
    "resnet50-224": {
        "model": {"trunk": "resnet50"},
        **_PHOTOGRAPHS,
        "autocast": "bf16",
    },
    "bn_inception-224": {
        "model": {"trunk": "bn_inception"},
        **_PHOTOGRAPHS,
    },
}


def main() -> None:
    """Parse the command line and print one block for each case."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", nargs="*", choices=list(CASES))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batches", type=int, nargs="*", help="default: those of the case")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each variant in a round")
    parser.add_argument("--workers", type=int, default=0, help="processes of the DataLoader")
    parser.add_argument("--folds", type=int, default=1)
    parser.add_argument(
        "--malloc",
        choices=["worker", "default"],
        default="worker",
        help="whether freed memory is kept as in a worker, or as the C library does by itself",
    )
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.malloc == "worker":
        keep_freed_memory()
    device = torch.device(options.device)
    default = list(CASES) if device.type == "cuda" else ["conv4-28", "conv4_pool-28", "resnet18-64"]
    print(
        f"torch {torch.__version__}, {device}, {options.threads} threads, malloc: {options.malloc}"
    )
    for name in options.cases or default:
        for batch in options.batches or CASES[name]["batches"]:
            if options.folds > 1:
                run_folds(name, batch, device, options)
            else:
                run(name, batch, device, options)


def run(name: str, batch: int, device: torch.device, options: argparse.Namespace) -> None:
    """Print the figures of one case."""
    case = CASES[name]
    try:
        fold = make_fold(case, batch, device)
    except Exception as error:
        print(f"\n{name}: not run: {error}")
        return
    print(f"\n{name}, batch {batch}, {case.get('autocast', 'float32')}")
    loader = data_loader_steps(case, fold, batch, options.workers)
    variants: dict[str, Iterator[None]] = {
        "floor": floor_steps(fold, batch, device),
        "ours": our_steps(fold),
    }
    if loader is not None:
        variants[f"DataLoader, {options.workers} workers"] = loader
    rates = measure_in_turns(
        variants, batch, case.get("epoch", 100), device, options.rounds, options.seconds
    )
    for variant, found in rates.items():
        ratios = [one / floor for one, floor in zip(found, rates["floor"], strict=True)]
        over = 100 * (1 / statistics.median(ratios) - 1)
        rate = statistics.median(found)
        print(f"  {variant:24} {rate:9.1f} images/s   {over:+6.1f} % time over the floor")
    if loader is None:
        print("  DataLoader: not run, torchvision is not installed")
    print_evaluation(fold, statistics.median(rates["ours"]))
    print_start(case, batch, device)
    print_bytes(case, batch, device)


def make_fold(case: dict[str, Any], batch: int, device: torch.device, **how: Any) -> Trainer:
    """A fold run on random images, built."""
    train, validation = images(**case["images"]), images(**(case["images"] | VALIDATION))
    part = {"name": "RMSprop", "lr": 1e-6, "weight_decay": 1e-4, "arguments": {"momentum": 0.9}}
    training = Training.model_validate(
        {
            "batch_size": batch,
            "optimizers": {"trunk": part, "embedder": part, "loss": part},
            "augmentation": case["augmentation"],
            "autocast": case.get("autocast", "none"),
            "evaluate_every": 2,
            "iterations_per_epoch": case.get("epoch", 100),
            **how,
        }
    )
    settings = FilledMethod(
        name="normalized_softmax",
        loss="pytorch_metric_learning.losses.NormalizedSoftmaxLoss",
        arguments={},
        miner=None,
        samples_per_class=1 if batch <= case["images"]["classes"] else 4,
        learning_rates={"trunk": 1e-6, "embedder": 1e-6, "loss": 1e-6},
        loss_weight_decay=0.0,
        normalize_embeddings=True,
    )
    model = Model(name=case["model"]["trunk"], **case["model"])
    task = FoldTask(settings, model, training, 128, network_seed=0, loss_seed=0)
    folder = Path(tempfile.mkdtemp(prefix="benchmark-"))
    fold = Trainer(task, train, validation, folder, device)
    fold.build()
    return fold


def images(classes: int, each: int, size: int, channels: int) -> ImageSet:
    """Random images: what they show does not matter here."""
    draw = np.random.default_rng(0)
    pixels = draw.integers(0, 256, (classes * each, size, size, channels), dtype=np.uint8)
    names = tuple(map(str, range(classes)))
    return ImageSet(pixels, np.repeat(np.arange(classes), each), names, "random")  # type: ignore[arg-type]


def floor_steps(fold: Trainer, batch: int, device: torch.device) -> Iterator[None]:
    """Steps of an equal network and loss on one random batch, in a bare loop."""
    shape = input_shape(fold.train_set, fold.task.training.augmentation)
    module = TrainingModule(fold.task, fold.train_set.num_classes, shape, device)
    module.train()
    height, width, channels = shape
    x = torch.randn(batch, channels, height, width, device=device)
    x = x.contiguous(memory_format=module._format)
    y = torch.arange(batch, device=device) % fold.train_set.num_classes
    while True:
        with module.autocast():
            embeddings = module.network(x)
        value = loss_value(module.loss, None, embeddings.float(), y)
        for optimizer in module.optimizers.values():
            optimizer.zero_grad(set_to_none=True)
        value.backward()
        for optimizer in module.optimizers.values():
            optimizer.step()
        yield


def our_steps(fold: Trainer) -> Iterator[None]:
    """Steps of the fold run, in stretches of an epoch."""
    count = fold.task.training.iterations_per_epoch
    while True:
        fold.train_steps(count)
        for _ in range(count):
            yield


def data_loader_steps(
    case: dict[str, Any], fold: Trainer, batch: int, workers: int
) -> Iterator[None] | None:
    """The plain PyTorch way; None without torchvision."""
    try:
        from torchvision import transforms
    except ImportError:
        return None
    from PIL import Image
    from pytorch_metric_learning.samplers import MPerClassSampler

    options = case["augmentation"]
    steps: list[Any] = []
    if "resized_crop_scale" in options:
        side = options.get("crop_size", case["images"]["size"])
        steps.append(transforms.RandomResizedCrop(side, scale=options["resized_crop_scale"]))
        steps.append(transforms.RandomHorizontalFlip())
    else:
        shift = options["translation"]
        steps.append(transforms.RandomAffine(options["rotation"], (shift, shift), options["scale"]))
    steps += [transforms.ToTensor(), transforms.Normalize(0.5, 0.5)]
    transform = transforms.Compose(steps)
    pixels, labels = fold.train_set.images.array(), fold.train_set.labels

    class Pictures(torch.utils.data.Dataset[Any]):
        def __len__(self) -> int:
            return len(labels)

        def __getitem__(self, index: int) -> tuple[Any, int]:
            picture = pixels[index]
            image = Image.fromarray(picture[:, :, 0] if picture.shape[2] == 1 else picture)
            return transform(image), int(labels[index])

    each = fold.task.settings.samples_per_class
    sampler = MPerClassSampler(labels, each, batch, length_before_new_iter=batch * 500)
    loader = torch.utils.data.DataLoader(
        Pictures(),
        batch,
        sampler=sampler,
        num_workers=workers,
        pin_memory=fold.device.type == "cuda",
        drop_last=True,
    )

    def steps_of() -> Iterator[None]:
        while True:
            for x, y in loader:
                x, y = x.to(fold.device, non_blocking=True), y.to(fold.device, non_blocking=True)
                fold.module.step(x, y).item()
                yield

    return steps_of()


def measure_in_turns(
    variants: dict[str, Iterator[None]],
    batch: int,
    stretch: int,
    device: torch.device,
    rounds: int,
    seconds: float,
) -> dict[str, list[float]]:
    """Images per second of each variant in every round; the first, to warm up, is left out."""
    rates: dict[str, list[float]] = {name: [] for name in variants}
    for number in range(rounds + 1):
        for name, steps in variants.items():
            rate = images_per_second(steps, batch, stretch, device, seconds if number else 0.5)
            if number:
                rates[name].append(rate)
    return rates


def images_per_second(
    steps: Iterator[None], batch: int, stretch: int, device: torch.device, seconds: float
) -> float:
    """Rate over whole stretches of steps, an epoch each."""
    wait: Callable[[], None] = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    wait()
    started, count = time.perf_counter(), 0
    while time.perf_counter() - started < seconds:
        for _ in range(stretch):
            next(steps)
        count += stretch
    wait()
    return count * batch / (time.perf_counter() - started)


def print_evaluation(fold: Trainer, rate: float) -> None:
    """Seconds of one evaluation beside those of the training since the last one."""
    assert fold.validation is not None
    fold._measure(fold.network)
    started = time.perf_counter()
    fold._measure(fold.network)
    seconds = time.perf_counter() - started
    interval = 2 * 100 * 32 / rate
    print(
        f"  evaluation of {len(fold.validation):,} images: {seconds:.2f} s = "
        f"{100 * seconds / interval:.1f} % of an interval of 6,400 images ({interval:.1f} s)"
    )


_START = """
import time; begun = time.time()
import sys; sys.path.insert(0, {here!r})
import torch; torch.set_num_threads(1)
imported = time.time()
import training
fold = training.make_fold(training.CASES[{name!r}], {batch}, torch.device({device!r}))
built = time.time()
fold.train_steps(1)
print(imported - begun, built - imported, time.time() - built)
"""


def print_start(case: dict[str, Any], batch: int, device: torch.device) -> None:
    """Seconds from the start of a fresh process to its first step."""
    name = next(key for key, value in CASES.items() if value is case)
    program = _START.format(
        here=str(Path(__file__).parent), name=name, batch=batch, device=str(device)
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    torch_import, build, first = map(float, done.stdout.split())
    print(
        f"  start of a process: {torch_import + build + first:.1f} s (import of torch "
        f"{torch_import:.1f}, the rest and building {build:.1f}, first step {first:.1f})"
    )


def print_bytes(case: dict[str, Any], batch: int, device: torch.device) -> None:
    """Bytes that a fold run writes: one checkpoint, and a short run from start to end."""
    fold = make_fold(case, batch, device, max_epochs=4, iterations_per_epoch=2)
    written: list[int] = []
    save = checkpoints.save

    def counted(path: Path, state: dict[str, Any]) -> None:
        save(path, state)
        written.append(path.stat().st_size)

    checkpoints.save = counted
    try:
        fold.checkpoints.save(fold._state())
        each = written.pop()
        fold.run()
    finally:
        checkpoints.save = save
    records = sum(file.stat().st_size for file in fold.folder.rglob("*") if file.is_file())
    interval = fold.checkpoints.seconds
    print(
        f"  a checkpoint takes {each / 1e6:.1f} MB, at most one in {interval:.0f} s "
        "(two where the best has changed); a run shorter than that writes "
        f"{sum(written) / 1e6:.1f} MB and leaves {records / 1e6:.1f} MB"
    )


def run_folds(name: str, batch: int, device: torch.device, options: argparse.Namespace) -> None:
    """Print the rate of several folds at once, each a process, in sum."""
    context = multiprocessing.get_context("spawn")
    for folds in (1, options.folds):
        with context.Pool(folds) as pool:
            jobs = [(name, batch, str(device), options.seconds * 3)] * folds
            rates = pool.starmap(one_fold, jobs)
        print(f"{name}, batch {batch}: {folds} folds at once: {sum(rates):.1f} images/s in sum")


def one_fold(name: str, batch: int, device: str, seconds: float) -> float:
    """Images per second of one fold in a process of its own."""
    torch.set_num_threads(1)
    keep_freed_memory()
    fold = make_fold(CASES[name], batch, torch.device(device))
    steps = our_steps(fold)
    images_per_second(steps, batch, 20, fold.device, 5.0)  # until all others have begun, too
    return images_per_second(steps, batch, 20, fold.device, seconds)


if __name__ == "__main__":
    main()

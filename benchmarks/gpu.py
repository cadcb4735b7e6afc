"""What a person with a GPU runs: floors of this GPU, what we reach of them, and the gpu tests.

    make gpu                                   # or: python benchmarks/gpu.py --out runs/gpu
    python benchmarks/gpu.py --parts floors evaluation --skip-tests

At most ten minutes. It writes OUT/gpu.md and OUT/gpu.json: one row a measurement, with the ratio to
its floor. What fails is a row with the error; what there was no time for is named. ``--tiny``
exercises everything with small sizes, on a simulated GPU too, and its times mean nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import features
import numpy as np
import torch
import torch.nn.functional as F
import training
from evaluation import data
from torch import Tensor

from pml_extensions.evaluation import RetrievalMetrics, RetrievalResult
from pml_extensions.functional import allow_tf32
from pml_extensions.losses import ChunkedSoftmax, ClassSampler, NormalizedSoftmaxLoss
from reality_check.config.metrics import PRIMARY
from reality_check.config.training import GpuSettings
from reality_check.evaluation.scoring import embed
from reality_check.models.network import autocast
from reality_check.training.captured_step import CHECKS, WARM_UP
from reality_check.training.module import TrainingModule
from reality_check.training.trainer import Trainer
from reality_check.utils.environment import describe_gpu

GPU = torch.device("cuda")
#: Seconds of all measurements; the tests have the rest.
MEASURING, IN_ALL = 330.0, 590.0
CASES = ("conv4-28", "resnet18-64", "resnet50-224", "bn_inception-224")
SETS = ((1466, 50, 128), (5924, 100, 128), (14_888, 2829, 128), (60_502, 11_316, 128))
CLASSES = (11_000, 100_000, 500_000)
CHUNKS = (2048, 16_384, 131_072)
BATCH = 32


@dataclasses.dataclass(frozen=True)
class Row:
    """A measurement.

    Attributes:
        part: what it belongs to.
        name: what was measured.
        value: how much; None where it failed.
        unit: of the value.
        ratio: of the value to that of the floor.
        note: what the floor is, or the error.
    """

    part: str
    name: str
    value: float | None
    unit: str
    ratio: float | None = None
    note: str = ""


class Bench:
    """Measures on one GPU, until there is no time left.

    Args:
        tiny: whether small sizes are to do.
    """

    def __init__(self, tiny: bool) -> None:
        self.tiny, self.begun = tiny, time.perf_counter()
        self.rows: list[Row] = []

    def left(self) -> float:
        """Seconds left for measurements."""
        return MEASURING - (time.perf_counter() - self.begun)

    def seconds(self, run: Callable[[], Any], least: float = 0.15, rounds: int = 5) -> float:
        """Median seconds of a call, of which many are made between two waits; warmed up."""
        least, rounds = (0.0, 1) if self.tiny else (least, rounds)
        run()
        count = max(1, int(least / max(self._timed(run, 1), 1e-6)))
        return statistics.median(self._timed(run, count) for _ in range(rounds))

    @staticmethod
    def _timed(run: Callable[[], Any], count: int) -> float:
        torch.cuda.synchronize()
        started = time.perf_counter()
        for _ in range(count):
            run()
        torch.cuda.synchronize()
        return (time.perf_counter() - started) / count

    def measure(
        self, part: str, name: str, unit: str, how: Callable[[], float], floor: Row | None = None
    ) -> Row:
        """Add a row; an error is one too, and so is that there was no time."""
        value, note, ratio = None, "left out: no time", None
        if self.left() > 0:
            try:
                value, note = how(), ""
            except Exception as error:  # the others are worth having
                note = in_a_line(error)
                torch.cuda.empty_cache()
        if value is not None and floor is not None and floor.value:
            ratio, note = value / floor.value, f"of {floor.name}"
        row = Row(part, name, value, unit, ratio, note)
        self.rows.append(row)
        print(as_text(row), flush=True)
        return row

    def rate(
        self,
        what: tuple[str, str],
        unit: str,
        work: float,
        run: Callable[[], Any],
        floor: Row | None = None,
    ) -> Row:
        """Add a row: how much ``work``, which a call does, is done in a second."""
        return self.measure(*what, unit, lambda: work / self.seconds(run), floor)

    def time(self, what: tuple[str, str], run: Callable[[], Any], floor: Row | None = None) -> Row:
        """Add a row: milliseconds of a call."""
        return self.measure(*what, "ms", lambda: self.seconds(run) * 1e3, floor)


def floors(bench: Bench) -> None:
    """What this GPU can do at all."""
    n = 64 if bench.tiny else 8192
    a, b = torch.randn(n, n, device=GPU), torch.randn(n, n, device=GPU)
    kinds = (("float32", torch.float32, False), ("TF32", torch.float32, True))
    for name, dtype, tf32 in (*kinds, ("bfloat16", torch.bfloat16, False)):
        multiply = functools.partial(torch.mm, a.to(dtype), b.to(dtype))
        with allow_tf32(GPU, tf32):
            bench.rate(("floors", f"product, {name}"), "TFLOP/s", 2 * n**3 / 1e12, multiply)
    size = 2**12 if bench.tiny else 2**28
    host = torch.empty(size, dtype=torch.uint8)
    here, there, pinned = host.to(GPU), host.to(GPU), host.pin_memory()
    copies: dict[str, Callable[[], Any]] = {
        "copy on the GPU": lambda: there.copy_(here),
        "upload, pageable": lambda: here.copy_(host),
        "upload, page-locked": lambda: here.copy_(pinned, non_blocking=True),
    }
    for name, copy in copies.items():
        bench.rate(("floors", name), "GB/s", size / 1e9, copy)
    small = torch.zeros(1, device=GPU)

    def launches() -> None:
        for _ in range(1000):
            small.add_(1)

    bench.time(("floors", "start of 1,000 operations"), launches)
    bench.time(("floors", "a wait"), small.item)


def evaluation(bench: Bench) -> None:
    """Retrieval metrics beside the product of all with all, and beside the CPU's numbers."""
    with allow_tf32(GPU, False):
        for items, classes, size in [(300, 20, 16)] if bench.tiny else SETS:
            retrieval(bench, items, classes, size)


def retrieval(bench: Bench, items: int, classes: int, size: int) -> None:
    """The same of one set."""
    x, labels = data({"items": items, "classes": classes, "size": size}, 1.5, GPU)
    title = f"{items:,} x {size}, {classes:,} classes"

    def product() -> None:
        for part in F.normalize(x).split(2**14):
            part @ x.t()

    def metrics() -> RetrievalResult:
        return RetrievalMetrics()(x, labels)

    def peak() -> float:
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        metrics()
        return float(torch.cuda.max_memory_allocated() - before) / 2**20

    def away() -> float:
        found, expected = metrics(), RetrievalMetrics()(x.cpu(), labels.cpu())
        return max(abs(found[name] - expected[name]) for name in expected)

    floor = bench.time(("evaluation", f"{title}: product"), product)
    bench.time(("evaluation", f"{title}: metrics"), metrics, floor)
    bench.measure("evaluation", f"{title}: peak", "MiB", peak)
    if items <= 6000:
        bench.measure("evaluation", f"{title}: away from the CPU's", "", away)


def networks(bench: Bench) -> None:
    """Steps of bare networks in every precision and layout, and of fold runs in every setting."""
    for name in CASES[:1] if bench.tiny else CASES:
        try:
            steps(bench, name)
        except Exception as error:  # such as a trunk that needs torchvision
            bench.rows.append(Row("networks", name, None, "", None, in_a_line(error)))


def steps(bench: Bench, name: str) -> None:
    """The same of one network."""
    case = {**training.CASES[name], "autocast": "none", "epoch": 1 if bench.tiny else 20}
    if bench.tiny:
        case["images"] = {**case["images"], "classes": 40, "each": 2}
    fold = training.make_fold(case, BATCH, GPU)
    fold.module.train()
    bare, images = Bare(fold), "images/s"
    with allow_tf32(GPU, False):
        floor = bench.rate(("networks", f"{name}, bare, float32"), images, BATCH, bare.step)
        epoch = functools.partial(fold.train_steps, case["epoch"])
        of_epoch = BATCH * case["epoch"]
        bench.rate(("networks", f"{name}, fold run, float32"), images, of_epoch, epoch, floor)
        what = "networks", f"{name}, CUDA graph, float32", images
        bench.measure(*what, lambda: BATCH / bench.seconds(bare.captured()), floor)
    kinds = ("TF32", "bf16") if bench.tiny else ("float32", "TF32", "bf16", "fp16")
    for kind, benchmark, last in itertools.product(kinds, (False, True), (False, True)):
        words = [kind, *["cudnn.benchmark"] * benchmark, *["channels_last"] * last]
        if words != ["float32"]:
            with allow_tf32(GPU, kind == "TF32"), bare.done_by(kind, benchmark, last):
                what = "networks", f"{name}, bare, {', '.join(words)}", images
                bench.rate(what[:2], images, BATCH, bare.step, floor)
    settings(bench, name, fold)
    validations(bench, name, fold)


def settings(bench: Bench, name: str, fold: Trainer) -> None:
    """Whole steps, optimisers included, with each setting that may help."""
    shape = training.input_shape(fold.train_set, fold.task.training.augmentation)
    in_turn = itertools.cycle(list(fold.batches.take(4)))

    def rate(gpu: dict[str, Any]) -> float:
        how = fold.task.training.model_copy(
            update={"gpu": GpuSettings(**{"cuda_graph": False, **gpu})}
        )
        task = dataclasses.replace(fold.task, training=how)
        module = TrainingModule(task, fold.train_set.num_classes, shape, GPU)
        module.train()
        for _ in range(WARM_UP + CHECKS):
            module.step(*next(in_turn))
        seconds = bench.seconds(lambda: module.step(*next(in_turn)))
        if module.remarks():
            raise RuntimeError(module.remarks()[0])
        return BATCH / seconds

    floor: Row | None = None
    compiled = ["compile"] * (name == "resnet18-64")  # it takes a minute
    for key in ("plain", "cuda_graph", "channels_last", *compiled):
        gpu = {} if key == "plain" else {key: True}
        how = functools.partial(rate, gpu)
        row = bench.measure("networks", f"{name}, steps, {key}", "images/s", how, floor)
        floor = floor or row
        torch.cuda.empty_cache()


def validations(bench: Bench, name: str, fold: Trainer) -> None:
    """Embeddings of a validation fold."""
    assert fold.validation is not None
    count = min(len(fold.validation), 32 if bench.tiny else 512)
    rows, network = np.arange(count), fold.network

    def embeddings() -> Tensor:
        return embed(network, network, fold.validation_images.evaluation_batches(rows))

    with torch.no_grad():
        bench.rate(("networks", f"{name}, embeddings"), "images/s", count, embeddings)


class Bare:
    """Forward and backward passes of a network and a loss on one batch.

    Args:
        fold: whose network.
    """

    def __init__(self, fold: Trainer) -> None:
        self.network: Any = fold.module.network
        shape = training.input_shape(fold.train_set, fold.task.training.augmentation)
        height, width, channels = shape
        self.x = torch.randn(BATCH, channels, height, width, device=GPU)
        self.labels = torch.arange(BATCH, device=GPU)
        self.loss = NormalizedSoftmaxLoss(BATCH, 128).to(GPU)
        self.kind: Any = "none"

    def step(self) -> None:
        """Both passes."""
        with autocast(GPU, self.kind):
            embeddings = self.network(self.x)
        self.loss(embeddings, self.labels).backward()

    @contextlib.contextmanager
    def done_by(self, kind: str, benchmark: bool, last: bool) -> Iterator[None]:
        """In a precision, by the fastest algorithms of some that are tried, and in a layout."""
        before = torch.backends.cudnn.benchmark
        try:
            torch.backends.cudnn.benchmark = benchmark
            self.kind = kind if kind in ("bf16", "fp16") else "none"
            self._lay(torch.channels_last if last else torch.contiguous_format)
            yield
        finally:
            torch.backends.cudnn.benchmark, self.kind = before, "none"
            self._lay(torch.contiguous_format)

    def _lay(self, layout: torch.memory_format) -> None:
        self.network.zero_grad(set_to_none=True)
        self.network.to(memory_format=layout)
        self.x = self.x.contiguous(memory_format=layout)

    def captured(self) -> Callable[[], None]:
        """The step as a CUDA graph."""
        self.network.zero_grad(set_to_none=True)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.step()
        torch.cuda.current_stream().wait_stream(side)
        graph: Any = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.step()
        return graph.replay


def losses(bench: Bench) -> None:
    """Softmaxes over many classes, beside plain code, alone and compiled."""
    for classes in (500,) if bench.tiny else CLASSES:
        softmax(bench, classes)


def softmax(bench: Bench, classes: int) -> None:
    """The same of one number of classes."""
    x = torch.randn(BATCH, 128, device=GPU, requires_grad=True)
    labels = torch.arange(BATCH, device=GPU)
    ours = NormalizedSoftmaxLoss(classes, 128).to(GPU)
    sampled = NormalizedSoftmaxLoss(classes, 128, class_sampler=ClassSampler(0.1)).to(GPU)

    def plain(x: Tensor, labels: Tensor) -> Tensor:
        logits = F.linear(F.normalize(x), F.normalize(ours.proxies)) / 0.05
        return F.cross_entropy(logits, labels)

    def step(loss: Callable[..., Tensor]) -> None:
        loss(x, labels).backward()

    kinds: dict[str, Callable[..., Tensor]] = {"ours": ours, "ours, 10 % of classes": sampled}
    for size in [100] if bench.tiny else CHUNKS:
        chunked = NormalizedSoftmaxLoss(classes, 128, softmax=ChunkedSoftmax(size)).to(GPU)
        kinds[f"ours, {size:,} classes at a time"] = chunked
    if not bench.tiny:
        kinds |= {"plain, compiled": torch.compile(plain), "ours, compiled": torch.compile(ours)}
    name = f"{classes:,} classes"
    floor = bench.time(("losses", f"{name}, plain"), functools.partial(step, plain))
    for title, loss in kinds.items():
        bench.time(("losses", f"{name}, {title}"), functools.partial(step, loss), floor)


def heads(bench: Bench) -> None:
    """Whole trainings of a head on frozen features, as protocol `features` has them."""
    classes = features.CLASSES
    made, count = features.experiment(), 400 if bench.tiny else 6000
    sets = [features.vectors(count, classes, name) for name in ("train", "validation")]
    rules = made.protocol.training.model_copy(
        update={"max_epochs": 1 if bench.tiny else 10, "patience": None}
    )

    def seconds(gpu: dict[str, bool]) -> float:
        how = rules.model_copy(update={"gpu": GpuSettings(**{"cuda_graph": False, **gpu})})
        with tempfile.TemporaryDirectory() as folder:
            fold = features.trainer(made, sets[0], sets[1], Path(folder), GPU, how)
            begun = time.perf_counter()
            fold.run()
            torch.cuda.synchronize()
            spent = time.perf_counter() - begun
        if fold.module.remarks():
            raise RuntimeError(fold.module.remarks()[0])
        return spent

    floor: Row | None = None
    bench.measure("heads", f"{count:,} x {features.WIDTH}, warm-up", "s", lambda: seconds({}))
    for gpu in ({}, {"cuda_graph": True}):
        name = f"{count:,} x {features.WIDTH}, a training, {', '.join(gpu) or 'plain'}"
        how = functools.partial(seconds, gpu)
        row = bench.measure(
            "heads", name, "s", lambda how=how: statistics.median(how() for _ in range(3)), floor
        )
        floor = floor or row


def exactness(bench: Bench) -> None:
    """Numbers that have to agree, and by how much they do."""
    case: dict[str, Any] = {**training.CASES["conv4-28"], "epoch": 3}
    case["images"] = {**case["images"], "classes": 40, "each": 10}
    first = last_epoch(case)
    others: dict[str, dict[str, Any]] = {
        "the same fold run again": {},
        "one that was stopped and continued": {"stopped": True},
        "with TF32": {"tf32": True},
        "on the CPU": {"device": torch.device("cpu")},
    }
    for name, how in others.items():
        found = functools.cache(functools.partial(last_epoch, case, **how))
        for number, title in ((PRIMARY, "MAP@R"), ("loss", "mean loss")):

            def away(found: Any = found, number: str = number) -> float:
                return abs(found()[number] - first[number])

            bench.measure("exactness", f"{title} of {name}, away by", "", away)


def last_epoch(
    case: dict[str, Any], device: torch.device = GPU, stopped: bool = False, **how: Any
) -> dict[str, float]:
    """What the second epoch of a fold run gives, which may have been stopped after the first."""
    how = {"max_epochs": 2, "evaluate_every": 1, "patience": None, **how}
    fold = training.make_fold(case, BATCH, device, **how)
    if stopped:
        what = (fold.task, fold.train_set, fold.validation, fold.folder, device)

        def stop(position: dict[str, Any]) -> None:
            raise KeyboardInterrupt

        with contextlib.suppress(KeyboardInterrupt):
            Trainer(*what, on_progress=stop, checkpoint_seconds=0).run()
        fold = Trainer(*what)
    return dict(fold.run().curve[-1])


def folds(bench: Bench) -> None:
    """Several fold runs on this GPU at once, each a process, also by NVIDIA's MPS."""
    for count in () if bench.tiny else (2, 4):  # other processes see no simulated GPU
        name = f"resnet18-64, {count} at once, in sum"
        how = functools.partial(rate_at_once, bench, count)
        alone = bench.measure("folds", name, "images/s", how)

        def shared(how: Any = how) -> float:
            with mps() as environment:
                return float(how(environment))

        bench.measure("folds", f"{name}, with MPS", "images/s", shared, alone)


def rate_at_once(bench: Bench, count: int, environment: dict[str, str] | None = None) -> float:
    """Images per second of so many processes together."""
    here = str(Path(__file__).parent / "training.py")
    options = ["--device", "cuda", "--cases", "resnet18-64", "--seconds", "2"]
    done = subprocess.run(
        [sys.executable, here, *options, "--folds", str(count)],
        capture_output=True,
        text=True,
        timeout=max(1.0, bench.left()),
        check=True,
        env=environment,
    )
    return float(done.stdout.strip().rpartition(": ")[2].split()[0])


@contextlib.contextmanager
def mps() -> Iterator[dict[str, str]]:
    """NVIDIA's Multi-Process Service, for processes with the environment that is yielded.

    Their operations run side by side, where a GPU otherwise gives its processes turns.
    """
    control = "nvidia-cuda-mps-control"
    with tempfile.TemporaryDirectory() as folder:
        named = dict.fromkeys(("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"), folder)
        environment = {**os.environ, **named}
        subprocess.run([control, "-d"], env=environment, check=True, timeout=30)
        try:
            yield environment
        finally:
            quit_it = {"input": "quit\n", "text": True, "timeout": 30}
            subprocess.run([control], env=environment, check=False, **quit_it)


PARTS: dict[str, Callable[[Bench], None]] = {
    part.__name__: part for part in (floors, heads, evaluation, networks, losses, exactness, folds)
}


def in_a_line(error: Exception) -> str:
    """What an error says, for a table."""
    return " ".join(f"{type(error).__name__}: {error}".replace("|", "/").split())[:200]


def as_text(row: Row) -> str:
    """A row for people."""
    value = "-" if row.value is None else f"{row.value:,.4g} {row.unit}".strip()
    ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
    return f"| {row.part} | {row.name} | {value} | {ratio} | {row.note} |"


def tests(seconds: float) -> str:
    """The last lines of the tests marked gpu."""
    command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "tests"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return f"not finished within {seconds:.0f} s"
    return "\n".join(done.stdout.strip().splitlines()[-20:])


def write(out: Path, about: dict[str, str], rows: list[Row], said: str) -> None:
    """Write both files."""
    out.mkdir(parents=True, exist_ok=True)
    plain = {**about, "rows": [dataclasses.asdict(row) for row in rows], "tests": said}
    (out / "gpu.json").write_text(json.dumps(plain, indent=1) + "\n", encoding="utf-8")
    lines = [f"- {name}: {text}" for name, text in about.items()]
    table = ["| part | what | value | ratio | |", "|---|---|---|---|---|", *map(as_text, rows)]
    text = "\n".join(["# Measured on a GPU", "", *lines, "", *table, "", "```text", said, "```"])
    (out / "gpu.md").write_text(text + "\n", encoding="utf-8")


def main(arguments: list[str] | None = None) -> int:
    """Measure, test, write; the exit status is 0 unless there is no GPU."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("runs/gpu"))
    parser.add_argument("--parts", nargs="*", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--skip-tests", action="store_true")
    options = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        print(f"torch {torch.__version__} sees no CUDA device here.", file=sys.stderr)
        return 2
    memory = torch.cuda.get_device_properties(GPU).total_memory / 2**30
    about = {"GPU": f"{describe_gpu(GPU)}, {memory:.0f} GiB", "torch": str(torch.__version__)}
    bench, said = Bench(options.tiny), "not run"
    for name in options.parts:
        with contextlib.suppress(KeyboardInterrupt):  # what there is by then is worth having
            try:
                PARTS[name](bench)
            except Exception as error:
                bench.rows.append(
                    Row(name, "all", None, "", None, f"{type(error).__name__}: {error}")
                )
            torch.cuda.empty_cache()
        write(options.out, about, bench.rows, said)
    if not options.skip_tests:
        said = tests(max(60.0, IN_ALL - (time.perf_counter() - bench.begun)))
        write(options.out, about, bench.rows, said)
    print(f"\n{said}\n\n{options.out / 'gpu.md'} and {options.out / 'gpu.json'} are written.")
    return 0


if __name__ == "__main__":
    sys.exit(main())

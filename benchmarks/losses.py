"""Time and peak memory of one forward and backward of the losses, beside PML and plain torch.

    python benchmarks/losses.py
    python benchmarks/losses.py --classes 500000 --threads 1
    python benchmarks/losses.py --device cuda

Prints one table for each number of classes, then the terms of StopGradientSoftmaxLoss and then
GradMLLoss. Ratios are against the first row of a table, measured in the same process; the row
"matrix products alone" is the floor of every softmax that looks at all classes. On the CPU memory
is the growth of the process's peak resident size, on a GPU what torch has allocated. On a GPU
there are rows under bfloat16 autocast and of plain code through torch.compile as well, and a line
with the measured bandwidth and matrix throughput.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from pytorch_metric_learning import losses as pml
from pytorch_metric_learning.distances import LpDistance
from pytorch_metric_learning.utils import loss_and_miner_utils as lmu
from torch import Tensor

from pml_extensions.losses import (
    ChunkedSoftmax,
    ClassSampler,
    GradMLLoss,
    NormalizedSoftmaxLoss,
    StopGradientSoftmaxLoss,
)

Step = Callable[[], None]


@dataclass
class Row:
    """One measured way of doing the same."""

    name: str
    seconds: float
    mebibytes: float


def main() -> None:
    """Parse the command line and print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--classes", type=int, nargs="*", default=[1000, 11318, 100000, 500000])
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--size", type=int, default=512, help="embedding size D")
    parser.add_argument("--repeats", type=int, default=3, help="steps timed; the median counts")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    bench = Bench(torch.device(arguments.device), arguments.repeats)
    print(f"torch {torch.__version__}, {bench.describe()}, {arguments.threads} threads")
    for classes in arguments.classes:
        proxy_losses(bench, arguments.batch, classes, arguments.size)
    for classes in arguments.classes:
        stop_gradient(bench, arguments.batch, classes, arguments.size)
    for batch in (512, 2048):
        grad_ml(bench, batch, arguments.size)


class Bench:
    """Times steps and watches their memory on one device."""

    def __init__(self, device: torch.device, repeats: int) -> None:
        self.device = device
        self.repeats = repeats

    def describe(self) -> str:
        """Return the device in words, a GPU with its measured floors."""
        if self.device.type == "cpu":
            return "CPU, float32"
        a = torch.randn(8192, 8192, device=self.device)
        flops = 2 * 8192**3
        single = flops / self._seconds(lambda: a @ a) / 1e12
        b = a.bfloat16()
        half = flops / self._seconds(lambda: b @ b) / 1e12
        copy = 2 * a.numel() * 4 / self._seconds(lambda: a.clone()) / 1e9
        return (
            f"{torch.cuda.get_device_name(self.device)}: {copy:.0f} GB/s copied, "
            f"{single:.0f} TFLOP/s float32, {half:.0f} TFLOP/s bfloat16"
        )

    def rows(self, steps: dict[str, Step]) -> list[Row]:
        """Measure each step after one run to warm up."""
        return [Row(name, *self.measure(step)) for name, step in steps.items()]

    def measure(self, step: Step) -> tuple[float, float]:
        """Return the median seconds and the peak of additional memory in MiB."""
        step()
        before = self._reset_peak()
        step()
        peak = self._peak() - before
        return self._seconds(step), peak / 2**20

    def _seconds(self, step: Callable[[], Any]) -> float:
        times = []
        for _ in range(self.repeats):
            self._wait()
            start = time.perf_counter()
            step()
            self._wait()
            times.append(time.perf_counter() - start)
        return statistics.median(times)

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def _reset_peak(self) -> int:
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
            return torch.cuda.memory_allocated(self.device)
        ctypes.CDLL("libc.so.6").malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak starts anew
        return _status("VmRSS")

    def _peak(self) -> int:
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device)
        return _status("VmHWM")


def _status(field: str) -> int:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {field}; CPU memory is measured on Linux only")


def proxy_losses(bench: Bench, batch: int, classes: int, size: int) -> None:
    """Print the table of softmaxes over ``classes`` proxies."""
    torch.manual_seed(0)
    x = torch.randn(batch, size, device=bench.device, requires_grad=True)
    labels = torch.randint(classes, (batch,), device=bench.device)
    proxies = torch.randn(classes, size, device=bench.device, requires_grad=True)

    def step(loss: Callable[..., Tensor], autocast: bool = False) -> Step:
        def run() -> None:
            with torch.autocast(bench.device.type, torch.bfloat16, enabled=autocast):
                value = loss(x, labels)
            value.backward()
            x.grad = proxies.grad = None
            if isinstance(loss, torch.nn.Module):
                loss.zero_grad()

        return run

    def ours(**kwargs: Any) -> NormalizedSoftmaxLoss:
        # All losses share one set of proxies: at 500,000 classes each set is a gigabyte.
        loss = NormalizedSoftmaxLoss(classes, 1, **kwargs).to(bench.device)
        loss.embedding_size, loss.proxies = size, torch.nn.Parameter(proxies.detach())
        return loss

    def theirs(name: str) -> torch.nn.Module:
        loss = getattr(pml, name)(classes, 1)
        weights = torch.nn.Parameter(proxies.detach())
        if name == "NormalizedSoftmaxLoss":
            loss.W = torch.nn.Parameter(proxies.detach().t())
        else:
            loss.proxies = weights
        return loss.to(bench.device)

    def plain(x: Tensor, labels: Tensor) -> Tensor:
        logits = F.linear(F.normalize(x), F.normalize(proxies)) / 0.05
        return F.cross_entropy(logits, labels)

    def products() -> None:
        with torch.no_grad():
            logits = x @ proxies.t()
            logits @ proxies
            logits.t() @ x

    steps = {
        "PML NormalizedSoftmaxLoss": step(theirs("NormalizedSoftmaxLoss")),
        "PML ProxyAnchorLoss": step(theirs("ProxyAnchorLoss")),
        "plain F.cross_entropy": step(plain),
        "ours": step(ours()),
        "ours, in chunks": step(ours(softmax=ChunkedSoftmax())),
        "ours, 10 % of classes": step(ours(class_sampler=ClassSampler(0.1))),
        "ours, 10 %, sparse": step(
            ours(class_sampler=ClassSampler(0.1, sparse_gradients=True)),
        ),
        "matrix products alone": products,
    }
    if bench.device.type == "cuda":
        compiled = torch.compile(plain)
        steps |= {
            "plain, compiled": step(compiled),
            "plain, compiled, bf16": step(compiled, autocast=True),
            "PML, bf16": step(theirs("NormalizedSoftmaxLoss"), autocast=True),
            "ours, compiled": step(torch.compile(ours())),
            "ours in a bf16 loop": step(ours(), autocast=True),
        }
    show(f"softmax, batch {batch}, {classes:,} classes, D = {size}", bench.rows(steps))


def stop_gradient(bench: Bench, batch: int, classes: int, size: int) -> None:
    """Print what both terms cost together and as two separate softmaxes."""
    torch.manual_seed(0)
    x = torch.randn(batch, size, device=bench.device, requires_grad=True)
    labels = torch.randint(classes, (batch,), device=bench.device)
    # Logits of about 10, as in training; at 100 and more the plain softmax makes denormal numbers.
    proxies = torch.nn.Parameter(torch.randn(classes, size, device=bench.device) / size**0.5)

    def ours(softmax: ChunkedSoftmax | None) -> StopGradientSoftmaxLoss:
        loss = StopGradientSoftmaxLoss(classes, 1, join_mode="always", softmax=softmax)
        loss.to(bench.device)
        loss.embedding_size, loss.proxies = size, proxies
        return loss

    def separate(x: Tensor, labels: Tensor) -> Tensor:
        softmax = F.cross_entropy(x @ proxies.t(), labels, label_smoothing=0.1)
        cosines = F.normalize(x) @ F.normalize(proxies.detach()).t()
        own = cosines.gather(1, labels.unsqueeze(1)).squeeze(1)
        others = (30 * cosines).scatter(1, labels.unsqueeze(1), -torch.inf).logsumexp(dim=1)
        return softmax + F.softplus(others / 30 - own).mean()

    def step(loss: Callable[..., Tensor]) -> Step:
        def run() -> None:
            loss(x, labels).backward()
            x.grad = proxies.grad = None

        return run

    steps = {
        "both terms apart, plain torch": step(separate),
        "ours": step(ours(None)),
        "ours, in chunks": step(ours(ChunkedSoftmax())),
        "softmax term alone, plain torch": step(
            lambda x, labels: F.cross_entropy(x @ proxies.t(), labels, label_smoothing=0.1)
        ),
    }
    show(f"SGSL, batch {batch}, {classes:,} classes, D = {size}", bench.rows(steps))


def grad_ml(bench: Bench, batch: int, size: int) -> None:
    """Print GradML over all pairs against pairs indexed as PML's losses do it."""
    torch.manual_seed(0)
    x = torch.randn(batch, size, device=bench.device, requires_grad=True)
    labels = torch.arange(batch, device=bench.device) // 4
    distance = LpDistance()

    def pairs(k: float) -> Callable[..., Tensor]:
        def loss(x: Tensor, labels: Tensor) -> Tensor:
            a1, p, a2, n = lmu.get_all_pairs_indices(labels)
            matrix = distance(x)
            return 2 * matrix[a1, p].pow(k).mean() - 4 * matrix[a2, n].pow(k).mean()

        return loss

    def step(loss: Callable[..., Tensor]) -> Step:
        def run() -> None:
            loss(x, labels).backward()
            x.grad = None

        return run

    steps = {
        "pairs by index, k = 2": step(pairs(2)),
        "ours, all, k = 2": step(GradMLLoss(quadruples="all")),
        "pairs by index, k = 2.5": step(pairs(2.5)),
        "ours, all, k = 2.5": step(GradMLLoss(k=2.5, quadruples="all")),
        "ours, disjoint, k = 2": step(GradMLLoss()),
    }
    show(f"GradML, batch {batch} (4 of each class), D = {size}", bench.rows(steps))


def show(title: str, rows: list[Row]) -> None:
    """Print one table with ratios against its first row."""
    first = rows[0]
    print(f"\n{title}")
    print(f"  {'':34}{'ms':>10}{'faster':>9}{'MiB':>9}{'smaller':>9}")
    for row in rows:
        smaller = f"{first.mebibytes / row.mebibytes:.1f}x" if row.mebibytes >= 1 else "-"
        print(
            f"  {row.name:34}{row.seconds * 1000:10.1f}{first.seconds / row.seconds:8.1f}x"
            f"{row.mebibytes:9.0f}{smaller:>9}"
        )


if __name__ == "__main__":
    main()

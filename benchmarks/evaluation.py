"""Time and memory of exact retrieval metrics, beside PML's calculator and the bare matrix product.

    python benchmarks/evaluation.py
    python benchmarks/evaluation.py --cases sop-512 million --threads 1
    python benchmarks/evaluation.py --cases fold cub --sizes 32 128 512 1024 --repeats 9
    python benchmarks/evaluation.py --device cuda

Each case prints MAP@R, R-precision and P@1 on unit vectors by ``RetrievalMetrics`` (alone and with
Recall@K to 1,000), by our and by PML's ``AccuracyCalculator`` (faiss, ``k="max_bin_count"``), these
with MAP and MRR too, and the time of the matrix product of all queries with all references alone,
in one process: ``--repeats`` times in turn, of which medians are printed, with the ratio to PML's.
Memory is what is needed beyond the embeddings and labels themselves; where there are several
repeats, it is measured in a turn before them, since the heap has to be emptied for it. Embeddings
are noisy class centres, in random order; ``--noise`` sets how noisy, and P@1 is printed to show
what that means.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import faiss
import torch
import torch.nn.functional as F
from pytorch_metric_learning.utils import accuracy_calculator as pml
from torch import Tensor

from pml_extensions.evaluation import AccuracyCalculator, RetrievalMetrics

PML = "PML AccuracyCalculator"
OURS = "our AccuracyCalculator"
ALL = ", MAP and MRR too"
THREE = ("mean_average_precision_at_r", "r_precision", "precision_at_1")
MORE = ("mean_average_precision", "mean_reciprocal_rank")
RECALL_AT = (1, 10, 100, 1000)
SOP = {"items": 60502, "classes": 11316}
CASES: dict[str, dict[str, int]] = {
    "fold": {"items": 1500, "classes": 50, "size": 128},
    "cub": {"items": 5924, "classes": 100, "size": 128},
    "sop-128": {**SOP, "size": 128},
    "sop-512": {**SOP, "size": 512},
    "skewed-128": {**SOP, "size": 128, "largest": 1000},
    "million": {"items": 1_005_000, "classes": 200_000, "size": 128, "queries": 5000},
}


def main() -> None:
    """Parse the command line and print one table for each case."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", nargs="*", default=list(CASES), choices=list(CASES))
    parser.add_argument("--sizes", nargs="*", type=int, help="instead of the cases' own")
    parser.add_argument("--noise", type=float, default=1.5)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--without-pml", action="store_true", help="PML takes 7 GB for sop-*")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    faiss.omp_set_num_threads(arguments.threads)
    device = torch.device(arguments.device)
    print(f"torch {torch.__version__}, {device}, {arguments.threads} threads")
    for name in arguments.cases:
        for size in arguments.sizes or [CASES[name]["size"]]:
            case = {**CASES[name], "size": size}
            run(name, case, arguments.noise, device, not arguments.without_pml, arguments.repeats)


def run(
    name: str,
    case: dict[str, int],
    noise: float,
    device: torch.device,
    with_pml: bool,
    repeats: int,
) -> None:
    """Print the table of one case."""
    q, y = data(case, noise * (case["size"] / 128) ** 0.35, device)
    x, labels = q, y
    reference: tuple[Tensor, ...] = ()
    if "queries" in case:
        q, x = q[: case["queries"]], q[case["queries"] :]
        y, labels = y[: case["queries"]], y[case["queries"] :]
        reference = (x, labels)
    asked = f", {len(q):,} queries" if reference else ""
    product = product_seconds(F.normalize(q), F.normalize(x), device)
    rows: dict[str, Callable[[], Any]] = {
        "ours": lambda: RetrievalMetrics()(q, y, *reference),
        "ours with Recall@1..1,000": lambda: RetrievalMetrics(recall_at=RECALL_AT)(
            q, y, *reference
        ),
    }
    if not reference:
        unit = F.normalize(x)
        for who, cls in ((OURS, AccuracyCalculator), (PML, pml.AccuracyCalculator)):
            for ending, include in (("", THREE), (ALL, (*THREE, *MORE))):
                if cls is AccuracyCalculator or with_pml:
                    calculator = cls(include=include, k="max_bin_count", device=device)
                    rows[who + ending] = partial(calculator.get_accuracy, unit, labels)
    size = f"{len(x):,} x {x.shape[1]}, {len(labels.unique()):,} classes{asked}"
    print(f"\n{name}: {size}; the product alone takes {product:.3f} s")
    results: dict[str, Any] = {}
    took: dict[str, list[float]] = {row: [] for row in rows}
    extra: dict[str, int] = {}
    for turn in range(repeats + (repeats > 1)):
        for row, measure in rows.items():
            before = reset_peak(device) if turn == 0 else 0
            start = time.perf_counter()
            results[row] = measure()
            wait(device)
            if turn > 0 or repeats == 1:
                took[row].append(time.perf_counter() - start)
            if turn == 0:
                extra[row] = peak(device) - before
    for row, result in results.items():
        middle = statistics.median(took[row])
        print(
            f"  {row:40}{middle:8.3f} s{middle / product:7.2f} x product"
            f"{in_parts_of_pml(took, row)}{extra[row] / 2**20:8.0f} MiB"
            f"   P@1 {result['precision_at_1']:.4f}"
            f"  MAP@R {result['mean_average_precision_at_r']:.6f}"
        )


def in_parts_of_pml(took: dict[str, list[float]], row: str) -> str:
    """Return the median ratio to PML's time of the same turn for these metrics, if measured."""
    peer = PML + ALL * row.endswith(ALL)
    if peer not in took:
        return ""
    ratios = [own / theirs for own, theirs in zip(took[row], took[peer], strict=True)]
    return f"{statistics.median(ratios):7.2f} x PML"


def data(case: dict[str, int], noise: float, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return embeddings and labels in random order."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(case["classes"], (case["items"],), generator=generator)
    labels[: case.get("largest", 0)] = case["classes"]
    labels = labels[torch.randperm(len(labels), generator=generator)]
    x = torch.randn(case["items"], case["size"], generator=generator).mul_(noise)
    centres = torch.randn(case["classes"] + 1, case["size"], generator=generator)
    for part in torch.arange(len(x)).split(100_000):
        x[part] += centres[labels[part]]
    return x.to(device), labels.to(device)


def product_seconds(q: Tensor, x: Tensor, device: torch.device) -> float:
    """Return how long the product takes; the best of two, because a machine is never alone."""
    return min(seconds(lambda: multiply(q, x), device) for _ in range(2))


def multiply(q: Tensor, x: Tensor) -> None:
    """Compute all similarities, part by part."""
    for part in q.split(1024):
        for other in x.split(65_536):
            part @ other.t()


def seconds(step: Callable[[], Any], device: torch.device) -> float:
    """Return how long a step takes."""
    wait(device)
    start = time.perf_counter()
    step()
    wait(device)
    return time.perf_counter() - start


def wait(device: torch.device) -> None:
    """Let a GPU finish."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def reset_peak(device: torch.device) -> int:
    """Return the bytes in use and start the peak anew."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return torch.cuda.memory_allocated(device)
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return status("VmRSS")


def peak(device: torch.device) -> int:
    """Return the most bytes in use since ``reset_peak``."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return status("VmHWM")


def status(field: str) -> int:
    """Return a field of this process's status in bytes (Linux)."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {field}; CPU memory is measured on Linux only")


if __name__ == "__main__":
    main()

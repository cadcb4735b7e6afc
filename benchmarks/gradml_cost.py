"""Table 2 of GradML, measured: how the time of a loss grows with the batch.

    python benchmarks/gradml_cost.py --threads 1

One forward and backward of each loss at several batch sizes, two samples a class, and the power of
the batch size between the middle one and the last, beside the order that the paper prints. What a
loss does besides its terms, such as PML's masks of all pairs, is in the time, so that it may grow
otherwise. Of the losses of the table, EE, HPHN-triplet and the binomial deviance are not here.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable

import torch
from pytorch_metric_learning import losses as pml

from pml_extensions.losses import GradMLLoss

SIZE = 128
CLASSES = 100
#: By name: the order that Table 2 prints, and what makes the loss.
LOSSES: dict[str, tuple[str, Callable[[], torch.nn.Module]]] = {
    "GradML, disjoint": ("B", GradMLLoss),
    "GradML, all": ("-", lambda: GradMLLoss(quadruples="all")),
    "ProxyNCA": ("B", lambda: pml.ProxyNCALoss(CLASSES, SIZE)),
    "triplet, one an anchor": ("B", lambda: pml.TripletMarginLoss(triplets_per_anchor=1)),
    "lifted structure": ("(B - N) B", pml.LiftedStructureLoss),
    "multi-similarity": ("N (B - N) B", pml.MultiSimilarityLoss),
}


def seconds(loss: torch.nn.Module, batch: int, repeats: int) -> float:
    """The median of one forward and backward."""
    x = torch.randn(batch, SIZE, generator=torch.Generator().manual_seed(0)).requires_grad_()
    labels = torch.arange(batch) // 2 % CLASSES
    times = []
    for _ in range(repeats + 1):
        started = time.perf_counter()
        loss(x, labels).backward()
        times.append(time.perf_counter() - started)
    return statistics.median(times[1:])


def main() -> None:
    """Parse the command line and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batches", type=int, nargs="+", default=[32, 64, 128, 256])
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--threads", type=int)
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    print(f"{'loss':<24}{'printed':<14}", *(f"{f'B={b}':>9}" for b in options.batches), "   power")
    first, last = options.batches[len(options.batches) // 2], options.batches[-1]
    for name, (printed, make) in LOSSES.items():
        torch.manual_seed(0)
        loss = make()
        taken = {batch: seconds(loss, batch, options.repeats) for batch in options.batches}
        power = math.log(taken[last] / taken[first]) / math.log(last / first) if last > first else 0
        cells = (f"{1000 * taken[b]:7.2f}ms" for b in options.batches)
        print(f"{name:<24}{printed:<14}", *cells, f"{power:8.2f}")


if __name__ == "__main__":
    main()

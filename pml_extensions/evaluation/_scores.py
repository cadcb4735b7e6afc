"""Metrics of each query from the ranks of its own references (of its class), and class means."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class Scores:
    """Computes and stores the metrics of each query, from the ranks of its own references.

    Ranks above ``nearest`` do not count; None: all ranks count.
    """

    def __init__(
        self,
        names: Sequence[str],
        recall_at: Sequence[int],
        num_queries: int,
        device: torch.device,
        nearest: int | None = None,
    ) -> None:
        self.names = names
        self.recall_at = recall_at
        self.nearest = torch.inf if nearest is None else nearest
        shape = (len(names), num_queries)
        self.values = torch.full(shape, torch.nan, dtype=torch.float64, device=device)

    def limits(self, num_references: int) -> tuple[int | None, int]:
        """Return the highest rank that must be exact, and the same for the best own reference.

        The first is None if it is R, the number of own references of the query.
        """
        # MAP needs the ranks of all own references, and MRR that of the best, however far they are.
        last = int(min(self.nearest, num_references))
        limit = last if "mean_average_precision" in self.names else None
        first_limit = last if "mean_reciprocal_rank" in self.names else max((*self.recall_at, 1))
        return limit, first_limit

    def add(self, queries: Tensor, ranks: Tensor, num_own: Tensor) -> None:
        """Compute the metrics of some queries.

        Args:
            queries: Indices of the queries, shape (Q,).
            ranks: Ranks of their own references, best first, shape (Q, K).
            num_own: Number R of own references, shape (Q,).
        """
        r, first = num_own.double(), ranks[:, 0]
        k = torch.arange(1, ranks.shape[1] + 1, device=ranks.device, dtype=torch.float64)
        precision = k / ranks
        # The k-th rank is at least k, so the ranks of padding are above R.
        in_first_r = ranks <= r.clamp(max=self.nearest).unsqueeze(1)

        def is_counted() -> Tensor:
            return (k <= num_own.unsqueeze(1)) & (ranks <= self.nearest)

        def is_within(n: int) -> Tensor:
            return (first <= n).double()

        # Functions, so that only the chosen metrics are computed.
        metrics: dict[str, Callable[[], Tensor]] = {
            "precision_at_1": partial(is_within, 1),
            "r_precision": lambda: in_first_r.sum(dim=1) / r.clamp(max=self.nearest),
            "mean_average_precision_at_r": lambda: (precision * in_first_r).sum(dim=1) / r,
            "mean_average_precision": lambda: (precision * is_counted()).sum(dim=1) / r,
            "mean_reciprocal_rank": lambda: (precision * is_counted())[:, 0],
            **{f"recall_at_{n}": partial(is_within, n) for n in self.recall_at},
        }
        values = torch.stack([metrics[name]() for name in self.names])
        self.values[:, queries] = values.masked_fill_(num_own == 0, torch.nan)

    def arrays_and_norms(
        self, *vectors: Tensor
    ) -> tuple[dict[str, NDArray[np.float64]], NDArray[Any]]:
        """Return the metrics of all queries, and on a GPU the norms of ``vectors``.

        The norms, which show NaN and infinity, are copied together with the metrics, with a single
        synchronisation. On a CPU their array is empty.
        """
        if self.values.device.type == "cpu":
            return dict(zip(self.names, self.values.numpy(), strict=True)), np.zeros(0)
        norms = torch.stack(
            [torch.linalg.vector_norm(part, dtype=torch.float64) for part in vectors]
        )
        numbers = torch.cat((self.values.flatten(), norms)).cpu().numpy()
        values = numbers[: self.values.numel()].reshape(self.values.shape)
        return dict(zip(self.names, values, strict=True)), numbers[values.size :]


def class_means(
    per_query: dict[str, NDArray[np.float64]],
    labels: NDArray[np.int64],
    is_query: NDArray[np.bool_],
) -> tuple[NDArray[np.int64], dict[str, NDArray[np.float64]]]:
    """Return the distinct labels of the queries, ascending, and the class means of each metric.

    Args:
        per_query: Metrics, each of shape (N,).
        labels: Labels of the Q queries that count, shape (Q,).
        is_query: Which of the N queries count, shape (N,).
    """
    classes, class_index, counts = np.unique(labels, return_inverse=True, return_counts=True)
    means = {
        name: np.bincount(class_index, values[is_query], len(classes)) / counts
        for name, values in per_query.items()
    }
    return classes, means

"""Metrics of queries from the ranks of their own references, and means of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class Scores:
    """Metrics of queries, made of the ranks of their own references up to ``nearest``."""

    def __init__(
        self,
        names: Sequence[str],
        recall_at: Sequence[int],
        queries: int,
        device: torch.device,
        nearest: int | None = None,
    ) -> None:
        self.names = names
        self.recall_at = recall_at
        self.nearest = nearest
        shape = (len(names), queries)
        self.values = torch.full(shape, torch.nan, dtype=torch.float64, device=device)

    def limits(self, references: int) -> tuple[int | None, int]:
        """Return up to which rank own references matter (None: R), and the same of the best."""
        last = min(self.nearest or references, references)
        limit = last if "mean_average_precision" in self.names else None
        first_limit = last if "mean_reciprocal_rank" in self.names else max((*self.recall_at, 1))
        return limit, first_limit

    def add(self, queries: Tensor, ranks: Tensor, own: Tensor) -> None:
        """Take the ranks of the ``own`` (Q,) references of ``queries`` (Q,), shape (Q, K)."""
        r, first = own.double(), ranks[:, 0]
        k = torch.arange(1, ranks.shape[1] + 1, device=ranks.device, dtype=torch.float64)
        precision = k / ranks
        # The k-th rank is at least k, so that ranks which do not exist are above R.
        in_first_r = ranks <= r.clamp(max=self.nearest or torch.inf).unsqueeze(1)

        def exists() -> Tensor:
            return (k <= own.unsqueeze(1)) & (ranks <= (self.nearest or torch.inf))

        def is_within(n: int) -> Tensor:
            return (first <= n).double()

        metrics: dict[str, Callable[[], Tensor]] = {
            "precision_at_1": partial(is_within, 1),
            "r_precision": lambda: in_first_r.sum(dim=1) / r.clamp(max=self.nearest or torch.inf),
            "mean_average_precision_at_r": lambda: (precision * in_first_r).sum(dim=1) / r,
            "mean_average_precision": lambda: (precision * exists()).sum(dim=1) / r,
            "mean_reciprocal_rank": lambda: (precision * exists())[:, 0],
            **{f"recall_at_{n}": partial(is_within, n) for n in self.recall_at},
        }
        values = torch.stack([metrics[name]() for name in self.names])
        self.values[:, queries] = values.masked_fill_(own == 0, torch.nan)

    def arrays(self, *vectors: Tensor) -> tuple[dict[str, NDArray[np.float64]], NDArray[Any]]:
        """Return the metrics of all queries, and the norms of vectors that lie on a GPU.

        All in one copy, which is the last that the host waits for.
        """
        if self.values.device.type == "cpu":
            return dict(zip(self.names, self.values.numpy(), strict=True)), np.zeros(0)
        sums = torch.stack(
            [torch.linalg.vector_norm(part, dtype=torch.float64) for part in vectors]
        )
        numbers = torch.cat((self.values.flatten(), sums)).cpu().numpy()
        values = numbers[: self.values.numel()].reshape(self.values.shape)
        return dict(zip(self.names, values, strict=True)), numbers[values.size :]


def class_means(
    per_query: dict[str, NDArray[np.float64]],
    labels: NDArray[np.int64],
    is_query: NDArray[np.bool_],
) -> tuple[NDArray[np.int64], dict[str, NDArray[np.float64]]]:
    """Return the classes of queries and the mean of each metric within them.

    Args:
        per_query: Metrics, shape (N,) each.
        labels: Classes of the queries, shape (Q,).
        is_query: Which of the N are queries, shape (N,), Q of them.
    """
    classes, class_of, counts = np.unique(labels, return_inverse=True, return_counts=True)
    means = {
        name: np.bincount(class_of, values[is_query], len(classes)) / counts
        for name, values in per_query.items()
    }
    return classes, means

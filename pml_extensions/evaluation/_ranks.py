"""Ranks of the references of a query's class, by counting the references that are more similar.

Retrieval metrics only need the ranks of a query's own references, the R references of its class,
and the k-th best own reference has the rank k plus the number of other references that are more
similar. So nothing is sorted and no list of neighbours is kept: each tile of similarities adds to
the counts. A rank above the limit of all metrics need not be counted further; all other ranks are
called open. For most rows of most tiles only the maximum is computed.
"""

from __future__ import annotations

import torch
from torch import Tensor


class Ranks:
    """Counts the references that are more similar to a query than each of its own references.

    Args:
        similarities: Similarities of each query to the references of its class, in any order,
            shape (Q, K); padded with minus infinity.
        positions: Indices of these references in the data, shape (Q, K). If references are equally
            similar, the smaller index ranks first.
        num_own: Number R of own references, shape (Q,).
        limits: Highest rank that must be exact, for the best own reference, the second best, ...,
            shape (Q, K).
    """

    def __init__(
        self, similarities: Tensor, positions: Tensor, num_own: Tensor, limits: Tensor
    ) -> None:
        # In order of position, so that the stable sort by similarity breaks ties by position.
        positions, by_position = positions.int().sort(dim=1, stable=True)
        similarities = similarities.gather(1, by_position)
        del by_position
        self.thresholds, order = similarities.sort(dim=1, descending=True, stable=True)
        self.positions = positions.gather(1, order)
        del order
        self.num_own = num_own
        k = torch.arange(1, similarities.shape[1] + 1, dtype=torch.int32, device=num_own.device)
        # The ranks if no reference of another class precedes.
        self._uncounted_ranks = k.expand_as(similarities)
        # If more references of other classes precede, the k-th rank exceeds its limit. Padding is
        # never counted.
        self._max_preceding = torch.where(k <= num_own.unsqueeze(1), limits.int() - k, -1)
        self._num_preceding = torch.zeros_like(self.positions)
        # Of each query: number of open ranks, and similarity of the own reference at the last one.
        self._num_open = torch.zeros(len(num_own), dtype=torch.int32, device=num_own.device)
        self._lowest_open = self.thresholds.new_zeros(len(num_own))
        self._update(torch.arange(len(num_own), device=num_own.device))

    def ranks(self) -> Tensor:
        """Return the ranks of the own references, best first, counted from 1, shape (Q, K).

        A rank that exceeds its limit is not exact, but exceeds the limit.
        """
        return self._uncounted_ranks + self._num_preceding

    @property
    def finished(self) -> bool:
        """Whether no rank needs further counting."""
        return not bool((self._num_open > 0).any())

    def count(self, similarities: Tensor, positions: Tensor) -> None:
        """Count a tile of references, for the queries where one of them can precede an open rank.

        Args:
            similarities: Similarities of queries to references, shape (Q, M); minus infinity for
                references to leave out.
            positions: Indices of the references in the data, shape (M,).
        """
        rows = (similarities.amax(dim=1) >= self._lowest_open).nonzero().squeeze(1)
        if len(rows) == 0:
            return
        self._count(_select_rows(similarities, rows), positions, rows)
        self._update(rows)

    def _count(self, similarities: Tensor, positions: Tensor, rows: Tensor) -> None:
        """Count preceding references for one rank at a time, in the rows where it is open.

        ``rows`` are the queries of the rows of ``similarities``.
        """
        num_open = self._num_open[rows]
        for k in range(int(num_open.max())):
            if k > 0:
                # Only the rows whose next rank is open, too.
                deeper = (num_open > k).nonzero().squeeze(1)
                similarities = similarities.index_select(0, deeper)
                rows, num_open = rows[deeper], num_open[deeper]
            threshold = self.thresholds[rows, k].unsqueeze(1)
            # Comparisons write floats, which are summed several times as fast as bools.
            mask = torch.empty_like(similarities)
            above = torch.gt(similarities, threshold, out=mask).sum(dim=1)
            at_least = torch.ge(similarities, threshold, out=mask).sum(dim=1)
            preceding = above.int()
            tied = (at_least != above).nonzero().squeeze(1)
            # Of equally similar references, those at smaller positions precede.
            if len(tied):
                equal = similarities[tied] == threshold[tied]
                earlier = positions < self.positions[rows[tied], k].unsqueeze(1)
                preceding[tied] += (equal & earlier).sum(dim=1, dtype=torch.int32)
            self._num_preceding[rows, k] += preceding

    def _update(self, rows: Tensor) -> None:
        """Update the number of open ranks in ``rows``, and the similarity of the last open one.

        A rank is open until enough references precede it to exceed its limit.
        """
        is_open = self._num_preceding[rows] <= self._max_preceding[rows]
        # The ranks up to the last open one count as open.
        num_open = (self._uncounted_ranks[rows] * is_open).amax(dim=1)
        last = (num_open.long() - 1).clamp(min=0).unsqueeze(1)
        lowest = self.thresholds[rows].gather(1, last).squeeze(1)
        self._num_open[rows] = num_open
        self._lowest_open[rows] = lowest.masked_fill(num_open == 0, torch.inf)


def _select_rows(matrix: Tensor, rows: Tensor) -> Tensor:
    """Return ``rows`` of a matrix, without slow strided access if it is a transposed view."""
    if matrix.is_contiguous():
        return matrix.index_select(0, rows)
    return matrix.t().index_select(1, rows).t().contiguous()

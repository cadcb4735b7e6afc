"""Ranks of the references of a query's own class, by counting who is more similar.

The metrics of retrieval need the ranks of a query's R own references only, and the rank of the
k-th best of them is k plus the number of references of other classes that are more similar. So
nothing is sorted and no list of neighbours is kept: tiles of similarities come and go, and each
adds to the counts. Where a rank has passed the last one that any metric looks at, its count no
longer matters, and soon most rows of most tiles need no more than their maximum.
"""

from __future__ import annotations

import torch
from torch import Tensor


class Ranks:
    """Counts, for a tile of queries, the references that beat each of their own references.

    Args:
        similarities: Of each query to the references of its class, in any order, shape (Q, K);
            minus infinity where a query has fewer.
        positions: Index of these references in the data, which decides between equal similarities,
            shape (Q, K).
        own: How many there are, R, shape (Q,).
        limits: Last rank that matters for each of the K in order of rank, shape (Q, K).
    """

    def __init__(
        self, similarities: Tensor, positions: Tensor, own: Tensor, limits: Tensor
    ) -> None:
        positions, by_position = positions.int().sort(dim=1, stable=True)
        similarities = similarities.gather(1, by_position)
        del by_position
        self.thresholds, order = similarities.sort(dim=1, descending=True, stable=True)
        self.positions = positions.gather(1, order)
        del order
        self.own = own
        k = torch.arange(1, similarities.shape[1] + 1, dtype=torch.int32, device=own.device)
        self._rank = k.expand_as(similarities)
        # A rank that does not exist never matters.
        self._most_beaten = torch.where(k <= own.unsqueeze(1), limits.int() - k, -1)
        self.beaten = torch.zeros_like(self.positions)
        self._alive = torch.zeros(len(own), dtype=torch.int32, device=own.device)
        self._lowest = self.thresholds.new_zeros(len(own))
        self._update(torch.arange(len(own), device=own.device))

    def ranks(self) -> Tensor:
        """Return the ranks of the own references, best first, from 1, shape (Q, K).

        A rank above its limit is just some number above it.
        """
        return self._rank + self.beaten

    @property
    def finished(self) -> bool:
        """Whether no rank matters any more."""
        return not bool((self._alive > 0).any())

    def count(self, similarities: Tensor, positions: Tensor) -> None:
        """Count references where they can matter.

        Args:
            similarities: Of the queries to these references, shape (Q, M); minus infinity where
                a reference is to be left out.
            positions: Index of the references in the data, shape (M,).
        """
        rows = (similarities.amax(dim=1) >= self._lowest).nonzero().squeeze(1)
        if len(rows) == 0:
            return
        self._count(_rows(similarities, rows), positions, rows)
        self._update(rows)

    def _count(self, similarities: Tensor, positions: Tensor, rows: Tensor) -> None:
        """Add to ``beaten``, one rank after the other, in those rows where it still matters."""
        depths = self._alive[rows]
        for k in range(int(depths.max())):
            if k > 0:
                deeper = (depths > k).nonzero().squeeze(1)
                similarities = similarities.index_select(0, deeper)
                rows, depths = rows[deeper], depths[deeper]
            threshold = self.thresholds[rows, k].unsqueeze(1)
            # Float results, because sums of them run several times as fast as sums of bools.
            mask = torch.empty_like(similarities)
            above = torch.gt(similarities, threshold, out=mask).sum(dim=1)
            level = torch.ge(similarities, threshold, out=mask).sum(dim=1)
            beaten = above.int()
            tied = (level != above).nonzero().squeeze(1)
            if len(tied):
                equal = similarities[tied] == threshold[tied]
                earlier = positions < self.positions[rows[tied], k].unsqueeze(1)
                beaten[tied] += (equal & earlier).sum(dim=1, dtype=torch.int32)
            self.beaten[rows, k] += beaten

    def _update(self, rows: Tensor) -> None:
        """Find how many ranks still matter in these rows, and the lowest similarity among them."""
        matters = self.beaten[rows] <= self._most_beaten[rows]
        alive = (self._rank[rows] * matters).amax(dim=1)
        last = (alive.long() - 1).clamp(min=0).unsqueeze(1)
        lowest = self.thresholds[rows].gather(1, last).squeeze(1)
        self._alive[rows], self._lowest[rows] = alive, lowest.masked_fill(alive == 0, torch.inf)


def _rows(matrix: Tensor, rows: Tensor) -> Tensor:
    """Return these rows, fast of a transposed matrix too."""
    if matrix.is_contiguous():
        return matrix.index_select(0, rows)
    return matrix.t().index_select(1, rows).t().contiguous()

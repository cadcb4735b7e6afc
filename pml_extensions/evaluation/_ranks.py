"""Ranks of the references of a query's class, by counting the references that are more similar.

Retrieval metrics only need the ranks of a query's R own references, and the rank of the k-th best
of them is k plus the number of references of other classes that are more similar. So nothing is
sorted and no list of neighbours is kept: each tile of similarities adds to the counts. A rank that
exceeds the limit of all metrics need not be counted further, so for most rows of most tiles only
the maximum is computed.
"""

from __future__ import annotations

import torch
from torch import Tensor

#: Up to this many open ranks of a row, comparing all similarities with each rank's threshold is
#: faster than sorting single hits in.
_FEW = 8


class Ranks:
    """Counts, for a tile of queries, the references that beat each of their own references.

    Args:
        similarities: Similarities of each query to the references of its class, in any order,
            shape (Q, K); padded with minus infinity.
        positions: Indices of these references in the data, which break ties, shape (Q, K).
        own: Number R of own references, shape (Q,).
        limits: Highest rank that must be exact for each of the K in order of rank, shape (Q, K).
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
        # Ranks of padding never need to be counted.
        self._most_beaten = torch.where(k <= own.unsqueeze(1), limits.int() - k, -1)
        self.beaten = torch.zeros_like(self.positions)
        self._update(slice(None))

    def ranks(self) -> Tensor:
        """Return the ranks of the own references, best first, counted from 1, shape (Q, K).

        A rank above its limit is not exact, but above the limit.
        """
        return self._rank + self.beaten

    @property
    def finished(self) -> bool:
        """Whether no rank needs further counting."""
        return not bool((self._alive > 0).any())

    def count_tile(self, similarities: Tensor, positions: Tensor) -> None:
        """Count one of the first tiles, where most ranks are still open in most rows.

        Args:
            similarities: Similarities of queries to references, shape (Q, M); minus infinity for
                references to leave out.
            positions: Indices of the references in the data, shape (M,).
        """
        rows = torch.arange(len(self.own), device=self.own.device)
        few = self._alive <= 2 * _FEW
        self._raise_lowest(similarities, rows[~few])
        for chosen, count in ((rows[few], self._count_few), (rows[~few], self._count_hits)):
            if len(chosen):
                count(similarities.index_select(0, chosen), positions, chosen)
                self._update(chosen)

    def count(self, similarities: Tensor, positions: Tensor) -> None:
        """Count a tile of references of other classes, in the rows with an open rank.

        Args:
            similarities: Similarities of queries to references, shape (Q, M).
            positions: Indices of the references in the data, shape (M,).
        """
        rows = (similarities.amax(dim=1) >= self._lowest).nonzero().squeeze(1)
        if len(rows) == 0:
            return
        few = self._alive[rows] <= _FEW
        for chosen, count in ((rows[few], self._count_few), (rows[~few], self._count_hits)):
            if len(chosen):
                count(similarities.index_select(0, chosen), positions, chosen)
                self._update(chosen)

    def count_columns(self, similarities: Tensor, positions: Tensor) -> None:
        """Count a tile as ``count`` does, with queries in its columns: shape (M, Q)."""
        columns = (similarities.amax(dim=0) >= self._lowest).nonzero().squeeze(1)
        if len(columns) == 0:
            return
        few = self._alive[columns] <= _FEW
        for chosen, count in ((columns[few], self._count_few), (columns[~few], self._count_hits)):
            if len(chosen):
                count(similarities.index_select(1, chosen).t().contiguous(), positions, chosen)
                self._update(chosen)

    def _raise_lowest(self, similarities: Tensor, rows: Tensor) -> None:
        """Ignore all but the L nearest references of a tile, if L put every rank over its limit."""
        if len(rows) == 0:
            return
        sufficient = self._most_beaten[rows].amax(dim=1).clamp(min=0) + 1
        count = int(sufficient.max())
        if count > similarities.shape[1] // 4:
            return
        nearest = similarities.index_select(0, rows).topk(count, dim=1).values
        last = nearest.gather(1, sufficient.long().unsqueeze(1) - 1).squeeze(1)
        self._lowest[rows] = torch.maximum(self._lowest[rows], last)

    def _count_few(self, similarities: Tensor, positions: Tensor, rows: Tensor) -> None:
        """Count for rows with few open ranks, one rank at a time."""
        depths = self._alive[rows]
        for k in range(int(depths.max())):
            if k > 0:
                deeper = (depths > k).nonzero().squeeze(1)
                similarities = similarities.index_select(0, deeper)
                rows, depths = rows[deeper], depths[deeper]
            self.beaten[rows, k] += self._beaten_in(similarities, positions, k, rows)

    def _beaten_in(
        self, similarities: Tensor, positions: Tensor, k: int, rows: Tensor | slice
    ) -> Tensor:
        """Return how many of the references beat the k-th own reference of each row."""
        threshold = self.thresholds[rows, k].unsqueeze(1)
        # Comparisons write floats, because their sum is several times as fast as that of bools.
        mask = torch.empty_like(similarities)
        above = torch.gt(similarities, threshold, out=mask).sum(dim=1)
        level = torch.ge(similarities, threshold, out=mask).sum(dim=1)
        beaten = above.int()
        tied = (level != above).nonzero().squeeze(1)
        if len(tied):
            equal = similarities[tied] == threshold[tied]
            earlier = positions < self.positions[rows, k][tied].unsqueeze(1)
            beaten[tied] += (equal & earlier).sum(dim=1, dtype=torch.int32)
        return beaten

    def _count_hits(self, similarities: Tensor, positions: Tensor, rows: Tensor) -> None:
        """Count for rows with many open ranks: find each similarity's rank in the thresholds."""
        width = self.thresholds.shape[1]
        is_hit = similarities >= self._lowest[rows].unsqueeze(1)
        flat = is_hit.flatten().nonzero().squeeze(1)
        row = torch.div(flat, similarities.shape[1], rounding_mode="floor")
        value = similarities.flatten()[flat]
        base = (rows * width)[row]
        above = self._num_above(value, base)
        position = positions[flat - row * similarities.shape[1]].int()
        self._move_ties(above, value, base, position)
        wins = (above < width).nonzero().squeeze(1)
        added = self.beaten.new_zeros(len(rows) * width)
        added.index_add_(0, row[wins] * width + above[wins], added.new_ones(len(wins)))
        self.beaten[rows] += added.view(-1, width).cumsum(dim=1, dtype=torch.int32)

    def _num_above(self, value: Tensor, base: Tensor) -> Tensor:
        """Return how many thresholds of its row are above each value, by bisection."""
        thresholds, width = self.thresholds.flatten(), self.thresholds.shape[1]
        above = torch.zeros_like(base)
        for bit in reversed(range(width.bit_length())):
            further = above + (1 << bit)
            is_above = thresholds[base + further.clamp(max=width) - 1] > value
            above = torch.where(is_above & (further <= width), further, above)
        return above

    def _move_ties(self, above: Tensor, value: Tensor, base: Tensor, position: Tensor) -> None:
        """Increase ``above`` in above by the equal thresholds that come earlier in the data."""
        width = self.thresholds.shape[1]
        tied = torch.arange(len(above), device=above.device)
        while len(tied):
            tied = tied[above[tied] < width]
            at = base[tied] + above[tied]
            later = (self.thresholds.flatten()[at] == value[tied]) & (
                self.positions.flatten()[at] < position[tied]
            )
            tied = tied[later]
            above[tied] += 1

    def _update(self, rows: Tensor | slice) -> None:
        """Update the number of open ranks of these rows, and the lowest similarity of those."""
        matters = self.beaten[rows] <= self._most_beaten[rows]
        k = self._rank[rows]
        alive = (k * matters).amax(dim=1)
        lowest = (
            self.thresholds[rows].gather(1, (alive.long() - 1).clamp(min=0).unsqueeze(1)).squeeze(1)
        )
        lowest = lowest.masked_fill(alive == 0, torch.inf)
        if isinstance(rows, slice):
            self._alive, self._lowest = alive, lowest
        else:
            self._alive[rows], self._lowest[rows] = alive, lowest

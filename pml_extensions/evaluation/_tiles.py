"""Ranking of each query's own references from tiles of the similarity matrix."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pml_extensions.evaluation._products import dot_products
from pml_extensions.evaluation._ranks import Ranks
from pml_extensions.evaluation._scores import Scores


@dataclass
class Side:
    """One side of the similarity matrix: queries or references, sorted by class.

    ``vectors`` has shape (N, D); ``offset``, of shape (N,) or None, is added to the similarities;
    ``classes`` holds class indices and ``positions`` the rows in the data, both of shape (N,).
    """

    vectors: Tensor
    offset: Tensor | None
    classes: Tensor
    positions: Tensor

    def tile(self, rows: slice | Tensor) -> Side:
        """Return some of the rows."""
        offset = None if self.offset is None else self.offset[rows]
        return Side(self.vectors[rows], offset, self.classes[rows], self.positions[rows])

    def similarities(self, other: Side, out: Tensor | None = None) -> Tensor:
        """Return the similarity of all pairs, shape (N, M)."""
        similarities = dot_products(self.vectors, other.vectors, out)
        if self.offset is not None and other.offset is not None:
            similarities.add_(self.offset.unsqueeze(1)).add_(other.offset)
        return similarities


@dataclass
class Task:
    """Sizes of the classes, and which ranks the metrics need.

    ``own`` is R for each class, ``members`` its number of references and ``start`` the row of its
    first reference, each of shape (C,). Ranks above ``limit`` (None: R of the query) need not be
    exact; for the best own reference the limit is ``first_limit`` if that is higher.
    """

    own: Tensor
    members: Tensor
    start: Tensor
    limit: int | None
    first_limit: int

    def limits(self, own: Tensor, width: int) -> Tensor:
        """Return the highest rank that must be exact, shape (Q, width), for queries with R."""
        limit = own if self.limit is None else torch.full_like(own, self.limit)
        limits = limit.unsqueeze(1).repeat(1, width)
        limits[:, 0].clamp_(min=self.first_limit)
        return limits


def borders(members: Tensor, size: int) -> list[slice]:
    """Split rows into tiles of at most ``size`` rows that end at the end of a class.

    The classes of a tile have similar sizes, because all its rows are as wide as the largest class.

    Args:
        members: Number of rows of each class, ascending; classes larger than ``size`` are split.
        size: Maximum number of rows of a tile.
    """
    members = members.cpu()
    ends = members.cumsum(0)
    total = int(ends[-1]) if len(ends) else 0
    tiles, start = [], 0
    while start < total:
        first = int(torch.searchsorted(ends, start, right=True))
        fitting = int(torch.searchsorted(ends, start + size, right=True))
        alike = int(torch.searchsorted(members, max(32, 4 * int(members[first])), right=True))
        last = min(fitting, max(alike, first + 1)) - 1
        stop = int(ends[last]) if last >= first else min(start + size, int(ends[first]))
        tiles.append(slice(start, stop))
        start = stop
    return tiles


def rank_among_themselves(side: Side, task: Task, ranked: int, size: int, scores: Scores) -> None:
    """Rank all vectors for the first ``ranked`` ones, which are complete classes.

    Each similarity is computed once and used for both of its vectors.
    """
    in_order = task.start.argsort()
    tiles = borders(task.members[in_order], size)
    queries: list[Ranks | None] = []
    for rows in tiles:
        queries.append(_start(side.tile(rows), rows, task) if rows.start < ranked else None)
    for i, rows in enumerate(tiles):
        first = side.tile(rows)
        for j in range(i + 1, len(tiles)):
            above, below = queries[i], queries[j]
            if (above is None or above.finished) and (below is None or below.finished):
                continue
            second = side.tile(tiles[j])
            similarities = first.similarities(second)
            if above is not None:
                above.count(similarities, second.positions)
            if below is not None:
                below.count(similarities.t(), first.positions)
        query = queries[i]
        if query is not None:
            scores.add(first.positions, query.ranks(), query.own)
            queries[i] = None


def _start(tile: Side, rows: slice, task: Task) -> Ranks:
    """Return the ranks of a tile's queries among the vectors of the same tile."""
    similarities = tile.similarities(tile)
    similarities.fill_diagonal_(-torch.inf)
    columns, inside = own_columns(tile.classes, task, rows.start)
    itself = torch.arange(len(columns), device=columns.device).unsqueeze(1)
    exists = inside & (columns != itself)
    own_similarities = similarities.gather(1, columns).masked_fill(~exists, -torch.inf)
    positions = tile.positions[columns]
    own = task.own[tile.classes]
    ranks = Ranks(own_similarities, positions, own, task.limits(own, columns.shape[1]))
    # Own references are not counted; missing ones are replaced by the query itself.
    similarities.scatter_(1, torch.where(exists, columns, itself), -torch.inf)
    ranks.count(similarities, tile.positions)
    return ranks


def own_columns(
    classes: Tensor, task: Task, start: int, width: int | None = None
) -> tuple[Tensor, Tensor]:
    """Return the columns of each query's class, minus ``start``, and which of them exist.

    ``width`` is the size of the largest of these classes; None: it is computed.
    """
    members = task.members[classes].unsqueeze(1)
    width = int(members.max()) if width is None else width
    step = torch.arange(width, device=classes.device)
    first = (task.start[classes] - start).unsqueeze(1)
    return first + torch.where(step < members, step, 0), step < members


def rank_in_gallery(
    queries: Side, gallery: Side, task: Task, size: int, scores: Scores, exclude_self: bool = False
) -> None:
    """Rank the gallery for queries, which are sorted by class like the gallery.

    With ``exclude_self``, the reference at the query's own position is left out.
    """
    tiles = [
        slice(i, min(i + size, len(gallery.classes))) for i in range(0, len(gallery.classes), size)
    ]
    for start in range(0, len(queries.classes), size):
        tile = queries.tile(slice(start, start + size))
        first = int(task.start[tile.classes[0]])
        last = int(task.start[tile.classes[-1]] + task.members[tile.classes[-1]])
        near = [rows for rows in tiles if rows.stop > first and rows.start < last]
        ranks = _start_in_gallery(tile, gallery, near, task, exclude_self)
        for rows in (*near, *(rows for rows in tiles if rows not in near)):
            if ranks.finished:
                break
            part = gallery.tile(rows)
            similarities = tile.similarities(part)
            if rows in near:
                same = tile.classes.unsqueeze(1) == part.classes
                ranks.count(similarities.masked_fill_(same, -torch.inf), part.positions)
            else:
                ranks.count(similarities, part.positions)
        scores.add(tile.positions, ranks.ranks(), ranks.own)


def _start_in_gallery(
    tile: Side, gallery: Side, near: list[slice], task: Task, exclude_self: bool
) -> Ranks:
    columns, exists = own_columns(tile.classes, task, 0)
    positions = gallery.positions[columns]
    if exclude_self:
        exists &= positions != tile.positions.unsqueeze(1)
    own_similarities = tile.vectors.new_full(columns.shape, -torch.inf)
    for rows in near:
        similarities = tile.similarities(gallery.tile(rows))
        in_tile = exists & (columns >= rows.start) & (columns < rows.stop)
        column = (columns - rows.start).clamp(0, similarities.shape[1] - 1)
        own_similarities = torch.where(in_tile, similarities.gather(1, column), own_similarities)
    own = task.own[tile.classes]
    limits = task.limits(own, columns.shape[1])
    return Ranks(own_similarities, positions, own, limits)

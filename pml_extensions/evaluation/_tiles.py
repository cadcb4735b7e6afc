"""Walks over tiles of similarities and collects the ranks of each query's own references."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pml_extensions.evaluation._products import dot_products
from pml_extensions.evaluation._ranks import Ranks
from pml_extensions.evaluation._scores import Scores


@dataclass
class Side:
    """Vectors in the order in which they are walked over: small classes first, class by class.

    ``vectors`` is of shape (N, D), ``offset`` (None or (N,)) is added to every similarity,
    ``classes`` holds class numbers and ``positions`` the rows in the data, both of shape (N,).
    """

    vectors: Tensor
    offset: Tensor | None
    classes: Tensor
    positions: Tensor

    def tile(self, rows: slice | Tensor) -> Side:
        """Return a part of it."""
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
    """What is to be found for each query.

    ``own`` is R by class number, shape (C,), ``members`` the number of references by class and
    ``start`` the place of the first of them. ``limit`` says up to which rank all own references
    matter (None: R of the query) and ``first_limit`` the same of the best one, if that is higher.
    """

    own: Tensor
    members: Tensor
    start: Tensor
    limit: int | None
    first_limit: int

    def limits(self, own: Tensor, width: int) -> Tensor:
        """Return the last rank that matters, shape (Q, width), of queries with ``own`` R."""
        all_of_them = own if self.limit is None else torch.full_like(own, self.limit)
        limits = all_of_them.unsqueeze(1).repeat(1, width)
        limits[:, 0].clamp_(min=self.first_limit)
        return limits


def borders(members: Tensor, size: int) -> list[slice]:
    """Return tiles of at most ``size`` rows that end where classes end.

    A tile holds no classes of very unlike sizes, because all its rows are as wide as the largest.

    Args:
        members: Rows of each class in order, ascending; a class above ``size`` is cut.
        size: Rows of a tile.
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
    """Rank the first ``ranked`` vectors, whole classes of at most ``size``, among all.

    The similarity of two is computed once and counts for both.
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
    """Return the ranks of a tile's queries with the tile itself counted."""
    similarities = tile.similarities(tile)
    similarities.fill_diagonal_(-torch.inf)
    columns, inside = own_columns(tile.classes, task, rows.start)
    itself = torch.arange(len(columns), device=columns.device).unsqueeze(1)
    exists = inside & (columns != itself)
    own_similarities = similarities.gather(1, columns).masked_fill(~exists, -torch.inf)
    positions = tile.positions[columns]
    own = task.own[tile.classes]
    ranks = Ranks(own_similarities, positions, own, task.limits(own, columns.shape[1]))
    # Only others are counted; what does not exist points at the query itself.
    similarities.scatter_(1, torch.where(exists, columns, itself), -torch.inf)
    ranks.count(similarities, tile.positions)
    return ranks


def own_columns(
    classes: Tensor, task: Task, start: int, width: int | None = None
) -> tuple[Tensor, Tensor]:
    """Return the columns of each query's class, counted from ``start``, and which of them exist.

    ``width`` is the size of the largest of these classes, where it is known.
    """
    members = task.members[classes].unsqueeze(1)
    width = int(members.max()) if width is None else width
    step = torch.arange(width, device=classes.device)
    first = (task.start[classes] - start).unsqueeze(1)
    return first + torch.where(step < members, step, 0), step < members


def rank_in_gallery(
    queries: Side, gallery: Side, task: Task, size: int, scores: Scores, exclude_self: bool = False
) -> None:
    """Rank the gallery for queries, which stand in the order of its classes.

    With ``exclude_self`` no query finds the reference at its own position.
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
        here = exists & (columns >= rows.start) & (columns < rows.stop)
        local = (columns - rows.start).clamp(0, similarities.shape[1] - 1)
        own_similarities = torch.where(here, similarities.gather(1, local), own_similarities)
    own = task.own[tile.classes]
    limits = task.limits(own, columns.shape[1])
    return Ranks(own_similarities, positions, own, limits)

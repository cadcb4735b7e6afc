"""Ranking of each query's own references (of its class) from tiles of the similarity matrix."""

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

    Attributes:
        vectors: Shape (N, D).
        offset: Added to the similarities, shape (N,); None for no offset.
        classes: Class indices, shape (N,).
        positions: Rows in the data, shape (N,).
    """

    vectors: Tensor
    offset: Tensor | None
    classes: Tensor
    positions: Tensor

    def tile(self, rows: slice | Tensor) -> Side:
        """Return some of the rows."""
        offset = None if self.offset is None else self.offset[rows]
        return Side(self.vectors[rows], offset, self.classes[rows], self.positions[rows])

    def similarities(self, other: Side) -> Tensor:
        """Return the similarity of all pairs, shape (N, M)."""
        similarities = dot_products(self.vectors, other.vectors)
        if self.offset is not None and other.offset is not None:
            similarities.add_(self.offset.unsqueeze(1)).add_(other.offset)
        return similarities


@dataclass
class Task:
    """Sizes of the classes, and the ranks that the metrics need.

    Attributes:
        num_own: Number R of own references of a query of each class, shape (C,).
        class_sizes: Number of references of each class, shape (C,).
        class_start: Row of the first reference of each class, shape (C,).
        limit: Highest rank that must be exact; None means R of the query.
        first_limit: The same for the best own reference, if it is higher than ``limit``.
    """

    num_own: Tensor
    class_sizes: Tensor
    class_start: Tensor
    limit: int | None
    first_limit: int

    def limits(self, num_own: Tensor, width: int) -> Tensor:
        """Return the highest rank that must be exact, shape (Q, width), given R of each query."""
        limit = num_own if self.limit is None else torch.full_like(num_own, self.limit)
        limits = limit.unsqueeze(1).repeat(1, width)
        limits[:, 0].clamp_(min=self.first_limit)
        return limits


def split_by_class(class_sizes: Tensor, size: int) -> list[slice]:
    """Split rows into tiles of at most ``size`` rows that end at the end of a class.

    The classes of a tile have similar sizes, because its rows are padded to the largest class.

    Args:
        class_sizes: Number of rows of each class, ascending; classes larger than ``size`` are
            split.
        size: Maximum number of rows of a tile.
    """
    class_sizes = class_sizes.cpu()
    ends = class_sizes.cumsum(0)
    total = int(ends[-1]) if len(ends) else 0
    tiles, start = [], 0
    while start < total:
        # From the first class on, those before ``end_fitting`` fit into a tile, and those before
        # ``end_similar`` are not much larger than the first one.
        first_class = int(torch.searchsorted(ends, start, right=True))
        end_fitting = int(torch.searchsorted(ends, start + size, right=True))
        end_similar = int(
            torch.searchsorted(class_sizes, max(32, 4 * int(class_sizes[first_class])), right=True)
        )
        end_class = min(end_fitting, end_similar)
        # A first class that does not fit is split.
        stop = int(ends[end_class - 1]) if end_class > first_class else start + size
        tiles.append(slice(start, stop))
        start = stop
    return tiles


def rank_among_themselves(
    side: Side, task: Task, num_queries: int, size: int, scores: Scores
) -> None:
    """Rank all vectors for each of the first ``num_queries`` vectors, which are complete classes.

    Each similarity is computed once and used for both of its vectors.
    """
    in_order = task.class_start.argsort()  # the classes in the order of the rows
    tiles = split_by_class(task.class_sizes[in_order], size)
    ranks_of_tiles: list[Ranks | None] = [
        _ranks_in_tile(side.tile(rows), rows, task) if rows.start < num_queries else None
        for rows in tiles
    ]
    for i, rows in enumerate(tiles):
        first, first_ranks = side.tile(rows), ranks_of_tiles[i]
        for j in range(i + 1, len(tiles)):
            second_ranks = ranks_of_tiles[j]
            if all(ranks is None or ranks.finished for ranks in (first_ranks, second_ranks)):
                continue
            second = side.tile(tiles[j])
            similarities = first.similarities(second)
            if first_ranks is not None:
                first_ranks.count(similarities, second.positions)
            if second_ranks is not None:
                second_ranks.count(similarities.t(), first.positions)
        if first_ranks is not None:
            scores.add(first.positions, first_ranks.ranks(), first_ranks.num_own)
            ranks_of_tiles[i] = None  # frees its memory


def _ranks_in_tile(tile: Side, rows: slice, task: Task) -> Ranks:
    """Return the ranks of a tile's queries among the vectors of the same tile."""
    similarities = tile.similarities(tile)
    similarities.fill_diagonal_(-torch.inf)
    columns, inside = own_columns(tile.classes, task, start=rows.start)
    itself = torch.arange(len(columns), device=columns.device).unsqueeze(1)
    exists = inside & (columns != itself)
    own_similarities = similarities.gather(1, columns).masked_fill(~exists, -torch.inf)
    positions = tile.positions[columns]
    num_own = task.num_own[tile.classes]
    ranks = Ranks(own_similarities, positions, num_own, task.limits(num_own, columns.shape[1]))
    # Only references of other classes are counted. A column that does not exist is replaced by
    # that of the query itself.
    similarities.scatter_(1, torch.where(exists, columns, itself), -torch.inf)
    ranks.count(similarities, tile.positions)
    return ranks


def own_columns(
    classes: Tensor, task: Task, start: int = 0, width: int | None = None
) -> tuple[Tensor, Tensor]:
    """Return the columns of the references of each query's class, and which of them exist.

    Both have shape (Q, width). Columns are counted from column ``start`` of all references on; one
    that does not exist repeats the first. ``width`` is the size of the largest of these classes;
    None computes it.
    """
    class_sizes = task.class_sizes[classes].unsqueeze(1)
    width = int(class_sizes.max()) if width is None else width
    step = torch.arange(width, device=classes.device)
    first = (task.class_start[classes] - start).unsqueeze(1)
    return first + torch.where(step < class_sizes, step, 0), step < class_sizes


def rank_in_gallery(
    queries: Side, gallery: Side, task: Task, size: int, scores: Scores, exclude_self: bool = False
) -> None:
    """Rank the references in a gallery for queries that are sorted by class like the gallery.

    With ``exclude_self``, the reference at the query's own position is left out.
    """
    tiles = [
        slice(i, min(i + size, len(gallery.classes))) for i in range(0, len(gallery.classes), size)
    ]
    for start in range(0, len(queries.classes), size):
        tile = queries.tile(slice(start, start + size))
        # Rows of the references of the tile's classes.
        first = int(task.class_start[tile.classes[0]])
        end = int(task.class_start[tile.classes[-1]] + task.class_sizes[tile.classes[-1]])
        own_tiles = [rows for rows in tiles if rows.stop > first and rows.start < end]
        ranks = _initial_ranks(tile, gallery, own_tiles, task, exclude_self)
        # First the tiles with own references, and then all others.
        for rows in (*own_tiles, *(rows for rows in tiles if rows not in own_tiles)):
            if ranks.finished:
                break
            part = gallery.tile(rows)
            similarities = tile.similarities(part)
            if rows in own_tiles:
                # Own references are in ``ranks`` from the beginning.
                same = tile.classes.unsqueeze(1) == part.classes
                ranks.count(similarities.masked_fill_(same, -torch.inf), part.positions)
            else:
                ranks.count(similarities, part.positions)
        scores.add(tile.positions, ranks.ranks(), ranks.num_own)


def _initial_ranks(
    tile: Side, gallery: Side, own_tiles: list[slice], task: Task, exclude_self: bool
) -> Ranks:
    """Return the ranks of a tile's queries before any reference of another class is counted."""
    columns, exists = own_columns(tile.classes, task)
    positions = gallery.positions[columns]
    if exclude_self:
        exists &= positions != tile.positions.unsqueeze(1)
    own_similarities = tile.vectors.new_full(columns.shape, -torch.inf)
    for rows in own_tiles:
        similarities = tile.similarities(gallery.tile(rows))
        in_tile = exists & (columns >= rows.start) & (columns < rows.stop)
        column = (columns - rows.start).clamp(0, similarities.shape[1] - 1)
        own_similarities = torch.where(in_tile, similarities.gather(1, column), own_similarities)
    num_own = task.num_own[tile.classes]
    limits = task.limits(num_own, columns.shape[1])
    return Ranks(own_similarities, positions, num_own, limits)

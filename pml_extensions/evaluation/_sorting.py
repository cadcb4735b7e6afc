"""Ranking of each query's own references (of its class) by sorting the nearest of all classes."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pml_extensions.evaluation._products import dot_products, rounded_products
from pml_extensions.evaluation._query_chunks import for_each_chunk
from pml_extensions.evaluation._scores import Scores
from pml_extensions.evaluation._tiles import Side, Task

#: Maximum size of the groups of references whose maxima bound the search for the nearest ones.
_LARGEST_GROUP = 16
#: Number of similarities that are searched for the nearest references at once.
_SEARCHED_ENTRIES = 2**18
#: If the order of more than 1 / _DOUBTFUL_SHARE of a chunk is in doubt, all of it is computed in
#: float64.
_DOUBTFUL_SHARE = 32
#: Number of references whose mean is the centre of rounded vectors.
_CENTRE_ROWS = 256
#: Number of vector entries that are rounded at once, and that are subtracted at once.
_ROUNDED_ENTRIES = 2**17
_SUBTRACTED_ENTRIES = 2**16


def rank_by_sorting(
    queries: Side,
    references: Side,
    task: Task,
    widths: Sequence[int],
    size: int,
    scores: Scores,
    exclude: Tensor | None,
    halved: bool,
    rounded: bool,
) -> None:
    """Rank by sorting: used for few references, and for classes too large for counting.

    Args:
        queries: Queries in any order.
        references: References in the order of their positions.
        task: Classes and ranks of interest.
        widths: Upper bounds on the class size of each query; needed on a GPU only, to avoid a
            synchronisation.
        size: Number of queries in a chunk.
        scores: Receives the ranks of each chunk.
        exclude: Position of each query among the references, to leave it out.
        halved: Compute each similarity once; only on a CPU, and if the queries are the references.
        rounded: Compare raw vectors in float32 first, and exactly where that leaves the order in
            doubt; only on a CPU.
    """
    on_cpu = queries.vectors.device.type == "cpu"
    # The sides that are multiplied: raw, normalised or rounded vectors. ``scale`` and ``slack`` are
    # explained in _round_vectors.
    left, right, scale, slack = queries, references, 1.0, 0.0
    if rounded:
        left, right, scale, slack = _round_vectors(queries, references)

    def rank(rows: slice, blocks: Sequence[Tensor] = ()) -> None:
        """Rank the references for a chunk of queries."""
        tile = queries.tile(rows)
        excluded = None if exclude is None else exclude[rows]
        if not blocks:
            blocks = [left.tile(rows).similarities(right)]
            if excluded is not None:
                blocks[0].scatter_(1, excluded.unsqueeze(1), -torch.inf)
        width = int(task.num_own[tile.classes].max()) if on_cpu else max(widths[rows])
        exact = _ExactDistances(tile.vectors, references.vectors, scale, slack) if rounded else None
        _rank(tile, blocks, references.classes, task, width, scores, excluded, exact)

    if halved:
        for rows, blocks in _halved_chunks(left, size, rounded):
            rank(rows, blocks)
    else:
        for_each_chunk(len(queries.classes), size, rank)


def _halved_chunks(side: Side, size: int, rounded: bool) -> Iterator[tuple[slice, list[Tensor]]]:
    """Yield chunks of ``size`` rows, and their similarities to all rows in blocks of columns.

    Each product is computed once and kept for the later of its two rows, so at most a quarter of
    all products is in memory. The offset of the query is left out, since it does not change the
    order of the references. The similarity of a row to itself is minus infinity.
    """
    vectors = side.vectors
    offset = (vectors.new_zeros(len(vectors)) if side.offset is None else side.offset).numpy()
    # First row of a later chunk -> its similarities to each earlier chunk, in order.
    kept = defaultdict[int, list[Tensor]](list)
    for start in range(0, len(vectors), size):
        rows = slice(start, start + size)
        if rounded:
            block = rounded_products(vectors, rows)
        else:
            block = dot_products(vectors[rows], vectors[start:])
        block.fill_diagonal_(-torch.inf)
        # NumPy copies, because torch's threads take longer to synchronise than a small copy.
        array = block.numpy()
        for later in range(size, len(vectors) - start, size):
            # The columns of the later chunk, transposed: its rows and the columns of this one.
            part = np.add(array[:, later : later + size].T, offset[rows], order="C")
            kept[start + later].append(torch.from_numpy(part))
        array += offset[start:]
        yield rows, [*kept.pop(start, ()), block]


def _round_vectors(queries: Side, references: Side) -> tuple[Side, Side, float, float]:
    """Round vectors to float32, in which products take half the time that they take in float64.

    Returns:
        Queries and references, centred and scaled to at most length 1; the scale; and the largest
        difference of two similarities that may be in the wrong order (``slack``). The error of a
        product of D-dimensional unit vectors is at most D half units in the last place; 16 more
        cover the rounding of vectors, offsets and sums.
    """
    sides = (references,) if queries is references else (queries, references)
    num_references, dimensions = references.vectors.shape
    largest_entry = max(abs(float(end)) for side in sides for end in side.vectors.aminmax())
    # A power of two, so that scaling is exact; centring at most doubles the longest vector.
    scale = 2.0 ** -math.frexp(largest_entry * math.sqrt(dimensions))[1] / 2
    # Distances do not depend on the centre, so the mean of at most _CENTRE_ROWS vectors suffices.
    centre = references.vectors[:: -(-num_references // _CENTRE_ROWS)].double().mean(dim=0)
    rounded, largest_square = [], 0.0
    for side in sides:
        parts = []
        for part in side.vectors.split(max(1, _ROUNDED_ENTRIES // dimensions)):
            centred = (part - centre).mul_(scale)
            parts.append((centred.float(), centred.square_().sum(dim=1) / -2))
        vectors, offset = (torch.cat(tensors) for tensors in zip(*parts, strict=True))
        # An offset is -|x|^2 / 2.
        largest_square = max(largest_square, -2 * float(offset.min()))
        rounded.append(Side(vectors, offset.float(), side.classes, side.positions))
    slack = 2 * (dimensions + 16) * 2.0**-24 * largest_square
    # If the queries are the references, there is one entry for both.
    return rounded[0], rounded[-1], scale, slack


@dataclass
class _ExactDistances:
    """Computes distances in float64, where similarities of rounded vectors are too close.

    Attributes:
        queries: Raw vectors of a chunk of queries.
        references: Raw vectors of all references.
        scale: Scale of the rounded vectors.
        slack: Largest difference of two similarities that may be in the wrong order.
    """

    queries: Tensor
    references: Tensor
    scale: float
    slack: float

    def similarities(self, rows: Tensor | slice) -> Tensor:
        """Return the negative distances of some queries to all references."""
        x, y = self.queries[rows].double(), self.references.double()
        return -torch.cdist(x * self.scale, y * self.scale)

    def distances(self, rows: NDArray[np.int64], columns: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the distances of pairs of queries and references, or their squares.

        Both have the same order, and only the order is used.
        """
        x, y = self.queries.numpy(), self.references.numpy()
        # For many pairs, the distances of all pairs are computed faster.
        if len(rows) * _DOUBTFUL_SHARE > len(x) * len(y):
            distances: NDArray[np.float64] = -self.similarities(slice(None)).numpy()[rows, columns]
            return distances
        size = max(1, _SUBTRACTED_ENTRIES // x.shape[1])
        squares = np.empty(len(rows))
        for start in range(0, len(rows), size):
            part = slice(start, start + size)
            difference = np.subtract(
                x.take(rows[part], axis=0), y.take(columns[part], axis=0), dtype=np.float64
            )
            squares[part] = np.einsum("nd,nd->n", difference, difference)
        return squares


def _rank(
    tile: Side,
    blocks: Sequence[Tensor],
    classes: Tensor,
    task: Task,
    width: int,
    scores: Scores,
    exclude: Tensor | None,
    exact: _ExactDistances | None,
) -> None:
    """Rank references for a tile of queries that have at most ``width`` own references each.

    ``blocks`` are the similarities to the references, on a GPU a single block.
    """
    num_own = task.num_own[tile.classes]
    num_candidates = len(classes) - int(exclude is not None)
    # At least 1, even if no query of the tile has an own reference.
    width = max(1, min(width, num_candidates))
    # The highest rank that must be exact: R is at most ``width``.
    depth = max(width, task.limit or 0)
    on_cpu = classes.device.type == "cpu"
    # Number of nearest references that are looked at; on a CPU, a farther best own one is found
    # separately below.
    count = min(num_candidates, depth if on_cpu else max(depth, task.first_limit))
    # References of other classes get a rank above every limit.
    no_match = len(classes) + 1
    # Sorting puts the ranks of matches first.
    if on_cpu:
        # Up to the highest rank that must be exact, the order of references matters.
        counts = num_own.clamp(max(task.limit or 0, task.first_limit), count).numpy()
        arrays = [block.numpy() for block in blocks]
        is_own = nearest_by_numpy(arrays, classes, tile.classes, counts, exact)
        all_ranks = np.arange(1, count + 1, dtype=np.int32)
        ranks = torch.from_numpy(np.sort(np.where(is_own, all_ranks, np.int32(no_match))))
    else:
        matches = nearest_by_sorting(blocks[0], classes, tile.classes, count)
        ranks_of_columns = torch.arange(1, count + 1, device=num_own.device)
        ranks = torch.where(matches, ranks_of_columns, no_match).sort(dim=1).values
    if on_cpu and task.first_limit > count:
        missed = ((ranks[:, 0] == no_match) & (num_own > 0)).nonzero().squeeze(1)
        if exact is None:
            similarities = torch.cat([block[missed] for block in blocks], dim=1)
        else:
            similarities = exact.similarities(missed)
            if exclude is not None:
                similarities.scatter_(1, exclude[missed].unsqueeze(1), -torch.inf)
        ranks[missed, 0] = _first_rank(
            similarities, classes == tile.classes[missed].unsqueeze(1)
        ).int()
    scores.add(tile.positions, ranks[:, :width], num_own)


def _first_rank(similarities: Tensor, is_own: Tensor) -> Tensor:
    """Return the rank of the best own reference of each row."""
    # ``max`` returns the first of equal values.
    best, column = similarities.masked_fill(~is_own, -torch.inf).max(dim=1, keepdim=True)
    is_earlier = torch.arange(similarities.shape[1], device=column.device) < column
    return 1 + ((similarities > best) | ((similarities == best) & is_earlier)).sum(dim=1)


def nearest_by_sorting(
    similarities: Tensor, classes: Tensor, query_classes: Tensor, count: int
) -> Tensor:
    """Return which of the ``count`` most similar references are of the query's class.

    Equally similar references rank by index, an order that ``topk`` does not guarantee.

    Args:
        similarities: Shape (Q, M).
        classes: Classes of the references, shape (M,).
        query_classes: Classes of the queries, shape (Q,).
        count: Number of references to find.

    Returns:
        Booleans, most similar reference first, shape (Q, count).
    """
    nearest = similarities.sort(dim=1, descending=True, stable=True).indices[:, :count]
    return classes[nearest] == query_classes.unsqueeze(1)


def nearest_by_numpy(
    blocks: Sequence[NDArray[np.floating]],
    classes: Tensor,
    query_classes: Tensor,
    counts: NDArray[np.int64] | int,
    exact: _ExactDistances | None = None,
) -> NDArray[np.bool_]:
    """Return the result of ``nearest_by_sorting``; on a CPU several times as fast as ``topk``.

    Columns are split into groups. The ``count``-th largest maximum of a group is a lower bound of
    the ``count``-th largest value, so only values from this bound on, the candidates, are sorted.
    Where similarities are not exact, the candidates that are too close to be told apart, and whose
    order matters, are sorted again by exact distances.

    Args:
        blocks: Similarities, shape (Q, M), split into blocks of columns.
        classes: Classes of the references, shape (M,).
        query_classes: Classes of the queries, shape (Q,).
        counts: Number of references whose order matters, for each query or for all; the largest is
            the number of columns of the result.
        exact: Computes exact distances where similarities are too close; None: similarities are
            exact.
    """
    num_rows, num_columns = len(blocks[0]), len(classes)
    slack = blocks[0].dtype.type(0 if exact is None else exact.slack)
    count = int(np.max(counts))
    group_size = max(1, min(_LARGEST_GROUP, num_columns // (4 * count)))
    num_groups = num_columns // group_size
    # Positions of all candidates in the flattened matrix, and their similarities.
    positions, values = [], []
    # Few rows at a time, so that they stay in the cache.
    size = max(1, _SEARCHED_ENTRIES // num_columns)
    for start in range(0, num_rows, size):
        part = np.concatenate([block[start : start + size] for block in blocks], axis=1)
        maxima = part[:, : group_size * num_groups].reshape(-1, group_size, num_groups).max(axis=1)
        maxima.partition(num_groups - count, axis=1)
        flat = np.flatnonzero(part >= maxima[:, [num_groups - count]] - slack)
        positions.append(flat + start * num_columns)
        values.append(part.take(flat))
    flat = np.concatenate(positions)
    # The candidates become the columns of matrices; shorter rows are padded at infinite distance.
    starts = np.arange(num_rows + 1) * num_columns
    # ``first`` is the index in ``flat`` of each row's first candidate.
    first = np.searchsorted(flat, starts)[:, None]
    index = first[:-1] + np.arange(np.diff(first, axis=0).max())
    candidates = flat.take(index, mode="clip") - starts[:-1, None]
    distances = -np.concatenate(values).take(index, mode="clip")
    distances[index >= first[1:]] = np.inf
    is_own = classes.numpy().take(candidates, mode="clip") == query_classes.numpy()[:, None]
    order = np.argsort(distances, axis=1)
    # From columns to positions in the flattened arrays.
    order += np.arange(num_rows)[:, None] * order.shape[1]
    ranked, matches = distances.take(order), is_own.take(order)
    # References farther than the last one that matters by more than ``slack`` do not matter.
    reach = np.minimum(ranked[:, :-1], ranked[np.arange(num_rows), counts - 1][:, None]) + slack
    close = ranked[:, 1:] <= reach
    # The order of two references matters only if exactly one is of the query's class.
    differ = close & (matches[:, 1:] != matches[:, :-1])
    row, rank, run = _mixed_runs(close, differ)
    column = candidates.take(order[row, rank])
    exact_distances = ranked[row, rank] if exact is None else exact.distances(row, column)
    # Each run is sorted by exact distance and then by index.
    matches[row, rank] = matches[row, rank][np.lexsort((column, exact_distances, run))]
    return matches[:, :count]


def _mixed_runs(close: NDArray[np.bool_], differ: NDArray[np.bool_]) -> list[NDArray[np.int64]]:
    """Return row, rank and run of each reference in a run of close references of both kinds.

    The two kinds are references of the query's class and others.

    Args:
        close: Whether each reference is close to the next, in order of distance, shape (R, C - 1).
        differ: Whether the two are close and exactly one of them is of the query's class, in the
            same shape.
    """
    rows = np.flatnonzero(differ.any(axis=1))
    run = np.ones((len(rows), close.shape[1] + 1), np.int64)
    run[:, 1:] = ~close[rows]  # 1 where a run begins, so that the sums number the runs
    run = run.cumsum().reshape(run.shape)
    # Of each run, whether it has references of both kinds.
    is_mixed = np.zeros(run.size + 1, bool)
    is_mixed[run[:, 1:][differ[rows]]] = True
    row, rank = is_mixed[run].nonzero()
    return [rows[row], rank, run[row, rank]]

"""The ranks of each query's own references, from its nearest references of any class."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pml_extensions.evaluation._strips import in_strips
from pml_extensions.evaluation._tiles import Found, Side, Task

#: Most similarities of which the largest stands for all while the nearest are sought.
_LARGEST_GROUP = 16


def rank_by_sorting(
    queries: Side,
    references: Side,
    task: Task,
    widths: Sequence[int],
    size: int,
    found: Found,
    exclude: Tensor | None,
) -> None:
    """Rank by the nearest of all references: for few of them, and for classes too large to count.

    Args:
        queries: Who asks.
        references: In the order of their positions.
        task: What is to be found.
        widths: Members of the class of each query, or more.
        size: Queries taken at a time.
        found: Gets the result.
        exclude: The position of each query among the references, if it is to be left out.
    """
    count = len(queries.classes)
    strip = None
    if queries.vectors.device.type == "cpu":
        strip = queries.vectors.new_empty(min(size, count), len(references.classes))

    def rank(rows: slice) -> None:
        tile = queries.tile(rows)
        out = None if strip is None else strip[: len(tile.classes)]
        similarities = tile.similarities(references, out)
        excluded = None if exclude is None else exclude[rows]
        # At least one, because a query without own references may come alone.
        width = max(1, max(widths[rows]) - int(exclude is not None))
        _rank(tile, similarities, references.classes, task, width, found, excluded)

    in_strips(count, size, rank)


def rank_themselves_by_sorting(side: Side, task: Task, size: int, found: Found) -> None:
    """Rank vectors among themselves, in the order of their positions, on a CPU.

    The similarity of two is computed once and waits for the later of both, so that a quarter of
    all similarities is kept at most.
    """
    count = len(side.classes)
    waiting = defaultdict[int, list[NDArray[np.floating]]](list)
    strip = side.vectors.new_empty(min(size, count), count)
    for start in range(0, count, size):
        tile = side.tile(slice(start, start + size))
        similarities = strip[: len(tile.classes)]
        # NumPy copies: threads would wait for each other longer than small copies take.
        values = similarities.numpy()
        for i, block in enumerate(waiting.pop(start, ())):
            values[:, i * size : (i + 1) * size] = block
        tile.similarities(side.tile(slice(start, None)), out=similarities[:, start:])
        for later in range(start + size, count, size):
            waiting[later].append(values[:, later : later + size].T.copy())
        width = max(1, int(task.own[tile.classes].max()))
        _rank(tile, similarities, side.classes, task, width, found, tile.positions)


def _rank(
    tile: Side,
    similarities: Tensor,
    classes: Tensor,
    task: Task,
    width: int,
    found: Found,
    exclude: Tensor | None,
) -> None:
    """Rank references of these classes for a tile of queries with at most ``width`` own ones."""
    if exclude is not None:
        similarities.scatter_(1, exclude.unsqueeze(1), -torch.inf)
    own = task.own[tile.classes]
    others = len(classes) - int(exclude is not None)
    depth = max(width, task.limit or 0)
    on_cpu = similarities.device.type == "cpu"
    count = min(others, depth if on_cpu else max(depth, task.first_limit))
    matches = classes[_nearest(similarities, count)] == tile.classes.unsqueeze(1)
    place = torch.arange(1, count + 1, device=own.device)
    # Matches come first, in order; the others count as beyond every limit.
    beyond = len(classes) + 1
    ranks = torch.where(matches, place, beyond)
    ranks = torch.from_numpy(np.sort(ranks.numpy())) if on_cpu else ranks.sort(dim=1).values
    if on_cpu and task.first_limit > count:
        lost = ((ranks[:, 0] == beyond) & (own > 0)).nonzero().squeeze(1)
        ranks[lost, 0] = _first(similarities[lost], classes == tile.classes[lost].unsqueeze(1))
    found(tile.positions, ranks[:, :width], own)


def _first(similarities: Tensor, is_own: Tensor) -> Tensor:
    """Return the rank of the best own reference of each row."""
    # Of equal ones the first.
    best, column = similarities.masked_fill(~is_own, -torch.inf).max(dim=1, keepdim=True)
    is_earlier = torch.arange(similarities.shape[1], device=column.device) < column
    return 1 + ((similarities > best) | ((similarities == best) & is_earlier)).sum(dim=1)


def _nearest(similarities: Tensor, count: int) -> Tensor:
    """Return the columns of the ``count`` largest values of each row, ties in order of index."""
    if similarities.device.type == "cpu":
        return torch.from_numpy(nearest_by_numpy(similarities.numpy(), count))
    return nearest_by_sorting(similarities, count)


def nearest_by_sorting(similarities: Tensor, count: int) -> Tensor:
    """Do as ``_nearest`` on any device; ``topk`` leaves open which of several equals it keeps."""
    return similarities.sort(dim=1, descending=True, stable=True).indices[:, :count]


def nearest_by_numpy(similarities: NDArray[np.floating], count: int) -> NDArray[np.int64]:
    """Do as ``_nearest``, several times as fast as topk on a CPU.

    The ``count``-th largest of the maxima of groups is at most the ``count``-th largest value,
    and few others reach it.
    """
    rows, size = similarities.shape
    group = max(1, min(_LARGEST_GROUP, size // (4 * count)))
    groups = size // group
    maxima = similarities[:, : group * groups].reshape(rows, group, groups).max(axis=1)
    bound = np.sort(maxima, axis=1)[:, groups - count]
    flat = np.flatnonzero(~(similarities < bound[:, None]))
    first = np.searchsorted(flat, np.arange(rows + 1) * size)
    step = np.arange(np.diff(first).max())
    candidates = flat.take(first[:-1, None] + step, mode="clip")
    distances = -similarities.reshape(-1).take(candidates)
    distances[first[:-1, None] + step >= first[1:, None]] = np.inf
    nearest = np.argsort(distances, axis=1)
    ranked = np.take_along_axis(distances, nearest, axis=1)[:, : count + 1]
    tied = (ranked[:, 1:] == ranked[:, :-1]).any(axis=1)
    # Candidates stand in order of index, as equal ones have to.
    nearest[tied] = np.argsort(distances[tied], axis=1, kind="stable")
    return np.take_along_axis(candidates, nearest[:, :count], axis=1) % size

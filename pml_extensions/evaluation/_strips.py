"""The ranks of own references on a GPU, where few large operations beat many small ones.

Starting a small operation on a GPU takes longer than the operation, and the host waits for every
result that it reads. So a strip of similarities is as large as memory allows, every shape is known
beforehand, and ties, which a shape could depend on, are resolved at the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from pml_extensions.evaluation._scores import Scores
from pml_extensions.evaluation._tiles import Side, Task, own_columns
from pml_extensions.functional import free_memory

#: Strips take at most this share of the memory that is free, and no more than so many bytes:
#: from there on larger ones are not faster.
_SHARE = 0.25
_MOST_BYTES = 2**32
#: Similarities, and with them their order, the places in it and what sorting needs meanwhile.
VALUES, SORTED = 4, 16


def rows_at_once(references: Side, copies: int, most: int | None) -> int:
    """Return how many queries' similarities to all references a GPU has room for, at least 1.

    Args:
        references: What is searched.
        copies: Numbers needed for each similarity, of its own type.
        most: Not more than these; None: any number.
    """
    vectors = references.vectors
    room = min(_MOST_BYTES, int(_SHARE * free_memory(vectors.device)))
    rows = room // (copies * vectors.element_size() * len(vectors))
    return max(1, rows if most is None else min(rows, most))


def uploaded(device: torch.device, *tensors: Tensor) -> Sequence[Tensor]:
    """Return int64 tensors on a device, those of the host by one copy that it does not wait for."""
    away = [tensor for tensor in tensors if tensor.device != device]
    if not away or device.type != "cuda":
        return [tensor.to(device) for tensor in tensors]
    packed = torch.cat([tensor.flatten() for tensor in away]).pin_memory()
    parts = packed.to(device, non_blocking=True).split([len(tensor) for tensor in away])
    there = iter(parts)
    return [tensor if tensor.device == device else next(there) for tensor in tensors]


def in_strips(count: int, size: int, work: Callable[[slice], None]) -> None:
    """Call ``work`` with all rows, ``size`` at a time, or fewer from where memory runs out."""
    start = 0
    while start < count:
        try:
            work(slice(start, min(start + size, count)))
        except torch.OutOfMemoryError:
            if size == 1:
                raise
            size = max(1, min(size, count - start) // 4)
            continue
        start += size


def rank_by_values(
    queries: Side,
    references: Side,
    task: Task,
    widths: Sequence[int],
    size: int,
    scores: Scores,
    exclude_self: bool,
) -> Tensor:
    """Rank by the values of the largest similarities, of which no order has to be known.

    The rank of the k-th best own reference is k plus the number of others that are more similar.

    Args:
        queries: Who asks, in the order of the classes of ``references``.
        references: Smallest classes first, class by class.
        task: What is to be found.
        widths: Members of the class of each query, ascending.
        size: Queries taken at a time.
        scores: Gets the ranks.
        exclude_self: No query finds the reference at its own position.

    Returns:
        The positions of the queries to which an own reference and another are equally similar,
        where it matters: their ranks are not exact.
    """
    column = torch.empty_like(references.positions)
    column[references.positions] = torch.arange(len(column), device=column.device)
    tied = torch.empty_like(queries.classes, dtype=torch.bool)

    def rank(rows: slice) -> None:
        tile, width = queries.tile(rows), widths[rows.stop - 1]
        columns, exists = own_columns(tile.classes, task, 0, width)
        similarities = tile.similarities(references)
        own_similarities = similarities.gather(1, columns)
        if exclude_self:
            itself = column[tile.positions].unsqueeze(1)
            exists &= columns != itself
            similarities.scatter_(1, itself, -torch.inf)
        own_similarities.masked_fill_(~exists, -torch.inf)
        own = task.own[tile.classes]
        ranks, tied[rows] = _ranks(similarities, own_similarities, own, task)
        scores.add(tile.positions, ranks, own)

    in_strips(len(queries.classes), size, rank)
    return queries.positions[tied]


def _ranks(
    similarities: Tensor, own_similarities: Tensor, own: Tensor, task: Task
) -> tuple[Tensor, Tensor]:
    """Return the ranks of own references, best first, shape (Q, K), and whose are not exact."""
    items, width = similarities.shape[1], own_similarities.shape[1]
    thresholds = own_similarities.sort(dim=1, descending=True).values
    depth = max(width, task.limit or 0)
    # One more than ranks that matter, so that its equal is seen.
    count = min(depth + 1, items)
    above, level = _numbers(_largest(similarities, count), thresholds)
    if task.first_limit > depth:
        best = thresholds[:, :1]
        above[:, 0], level[:, 0] = ((similarities > best).sum(1), (similarities >= best).sum(1))
    own_above, own_level = _numbers(thresholds, thresholds)
    k = torch.arange(1, width + 1, device=own.device)
    is_tied = level - above != own_level - own_above
    if count < items:
        is_tied |= level == count  # there may be more
    is_tied &= (k <= own.unsqueeze(1)) & (above < task.limits(own, width))
    return k + above - own_above, is_tied.any(dim=1)


def _numbers(descending: Tensor, thresholds: Tensor) -> tuple[Tensor, Tensor]:
    """Return how many values of each row are above each threshold, and how many at least that."""
    ascending, bounds = -descending, -thresholds
    above = torch.searchsorted(ascending, bounds)
    return above, torch.searchsorted(ascending, bounds, right=True)


def _largest(values: Tensor, count: int) -> Tensor:
    """Return the ``count`` largest values of each row, the largest first.

    They lie in the ``count`` groups with the largest maxima, so that the row is read only once:
    ``topk`` reads it several times.
    """
    size = values.shape[1]
    group = math.isqrt(size // count)
    if group > 1:
        groups = values[:, : size // group * group].unflatten(1, (-1, group))
        chosen = groups.amax(dim=2).topk(count, dim=1).indices
        inside = groups.gather(1, chosen.unsqueeze(2).expand(-1, -1, group)).flatten(1)
        values = torch.cat([inside, values[:, size // group * group :]], dim=1)
    return values.topk(count, dim=1).values

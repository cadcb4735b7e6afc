"""Ranking on a GPU, with few large operations and few synchronisations.

Launching a small operation on a GPU takes longer than running it, and the host waits for each
result that it reads. So similarities are computed in chunks as large as memory allows, all shapes
are known in advance, and queries with ties are ranked again at the end by sorting.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from pml_extensions.evaluation._scores import Scores
from pml_extensions.evaluation._tiles import Side, Task, own_columns
from pml_extensions.functional import free_memory

#: A chunk takes at most this fraction of the free memory, and at most this many bytes, above which
#: larger chunks are not faster.
_MEMORY_FRACTION = 0.25
_MAX_BYTES = 2**32
#: Numbers in memory for each similarity while ranking by values, and while sorting.
NUMBERS_BY_VALUES, NUMBERS_BY_SORTING = 4, 16


def chunk_rows(references: Side, numbers: int, max_rows: int | None) -> int:
    """Return for how many queries the similarities to all references fit on a GPU, at least 1.

    Args:
        references: All references.
        numbers: Numbers in memory for each similarity, in the dtype of the vectors.
        max_rows: Upper limit of the result; None: no limit.
    """
    vectors = references.vectors
    num_bytes = min(_MAX_BYTES, int(_MEMORY_FRACTION * free_memory(vectors.device)))
    rows = num_bytes // (numbers * vectors.element_size() * len(vectors))
    return max(1, rows if max_rows is None else min(rows, max_rows))


def to_device(device: torch.device, *tensors: Tensor) -> Sequence[Tensor]:
    """Return one-dimensional int64 tensors on a device.

    All tensors on the host are copied to a GPU at once, without waiting for the copy.
    """
    on_host = [tensor for tensor in tensors if tensor.device != device]
    if not on_host or device.type != "cuda":
        return [tensor.to(device) for tensor in tensors]
    packed = torch.cat(on_host).pin_memory()
    copies = packed.to(device, non_blocking=True).split([len(tensor) for tensor in on_host])
    copied = iter(copies)
    return [tensor if tensor.device == device else next(copied) for tensor in tensors]


def for_each_chunk(count: int, size: int, function: Callable[[slice], None]) -> None:
    """Call ``function`` with each slice of ``size`` rows, until all ``count`` rows are done.

    When a call runs out of memory, the size is reduced and the call is repeated.
    """
    start = 0
    while start < count:
        try:
            function(slice(start, min(start + size, count)))
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
    """Rank by the values of the largest similarities, without finding which references have them.

    The rank of the k-th best own reference is k plus the number of other references that are more
    similar.

    Args:
        queries: Queries, in the order of the classes of ``references``.
        references: References, class by class, smallest classes first.
        task: Classes and ranks of interest.
        widths: Number of references in the class of each query, ascending.
        size: Number of queries in a chunk.
        scores: Receives the ranks of each chunk.
        exclude_self: Whether to leave out the reference at the query's own position.

    Returns:
        Positions of the queries whose ranks are not exact, because an own reference and another one
        are equally similar.
    """
    column_of = torch.empty_like(references.positions)  # from position to column
    column_of[references.positions] = torch.arange(len(column_of), device=column_of.device)
    tied = torch.empty_like(queries.classes, dtype=torch.bool)

    def rank(rows: slice) -> None:
        """Rank the references for a chunk of queries."""
        tile, width = queries.tile(rows), widths[rows.stop - 1]  # the last width is the largest
        columns, exists = own_columns(tile.classes, task, width=width)
        similarities = tile.similarities(references)
        own_similarities = similarities.gather(1, columns)
        if exclude_self:
            itself = column_of[tile.positions].unsqueeze(1)
            exists &= columns != itself
            similarities.scatter_(1, itself, -torch.inf)
        own_similarities.masked_fill_(~exists, -torch.inf)
        num_own = task.num_own[tile.classes]
        ranks, tied[rows] = _ranks(similarities, own_similarities, num_own, task)
        scores.add(tile.positions, ranks, num_own)

    for_each_chunk(len(queries.classes), size, rank)
    return queries.positions[tied]


def _ranks(
    similarities: Tensor, own_similarities: Tensor, num_own: Tensor, task: Task
) -> tuple[Tensor, Tensor]:
    """Return the ranks of own references, best first, and for which queries they are inexact.

    ``similarities``, shape (Q, M), include those to own references, which ``own_similarities``,
    shape (Q, K), repeats, padded with minus infinity. The ranks have shape (Q, K). They are inexact
    if an own reference and another one are equally similar, within the ranks of interest.
    """
    num_references, width = similarities.shape[1], own_similarities.shape[1]
    thresholds = own_similarities.sort(dim=1, descending=True).values
    # All ranks up to this one are of interest: R is at most ``width``.
    depth = max(width, task.limit or 0)
    # One more than the ranks of interest, to detect a tie with the last one.
    count = min(depth + 1, num_references)
    # How many references are more similar than each own one, and how many at least as similar.
    above, at_least = _numbers_above(_largest(similarities, count), thresholds)
    # The best own reference may be farther than the ``count`` nearest references.
    if task.first_limit > depth:
        best = thresholds[:, :1]
        above[:, 0], at_least[:, 0] = ((similarities > best).sum(1), (similarities >= best).sum(1))
    # The same among own references.
    own_above, own_at_least = _numbers_above(thresholds, thresholds)
    k = torch.arange(1, width + 1, device=num_own.device)
    # A tie: of the references at a threshold, some are not own ones.
    is_tied = at_least - above != own_at_least - own_above
    if count < num_references:
        is_tied |= at_least == count  # more ties may follow
    is_tied &= (k <= num_own.unsqueeze(1)) & (above < task.limits(num_own, width))
    return k + above - own_above, is_tied.any(dim=1)


def _numbers_above(descending: Tensor, thresholds: Tensor) -> tuple[Tensor, Tensor]:
    """Return how many values of each row are above, and at or above, each threshold."""
    ascending, bounds = -descending, -thresholds
    return torch.searchsorted(ascending, bounds), torch.searchsorted(ascending, bounds, right=True)


def _largest(values: Tensor, count: int) -> Tensor:
    """Return the ``count`` largest values of each row, the largest first.

    They are in the ``count`` groups of columns with the largest maxima, so each row is read once;
    ``topk`` would read it several times.
    """
    num_columns = values.shape[1]
    # Groups of this size have about as many maxima to search as candidates.
    group_size = math.isqrt(num_columns // count)
    if group_size > 1:
        num_grouped = num_columns // group_size * group_size
        groups = values[:, :num_grouped].unflatten(1, (-1, group_size))
        chosen = groups.amax(dim=2).topk(count, dim=1).indices
        candidates = groups.gather(1, chosen.unsqueeze(2).expand(-1, -1, group_size)).flatten(1)
        values = torch.cat([candidates, values[:, num_grouped:]], dim=1)
    return values.topk(count, dim=1).values

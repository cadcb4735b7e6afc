"""Choice of the algorithm that ranks the references of each query's class: counting or sorting.

All algorithms give the same ranks; which is fastest depends on the data (see
``benchmarks/evaluation.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from pml_extensions.evaluation._query_chunks import (
    SORTED,
    VALUES,
    chunk_rows,
    rank_by_values,
    to_device,
)
from pml_extensions.evaluation._scores import Scores
from pml_extensions.evaluation._sorting import rank_by_sorting
from pml_extensions.evaluation._tiles import Side, Task, rank_among_themselves, rank_in_gallery
from pml_extensions.functional import directions

#: Rows and columns of a tile on a CPU.
_CHUNK_SIZE = 1024
#: Maximum number of (query, own reference) pairs in memory, 20 bytes each; beyond it, queries of
#: the largest classes are sorted.
_KEPT_PAIRS = 2**22
#: Maximum number of similarities in memory while sorting on a CPU.
_SORTED_ENTRIES_ON_CPU = 2**19
#: Up to this many references everything is sorted. Of more, only the classes that hold more than
#: 1 / _SORTED_SHARE of them are.
_SORTED_ITEMS = 4096
_SORTED_ITEMS_ON_CPU = 8192
_SORTED_GALLERY_ON_CPU = 32768
_SORTED_SHARE = 64
#: Larger classes are sorted on a CPU, because counting compares every reference with each member.
_LARGEST_COUNTED_CLASS = 16
#: Sorting is slow if more than 1 / _DEEP_SHARE of all ranks must be exact.
_DEEP_SHARE = 16
#: Larger classes are sorted on a GPU, because they have too many ties of float32 similarities.
_LARGEST_UNTIED_CLASS = 256
#: When a CPU sorts all queries of self-retrieval, each similarity is computed once for both vectors
#: if they have at least this many dimensions, in chunks of this many rows, if at most this many
#: similarities must be kept, and if no class holds more than 1 / _HALVED_SHARE of all.
_HALVED_SIZE = 128
_HALVED_ROWS = 384
_HALVED_ENTRIES = 2**24
_HALVED_SHARE = 16
#: A CPU first compares raw vectors in float32 if at most 1 / _ROUNDED_SHARE of all ranks count.
_ROUNDED_SHARE = 8
#: Number of entries that are scaled to unit length at once.
_NORMALIZED_ENTRIES = 2**22
_NORMALIZED_ENTRIES_ON_CPU = 2**18


@dataclass
class Retrieval:
    """Queries, references (None: the queries themselves), and how they are compared.

    With ``includes_query`` the first references are the queries, and each query leaves out itself.
    """

    queries: Tensor
    references: Tensor | None
    normalize: bool
    chunk_size: int | None
    includes_query: bool

    @property
    def on_gpu(self) -> bool:
        return _is_gpu(self.queries.device)

    def rank(self, labels: Tensor, ref_labels: Tensor, scores: Scores) -> None:
        """Add the ranks of each query's own references to ``scores``.

        Args:
            labels: Labels of the queries, int64.
            ref_labels: Labels of the references, int64.
            scores: Receives the ranks, and says which ranks must be exact.

        Raises:
            ValueError: No query has an own reference.
        """
        items = len(ref_labels)
        limit, first_limit = scores.limits(items)
        few = items <= self._sorted_items(items, limit)
        # Few labels are sorted on the host faster than the operations could be launched on a GPU.
        label_device = torch.device("cpu") if few else self.queries.device
        query_class, ref_class, members, query_counts = self._classes(
            labels, ref_labels, label_device
        )
        own = members - int(self.includes_query)
        if not bool(((query_counts > 0) & (own > 0)).any()):
            raise ValueError(
                "no query has a reference of its class other than itself, so there is nothing to "
                "measure; each class needs at least two samples."
            )
        counted = torch.zeros_like(members, dtype=torch.bool)
        if not few:
            counted = self._counted_classes(members, query_counts, items, limit)
        by_size = (members + torch.where(counted, 0, items)).argsort(stable=True)
        # Class size of each query, in the order in which queries are ranked.
        widths = members[by_size].repeat_interleave(query_counts[by_size]).tolist()
        start = torch.empty_like(members)
        start[by_size] = members[by_size].cumsum(0) - members[by_size]
        own, sizes, start = to_device(label_device, own, members, start)
        queries = order = start[ref_class].argsort(stable=True)
        if self.references is not None:
            starts = F.pad(start, (0, 1), value=items)
            queries = starts[query_class].argsort(stable=True)[: len(widths)]
        query_class, ref_class, queries, order, own, sizes, start = to_device(
            self.queries.device, query_class, ref_class, queries, order, own, sizes, start
        )
        task = Task(own, sizes, start, limit, first_limit)
        if not few:
            gallery = self._side(self._searched, ref_class, order)
            count = int(query_counts[counted].sum())
            query_side = gallery.tile(slice(count))
            if self.references is not None:
                query_side = self._side(self.queries, query_class, queries[:count])
            tied = self._count(query_side, gallery, task, widths[:count], scores)
            widths = widths[max(count - 1, 0) : count] * len(tied) + widths[count:]
            queries = torch.cat([tied, queries[count:]])
            del gallery, query_side
        if len(queries) > 0:
            self._sort(query_class, ref_class, task, queries, widths, scores)

    @property
    def _searched(self) -> Tensor:
        return self.queries if self.references is None else self.references

    def _classes(
        self, labels: Tensor, ref_labels: Tensor, label_device: torch.device
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return class indices of queries and of references, and the numbers of both per class.

        Class indices are on ``label_device``, the numbers of references and of queries per class on
        the host. A query whose class has no reference gets the index C.
        """
        (ref_labels,) = to_device(label_device, ref_labels)
        classes, ref_class, members = ref_labels.unique(return_inverse=True, return_counts=True)
        query_class, query_counts = ref_class, members
        if self.references is not None:
            (labels,) = to_device(label_device, labels)
            index = torch.searchsorted(classes, labels.contiguous()).clamp(max=len(classes) - 1)
            query_class = torch.where(classes[index] == labels, index, len(classes))
            query_counts = members.new_zeros(len(classes) + 1)
            query_counts = query_counts.scatter_add_(0, query_class, torch.ones_like(query_class))[
                :-1
            ]
        # The only synchronisation with a GPU: all shapes follow from the class sizes.
        members, query_counts = torch.stack((members, query_counts)).cpu()
        return query_class, ref_class, members, query_counts

    def _sorted_items(self, items: int, limit: int | None) -> int:
        """Return up to how many references all classes are sorted."""
        if self.on_gpu or (limit is not None and limit * _DEEP_SHARE > items):
            return _SORTED_ITEMS
        return _SORTED_ITEMS_ON_CPU if self.references is None else _SORTED_GALLERY_ON_CPU

    def _counted_classes(
        self, class_sizes: Tensor, query_counts: Tensor, items: int, limit: int | None
    ) -> Tensor:
        """Return a mask of the classes that are ranked by counting: the smallest ones.

        The others are ranked by sorting, which is faster for them, or needs less memory.
        """
        if self.on_gpu:
            return class_sizes <= (_LARGEST_UNTIED_CLASS if limit is None else 0)
        order = class_sizes.argsort(stable=True)
        fits = (class_sizes * query_counts)[order].cumsum(0) <= _KEPT_PAIRS
        fits &= (class_sizes[order] * _SORTED_SHARE <= items) & (
            class_sizes[order] <= _LARGEST_COUNTED_CLASS
        )
        if self.references is None:
            fits &= class_sizes[order] <= (self.chunk_size or _CHUNK_SIZE)
        counted = torch.empty_like(fits)
        counted[order] = fits
        return counted

    def _count(
        self, queries: Side, references: Side, task: Task, widths: Sequence[int], scores: Scores
    ) -> Tensor:
        """Rank by counting more similar references; return the queries with inexact ranks."""
        size = self.chunk_size or _CHUNK_SIZE
        if self.on_gpu:
            rows = chunk_rows(references, VALUES, self.chunk_size)
            return rank_by_values(
                queries, references, task, widths, rows, scores, self.includes_query
            )
        if self.references is None:
            rank_among_themselves(references, task, len(widths), size, scores)
        else:
            rank_in_gallery(queries, references, task, size, scores, self.includes_query)
        return queries.positions[:0]

    def _sort(
        self,
        query_class: Tensor,
        ref_class: Tensor,
        task: Task,
        queries: Tensor,
        widths: Sequence[int],
        scores: Scores,
    ) -> None:
        items = len(ref_class)
        rounded = not (self.on_gpu or self.normalize)
        if rounded:
            rounded = max(int(task.own.max()), task.limit or 0) * _ROUNDED_SHARE <= items
        references = self._side(self._searched, ref_class, rounded=rounded)
        halved = self.references is None and len(queries) == items and self._is_halved(task)
        size = self.chunk_size or _CHUNK_SIZE
        if halved:
            size, query_side, queries = min(size, _HALVED_ROWS), references, references.positions
        elif self.references is None:
            query_side = references.tile(queries)
        else:
            query_side = self._side(self.queries, query_class, queries, rounded)
        if self.on_gpu:
            size = chunk_rows(references, SORTED, self.chunk_size)
        elif not halved:
            size = max(1, min(size, _SORTED_ENTRIES_ON_CPU // items))
        exclude = queries if self.includes_query else None
        rank_by_sorting(
            query_side, references, task, widths, size, scores, exclude, halved, rounded
        )

    def _is_halved(self, task: Task) -> bool:
        """Return whether to sort all queries at once and compute each similarity only once."""
        items, size = self.queries.shape
        if self.on_gpu or size < _HALVED_SIZE or items**2 > 4 * _HALVED_ENTRIES:
            return False
        return int(task.members.max()) * _HALVED_SHARE <= items

    def _side(
        self, vectors: Tensor, classes: Tensor, rows: Tensor | None = None, rounded: bool = False
    ) -> Side:
        """Return these rows, or all rows, normalised or with offsets for Euclidean distance.

        With ``rounded`` they are raw, for :func:`rank_by_sorting` to round.
        """
        side = Side(vectors, None, classes, torch.arange(len(vectors), device=vectors.device))
        if rows is not None:
            side = side.tile(rows)
        if rounded:
            # NumPy lacks bfloat16, and float32 lacks large integers.
            is_float32 = vectors.dtype == torch.float32
            return side if is_float32 else replace(side, vectors=side.vectors.double())
        vectors = side.vectors
        # In chunks, so that no further copy of the data is needed.
        entries = _NORMALIZED_ENTRIES if self.on_gpu else _NORMALIZED_ENTRIES_ON_CPU
        if not self.normalize:
            # -|x - y|^2 / 2 = xy - xx/2 - yy/2
            vectors = vectors.double()
            parts = vectors.split(max(1, entries // vectors.shape[1]))
            offset = torch.cat([part.square().sum(dim=1) / -2 for part in parts])
            return replace(side, vectors=vectors, offset=offset)
        dtype = torch.float64 if vectors.dtype == torch.float64 else torch.float32
        normalized = torch.empty(vectors.shape, dtype=dtype, device=vectors.device)
        size = max(1, entries // vectors.shape[1])
        for out, chunk in zip(normalized.split(size), vectors.split(size), strict=True):
            out.copy_(directions(chunk.to(dtype)))
        return replace(side, vectors=normalized)


def _is_gpu(device: torch.device) -> bool:
    return device.type != "cpu"

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
    NUMBERS_BY_SORTING,
    NUMBERS_BY_VALUES,
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
#: Maximum number of pairs of a query and a reference of its class in memory, 20 bytes each. If
#: there are more, the largest classes are sorted.
_MAX_KEPT_PAIRS = 2**22
#: Maximum number of similarities in memory while sorting on a CPU.
_MAX_SORTED_ENTRIES_ON_CPU = 2**19
#: Up to this many references, all classes are sorted. The limits on a CPU, in self-retrieval and
#: with separate references, are higher if few ranks must be exact.
_MAX_SORTED_REFERENCES = 4096
_MAX_SORTED_REFERENCES_ON_CPU = 8192
_MAX_SORTED_GALLERY_ON_CPU = 32768
#: A CPU always sorts classes with more than 1 / _SORTED_SHARE of all references.
_SORTED_SHARE = 64
#: Larger classes are sorted on a CPU, because counting compares every reference with each reference
#: of the class.
_LARGEST_COUNTED_CLASS = 16
#: Sorting is slow if more than 1 / _DEEP_SHARE of all ranks must be exact.
_DEEP_SHARE = 16
#: Larger classes are sorted on a GPU, because they have too many ties of float32 similarities.
_LARGEST_COUNTED_CLASS_ON_GPU = 256
#: When a CPU sorts all queries of self-retrieval, each similarity is computed once for both of its
#: vectors if they have at least _MIN_HALVED_SIZE dimensions, at most _MAX_HALVED_ENTRIES
#: similarities must be kept, and no class has more than 1 / _HALVED_SHARE of all vectors. Chunks
#: have _HALVED_ROWS rows.
_MIN_HALVED_SIZE = 128
_HALVED_ROWS = 512
_MAX_HALVED_ENTRIES = 2**24
_HALVED_SHARE = 16
#: A CPU first compares raw vectors in float32 if at most 1 / _ROUNDED_SHARE of all ranks matter.
_ROUNDED_SHARE = 8
#: Number of entries that are scaled to unit length at once.
_NORMALIZED_ENTRIES = 2**22
_NORMALIZED_ENTRIES_ON_CPU = 2**18


@dataclass
class Retrieval:
    """Queries and references (None: the queries themselves), and how they are compared.

    If ``includes_query``, the first references are the queries, and each query leaves out itself.
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

        Ranks are found by sorting the references or, for classes in which this is faster, by
        counting the references that are nearer than each own one; after counting, queries with
        ties are ranked again by sorting. ``limit`` and ``first_limit`` are explained in
        :class:`Task`.

        Args:
            labels: Labels of the queries, int64.
            ref_labels: Labels of the references, int64.
            scores: Receives the ranks, and says which ranks must be exact.

        Raises:
            ValueError: No query has a reference of its class.
        """
        num_references = len(ref_labels)
        limit, first_limit = scores.limits(num_references)
        sort_all = num_references <= self._max_sorted_references(num_references, limit)
        # Few labels are sorted on the host faster than the operations could be launched on a GPU.
        label_device = torch.device("cpu") if sort_all else self.queries.device
        query_class, ref_class, class_sizes, query_counts = self._class_indices(
            labels, ref_labels, label_device
        )
        num_own = class_sizes - int(self.includes_query)
        if not bool(((query_counts > 0) & (num_own > 0)).any()):
            raise ValueError(
                "no query has a reference of its class other than itself, so there is nothing to "
                "measure; each class needs at least two samples."
            )
        is_counted = torch.zeros_like(class_sizes, dtype=torch.bool)
        if not sort_all:
            is_counted = self._use_counting(class_sizes, query_counts, num_references, limit)
        # Counted classes come first, because num_references is added to the size of all others.
        # Both kinds are in order of size.
        by_size = (class_sizes + torch.where(is_counted, 0, num_references)).argsort(stable=True)
        # Number of references in the class of each query, in the order in which queries are ranked.
        widths = class_sizes[by_size].repeat_interleave(query_counts[by_size]).tolist()
        # Row of the first reference of each class, if the classes follow each other in this order.
        class_start = torch.empty_like(class_sizes)
        class_start[by_size] = class_sizes[by_size].cumsum(0) - class_sizes[by_size]
        num_own, class_sizes, class_start = to_device(
            label_device, num_own, class_sizes, class_start
        )
        # Rows of the references, class by class, and of the queries in the same order of classes.
        query_rows = ref_rows = class_start[ref_class].argsort(stable=True)
        if self.references is not None:
            # Queries without a reference of their class come last and are left out.
            padded_start = F.pad(class_start, (0, 1), value=num_references)
            query_rows = padded_start[query_class].argsort(stable=True)[: len(widths)]
        query_class, ref_class, query_rows, ref_rows, num_own, class_sizes, class_start = to_device(
            self.queries.device,
            query_class,
            ref_class,
            query_rows,
            ref_rows,
            num_own,
            class_sizes,
            class_start,
        )
        task = Task(num_own, class_sizes, class_start, limit, first_limit)
        if not sort_all:
            gallery = self._side(self._gallery, ref_class, ref_rows)
            num_counted = int(query_counts[is_counted].sum())
            query_side = gallery.tile(slice(num_counted))
            if self.references is not None:
                query_side = self._side(self.queries, query_class, query_rows[:num_counted])
            tied = self._count(query_side, gallery, task, widths[:num_counted], scores)
            # Tied queries are ranked again by sorting, with the largest width of counted queries.
            largest = max(widths[:num_counted], default=0)
            widths = [largest] * len(tied) + widths[num_counted:]
            query_rows = torch.cat([tied, query_rows[num_counted:]])
            del gallery, query_side
        if len(query_rows) > 0:
            self._sort(query_class, ref_class, task, query_rows, widths, scores)

    @property
    def _gallery(self) -> Tensor:
        return self.queries if self.references is None else self.references

    def _class_indices(
        self, labels: Tensor, ref_labels: Tensor, label_device: torch.device
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return class indices of queries and references, and the sizes of the classes in both.

        Class indices are on ``label_device``; the numbers of references and of queries of each
        class, in this order, are on the host. A query whose class has no reference gets the number
        of classes as class index.
        """
        (ref_labels,) = to_device(label_device, ref_labels)
        classes, ref_class, class_sizes = ref_labels.unique(return_inverse=True, return_counts=True)
        query_class, query_counts = ref_class, class_sizes  # if the references are the queries
        if self.references is not None:
            (labels,) = to_device(label_device, labels)
            # Clamped, because the index of a label above all classes is their number.
            index = torch.searchsorted(classes, labels.contiguous()).clamp(max=len(classes) - 1)
            query_class = torch.where(classes[index] == labels, index, len(classes))
            query_counts = class_sizes.new_zeros(len(classes) + 1)
            query_counts.scatter_add_(0, query_class, torch.ones_like(query_class))
            query_counts = query_counts[:-1]  # without the queries that have no reference
        # The host waits for a GPU here and not later: all shapes follow from the class sizes.
        class_sizes, query_counts = torch.stack((class_sizes, query_counts)).cpu()
        return query_class, ref_class, class_sizes, query_counts

    def _max_sorted_references(self, num_references: int, limit: int | None) -> int:
        """Return the largest number of references for which all classes are sorted.

        ``limit`` is that of :class:`Task`: on a CPU, sorting is slow if many ranks must be exact.
        """
        if self.on_gpu or (limit is not None and limit * _DEEP_SHARE > num_references):
            return _MAX_SORTED_REFERENCES
        return (
            _MAX_SORTED_REFERENCES_ON_CPU if self.references is None else _MAX_SORTED_GALLERY_ON_CPU
        )

    def _use_counting(
        self, class_sizes: Tensor, query_counts: Tensor, num_references: int, limit: int | None
    ) -> Tensor:
        """Return a mask of the classes that are ranked by counting: the smallest ones.

        The others are ranked by sorting, which is faster for them, or needs less memory.
        """
        if self.on_gpu:  # which sorts all classes if ranks beyond R must be exact
            return class_sizes <= (_LARGEST_COUNTED_CLASS_ON_GPU if limit is None else 0)
        # Counting keeps all pairs of a query and a reference of its class in memory.
        order = class_sizes.argsort(stable=True)
        is_counted = torch.empty_like(class_sizes, dtype=torch.bool)
        is_counted[order] = (class_sizes * query_counts)[order].cumsum(0) <= _MAX_KEPT_PAIRS
        max_size = _LARGEST_COUNTED_CLASS
        if self.references is None:  # classes must fit into a tile
            max_size = min(max_size, self.chunk_size or _CHUNK_SIZE)
        return (
            is_counted & (class_sizes <= max_size) & (class_sizes * _SORTED_SHARE <= num_references)
        )

    def _count(
        self, queries: Side, references: Side, task: Task, widths: Sequence[int], scores: Scores
    ) -> Tensor:
        """Rank by counting more similar references; return the queries with inexact ranks.

        ``widths`` has the number of references in the class of each query.
        """
        size = self.chunk_size or _CHUNK_SIZE
        if self.on_gpu:
            num_rows = chunk_rows(references, NUMBERS_BY_VALUES, self.chunk_size)
            return rank_by_values(
                queries, references, task, widths, num_rows, scores, self.includes_query
            )
        if self.references is None:
            # The queries are the first of the vectors.
            rank_among_themselves(references, task, len(widths), size, scores)
        else:
            rank_in_gallery(queries, references, task, size, scores, self.includes_query)
        return queries.positions[:0]  # none

    def _sort(
        self,
        query_class: Tensor,
        ref_class: Tensor,
        task: Task,
        query_rows: Tensor,
        widths: Sequence[int],
        scores: Scores,
    ) -> None:
        """Rank the references for the queries at ``query_rows`` by :func:`rank_by_sorting`.

        That function explains ``widths``, ``rounded``, ``halved`` and ``exclude``.
        """
        num_references = len(ref_class)
        # On a CPU, for raw vectors of which few ranks matter.
        rounded = (
            not (self.on_gpu or self.normalize)
            and max(int(task.num_own.max()), task.limit or 0) * _ROUNDED_SHARE <= num_references
        )
        references = self._side(self._gallery, ref_class, rounded=rounded)
        halved = (
            self.references is None and len(query_rows) == num_references and self._is_halved(task)
        )
        size = self.chunk_size or _CHUNK_SIZE
        if halved:
            # All queries, in the order of the references.
            size, query_side, query_rows = min(size, _HALVED_ROWS), references, references.positions
        elif self.references is None:
            query_side = references.tile(query_rows)
        else:
            query_side = self._side(self.queries, query_class, query_rows, rounded)
        if self.on_gpu:
            size = chunk_rows(references, NUMBERS_BY_SORTING, self.chunk_size)
        elif not halved:
            size = max(1, min(size, _MAX_SORTED_ENTRIES_ON_CPU // num_references))
        exclude = query_rows if self.includes_query else None
        rank_by_sorting(
            query_side, references, task, widths, size, scores, exclude, halved, rounded
        )

    def _is_halved(self, task: Task) -> bool:
        """Return whether to sort all queries at once and compute each similarity only once."""
        num_references, dimensions = self.queries.shape
        return (
            not self.on_gpu
            and dimensions >= _MIN_HALVED_SIZE
            # At most a quarter of all similarities is kept.
            and num_references**2 <= 4 * _MAX_HALVED_ENTRIES
            and int(task.class_sizes.max()) * _HALVED_SHARE <= num_references
        )

    def _side(
        self, vectors: Tensor, classes: Tensor, rows: Tensor | None = None, rounded: bool = False
    ) -> Side:
        """Return ``rows`` of vectors (None: all), normalised or with offsets for distances.

        If ``rounded``, the vectors stay raw, because :func:`rank_by_sorting` rounds them.
        """
        # Without offset, and with the positions of all vectors.
        side = Side(vectors, None, classes, torch.arange(len(vectors), device=vectors.device))
        if rows is not None:
            side = side.tile(rows)
        if rounded:
            # Other dtypes become float64: NumPy has no bfloat16, and float32 no large integers.
            is_float32 = vectors.dtype == torch.float32
            return side if is_float32 else replace(side, vectors=side.vectors.double())
        vectors = side.vectors
        # Vectors are converted in chunks, so that no further copy of the data is needed.
        entries = _NORMALIZED_ENTRIES if self.on_gpu else _NORMALIZED_ENTRIES_ON_CPU
        size = max(1, entries // vectors.shape[1])
        if not self.normalize:
            # -|x - y|^2 / 2 = xy - xx/2 - yy/2
            vectors = vectors.double()
            offset = torch.cat([part.square().sum(dim=1) / -2 for part in vectors.split(size)])
            return replace(side, vectors=vectors, offset=offset)
        dtype = torch.float64 if vectors.dtype == torch.float64 else torch.float32
        normalized = torch.empty(vectors.shape, dtype=dtype, device=vectors.device)
        for out, chunk in zip(normalized.split(size), vectors.split(size), strict=True):
            out.copy_(directions(chunk.to(dtype)))
        return replace(side, vectors=normalized)


def _is_gpu(device: torch.device) -> bool:
    return device.type != "cpu"

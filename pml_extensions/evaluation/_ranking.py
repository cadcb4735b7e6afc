"""Chooses how the references of each query's own class are ranked: by counting or by sorting.

All ways give the same ranks, and none is always fastest (``python benchmarks/evaluation.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from pml_extensions.evaluation._scores import Scores
from pml_extensions.evaluation._sorting import rank_by_sorting
from pml_extensions.evaluation._strips import (
    SORTED,
    VALUES,
    rank_by_values,
    rows_at_once,
    uploaded,
)
from pml_extensions.evaluation._tiles import Side, Task, rank_among_themselves, rank_in_gallery
from pml_extensions.functional import directions

#: Side of a tile on a CPU.
_CHUNK_SIZE = 1024
#: (Query, own reference) pairs kept at once, 20 bytes each; queries of larger classes are sorted.
_KEPT_PAIRS = 2**22
#: Similarities held at once while sorting on a CPU.
_SORTED_ENTRIES_ON_CPU = 2**19
#: So few references are sorted, as are those of classes with more than 1 / _SORTED_SHARE of them.
_SORTED_ITEMS = 4096
_SORTED_ITEMS_ON_CPU = 8192
_SORTED_GALLERY_ON_CPU = 32768
_SORTED_SHARE = 64
#: Larger classes are sorted on a CPU, which compares all references with each member.
_COUNTED_MEMBERS = 64
#: Sorting is slow where more than 1 / _DEEP_SHARE of all ranks matter.
_DEEP_SHARE = 16
#: Larger classes are sorted on a GPU: too often two of so many similarities are equal in float32.
_UNTIED_MEMBERS = 256
#: Where a CPU sorts all of them, similarities of vectors of at least this size are computed once
#: for both, in strips of so many rows, if no more have to wait for the later of both. Rows are then
#: as wide as the largest class, which may hold 1 / _HALVED_SHARE of all.
_HALVED_SIZE = 128
_HALVED_ROWS = 256
_HALVED_ENTRIES = 2**24
_HALVED_SHARE = 16
#: Numbers scaled to unit length at once.
_NORMALIZED_ENTRIES = 2**22
_NORMALIZED_ENTRIES_ON_CPU = 2**18


@dataclass
class Retrieval:
    """Queries, references (None: the queries themselves), and how they are compared.

    ``includes_query`` says that the first references are the queries, none of which finds itself.
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
        """Hand the ranks of each query's own references to ``scores``.

        Args:
            labels: Classes of the queries, int64.
            ref_labels: Classes of the references, int64.
            scores: Gets the ranks, and says how far they matter.

        Raises:
            ValueError: No query has an own reference.
        """
        items = len(ref_labels)
        limit, first_limit = scores.limits(items)
        few = items <= self._sorted_items(items, limit)
        # Few labels are put in order sooner than the host could start a GPU on it.
        home = torch.device("cpu") if few else self.queries.device
        query_class, ref_class, members, asked = self._classes(labels, ref_labels, home)
        own = members - int(self.includes_query)
        if not bool(((asked > 0) & (own > 0)).any()):
            raise ValueError(
                "no query has a reference of its class other than itself, so there is nothing to "
                "measure; each class needs at least two samples."
            )
        counted = torch.zeros_like(members, dtype=torch.bool)
        if not few:
            counted = self._counted_classes(members, asked, items, limit)
        by_size = (members + torch.where(counted, 0, items)).argsort(stable=True)
        # Class sizes of the queries, in the order in which they are ranked.
        widths = members[by_size].repeat_interleave(asked[by_size]).tolist()
        start = torch.empty_like(members)
        start[by_size] = members[by_size].cumsum(0) - members[by_size]
        own, sizes, start = uploaded(home, own, members, start)
        queries = order = start[ref_class].argsort(stable=True)
        if self.references is not None:
            starts = F.pad(start, (0, 1), value=items)
            queries = starts[query_class].argsort(stable=True)[: len(widths)]
        query_class, ref_class, queries, order, own, sizes, start = uploaded(
            self.queries.device, query_class, ref_class, queries, order, own, sizes, start
        )
        task = Task(own, sizes, start, limit, first_limit)
        if not few:
            gallery = self._side(self._searched, ref_class, order)
            count = int(asked[counted].sum())
            asking = gallery.tile(slice(count))
            if self.references is not None:
                asking = self._side(self.queries, query_class, queries[:count])
            tied = self._count(asking, gallery, task, widths[:count], scores)
            widths = widths[max(count - 1, 0) : count] * len(tied) + widths[count:]
            queries = torch.cat([tied, queries[count:]])
            del gallery, asking
        if len(queries) > 0:
            self._sort(query_class, ref_class, task, queries, widths, scores)

    @property
    def _searched(self) -> Tensor:
        return self.queries if self.references is None else self.references

    def _classes(
        self, labels: Tensor, ref_labels: Tensor, home: torch.device
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return class numbers, and how many references and queries are of each class.

        The numbers of queries, then of references, are on ``home``, counts on the host; a query
        whose class has no reference gets the number of classes.
        """
        (ref_labels,) = uploaded(home, ref_labels)
        classes, ref_class, members = ref_labels.unique(return_inverse=True, return_counts=True)
        query_class, asked = ref_class, members
        if self.references is not None:
            (labels,) = uploaded(home, labels)
            index = torch.searchsorted(classes, labels.contiguous()).clamp(max=len(classes) - 1)
            query_class = torch.where(classes[index] == labels, index, len(classes))
            asked = members.new_zeros(len(classes) + 1)
            asked = asked.scatter_add_(0, query_class, torch.ones_like(query_class))[:-1]
        # The host knows how large classes are, and with it every shape: it asks a GPU once.
        members, asked = torch.stack((members, asked)).cpu()
        return query_class, ref_class, members, asked

    def _sorted_items(self, items: int, limit: int | None) -> int:
        """Return how many references are so few that all classes are sorted."""
        if self.on_gpu or (limit is not None and limit * _DEEP_SHARE > items):
            return _SORTED_ITEMS
        return _SORTED_ITEMS_ON_CPU if self.references is None else _SORTED_GALLERY_ON_CPU

    def _counted_classes(
        self, members: Tensor, asked: Tensor, items: int, limit: int | None
    ) -> Tensor:
        """Return which classes are counted, the smallest ones; the others are sorted."""
        if self.on_gpu:
            return members <= (_UNTIED_MEMBERS if limit is None else 0)
        order = members.argsort(stable=True)
        fits = (members * asked)[order].cumsum(0) <= _KEPT_PAIRS
        fits &= (members[order] * _SORTED_SHARE <= items) & (members[order] <= _COUNTED_MEMBERS)
        if self.references is None:
            fits &= members[order] <= (self.chunk_size or _CHUNK_SIZE)
        counted = torch.empty_like(fits)
        counted[order] = fits
        return counted

    def _count(
        self, queries: Side, references: Side, task: Task, widths: Sequence[int], scores: Scores
    ) -> Tensor:
        """Rank by counting who is more similar; return the queries whose ranks are not exact."""
        size = self.chunk_size or _CHUNK_SIZE
        if self.on_gpu:
            rows = rows_at_once(references, VALUES, self.chunk_size)
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
        references = self._side(self._searched, ref_class)
        items = len(ref_class)
        halved = self.references is None and len(queries) == items and self._is_halved(task)
        size = self.chunk_size or _CHUNK_SIZE
        if halved:
            size, asking, queries = min(size, _HALVED_ROWS), references, references.positions
        elif self.references is None:
            asking = references.tile(queries)
        else:
            asking = self._side(self.queries, query_class, queries)
        if self.on_gpu:
            size = rows_at_once(references, SORTED, self.chunk_size)
        elif not halved:
            size = max(1, min(size, _SORTED_ENTRIES_ON_CPU // items))
        exclude = queries if self.includes_query else None
        rank_by_sorting(asking, references, task, widths, size, scores, exclude, halved)

    def _is_halved(self, task: Task) -> bool:
        """Return whether all are best sorted at once, with one product for both directions."""
        items, size = self.queries.shape
        if self.on_gpu or size < _HALVED_SIZE or items**2 > 4 * _HALVED_ENTRIES:
            return False
        return int(task.members.max()) * _HALVED_SHARE <= items

    def _side(self, vectors: Tensor, classes: Tensor, rows: Tensor | None = None) -> Side:
        """Return these rows, or all, as they are compared."""
        if rows is None:
            rows = torch.arange(len(vectors), device=vectors.device)
        else:
            vectors, classes = vectors[rows], classes[rows]
        if not self.normalize:
            # -|x - y|^2 / 2 = xy - xx/2 - yy/2
            vectors = vectors.double()
            return Side(vectors, vectors.square().sum(dim=1) / -2, classes, rows)
        dtype = torch.float64 if vectors.dtype == torch.float64 else torch.float32
        directed = torch.empty(vectors.shape, dtype=dtype, device=vectors.device)
        # Part by part, so that no further copy of the data is needed.
        entries = _NORMALIZED_ENTRIES if self.on_gpu else _NORMALIZED_ENTRIES_ON_CPU
        part = max(1, entries // vectors.shape[1])
        for scaled, raw in zip(directed.split(part), vectors.split(part), strict=True):
            scaled.copy_(directions(raw.to(dtype)))
        return Side(directed, None, classes, rows)


def _is_gpu(device: torch.device) -> bool:
    return device.type != "cpu"

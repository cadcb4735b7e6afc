"""Exact retrieval metrics: precision at 1, R-precision and mean average precision at R."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from pml_extensions.functional import at_least_float32, unit_vectors, without_autocast

METRICS = ("precision_at_1", "r_precision", "mean_average_precision_at_r")


class RetrievalMetrics:
    """Ranks references by Euclidean distance to each query and scores the first R of them.

    R is the number of references of the query's class, the query itself left out. With
    ``rel_i = 1`` if the i-th neighbour has the query's class:

    - ``precision_at_1``: rel_1
    - ``r_precision``: (1/R) sum_{i<=R} rel_i
    - ``mean_average_precision_at_r``: (1/R) sum_{i<=R} rel_i (1/i) sum_{j<=i} rel_j

    each averaged over queries ("A Metric Learning Reality Check", section 2.3). In self-retrieval
    a query is excluded from its own neighbours by its index, so duplicates of it still count.
    Queries without any reference of their class are no queries, but stay references. References at
    the same distance rank by index.

    Args:
        normalize: Scale embeddings to unit length first. Without it raw vectors are compared, in
            float64, because their distances lose too many digits in float32.
        chunk_size: Queries ranked at a time; memory grows with chunk_size x references.

    Raises:
        ValueError: ``chunk_size`` is not a whole number of at least 1.
    """

    def __init__(self, normalize: bool = True, chunk_size: int = 512) -> None:
        if isinstance(chunk_size, bool) or not isinstance(chunk_size, int) or chunk_size < 1:
            raise ValueError(
                f"chunk_size must be a whole number of at least 1, got {chunk_size!r}."
            )
        self.normalize = normalize
        self.chunk_size = chunk_size

    def __call__(
        self,
        embeddings: Tensor | ArrayLike,
        labels: Tensor | ArrayLike,
        reference: Tensor | ArrayLike | None = None,
        reference_labels: Tensor | ArrayLike | None = None,
    ) -> dict[str, float]:
        """Return the mean of each metric over all queries.

        Args:
            embeddings: Queries, shape (N, D).
            labels: Integer class of each query, shape (N,).
            reference: What is searched, shape (M, D); None: the queries themselves.
            reference_labels: Integer class of each reference, shape (M,).

        Returns:
            ``precision_at_1``, ``r_precision`` and ``mean_average_precision_at_r``.

        Raises:
            ValueError: Shapes or types do not fit, an embedding is NaN or infinite, or no query
                has a reference of its class.
        """
        per_query = self.per_query(embeddings, labels, reference, reference_labels)
        return {name: float(np.nanmean(values)) for name, values in per_query.items()}

    @torch.no_grad()
    def per_query(
        self,
        embeddings: Tensor | ArrayLike,
        labels: Tensor | ArrayLike,
        reference: Tensor | ArrayLike | None = None,
        reference_labels: Tensor | ArrayLike | None = None,
    ) -> dict[str, NDArray[np.float64]]:
        """Return the metrics of each query, in the order given; NaN marks those that are none.

        Arguments and errors are those of calling the object.

        Returns:
            One array of shape (N,) for each metric.
        """
        queries, query_labels = _embeddings_and_labels(embeddings, labels, "embeddings", "labels")
        if reference is None and reference_labels is None:
            return self._score(queries, query_labels, queries, query_labels, self_retrieval=True)
        if reference is None or reference_labels is None:
            raise ValueError("reference and reference_labels must be given together.")
        references, ref_labels = _embeddings_and_labels(
            reference, reference_labels, "reference", "reference_labels"
        )
        if references.shape[1] != queries.shape[1]:
            raise ValueError(
                f"embeddings have {queries.shape[1]} dimensions, but reference has "
                f"{references.shape[1]}."
            )
        references, ref_labels = references.to(queries.device), ref_labels.to(queries.device)
        return self._score(queries, query_labels, references, ref_labels, self_retrieval=False)

    def _score(
        self,
        queries: Tensor,
        labels: Tensor,
        references: Tensor,
        reference_labels: Tensor,
        self_retrieval: bool,
    ) -> dict[str, NDArray[np.float64]]:
        relevant = _relevant_counts(labels, reference_labels) - int(self_retrieval)
        # Chunks of similar R, so that one large class does not deepen the search of all others.
        order = relevant.argsort(stable=True)
        order = order[int((relevant == 0).sum()) :]
        if len(order) == 0:
            raise ValueError(
                "no query has a reference of its class other than itself, so there is nothing to "
                "measure; each class needs at least two samples."
            )
        scores = torch.full((len(METRICS), len(labels)), torch.nan, dtype=torch.float64)
        with without_autocast(queries):
            index = _Index(references, self.normalize)
            for rows in order.split(self.chunk_size):
                similarities = index.similarities(queries[rows])
                if self_retrieval:
                    similarities.scatter_(1, rows.unsqueeze(1), -torch.inf)
                counts = relevant[rows]
                nearest = _nearest(similarities, int(counts[-1]))
                matches = reference_labels[nearest] == labels[rows].unsqueeze(1)
                scores[:, rows.cpu()] = _metrics(matches, counts).cpu()
        return dict(zip(METRICS, scores.numpy(), strict=True))


class _Index:
    """References made ready for products that order them as Euclidean distance does."""

    def __init__(self, references: Tensor, normalize: bool) -> None:
        self._prepare = unit_vectors if normalize else Tensor.double
        self._vectors = self._prepare(references)
        # |x - y|^2 / 2 = xx/2 - (xy - yy/2): the first term is constant for a query, and on unit
        # vectors the last one is constant too.
        self._half_squares = None if normalize else self._vectors.square().sum(dim=1) / 2

    def similarities(self, queries: Tensor) -> Tensor:
        """Return the similarity of each query (row) and reference (column): larger is nearer."""
        products = self._prepare(queries) @ self._vectors.t()
        return products if self._half_squares is None else products.sub_(self._half_squares)


def _nearest(similarities: Tensor, count: int) -> Tensor:
    """Return the columns of the ``count`` largest values of each row, ties in order of index."""
    values, columns = similarities.topk(min(count + 1, similarities.shape[1]), dim=1)
    tied = (values[:, 1:] == values[:, :-1]).any(dim=1)
    columns = columns[:, :count]
    if bool(tied.any()):
        # topk leaves open which of several equal values it keeps and in which order.
        columns[tied] = _nearest_by_index(similarities[tied], values[tied, count - 1], count)
    return columns


def _nearest_by_index(similarities: Tensor, smallest: Tensor, count: int) -> Tensor:
    """Do as ``_nearest`` for rows with ties, given the ``count``-th largest value of each row."""
    smallest = smallest.unsqueeze(1)
    above, level = similarities > smallest, similarities == smallest
    vacant = count - above.sum(dim=1, keepdim=True)
    kept = above | (level & (level.cumsum(dim=1, dtype=torch.int32) <= vacant))
    columns = kept.nonzero()[:, 1].reshape(-1, count)
    order = similarities.gather(1, columns).argsort(dim=1, descending=True, stable=True)
    return columns.gather(1, order)


def _metrics(matches: Tensor, relevant: Tensor) -> Tensor:
    """Return the three metrics of each query, shape (3, B).

    Args:
        matches: Whether each neighbour has the query's class, nearest first, shape (B, K).
        relevant: R of each query, at most K, shape (B,).
    """
    rank = torch.arange(1, matches.shape[1] + 1, device=matches.device)
    hits = (matches & (rank <= relevant.unsqueeze(1))).double()
    precision = hits.cumsum(dim=1) / rank
    return torch.stack(
        (
            matches[:, 0].double(),
            hits.sum(dim=1) / relevant,
            (hits * precision).sum(dim=1) / relevant,
        )
    )


def _relevant_counts(labels: Tensor, reference_labels: Tensor) -> Tensor:
    """Return how many references have the class of each query, shape (N,)."""
    classes, class_of, counts = reference_labels.unique(return_inverse=True, return_counts=True)
    if labels is reference_labels:
        return counts[class_of]
    place = torch.searchsorted(classes, labels).clamp(max=len(classes) - 1)
    return torch.where(classes[place] == labels, counts[place], 0)


def _embeddings_and_labels(
    embeddings: Tensor | ArrayLike, labels: Tensor | ArrayLike, name: str, labels_name: str
) -> tuple[Tensor, Tensor]:
    """Return both as tensors on the device of the embeddings, checked."""
    x = _tensor(embeddings)
    if x.ndim != 2 or len(x) == 0:
        raise ValueError(f"{name} must have shape (N, D) with N > 0, but got {tuple(x.shape)}.")
    if not x.isfinite().all():
        bad = int((~x.isfinite().all(dim=1)).sum())
        raise ValueError(f"{name} must be finite, but {bad} of {len(x)} rows hold NaN or infinity.")
    y = _tensor(labels).to(x.device)
    if y.shape != x.shape[:1]:
        raise ValueError(
            f"{labels_name} must have shape ({len(x)},) like {name}, but got {tuple(y.shape)}."
        )
    if y.is_floating_point() or y.is_complex():
        raise ValueError(f"{labels_name} must be integers, but their dtype is {y.dtype}.")
    return at_least_float32(x), y.long()


def _tensor(values: Tensor | ArrayLike) -> Tensor:
    if isinstance(values, Tensor):
        return values
    array = np.asarray(values)
    # torch refuses arrays turned around and warns about read-only ones, such as memory maps.
    if not array.flags.writeable or min(array.strides, default=0) < 0:
        array = array.copy()
    return torch.from_numpy(array)

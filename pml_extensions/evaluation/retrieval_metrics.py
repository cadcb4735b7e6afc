"""Exact retrieval metrics for any number of embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from pml_extensions._shared import checks
from pml_extensions.evaluation import _inputs
from pml_extensions.evaluation._ranking import Retrieval
from pml_extensions.evaluation._scores import Scores, class_means
from pml_extensions.functional import without_autocast, without_tf32

Average = Literal["queries", "classes"]
#: Names of the metrics except ``recall_at_K``, which the argument ``recall_at`` names.
METRICS = (
    "precision_at_1",
    "r_precision",
    "mean_average_precision_at_r",
    "mean_average_precision",
    "mean_reciprocal_rank",
)


class RetrievalResult(dict[str, float]):
    """The averages by name, and the number of queries.

    Attributes:
        num_queries: Number of queries with a reference of their class.
        num_lone_queries: Number of queries without one, which are left out of all averages.
    """

    num_queries: int = 0
    num_lone_queries: int = 0


class RetrievalMetrics:
    """Ranks references by similarity to each query, and scores the ranks of the query's class.

    R is the number of references of the query's class, without the query itself, and ``rank_k``
    the rank of the k-th best of them:

    - ``precision_at_1``: 1 if rank_1 is 1
    - ``r_precision``: (1/R) #{k: rank_k <= R}
    - ``mean_average_precision_at_r``: (1/R) sum of k / rank_k over {k: rank_k <= R}
    - ``mean_average_precision``: (1/R) sum of k / rank_k over all k
    - ``mean_reciprocal_rank``: 1 / rank_1
    - ``recall_at_K``: 1 if rank_1 is at most K

    averaged over queries, or within each class and then over classes. The first three are from "A
    Metric Learning Reality Check", section 2.3.

    In self-retrieval a query is excluded from its own neighbours by its index, so duplicates of it
    still count. Queries without a reference of their class have no metrics, but are still
    references for others; the result has the number of such queries. Equally similar references
    rank by index.

    Similarities are computed in tiles (in self-retrieval once for both directions), and ranks by
    counting the references that are more similar than those of the query's class: memory grows with
    ``chunk_size`` squared and the size of the data, never with queries x references. If there are
    few references or very large classes, references are sorted instead, for at most ``chunk_size``
    queries at a time; in self-retrieval, at most 64 MiB of similarities (128 in float64) are kept
    to be used in the other direction, too. On a GPU the number of queries ranked at a time is
    chosen to fill a quarter of the free memory, and reduced if memory runs out.

    Args:
        normalize: Scale embeddings to unit length first (cosine similarity). Otherwise raw vectors
            are ranked by Euclidean distance with the precision of float64, because float32 loses
            too many digits.
        chunk_size: Rows and columns of a tile; on a GPU the maximum number of queries ranked at a
            time. None: 1,024, and on a GPU no maximum.
        metrics: Names of the above metrics, in any order; the last two need all ranks and take
            longer.
        recall_at: The K of ``recall_at_K``.
        average: ``"queries"``, or ``"classes"`` for the mean over classes of class means.

    Raises:
        ValueError: An argument is not allowed.
    """

    def __init__(
        self,
        normalize: bool = True,
        chunk_size: int | None = None,
        metrics: Sequence[str] = METRICS[:3],
        recall_at: Sequence[int] = (),
        average: Average = "queries",
    ) -> None:
        self.normalize = checks.one_of("normalize", normalize, (True, False))
        if chunk_size is not None:
            checks.positive_integer("chunk_size", chunk_size)
        self.chunk_size = chunk_size
        names = [metrics] if isinstance(metrics, str) else list(metrics)
        for name in names:
            if str(name).startswith("recall_at_"):
                # name[10:] is the K.
                raise ValueError(f"{name} is named by another argument: recall_at=({name[10:]},).")
            checks.one_of("metrics", name, METRICS)
        self.recall_at = tuple(checks.positive_integer("recall_at", k) for k in recall_at)
        self.metrics = (*names, *(f"recall_at_{k}" for k in self.recall_at))
        if not self.metrics:
            raise ValueError("metrics and recall_at are both empty; name at least one metric.")
        self.average = checks.one_of("average", average, ("queries", "classes"))

    def __call__(
        self,
        embeddings: Tensor | ArrayLike,
        labels: Tensor | ArrayLike,
        reference: Tensor | ArrayLike | None = None,
        reference_labels: Tensor | ArrayLike | None = None,
    ) -> RetrievalResult:
        """Return the average of each metric.

        Args:
            embeddings: Queries, shape (N, D).
            labels: Integer label of each query, shape (N,); or (N, L) for L levels of labels.
            reference: References, shape (M, D); None: the queries themselves.
            reference_labels: Integer label of each reference, shape (M,) or (M, L).

        Returns:
            The averages by name; with L levels each name ends in ``_level0``, ``_level1``, ...

        Raises:
            ValueError: A shape or dtype is wrong, an embedding is NaN or infinite, or no query has
                a reference of its class.
        """
        x, refs = self._vectors(embeddings, reference)
        by_level = self._by_level(x, labels, refs, reference_labels)
        result = RetrievalResult()
        for level, (query_labels, values) in enumerate(by_level):
            # All metrics of a query without a reference of its class are NaN.
            is_query = ~np.isnan(next(iter(values.values())))
            if level == 0:
                result.num_queries = int(is_query.sum())
                result.num_lone_queries = len(is_query) - result.num_queries
            if self.average == "classes":
                values = class_means(values, query_labels.cpu().numpy()[is_query], is_query)[1]
            ending = "" if len(by_level) == 1 else f"_level{level}"
            for name, array in values.items():
                result[name + ending] = float(np.nanmean(array))
        return result

    def per_query(
        self,
        embeddings: Tensor | ArrayLike,
        labels: Tensor | ArrayLike,
        reference: Tensor | ArrayLike | None = None,
        reference_labels: Tensor | ArrayLike | None = None,
    ) -> dict[str, NDArray[np.float64]]:
        """Return the metrics of each query; NaN for queries without a reference of their class.

        Arguments and errors are those of calling the object, with one level of labels.

        Returns:
            An array of shape (N,) for each metric.
        """
        x, refs = self._vectors(embeddings, reference)
        ((_, values),) = self._by_level(x, labels, refs, reference_labels, one_level=True)
        return values

    def per_class(
        self,
        embeddings: Tensor | ArrayLike,
        labels: Tensor | ArrayLike,
        reference: Tensor | ArrayLike | None = None,
        reference_labels: Tensor | ArrayLike | None = None,
    ) -> tuple[NDArray[np.int64], dict[str, NDArray[np.float64]]]:
        """Return the mean metrics of the queries of each class.

        Arguments and errors are those of calling the object, with one level of labels.

        Returns:
            The labels of these classes, ascending, and an array of the same length for each metric.
        """
        x, refs = self._vectors(embeddings, reference)
        ((query_labels, values),) = self._by_level(
            x, labels, refs, reference_labels, one_level=True
        )
        # All metrics of a query without a reference of its class are NaN.
        is_query = ~np.isnan(next(iter(values.values())))
        return class_means(values, query_labels.cpu().numpy()[is_query], is_query)

    def _vectors(
        self, embeddings: Tensor | ArrayLike, reference: Tensor | ArrayLike | None
    ) -> tuple[Tensor, Tensor | None]:
        """Check embeddings and references, and return them in one dtype on one device."""
        # On a GPU finiteness is checked together with the result, to avoid a synchronisation.
        x = _inputs.matrix(embeddings, "embeddings", finite_on_gpu=False)
        if reference is None:
            return x, None
        refs = _inputs.matrix(reference, "reference", finite_on_gpu=False)
        if refs.shape[1] != x.shape[1]:
            raise ValueError(
                f"embeddings have {x.shape[1]} dimensions, but reference has {refs.shape[1]}."
            )
        if torch.float64 in (x.dtype, refs.dtype):
            x, refs = x.double(), refs.double()
        return x, refs.to(x.device)

    @torch.no_grad()
    def _by_level(
        self,
        x: Tensor,
        labels: Tensor | ArrayLike,
        refs: Tensor | None,
        reference_labels: Tensor | ArrayLike | None,
        one_level: bool = False,
    ) -> list[tuple[Tensor, dict[str, NDArray[np.float64]]]]:
        """Return the labels and the metrics of the queries, for each level of labels."""
        if (refs is None) != (reference_labels is None):
            raise ValueError("reference and reference_labels must be given together.")
        levels = _levels(labels)
        if one_level and len(levels) > 1:
            raise ValueError(
                f"labels must have shape ({len(x)},) here, but have {len(levels)} levels; "
                "pass one of them."
            )
        ref_levels = levels if reference_labels is None else _levels(reference_labels)
        if len(levels) != len(ref_levels):
            raise ValueError(
                f"labels have {len(levels)} levels, but reference_labels have {len(ref_levels)}."
            )
        results = []
        for level_labels, ref_level_labels in zip(levels, ref_levels, strict=True):
            y = ref_y = _inputs.integers_of(x, level_labels, "embeddings", "labels")
            if refs is not None:
                ref_y = _inputs.integers_of(refs, ref_level_labels, "reference", "reference_labels")
            results.append((y, self._score_checked(x, y, refs, ref_y)))
        return results

    def _score_checked(
        self,
        x: Tensor,
        labels: Tensor,
        refs: Tensor | None,
        ref_labels: Tensor,
        includes_query: bool = False,
        nearest: int | None = None,
    ) -> dict[str, NDArray[np.float64]]:
        """Return the metrics of each query, from arguments that are checked except for NaN.

        Args:
            x: Queries.
            labels: Labels of the queries, int64.
            refs: References; None: the queries themselves.
            ref_labels: Labels of the references, int64.
            includes_query: Whether the first references are the queries, which leave out
                themselves.
            nearest: Number of nearest references that count; None: all.
        """
        scores = Scores(self.metrics, self.recall_at, len(x), x.device, nearest)
        retrieval = Retrieval(
            x, refs, self.normalize, self.chunk_size, includes_query or refs is None
        )
        try:
            with without_autocast(x), without_tf32(x.device):
                retrieval.rank(labels, ref_labels, scores)
        except torch.OutOfMemoryError:
            raise torch.OutOfMemoryError(
                f"{x.device} has not enough free memory to rank {len(ref_labels):,} references of "
                f"{x.shape[1]} numbers, even for one query at a time; let other processes on it "
                "end, or pass embeddings on the CPU (embeddings.cpu())."
            ) from None
        # Only now is the device waited for: the norms, which show NaN, come with the metrics.
        vectors = (x,) if refs is None else (x, refs)
        arrays, norms = scores.arrays_and_norms(*vectors)
        if not np.isfinite(norms).all():
            _inputs.require_finite(x, "embeddings")
            if refs is not None:
                _inputs.require_finite(refs, "reference")
        return arrays


def _levels(labels: Tensor | ArrayLike) -> list[Tensor]:
    """Return the labels of each level, each of shape (N,)."""
    y = _inputs.tensor(labels, "labels")
    return [y] if y.ndim != 2 else list(y.unbind(dim=1))

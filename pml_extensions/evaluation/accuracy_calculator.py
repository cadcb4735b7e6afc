"""PML's accuracy calculator, with ranks from counting instead of lists of neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import faiss
import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from pytorch_metric_learning.utils import accuracy_calculator as pml
from pytorch_metric_learning.utils import common_functions as c_f
from pytorch_metric_learning.utils.inference import FaissKNN
from torch import Tensor

from pml_extensions._shared import checks
from pml_extensions.evaluation import _inputs
from pml_extensions.evaluation._scores import class_means
from pml_extensions.evaluation.retrieval_metrics import METRICS, RetrievalMetrics

#: PML converts labels to float32, in which consecutive integers above this are not distinct.
_FLOAT32_INTEGERS = 2**24


class AccuracyCalculator(pml.AccuracyCalculator):
    """Drop-in replacement for PML's class of the same name that takes less memory and time.

    The constructor, ``get_accuracy`` and its keys and values are PML's. Precision at 1,
    R-precision, MAP@R, MAP and MRR are computed by :class:`RetrievalMetrics`, so no N x k array of
    neighbours and no classes x N array of labels is needed. As in PML, vectors are compared by
    Euclidean distance without normalisation (PML's testers normalise them before), queries whose
    class has no reference do not count, the result is NaN if no query counts, equally distant
    references rank by index, and only the ``k`` nearest references count: all for ``k=None``, and
    the number of references of the largest class for ``"max_bin_count"``. R-precision and MAP@R
    need at least that number.

    PML's own code is used for NMI and AMI, for metrics that a subclass adds or overrides, and for
    all metrics if ``label_comparison_fn``, or a ``knn_func`` other than ``FaissKNN`` with its
    defaults, is given.

    Differences from PML:

    - Distances are computed in float64 (PML: float32), so the order of near-ties may differ.
    - All integer labels are distinguished; PML may confuse those above 2^24.
    - ``mean_reciprocal_rank`` can be computed alone, and is averaged in float64.
    - NaN and infinity raise ValueError; PML may return plausible numbers or raise another error.
    - A ``k`` above the number of references means all of them; PML counts the last one repeatedly.
    - ``k="max_bin_count"`` gives NaN if no query has a reference of its class; PML raises an error
      of faiss.

    Args:
        include: Metrics to compute; empty: all.
        exclude: Metrics not to compute.
        avg_of_avgs: Average within classes first, then over classes.
        return_per_class: Return a list with the mean of each class, in order of labels, instead of
            one average.
        k: Number of nearest references that count: an integer, None or ``"max_bin_count"``.
        label_comparison_fn: Returns which pairs of labels match; None: equal labels.
        device: Device of the computation; None: CUDA if available.
        knn_func: Finds the nearest neighbours; None: exact search.
        kmeans_func: Clusters embeddings for NMI and AMI; None: k-means by faiss.

    Raises:
        ValueError: ``k`` or the name of a metric is not allowed, or both ``avg_of_avgs`` and
            ``return_per_class`` are True.
    """

    def get_accuracy(
        self,
        query: Tensor | ArrayLike,
        query_labels: Tensor | ArrayLike,
        reference: Tensor | ArrayLike | None = None,
        reference_labels: Tensor | ArrayLike | None = None,
        ref_includes_query: bool = False,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
    ) -> dict[str, Any]:
        """Return the metrics by name.

        Args:
            query: Embeddings, shape (N, D).
            query_labels: Label of each query, shape (N,).
            reference: References, shape (M, D); None: the queries, each without itself.
            reference_labels: Label of each reference, shape (M,).
            ref_includes_query: Whether the first N references are the queries, so that each query
                leaves out itself.
            include: Metrics to compute, among those of the constructor; empty: all of them.
            exclude: Metrics not to compute.

        Returns:
            Floats, or with ``return_per_class`` a list for each metric that needs neighbours.

        Raises:
            ValueError: Shapes do not match, an embedding is NaN or infinite, or with
                ``ref_includes_query`` the first references are not the queries.
        """
        if reference is None:
            reference, reference_labels, ref_includes_query = query, query_labels, True
        x, labels = self._tensor(query, "query"), self._tensor(query_labels, "query_labels")
        # Equal arguments give one tensor, which is later recognised by identity.
        refs = x if reference is query else self._tensor(reference, "reference")
        ref_labels = labels
        if reference_labels is not query_labels:
            ref_labels = self._tensor(reference_labels, "reference_labels")
        self._check(x, labels, refs, ref_labels, ref_includes_query)

        chosen = self.get_function_dict(include, exclude)
        counted = [name for name in chosen if self._is_counted(name)]
        left_to_pml = [name for name in chosen if name not in counted]
        if self._compares_by_equality and labels.ndim == ref_labels.ndim == 1:
            classes, ref_classes = _class_numbers(labels, ref_labels)
            # PML's own code gets class numbers where it could not tell the labels apart.
            if any(_float32_confuses(y) for y in (labels, ref_labels)):
                labels, ref_labels = classes, ref_classes
        elif counted:
            raise ValueError(
                f"query_labels must have shape (N,), but got {tuple(labels.shape)}; pass one level "
                "of labels, or a label_comparison_fn that compares rows."
            )
        values: dict[str, Any] = {}
        if left_to_pml:
            checks.require_squares(x.float(), "query")
            checks.require_squares(refs.float(), "reference")
            values |= super().get_accuracy(
                x, labels, refs, ref_labels, ref_includes_query, left_to_pml
            )
        self.curr_function_dict = chosen  # PML's method sets it to the metrics left to PML
        if counted:
            values |= self._count(counted, x, classes, refs, ref_classes, ref_includes_query)
        return {name: values[name] for name in chosen}

    def requires_knn(self) -> list[str]:
        """Return the metrics that need neighbours; PML's list lacks MRR."""
        return [*super().requires_knn(), "mean_reciprocal_rank"]

    def determine_k(
        self, bin_counts: Tensor, num_reference_embeddings: int, ref_includes_query: bool
    ) -> int:
        """Return how many neighbours count, at least 1 and at most the number of references.

        Args:
            bin_counts: Number of references of each class of queries.
            num_reference_embeddings: Number of references.
            ref_includes_query: Whether the queries are among the references.
        """
        k = super().determine_k(bin_counts, num_reference_embeddings, ref_includes_query)
        return max(1, min(int(k), num_reference_embeddings - int(ref_includes_query)))

    def _tensor(self, values: Any, name: str) -> Tensor:
        return _inputs.tensor(values, name).to(self.device)

    @property
    def _compares_by_equality(self) -> bool:
        return self.label_comparison_fn is pml.EQUALITY

    def _is_counted(self, name: str) -> bool:
        """Return whether a metric is computed by counting, because it has PML's definition."""
        knn = self.knn_func
        method = getattr(self.original_function_dict[name], "__func__", None)
        return (
            name in METRICS
            and method is getattr(pml.AccuracyCalculator, f"calculate_{name}")
            and type(self)._get_accuracy is pml.AccuracyCalculator._get_accuracy
            and self._compares_by_equality
            and type(knn) is FaissKNN
            and knn.index_init_fn is faiss.IndexFlatL2
            # Without resets, the index may contain other vectors too, or be used afterwards.
            and knn.reset_before
            and knn.reset_after
        )

    def _check(
        self, x: Tensor, labels: Tensor, refs: Tensor, ref_labels: Tensor, includes_query: bool
    ) -> None:
        """Raise ValueError if an argument of get_accuracy is not allowed."""
        for vectors, y, name, labels_name in (
            (x, labels, "query", "query_labels"),
            (refs, ref_labels, "reference", "reference_labels"),
        ):
            _inputs.matrix(vectors, name)
            if y.ndim == 0 or len(y) != len(vectors):
                raise ValueError(
                    f"{labels_name} must have one row for each of {len(vectors)} of {name}, but "
                    f"have shape {tuple(y.shape)}."
                )
        if x.shape[1] != refs.shape[1]:
            raise ValueError(f"query has {x.shape[1]} dimensions, but reference {refs.shape[1]}.")
        if includes_query and not (
            _begins_with(refs, x) and _begins_with(_comparable(ref_labels), _comparable(labels))
        ):
            raise ValueError(
                f"ref_includes_query=True, but the first {len(x)} rows of reference or "
                "reference_labels are not those of query and query_labels; put these first, or "
                "pass False."
            )

    def _count(
        self,
        names: Sequence[str],
        x: Tensor,
        labels: Tensor,
        refs: Tensor,
        ref_labels: Tensor,
        includes_query: bool,
    ) -> dict[str, Any]:
        """Return metrics that follow from the ranks of each query's own references.

        Labels are class numbers from :func:`_class_numbers`. Only the ``nearest`` references of a
        query count.
        """
        num_classes = 1 + int(torch.maximum(labels.max(), ref_labels.max()))
        class_sizes = ref_labels.bincount(minlength=num_classes)
        query_classes = labels.unique()
        nearest = self.determine_k(class_sizes[query_classes], len(refs), includes_query)
        # Queries without a reference of their class do not count.
        is_query = (class_sizes[labels] > int(includes_query)).cpu().numpy()
        if not is_query.any():
            c_f.LOGGER.warning("None of the query labels are in the reference set.")
            return {name: pml.nan_accuracy(query_classes, self.return_per_class) for name in names}
        self_retrieval = includes_query and _equal(refs, x)
        per_query = RetrievalMetrics(normalize=False, metrics=names)._score_checked(
            x, labels, None if self_retrieval else refs, ref_labels, includes_query, nearest
        )
        return self._averages(per_query, labels.cpu().numpy(), is_query)

    def _averages(
        self,
        per_query: dict[str, NDArray[np.float64]],
        labels: NDArray[np.int64],
        is_query: NDArray[np.bool_],
    ) -> dict[str, Any]:
        """Return the averages that get_accuracy returns, from the metrics of each query."""
        if not (self.avg_of_avgs or self.return_per_class):
            return {name: float(values[is_query].mean()) for name, values in per_query.items()}
        _, means = class_means(per_query, labels[is_query], is_query)
        if self.return_per_class:
            return {name: values.tolist() for name, values in means.items()}
        return {name: float(values.mean()) for name, values in means.items()}


def _class_numbers(labels: Tensor, ref_labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return both label tensors renumbered from 0, in ascending order of labels."""
    if labels is ref_labels:
        indices = _comparable(labels).unique(return_inverse=True)[1]
        return indices, indices
    joined = torch.cat([_comparable(labels), _comparable(ref_labels)])
    indices = joined.unique(return_inverse=True)[1]
    return indices[: len(labels)], indices[len(labels) :]


def _comparable(labels: Tensor) -> Tensor:
    """Return labels as float32, in which PML compares them, or integers as int64."""
    return labels.float() if labels.is_floating_point() else labels.long()


def _float32_confuses(labels: Tensor) -> bool:
    return not labels.is_floating_point() and bool((labels.long().abs() > _FLOAT32_INTEGERS).any())


def _begins_with(x: Tensor, prefix: Tensor) -> bool:
    """Return whether the first rows of ``x`` equal ``prefix``, with the tolerance of PML."""
    if x is prefix:
        return True
    if x.shape[1:] != prefix.shape[1:] or len(x) < len(prefix):
        return False
    if not x.is_floating_point() and not prefix.is_floating_point():
        return torch.equal(x[: len(prefix)].long(), prefix.long())
    # In chunks, because the comparison needs several copies.
    chunks = zip(x[: len(prefix)].split(4096), prefix.split(4096), strict=True)
    return all(torch.allclose(a.double(), b.double()) for a, b in chunks)


def _equal(a: Tensor, b: Tensor) -> bool:
    return a is b or (a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b))

"""PML's accuracy calculator with exact ranks by counting instead of lists of neighbours."""

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

#: Above this, neighbouring integers are one number in float32, to which PML converts labels.
_FLOAT32_INTEGERS = 2**24


class AccuracyCalculator(pml.AccuracyCalculator):
    """Does what PML's class of this name does, with less memory and time; a drop-in for it.

    Constructor, ``get_accuracy``, its keys and values are PML's. Precision at 1, R-precision,
    MAP@R, MAP and MRR come from :class:`RetrievalMetrics`, so that no N x k array of neighbours and
    no classes x N array of labels is made. As in PML, vectors are compared by Euclidean distance as
    they are (PML's testers normalise them first), queries whose class has no reference count for
    nothing, NaN is the result where no query has one, equally distant references rank by index,
    and only the ``k`` nearest references count: all with ``k=None``, as many as the largest class
    has with ``"max_bin_count"``. The R in R-precision and MAP@R needs the latter or more.

    PML's own code runs, as slow and as large as there, for NMI and AMI, for metrics that a subclass
    adds or overrides, and for everything if ``label_comparison_fn`` or a ``knn_func`` other than
    ``FaissKNN`` with its defaults is given.

    What differs on purpose:

    - Distances are computed in float64, PML's in float32: near-ties may rank otherwise.
    - Integer labels stay apart at any value; in PML, those above 2^24 may become one.
    - ``mean_reciprocal_rank`` can be asked for alone, and is averaged in float64.
    - NaN and infinity are refused; PML may give plausible numbers or an unrelated error.
    - A ``k`` above the number of references means all of them; PML counts the last one repeatedly.
    - ``k="max_bin_count"`` without any query whose class is in the reference gives NaN; PML stops
      with an error of faiss.

    Args:
        include: Metrics to compute; empty: all.
        exclude: Metrics not to compute.
        avg_of_avgs: Average within classes first, then over classes.
        return_per_class: A list with the mean of each class, in order of labels, in place of one
            average.
        k: How many of the nearest references count: a number, None or ``"max_bin_count"``.
        label_comparison_fn: Says which pairs of labels match; None: those that are equal.
        device: Where to compute; None: CUDA if there is one.
        knn_func: Finds the nearest neighbours; None: exactly.
        kmeans_func: Clusters for NMI and AMI; None: k-means by faiss.

    Raises:
        ValueError: ``k`` or a metric's name is not allowed, or both ``avg_of_avgs`` and
            ``return_per_class`` are asked for.
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
            query_labels: Class of each, shape (N,).
            reference: What is searched, shape (M, D); None: the queries, each without itself.
            reference_labels: Class of each reference, shape (M,).
            ref_includes_query: The first N references are the queries, and no query finds itself.
            include: Metrics to compute of those chosen in the constructor; empty: all of them.
            exclude: Metrics not to compute.

        Returns:
            Floats, or with ``return_per_class`` a list for each metric of neighbours.

        Raises:
            ValueError: Shapes do not fit, an embedding is NaN or infinite, or with
                ``ref_includes_query`` the first references are not the queries.
        """
        if reference is None:
            reference, reference_labels, ref_includes_query = query, query_labels, True
        x, labels = self._tensor(query, "query"), self._tensor(query_labels, "query_labels")
        refs = x if reference is query else self._tensor(reference, "reference")
        ref_labels = labels
        if reference_labels is not query_labels:
            ref_labels = self._tensor(reference_labels, "reference_labels")
        self._check(x, labels, refs, ref_labels, ref_includes_query)

        chosen = self.get_function_dict(include, exclude)
        counted = [name for name in chosen if self._is_counted(name)]
        rest = [name for name in chosen if name not in counted]
        if self._compares_by_equality and labels.ndim == ref_labels.ndim == 1:
            classes, ref_classes = _class_numbers(labels, ref_labels)
            if any(_float32_confuses(y) for y in (labels, ref_labels)):
                labels, ref_labels = classes, ref_classes
        elif counted:
            raise ValueError(
                f"query_labels must have shape (N,), but got {tuple(labels.shape)}; pass one level "
                "of labels, or a label_comparison_fn that compares rows."
            )
        values: dict[str, Any] = {}
        if rest:
            checks.require_squares(x.float(), "query")
            checks.require_squares(refs.float(), "reference")
            values |= super().get_accuracy(x, labels, refs, ref_labels, ref_includes_query, rest)
        self.curr_function_dict = chosen
        if counted:
            values |= self._count(counted, x, classes, refs, ref_classes, ref_includes_query)
        return {name: values[name] for name in chosen}

    def requires_knn(self) -> list[str]:
        """Return the metrics that need neighbours; in PML, MRR is missing."""
        return [*super().requires_knn(), "mean_reciprocal_rank"]

    def determine_k(
        self, bin_counts: Tensor, num_reference_embeddings: int, ref_includes_query: bool
    ) -> int:
        """Return how many neighbours count, at least one and not more than there are.

        Args:
            bin_counts: References of each class of queries.
            num_reference_embeddings: Number of references.
            ref_includes_query: Whether each query is one of them.
        """
        k = super().determine_k(bin_counts, num_reference_embeddings, ref_includes_query)
        return max(1, min(int(k), num_reference_embeddings - int(ref_includes_query)))

    def _tensor(self, values: Any, name: str) -> Tensor:
        return _inputs.tensor(values, name).to(self.device)

    @property
    def _compares_by_equality(self) -> bool:
        return self.label_comparison_fn is pml.EQUALITY

    def _is_counted(self, name: str) -> bool:
        """Return whether a metric means here what it means in PML, and so can be counted."""
        knn = self.knn_func
        method = getattr(self.original_function_dict[name], "__func__", None)
        return (
            name in METRICS
            and method is getattr(pml.AccuracyCalculator, f"calculate_{name}")
            and type(self)._get_accuracy is pml.AccuracyCalculator._get_accuracy
            and self._compares_by_equality
            and type(knn) is FaissKNN
            and knn.index_init_fn is faiss.IndexFlatL2
            # Otherwise the index may hold more than the references, or be wanted afterwards.
            and knn.reset_before
            and knn.reset_after
        )

    def _check(
        self, x: Tensor, labels: Tensor, refs: Tensor, ref_labels: Tensor, includes_query: bool
    ) -> None:
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
        """Return metrics of neighbours from the ranks of each query's own references."""
        classes = 1 + int(torch.maximum(labels.max(), ref_labels.max()))
        members = ref_labels.bincount(minlength=classes)
        asked = labels.unique()
        nearest = self.determine_k(members[asked], len(refs), includes_query)
        is_query = (members[labels] > int(includes_query)).cpu().numpy()
        if not is_query.any():
            c_f.LOGGER.warning("None of the query labels are in the reference set.")
            return {name: pml.nan_accuracy(asked, self.return_per_class) for name in names}
        is_same = includes_query and _equal(refs, x)
        per_query = RetrievalMetrics(normalize=False, metrics=names)._checked(
            x, labels, None if is_same else refs, ref_labels, includes_query, nearest
        )
        return self._averages(per_query, labels.cpu().numpy(), is_query)

    def _averages(
        self,
        per_query: dict[str, NDArray[np.float64]],
        labels: NDArray[np.int64],
        is_query: NDArray[np.bool_],
    ) -> dict[str, Any]:
        if not (self.avg_of_avgs or self.return_per_class):
            return {name: float(values[is_query].mean()) for name, values in per_query.items()}
        _, means = class_means(per_query, labels[is_query], is_query)
        if self.return_per_class:
            return {name: values.tolist() for name, values in means.items()}
        return {name: float(values.mean()) for name, values in means.items()}


def _class_numbers(labels: Tensor, ref_labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return both with classes numbered from 0 in their order."""
    if labels is ref_labels:
        numbers = _comparable(labels).unique(return_inverse=True)[1]
        return numbers, numbers
    both = torch.cat([_comparable(labels), _comparable(ref_labels)])
    numbers = both.unique(return_inverse=True)[1]
    return numbers[: len(labels)], numbers[len(labels) :]


def _comparable(labels: Tensor) -> Tensor:
    return labels.float() if labels.is_floating_point() else labels.long()


def _float32_confuses(labels: Tensor) -> bool:
    return not labels.is_floating_point() and bool((labels.long().abs() > _FLOAT32_INTEGERS).any())


def _begins_with(whole: Tensor, part: Tensor) -> bool:
    """Return whether the first rows of ``whole`` are ``part``, as closely as PML asks for."""
    if whole is part:
        return True
    if whole.shape[1:] != part.shape[1:] or len(whole) < len(part):
        return False
    if not whole.is_floating_point() and not part.is_floating_point():
        return torch.equal(whole[: len(part)].long(), part.long())
    # In pieces, because the comparison needs several copies.
    pieces = zip(whole[: len(part)].split(4096), part.split(4096), strict=True)
    return all(torch.allclose(a.double(), b.double()) for a, b in pieces)


def _equal(a: Tensor, b: Tensor) -> bool:
    return a is b or (a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b))

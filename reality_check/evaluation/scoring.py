"""Embeddings of a set of images, and their metrics."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pml_extensions.evaluation import (
    RetrievalMetrics,
    adjusted_mutual_information,
    class_separability,
    hamming_retrieval,
    kmeans_clusters,
    normalized_mutual_information,
    pair_verification,
    pairwise_f1,
)
from pml_extensions.evaluation.verification import Convention, Verification
from pml_extensions.functional import directions
from reality_check.config.classes import find_class
from reality_check.config.metrics import METRICS, Metric, metric_of
from reality_check.data.pairs import Pairs
from reality_check.utils.checkpoints import random_states, restore_random_states, seed_everything
from reality_check.utils.errors import UsageError, users_code
from reality_check.utils.text import one_line


class Metrics(dict[str, float]):
    """The values of metrics by name, each a mean over the queries.

    Attributes:
        per_query: the protocol's three metrics of each query in the method's own geometry, by name:
            float64 (Q,), NaN for a query without a reference of its class.
    """

    def __init__(
        self, means: Mapping[str, float], per_query: Mapping[str, NDArray[np.float64]]
    ) -> None:
        super().__init__(means)
        self.per_query = dict(per_query)


#: Number of pairs within a class, and of pairs of two classes, in a verification; as in LFW.
PAIRS = 3000


class Diverged(Exception):
    """A training has diverged: its loss or embeddings are NaN or infinite."""


@torch.no_grad()
def embed(
    forward: Callable[[Tensor], Tensor], module: nn.Module, batches: Iterable[Tensor]
) -> Tensor:
    """Embed images in evaluation mode; afterwards the module has the mode that it had before.

    Args:
        forward: the function that embeds a batch, such as the network or ``network.features``.
        module: the module that is put in evaluation mode.
        batches: the inputs of ``forward``, on its device; see
            :meth:`reality_check.models.pipeline.Pipeline.evaluation_batches`.

    Returns:
        The embeddings, float32 (N, D), on the device of the batches.
    """
    modes = {name: part.training for name, part in module.named_modules()}
    module.eval()
    parts = [forward(batch).float() for batch in batches]
    for name, part in module.named_modules():
        part.training = modes[name]
    return torch.cat(parts)


def require_finite(embeddings: Tensor) -> Tensor:
    """Return the embeddings; raise :class:`Diverged` if they or their squares are not finite."""
    # K-means sums the squares; the factor covers four folds that are concatenated.
    if not math.isfinite(4 * embeddings.square().sum()):
        raise Diverged("the network gave NaN or infinite embeddings, or some with infinite squares")
    return embeddings


def evaluate_both_geometries(
    embeddings: Tensor,
    labels: np.ndarray,
    normalize: bool,
    extra_metrics: Sequence[str] = (),
    queries: np.ndarray | None = None,
    pairs: Mapping[str, Pairs] | None = None,
    raw: Tensor | None = None,
) -> Metrics:
    """Compute metrics of unit vectors and of raw vectors; MAP@R, RP and P@1 are always included.

    Args:
        embeddings: the embeddings, (N, D), not normalized.
        labels: their labels, (N,).
        normalize: whether the method itself compares unit vectors, not raw ones: its own geometry.
        extra_metrics: names of further metrics, see :mod:`reality_check.config.metrics`.
        queries: which rows are queries, bool (N,); the other rows are the gallery. ``None``: every
            row is both (self-retrieval). Clusters, separability and verification use all rows.
        pairs: lists of pairs to verify, by name.
        raw: the vectors of the raw geometry, (N, E), if they are not ``embeddings``.

    Returns:
        The metrics in the method's own geometry under their names, and the metrics in the other
        geometry with the suffix ``_raw`` or ``_normalized``. Metrics of binary codes, which are
        equal in both, and metrics that are defined for raw embeddings only are included once.
    """
    raw = embeddings if raw is None else raw
    own_vectors, other_vectors = (embeddings, raw) if normalize else (raw, embeddings)
    metrics = list(map(metric_of, extra_metrics))
    raw_names = [metric.name for metric in metrics if metric.function == "raw_scatter"]
    own_names = [metric.name for metric in metrics if metric.function != "raw_scatter"]
    shared_names = [metric.name for metric in metrics if metric.both_geometries]
    other_metrics = evaluate(other_vectors, labels, not normalize, shared_names, queries, pairs)
    own_metrics = evaluate(own_vectors, labels, normalize, own_names, queries, pairs)
    suffix = "_raw" if normalize else "_normalized"
    suffixed = {name + suffix: value for name, value in other_metrics.items()}
    # The empty list has no effect: all three metrics are returned.
    scatter = _raw_scatter(Sample(raw.cpu(), labels, normalize), []) if raw_names else {}
    suffixed |= {name: scatter[name] for name in raw_names}
    return Metrics(own_metrics | suffixed, own_metrics.per_query)


@dataclass(frozen=True)
class Sample:
    """Embeddings and labels that metrics are computed from.

    Attributes:
        embeddings: the embeddings, (N, D), on the CPU, as faiss needs them.
        labels: their labels, (N,).
        normalize: whether the metrics are computed on unit vectors.
        queries: which rows are queries, bool (N,); the other rows are references. ``None``: every
            row is both.
    """

    embeddings: Tensor
    labels: NDArray
    normalize: bool
    queries: NDArray | None = None

    @functools.cached_property
    def points(self) -> Tensor:
        """The embeddings, scaled to unit length if ``normalize``."""
        return directions(self.embeddings) if self.normalize else self.embeddings


def evaluate(
    embeddings: Tensor,
    labels: np.ndarray,
    normalize: bool,
    extra_metrics: Sequence[str] = (),
    queries: np.ndarray | None = None,
    pairs: Mapping[str, Pairs] | None = None,
) -> Metrics:
    """Compute MAP@R, RP, P@1 and the further metrics in one geometry.

    ``extra_metrics``, ``queries`` and ``pairs`` are as in :func:`evaluate_both_geometries`.

    Args:
        embeddings: the embeddings, (N, D).
        labels: their labels, (N,).
        normalize: whether to scale the embeddings to unit length first.

    Raises:
        Diverged: an embedding or its square is not finite.
        UsageError: a metric of the user failed.
    """
    require_finite(embeddings)
    by_function: dict[str, list[Metric]] = {}
    for metric in map(metric_of, extra_metrics):
        by_function.setdefault(metric.function, []).append(metric)
    ranking_metrics = by_function.pop("retrieval", [])
    retrieval = RetrievalMetrics(
        normalize=normalize,
        metrics=[*METRICS, *(metric.name for metric in ranking_metrics if not metric.depth)],
        recall_at=[metric.depth for metric in ranking_metrics if metric.depth],
    )
    per_query = retrieval.per_query(*_split_queries(embeddings, labels, queries))
    values = {name: float(np.nanmean(scores)) for name, scores in per_query.items()}
    if by_function or pairs:
        sample = Sample(embeddings.cpu(), labels, normalize, queries)
    for function, metrics in by_function.items():  # a function that is not ours is the user's
        values |= FUNCTIONS.get(function, own_metric)(sample, metrics)
    verified: dict[str, float] = {}
    for name, pair_list in (pairs or {}).items():
        result = _verify(sample, pair_list)
        verified[f"verification_{name}"] = result.accuracy
        standard_error = result.std / math.sqrt(len(result.fold_accuracies) - 1)
        verified[f"verification_{name}_se"] = standard_error
    means = {name: values[name] for name in (*METRICS, *extra_metrics)}
    return Metrics(means | verified, {name: per_query[name] for name in METRICS})


def own_metric(sample: Sample, metrics: Sequence[Metric]) -> dict[str, float]:
    """Compute a metric of the user, in the geometry of the sample.

    The function is called with the embeddings, float32 (N, D), and their labels, int64 (N,), on
    the CPU. If it has parameters ``references`` and ``reference_labels``, it gets the queries and
    their labels first, and in those parameters the gallery (the same embeddings, if every row is a
    query and a reference). Its random numbers are the same in every call; afterwards the random
    states of the training are restored.

    Returns:
        The value, by the name of the metric.

    Raises:
        UsageError: the function raised, or did not return one finite number.
    """
    (metric,) = metrics  # no other metric is computed by the same function
    function = find_class(metric.function, "metric")
    label = f"metric {metric.name!r}"
    x, y = sample.points.float().clone(), torch.from_numpy(np.array(sample.labels, np.int64))
    with users_code(f"{label} cannot be called"):
        parameters = set(inspect.signature(function).parameters)
    references = {}
    if parameters & {"references", "reference_labels"}:
        gallery = {"references": x.clone(), "reference_labels": y.clone()}
        if sample.queries is not None:
            is_query = torch.from_numpy(sample.queries)
            gallery = {name: tensor[~is_query] for name, tensor in gallery.items()}
            x, y = x[is_query], y[is_query]
        references = {name: tensor for name, tensor in gallery.items() if name in parameters}
    states = random_states(torch.device("cpu"))
    seed_everything(0)
    try:
        with users_code(f"{label} failed on {len(x)} embeddings"), torch.no_grad():
            returned = function(x, y, **references)
    finally:
        restore_random_states(states, torch.device("cpu"))
    try:
        value = math.nan if isinstance(returned, str | bool) else float(returned)
    except (TypeError, ValueError, RuntimeError):
        value = math.nan
    if not math.isfinite(value):
        raise UsageError(
            f"{label} returned {one_line(returned, 60)} for {len(x)} embeddings; it must "
            "return one finite number, such as a float or a tensor of one element."
        )
    return {metric.name: value}


def _clusters(sample: Sample, metrics: Sequence[Metric]) -> dict[str, float]:
    """Score k-means clusters against the classes; with many classes, AMI is the slowest metric."""
    classes = torch.from_numpy(sample.labels)
    clusters = kmeans_clusters(sample.points, len(classes.unique()))
    scores: dict[str, Callable[[Tensor, Tensor], float]] = {
        "NMI": normalized_mutual_information,
        "AMI": adjusted_mutual_information,
        "F1": lambda labels, clusters: pairwise_f1(labels, clusters).f1,
    }
    return {metric.name: scores[metric.name](classes, clusters) for metric in metrics}


def _separability(sample: Sample, metrics: Sequence[Metric]) -> dict[str, float]:
    ratio = class_separability(sample.embeddings, sample.labels, sample.normalize).ratio
    return {metric.name: ratio for metric in metrics}


def _raw_scatter(sample: Sample, metrics: Sequence[Metric]) -> dict[str, float]:
    """Return all three metrics of raw embeddings by name, even if ``sample.normalize``."""
    between, within, ratio = class_separability(sample.embeddings, sample.labels)
    return {
        "separability_raw": ratio,
        "trace_between_raw": between,
        "trace_within_raw": within,
    }


def _verification(sample: Sample, metrics: Sequence[Metric]) -> dict[str, float]:
    accuracy = _verify(sample, verification_pairs(sample.labels)).accuracy
    return {metric.name: accuracy for metric in metrics}


def _verify(sample: Sample, pairs: Pairs) -> Verification:
    """Decide whether pairs are of one class, by a threshold that is fitted to other pairs."""
    first, second, same = pairs
    # Distances are those of unit vectors, or of raw ones as in Realigned Softmax Warping.
    convention: Convention = "insightface" if sample.normalize else "paper004"
    x = sample.embeddings
    return pair_verification(x[first], x[second], same, convention=convention)


def _binary_codes(sample: Sample, metrics: Sequence[Metric]) -> dict[str, float]:
    """Score retrieval by binary codes, which are the same in both geometries."""
    x, y, *gallery = _split_queries(sample.embeddings, sample.labels, sample.queries)
    depths = [metric.depth for metric in metrics if metric.depth]
    values = hamming_retrieval(x, y, depths or [1], *gallery)  # which needs at least one depth
    return {f"binary_{name}": value for name, value in values.items()}


#: The functions that compute the metrics of :mod:`reality_check.config.metrics`, by name.
FUNCTIONS: dict[str, Callable[[Sample, Sequence[Metric]], dict[str, float]]] = {
    "clusters": _clusters,
    "separability": _separability,
    "raw_scatter": _raw_scatter,
    "verification": _verification,
    "codes": _binary_codes,
}


def verification_pairs(labels: np.ndarray) -> Pairs:
    """Draw pairs of images, half of them of one class; deterministic for given labels.

    Returns:
        The row of each pair's first image, the row of its second image, and whether both images
        are of one class.
    """
    generator = np.random.default_rng(0)
    order = np.argsort(labels, kind="stable")
    _, starts, sizes = np.unique(labels[order], return_index=True, return_counts=True)
    # The start and the size of the class at each position of the order. Below, ``anchor`` and
    # ``partner`` are positions of pairs of one class, ``other`` and ``stranger`` of pairs of two.
    class_start, class_size = np.repeat(starts, sizes), np.repeat(sizes, sizes)
    anchor = generator.choice(np.flatnonzero(class_size > 1), PAIRS)
    # The partner is ``step`` positions after the anchor; the class's first follows its last.
    step = generator.integers(1, class_size[anchor])
    partner = class_start[anchor] + (anchor - class_start[anchor] + step) % class_size[anchor]
    other = generator.integers(0, len(labels), PAIRS)
    stranger = generator.integers(0, len(labels) - class_size[other])
    # Skip the class of the first image.
    stranger += np.where(stranger >= class_start[other], class_size[other], 0)
    shuffled = generator.permutation(2 * PAIRS)  # the folds of a verification are contiguous
    first = order[np.concatenate((anchor, other))[shuffled]]
    second = order[np.concatenate((partner, stranger))[shuffled]]
    return torch.from_numpy(first), torch.from_numpy(second), shuffled < PAIRS


def _split_queries(
    embeddings: Tensor, labels: np.ndarray, queries: np.ndarray | None
) -> tuple[Any, ...]:
    """Return the queries and their labels, then the gallery and its labels if there is one."""
    if queries is None:
        return embeddings, labels
    is_query = torch.from_numpy(queries)
    query_rows, gallery_rows = is_query.to(embeddings.device), ~is_query.to(embeddings.device)
    return embeddings[query_rows], labels[queries], embeddings[gallery_rows], labels[~queries]

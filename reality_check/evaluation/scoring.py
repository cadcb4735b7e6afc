"""Embedding a set of images with a network, and metrics of the result."""

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
    """Means by name.

    Attributes:
        per_query: the protocol's three metrics of each query in the method's own geometry: float64
            (Q,), NaN for a query without a reference of its class.
    """

    def __init__(
        self, means: Mapping[str, float], per_query: Mapping[str, NDArray[np.float64]]
    ) -> None:
        super().__init__(means)
        self.per_query = dict(per_query)


#: Number of pairs of one class, and of pairs of two, in a verification; as in LFW.
PAIRS = 3000


class Diverged(Exception):
    """A training has diverged: its loss or embeddings are NaN or infinite."""


@torch.no_grad()
def embed(
    forward: Callable[[Tensor], Tensor], module: nn.Module, batches: Iterable[Tensor]
) -> Tensor:
    """Embed images in evaluation mode; the module's mode is restored.

    Args:
        forward: e.g. the network itself or ``network.features``.
        batches: what ``forward`` takes, on its device; see
            :meth:`reality_check.models.pipeline.Pipeline.evaluation_batches`.

    Returns:
        float32 (N, D) on the device of the batches.
    """
    modes = {name: part.training for name, part in module.named_modules()}
    module.eval()
    parts = [forward(batch).float() for batch in batches]
    for name, part in module.named_modules():
        part.training = modes[name]
    return torch.cat(parts)


def require_finite(embeddings: Tensor) -> Tensor:
    """Return the embeddings; raise :class:`Diverged` if they or their squares are not finite."""
    # As k-means sums them; those of four folds side by side are less.
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
    """Compute metrics of unit vectors and of raw ones; MAP@R, RP and P@1 are always included.

    Args:
        embeddings: (N, D), raw.
        labels: (N,).
        normalize: which geometry is the method's own.
        extra_metrics: further metrics, by the names of :mod:`reality_check.config.metrics`.
        queries: bool (N,): which rows are queries, the others are the gallery; None: all are both
            (self-retrieval). Clusters, separability and pairs to verify are of all rows.
        pairs: by name, lists of pairs that are verified, too.
        raw: (N, E), what the raw geometry compares where it is not ``embeddings`` themselves.

    Returns:
        The metrics of the method's geometry under their names, those of the other one with the
        suffix ``_raw`` or ``_normalized``. Binary codes are the same in both, and there once, as is
        what is of raw embeddings whatever the method.
    """
    raw = embeddings if raw is None else raw
    own, other = (embeddings, raw) if normalize else (raw, embeddings)
    metrics = [metric_of(name) for name in extra_metrics]
    of_raw = [metric.name for metric in metrics if metric.function == "raw_scatter"]
    of_own = [metric.name for metric in metrics if metric.function != "raw_scatter"]
    of_both = [metric.name for metric in metrics if metric.both_geometries]
    other_metrics = evaluate(other, labels, not normalize, of_both, queries, pairs)
    own_metrics = evaluate(own, labels, normalize, of_own, queries, pairs)
    suffix = "_raw" if normalize else "_normalized"
    suffixed = {name + suffix: value for name, value in other_metrics.items()}
    scatter = _raw_scatter(Sample(raw.cpu(), labels, normalize), []) if of_raw else {}
    suffixed |= {name: scatter[name] for name in of_raw}
    return Metrics({**own_metrics, **suffixed}, own_metrics.per_query)


@dataclass(frozen=True)
class Sample:
    """Embeddings and labels that metrics are computed from.

    Attributes:
        embeddings: (N, D), on the CPU: faiss's k-means and binary index are there.
        labels: (N,).
        normalize: whether metrics are those of unit vectors.
        queries: bool (N,): which rows are queries, the others are references; None: all are both.
    """

    embeddings: Tensor
    labels: NDArray
    normalize: bool
    queries: NDArray | None = None

    @functools.cached_property
    def points(self) -> Tensor:
        """The embeddings in the geometry that is measured."""
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

    Args:
        embeddings: (N, D).
        labels: (N,).
        normalize: whether to scale them to unit length first.
        extra_metrics: see :func:`evaluate_both_geometries`, as ``queries`` and ``pairs``.

    Raises:
        Diverged: an embedding or its square is not finite.
        UsageError: an own metric failed.
    """
    require_finite(embeddings)
    by_function: dict[str, list[Metric]] = {}
    for metric in map(metric_of, extra_metrics):
        by_function.setdefault(metric.function, []).append(metric)
    ranked = by_function.pop("retrieval", [])
    retrieval = RetrievalMetrics(
        normalize=normalize,
        metrics=[*METRICS, *(metric.name for metric in ranked if not metric.depth)],
        recall_at=[metric.depth for metric in ranked if metric.depth],
    )
    per_query = retrieval.per_query(*_sides(embeddings, labels, queries))
    values = {name: float(np.nanmean(scores)) for name, scores in per_query.items()}
    if by_function or pairs:
        sample = Sample(embeddings.cpu(), labels, normalize, queries)
    for function, metrics in by_function.items():
        values |= FUNCTIONS.get(function, own_metric)(sample, metrics)
    verified: dict[str, float] = {}
    for name, listed in (pairs or {}).items():
        result = _verify(sample, listed)
        error = result.std / math.sqrt(len(result.fold_accuracies) - 1)
        verified |= {f"verification_{name}": result.accuracy, f"verification_{name}_se": error}
    means = {name: values[name] for name in (*METRICS, *extra_metrics)}
    return Metrics({**means, **verified}, {name: per_query[name] for name in METRICS})


def own_metric(sample: Sample, metrics: Sequence[Metric]) -> dict[str, float]:
    """Call an own metric with unit vectors or raw ones, whatever the method's geometry is.

    It is called with the embeddings, float32 (N, D), and their labels, int64 (N,), on the CPU. One
    with parameters ``references`` and ``reference_labels`` gets the queries, and there what they
    are compared with: the same ones, where all are both. Its random numbers are the same in every
    call, and the training's stay as they are.

    Raises:
        UsageError: it raised, or did not return one finite number.
    """
    (metric,) = metrics
    function = find_class(metric.function, "metric")
    what = f"metric {metric.name!r}"
    x, y = sample.points.float().clone(), torch.from_numpy(np.array(sample.labels, np.int64))
    with users_code(f"{what} cannot be called"):
        parameters = set(inspect.signature(function).parameters)
    references = {}
    if parameters & {"references", "reference_labels"}:
        sides = {"references": x.clone(), "reference_labels": y.clone()}
        if sample.queries is not None:
            is_query = torch.from_numpy(sample.queries)
            sides = {name: side[~is_query] for name, side in sides.items()}
            x, y = x[is_query], y[is_query]
        references = {name: side for name, side in sides.items() if name in parameters}
    states = random_states(torch.device("cpu"))
    seed_everything(0)
    try:
        with users_code(f"{what} failed on {len(x)} embeddings"), torch.no_grad():
            returned = function(x, y, **references)
    finally:
        restore_random_states(states, torch.device("cpu"))
    try:
        value = math.nan if isinstance(returned, str | bool) else float(returned)
    except (TypeError, ValueError, RuntimeError):
        value = math.nan
    if not math.isfinite(value):
        raise UsageError(
            f"{what} returned {one_line(returned, 60)} for {len(x)} embeddings; it must "
            "return one finite number, such as a float or a tensor of one element."
        )
    return {metric.name: value}


def _clusters(sample: Sample, metrics: Sequence[Metric]) -> dict[str, float]:
    """Score k-means clusters; with many classes, AMI is the slowest metric."""
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
    between, within, ratio = class_separability(sample.embeddings, sample.labels)
    traces = {"trace_between_raw": between, "trace_within_raw": within}
    return {"separability_raw": ratio, **traces}


def _verification(sample: Sample, metrics: Sequence[Metric]) -> dict[str, float]:
    accuracy = _verify(sample, verification_pairs(sample.labels)).accuracy
    return {metric.name: accuracy for metric in metrics}


def _verify(sample: Sample, pairs: Pairs) -> Verification:
    """Verify pairs: same class or not, by a threshold that is fitted to other pairs."""
    first, second, same = pairs
    convention: Convention = "insightface" if sample.normalize else "paper004"
    x = sample.embeddings
    return pair_verification(x[first], x[second], same, convention=convention)


def _codes(sample: Sample, metrics: Sequence[Metric]) -> dict[str, float]:
    """Score retrieval by binary codes, which are equal in both geometries."""
    x, y, *gallery = _sides(sample.embeddings, sample.labels, sample.queries)
    depths = [metric.depth for metric in metrics if metric.depth]
    values = hamming_retrieval(x, y, depths or [1], *gallery)
    return {f"binary_{name}": value for name, value in values.items()}


#: Functions that compute the metrics of :mod:`reality_check.config.metrics`, by name.
FUNCTIONS: dict[str, Callable[[Sample, Sequence[Metric]], dict[str, float]]] = {
    "clusters": _clusters,
    "separability": _separability,
    "raw_scatter": _raw_scatter,
    "verification": _verification,
    "codes": _codes,
}


def verification_pairs(labels: np.ndarray) -> Pairs:
    """Draw pairs of images, half of them of one class; deterministic for given labels.

    They are the rows of both images of each pair, and whether these are of one class.
    """
    draw = np.random.default_rng(0)
    order = np.argsort(labels, kind="stable")
    _, starts, sizes = np.unique(labels[order], return_index=True, return_counts=True)
    begin, size = np.repeat(starts, sizes), np.repeat(sizes, sizes)  # of each position in the order
    position = draw.choice(np.flatnonzero(size > 1), PAIRS)
    step = draw.integers(1, size[position])
    partner = begin[position] + (position - begin[position] + step) % size[position]
    other = draw.integers(0, len(labels), PAIRS)
    stranger = draw.integers(0, len(labels) - size[other])
    stranger += np.where(stranger >= begin[other], size[other], 0)
    mixed = draw.permutation(2 * PAIRS)  # folds are contiguous
    first = order[np.concatenate((position, other))[mixed]]
    second = order[np.concatenate((partner, stranger))[mixed]]
    return torch.from_numpy(first), torch.from_numpy(second), mixed < PAIRS


def _sides(embeddings: Tensor, labels: np.ndarray, queries: np.ndarray | None) -> tuple[Any, ...]:
    """Return queries and labels, followed by a separate gallery and its labels if there is one."""
    if queries is None:
        return embeddings, labels
    rows = torch.from_numpy(queries)
    x, others = rows.to(embeddings.device), ~rows.to(embeddings.device)
    return embeddings[x], labels[queries], embeddings[others], labels[~queries]

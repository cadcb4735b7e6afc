"""Embedding a set of images with a network, and metrics of the result."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
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
from reality_check.config.metrics import (
    BINARY,
    METRICS,
    RAW_SCATTER,
    RETRIEVAL,
    SEPARABILITY,
    VERIFICATION,
    depends_on_geometry,
    is_binary,
    other_geometry,
    recall_depth,
)
from reality_check.data.pairs import Pairs


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


#: Scores of k-means clusters, from classes and clusters.
_CLUSTERING: dict[str, Callable[[Tensor, Tensor], float]] = {
    "NMI": normalized_mutual_information,
    "AMI": adjusted_mutual_information,
    "F1": lambda labels, clusters: pairwise_f1(labels, clusters).f1,
}


#: Pairs of one class that a verification takes, and as many of two: as Labeled Faces in the Wild.
PAIRS = 3000


class Diverged(Exception):
    """Training has left the numbers: a NaN or infinite loss or embedding."""


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
    """The embeddings, if all and their squared distances are finite; else :class:`Diverged`."""
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
    """MAP@R, RP and P@1 of unit vectors and of raw ones.

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
    suffix = other_geometry(normalize)
    of_raw = [name for name in extra_metrics if name in RAW_SCATTER]
    of_own = [name for name in extra_metrics if name not in RAW_SCATTER]
    geometric = [name for name in extra_metrics if depends_on_geometry(name)]
    other_metrics = evaluate(other, labels, not normalize, geometric, queries, pairs)
    own_metrics = evaluate(own, labels, normalize, of_own, queries, pairs)
    suffixed = {name + suffix: value for name, value in other_metrics.items()}
    scatter = _raw_scatter(raw, labels) if of_raw else {}
    suffixed |= {name: scatter[name] for name in of_raw}
    return Metrics({**own_metrics, **suffixed}, own_metrics.per_query)


def evaluate(
    embeddings: Tensor,
    labels: np.ndarray,
    normalize: bool,
    extra_metrics: Sequence[str] = (),
    queries: np.ndarray | None = None,
    pairs: Mapping[str, Pairs] | None = None,
) -> Metrics:
    """MAP@R, RP and P@1, and what else is asked for, in one geometry.

    Args:
        embeddings: (N, D).
        labels: (N,).
        normalize: whether to scale them to unit length first.
        extra_metrics: see :func:`evaluate_both_geometries`, as ``queries`` and ``pairs``.

    Raises:
        Diverged: an embedding or its square is not finite.
    """
    require_finite(embeddings)
    plain = [name for name in extra_metrics if not is_binary(name)]
    binary = [name for name in extra_metrics if is_binary(name)]
    retrieval = RetrievalMetrics(
        normalize=normalize,
        metrics=[*METRICS, *(name for name in plain if name in RETRIEVAL)],
        recall_at=[depth for name in plain if (depth := recall_depth(name))],
    )
    sides = _sides(embeddings, labels, queries)
    per_query = retrieval.per_query(*sides)
    values = {name: float(np.nanmean(scores)) for name, scores in per_query.items()}
    if not values.keys() >= set(extra_metrics):
        embeddings = embeddings.cpu()  # faiss's k-means and binary index are those of the CPU
    if any(name in _CLUSTERING for name in plain):
        values |= _clustering(embeddings, labels, normalize, plain)
    if SEPARABILITY in plain:
        values[SEPARABILITY] = class_separability(embeddings, labels, normalize).ratio
    if VERIFICATION in plain:
        values[VERIFICATION] = _verify(embeddings, verification_pairs(labels), normalize).accuracy
    verified = {}
    for name, listed in (pairs or {}).items():
        found = _verify(embeddings.cpu(), listed, normalize)
        verified[f"verification_{name}"] = found.accuracy
        verified[f"verification_{name}_se"] = found.std / math.sqrt(len(found.fold_accuracies) - 1)
    if any(name in RAW_SCATTER for name in plain):
        values |= _raw_scatter(embeddings, labels)
    if binary:
        values |= _binary(_sides(embeddings, labels, queries), binary)
    means = {name: values[name] for name in (*METRICS, *extra_metrics)}
    return Metrics({**means, **verified}, {name: per_query[name] for name in METRICS})


def _clustering(
    embeddings: Tensor, labels: np.ndarray, normalize: bool, names: Sequence[str]
) -> dict[str, float]:
    """Only what is asked for: with many classes AMI takes longer than all the rest."""
    classes = torch.from_numpy(labels)
    points = directions(embeddings) if normalize else embeddings
    clusters = kmeans_clusters(points, len(classes.unique()))
    return {name: _CLUSTERING[name](classes, clusters) for name in names if name in _CLUSTERING}


def _raw_scatter(embeddings: Tensor, labels: np.ndarray) -> dict[str, float]:
    found = class_separability(embeddings.cpu(), labels)
    return dict(zip(RAW_SCATTER, (found.ratio, *found[:2]), strict=True))


def _verify(embeddings: Tensor, pairs: Pairs, normalize: bool) -> Verification:
    """How well pairs of one class are told from pairs of two, by a threshold from other pairs."""
    first, second, same = pairs
    convention: Convention = "insightface" if normalize else "paper004"
    return pair_verification(embeddings[first], embeddings[second], same, convention=convention)


def verification_pairs(labels: np.ndarray) -> Pairs:
    """Draw pairs of images, half of them of one class, the same ones for the same labels.

    They are the rows of both images of each pair, and whether these are of one class.
    """
    draw = np.random.default_rng(0)
    order = np.argsort(labels, kind="stable")
    _, starts, sizes = np.unique(labels[order], return_index=True, return_counts=True)
    begin, size = np.repeat(starts, sizes), np.repeat(sizes, sizes)  # of each place in the order
    place = draw.choice(np.flatnonzero(size > 1), PAIRS)
    step = draw.integers(1, size[place])
    partner = begin[place] + (place - begin[place] + step) % size[place]
    other = draw.integers(0, len(labels), PAIRS)
    stranger = draw.integers(0, len(labels) - size[other])
    stranger += np.where(stranger >= begin[other], size[other], 0)
    mixed = draw.permutation(2 * PAIRS)  # folds are contiguous
    first = order[np.concatenate((place, other))[mixed]]
    second = order[np.concatenate((partner, stranger))[mixed]]
    return torch.from_numpy(first), torch.from_numpy(second), mixed < PAIRS


def _sides(embeddings: Tensor, labels: np.ndarray, queries: np.ndarray | None) -> tuple[Any, ...]:
    """Queries and their labels and, where it is a set of its own, the gallery and its labels."""
    if queries is None:
        return embeddings, labels
    rows = torch.from_numpy(queries).to(embeddings.device)
    return embeddings[rows], labels[queries], embeddings[~rows], labels[~queries]


def _binary(sides: tuple[Any, ...], names: Sequence[str]) -> dict[str, float]:
    depths = [depth for name in names if (depth := recall_depth(name))]
    x, y, *gallery = sides
    values = hamming_retrieval(x, y, depths or [1], *gallery)
    return {BINARY + name: value for name, value in values.items()}

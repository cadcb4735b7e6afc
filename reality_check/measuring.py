"""Embedding a set of images with a network, and metrics of the result."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from pml_extensions.evaluation import (
    RetrievalMetrics,
    adjusted_mutual_information,
    class_separability,
    hamming_retrieval,
    kmeans_clusters,
    normalized_mutual_information,
    pairwise_f1,
)
from pml_extensions.functional import unit_vectors
from reality_check.final_metrics import BINARY, RETRIEVAL, SEPARABILITY, is_binary, recall_depth
from reality_check.results import METRICS

_BATCH = 512

Metrics = dict[str, float]

#: Scores of k-means clusters, from classes and clusters.
_CLUSTERING: dict[str, Callable[[Tensor, Tensor], float]] = {
    "NMI": normalized_mutual_information,
    "AMI": adjusted_mutual_information,
    "F1": lambda labels, clusters: pairwise_f1(labels, clusters).f1,
}


class Diverged(Exception):
    """Training has left the numbers: a NaN or infinite loss or embedding."""


@torch.no_grad()
def embed(
    forward: Callable[[Tensor], Tensor],
    module: nn.Module,
    images: np.ndarray,
    transform: Callable[[Tensor], Tensor],
    device: torch.device,
) -> Tensor:
    """Embed images in evaluation mode, in batches; the module's mode is restored.

    Args:
        forward: e.g. the network itself or ``network.features``.
        module: the module whose mode matters.
        images: uint8 (N, H, W, C).
        transform: from a uint8 batch to what ``forward`` takes.
        device: where to compute.

    Returns:
        float32 (N, D) on the CPU.

    Raises:
        Diverged: an embedding is not finite.
    """
    modes = {name: part.training for name, part in module.named_modules()}
    module.eval()
    parts = []
    for start in range(0, len(images), _BATCH):
        batch = torch.from_numpy(np.ascontiguousarray(images[start : start + _BATCH]))
        parts.append(forward(transform(batch.to(device))).float().cpu())
    for name, part in module.named_modules():
        part.training = modes[name]
    embeddings = torch.cat(parts)
    if not torch.isfinite(embeddings).all():
        raise Diverged("the network gave NaN or infinite embeddings")
    return embeddings


def measure(
    embeddings: Tensor, labels: np.ndarray, normalize: bool, also: Sequence[str] = ()
) -> Metrics:
    """MAP@R, RP and P@1 of self-retrieval, in both geometries.

    Args:
        embeddings: (N, D), raw.
        labels: (N,).
        normalize: which geometry is the method's own.
        also: further metrics, by the names of :mod:`reality_check.final_metrics`.

    Returns:
        The metrics of the method's geometry under their names, those of the other one with the
        suffix ``_raw`` or ``_normalized``; binary codes are the same in both, and there once.
    """
    return measure_geometries(embeddings, embeddings, labels, normalize, also)


def measure_geometries(
    unit: Tensor, raw: Tensor, labels: np.ndarray, normalize: bool, also: Sequence[str] = ()
) -> Metrics:
    """As :func:`measure`, with the vectors of each geometry given apart.

    Args:
        unit: (N, D), compared after scaling to unit length.
        raw: (N, D), compared as they are.
        labels: (N,).
        normalize: which geometry is the method's own.
        also: further metrics.
    """
    own, other = (unit, raw) if normalize else (raw, unit)
    suffix = "_raw" if normalize else "_normalized"
    geometric = [name for name in also if not is_binary(name)]
    others = measure_one(other, labels, not normalize, geometric)
    return measure_one(own, labels, normalize, also) | {
        name + suffix: value for name, value in others.items()
    }


def measure_one(
    embeddings: Tensor, labels: np.ndarray, normalize: bool, also: Sequence[str] = ()
) -> Metrics:
    """The three metrics, and those asked for, in one geometry.

    Args:
        embeddings: (N, D).
        labels: (N,).
        normalize: whether to scale them to unit length first.
        also: further metrics.
    """
    plain, binary = ([n for n in also if is_binary(n) == wanted] for wanted in (False, True))
    retrieval = RetrievalMetrics(
        normalize=normalize,
        metrics=[*METRICS, *(name for name in plain if name in RETRIEVAL)],
        recall_at=[depth for name in plain if (depth := recall_depth(name))],
    )
    found = dict(retrieval(embeddings, labels))
    if any(name in _CLUSTERING for name in plain):
        found |= _clustering(embeddings, labels, normalize, plain)
    if SEPARABILITY in plain:
        found[SEPARABILITY] = class_separability(embeddings, labels, normalize).ratio
    if binary:
        found |= _binary(embeddings, labels, binary)
    return {name: found[name] for name in (*METRICS, *also)}


def _clustering(
    embeddings: Tensor, labels: np.ndarray, normalize: bool, names: Sequence[str]
) -> Metrics:
    """Only what is asked for: with many classes AMI takes longer than all the rest."""
    classes = torch.from_numpy(labels)
    points = unit_vectors(embeddings) if normalize else embeddings
    clusters = kmeans_clusters(points, len(classes.unique()))
    return {name: _CLUSTERING[name](classes, clusters) for name in names if name in _CLUSTERING}


def _binary(embeddings: Tensor, labels: np.ndarray, names: Sequence[str]) -> Metrics:
    depths = [depth for name in names if (depth := recall_depth(name))]
    found = hamming_retrieval(embeddings, labels, ks=depths or [1])
    return {BINARY + name: value for name, value in found.items()}

"""Embedding a set of images with a network, and the protocol's three metrics on the result."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from pml_extensions.evaluation import RetrievalMetrics
from reality_check.results import METRICS

_BATCH = 512


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


def measure(embeddings: Tensor, labels: np.ndarray, normalize: bool) -> dict[str, float]:
    """MAP@R, RP and P@1 of self-retrieval, in both geometries.

    Args:
        embeddings: (N, D), raw.
        labels: (N,).
        normalize: which geometry is the method's own.

    Returns:
        The metrics of the method's geometry under their names, those of the other one with the
        suffix ``_raw`` or ``_normalized``.
    """
    return measure_geometries(embeddings, embeddings, labels, normalize)


def measure_geometries(
    unit: Tensor, raw: Tensor, labels: np.ndarray, normalize: bool
) -> dict[str, float]:
    """As :func:`measure`, with the vectors of each geometry given apart.

    Args:
        unit: (N, D), compared after scaling to unit length.
        raw: (N, D), compared as they are.
        labels: (N,).
        normalize: which geometry is the method's own.
    """
    unit_metrics = RetrievalMetrics(normalize=True)(unit, labels)
    raw_metrics = RetrievalMetrics(normalize=False)(raw, labels)
    own, other = (unit_metrics, raw_metrics) if normalize else (raw_metrics, unit_metrics)
    suffix = "_raw" if normalize else "_normalized"
    return {name: own[name] for name in METRICS} | {name + suffix: other[name] for name in METRICS}

"""Scores of the three categories on the test classes.

"aggregate" is the mean of the fold models' metrics, "ensemble" concatenates their embeddings, and
"complete" is one wide model trained on all trainval classes (protocol sections 4 to 6).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pml_extensions.modules import MLPEmbedder
from reality_check.config.metrics import METRICS, by_corruption, names_on
from reality_check.config.model import EMBEDDER, Model
from reality_check.data.pairs import Pairs
from reality_check.data.tensors import InputShape
from reality_check.evaluation.scoring import (
    Metrics,
    embed,
    evaluate_both_geometries,
)
from reality_check.models.adapters import merge_adapters
from reality_check.models.network import BASE, PARAMS, Network, build_network
from reality_check.models.pipeline import Pipeline
from reality_check.utils import checkpoints

#: A function that computes metrics by category from embeddings and the names of further metrics.
Score = Callable[[Sequence[Tensor], Sequence[str]], dict[str, Metrics]]


def score_folds(
    embeddings: Sequence[Tensor],
    labels: np.ndarray,
    normalize: bool,
    extra_metrics: Sequence[str] = (),
    queries: np.ndarray | None = None,
    pairs: Mapping[str, Pairs] | None = None,
) -> dict[str, Metrics]:
    """Score the "aggregate" and "ensemble" categories of one reproduction.

    Args:
        embeddings: test-image embeddings from each fold's best model, in fold order; each of shape
            (N, D), not normalized.
        labels: the labels of the test images, (N,).
        normalize: whether the method itself compares unit vectors, not raw ones.
        extra_metrics: metrics in addition to the protocol's three, see
            :mod:`reality_check.config.metrics`.
        queries: which test images are queries, bool (N,); ``None`` if all of them are.
        pairs: lists of pairs of test images to verify, by name.

    Returns:
        ``{"aggregate": metrics, "ensemble": metrics}``, with the names of metrics that
        :func:`reality_check.evaluation.scoring.evaluate_both_geometries` returns.
    """
    scoring_args = (labels, normalize, extra_metrics, queries, pairs)
    per_fold = [evaluate_both_geometries(fold, *scoring_args) for fold in embeddings]
    return {"aggregate": _mean(per_fold), "ensemble": ensemble(embeddings, *scoring_args)}


def _mean(folds: Sequence[Metrics]) -> Metrics:
    """Return the means over the folds, both of the metrics and of the scores of each query."""
    means = {name: float(np.mean([fold[name] for fold in folds])) for name in folds[0]}
    per_query = {
        name: np.mean([fold.per_query[name] for fold in folds], axis=0)
        for name in folds[0].per_query
    }
    return Metrics(means, per_query)


def ensemble(
    embeddings: Sequence[Tensor],
    labels: np.ndarray,
    normalize: bool,
    extra_metrics: Sequence[str] = (),
    queries: np.ndarray | None = None,
    pairs: Mapping[str, Pairs] | None = None,
) -> Metrics:
    """Score the concatenated embeddings of all folds, in both geometries.

    Each fold's rows are L2-normalised before they are concatenated, so that every fold has equal
    weight (protocol section 5); the raw geometry concatenates raw rows, which weights folds by
    their norms.
    """
    normalized, raw = concatenate(embeddings, True), concatenate(embeddings, False)
    return evaluate_both_geometries(
        normalized, labels, normalize, extra_metrics, queries, pairs, raw
    )


def concatenate(embeddings: Sequence[Tensor], normalize: bool) -> Tensor:
    """Concatenate the embeddings of the folds, each scaled to unit length if ``normalize``."""
    parts = [torch.nn.functional.normalize(fold) if normalize else fold for fold in embeddings]
    return torch.cat(parts, dim=1)


def load_network(path: Path, model: Model, shape: InputShape, embedding_size: int) -> Network:
    """Load the trained network that a fold run saved in ``model.pt``.

    Adapters are merged into the weights of the trunk.

    Raises:
        FileNotFoundError: there is no such file.
        UsageError: the network is partly trained, and its other weights are not here.
    """
    state = checkpoints.load(path)
    if state is None:
        raise FileNotFoundError(path)
    # The state of a multilayer perceptron contains its searched values; a linear layer has none.
    extra_states = [value for key, value in state.items() if key.endswith("_extra_state")]
    options = MLPEmbedder.read_options(extra_states[0]) if extra_states else {}
    # Files of earlier versions have no other searched values.
    params = {f"{EMBEDDER}.{key}": value for key, value in options.items()} | state.pop(PARAMS, {})
    model = model.filled(params)
    network = build_network(model, shape, embedding_size, seed=0, pretrained=BASE in state)
    network.load_kept_state(state)
    merge_adapters(network)
    return network


def embed_images(network: Network, images: Pipeline, device: torch.device) -> Tensor:
    """Return the embeddings of images: float32 (N, D), not normalized, on ``device``."""
    network.to(device)
    return embed(network, network, images.evaluation_batches())


def score_networks(
    networks: Sequence[Network],
    images: Pipeline,
    device: torch.device,
    score: Score,
    extra_metrics: Sequence[str],
) -> tuple[dict[str, Metrics], list[Tensor]]:
    """Score networks on the test images, and on corrupted images if metrics need them.

    Returns:
        The metrics by category, and each network's embeddings of the images without corruption.
    """
    embeddings = [embed_images(network, images, device) for network in networks]
    scores = score(embeddings, names_on("test", extra_metrics))
    for corruption, names in by_corruption(extra_metrics).items():
        corrupted = embed_corrupted(networks, networks, images, corruption)
        # METRICS are always computed.
        corrupted_scores = score(corrupted, [name for name in names if name not in METRICS])
        for category, metrics in scores.items():
            metrics.update(renamed(corrupted_scores[category], f"{corruption}_", names))
    return scores, embeddings


def embed_corrupted(
    forwards: Sequence[Callable[[Tensor], Tensor]],
    networks: Sequence[Network],
    images: Pipeline,
    corruption: str,
) -> list[Tensor]:
    """Return the embeddings of corrupted images by each of ``forwards``.

    Each function runs with its network of ``networks`` in evaluation mode. Corrupting an image is
    slow, so it is done once for all functions.
    """
    parts: list[list[Tensor]] = [[] for _ in forwards]
    for batch in images.corrupted_batches(corruption):
        for part, forward, network in zip(parts, forwards, networks, strict=True):
            part.append(embed(forward, network, [batch]))
    return list(map(torch.cat, parts))


def renamed(metrics: Metrics, prefix: str, names: Sequence[str]) -> dict[str, float]:
    """Return the metrics in ``names``, in both geometries, with ``prefix`` before their names."""
    candidates = [name + suffix for name in names for suffix in ("", "_raw", "_normalized")]
    return {f"{prefix}{name}": metrics[name] for name in candidates if name in metrics}

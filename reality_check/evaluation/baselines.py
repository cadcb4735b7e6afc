"""What the test classes score without any training: raw input, and untrained networks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from pml_extensions.modules.embedding import principal_components
from reality_check.config.metrics import METRICS, by_corruption, names_on
from reality_check.config.model import Model
from reality_check.config.training import Training
from reality_check.data.sample_set import SampleSet
from reality_check.data.tensors import InputShape, TensorShape
from reality_check.evaluation.categories import embed_corrupted, renamed
from reality_check.evaluation.scoring import Metrics, embed, evaluate
from reality_check.models.network import build_network
from reality_check.models.pipeline import Pipeline, build_pipeline, input_shape
from reality_check.utils.spread import evenly_spread

#: The principal components are fitted to at most this many samples.
MOST_FITTED = 4096
#: The name of the baseline of unchanged vectors.
RAW_VECTORS = "raw features"

Forward = Callable[[Tensor], Tensor]


def score_baselines(
    model: Model,
    training: Training,
    network_seed: int,
    test: SampleSet,
    device: torch.device,
    trainval: SampleSet | None = None,
    extra_metrics: Sequence[str] = (),
    images: Pipeline | None = None,
) -> dict[str, Metrics]:
    """Score the untrained baselines on the test classes, on unit vectors.

    Args:
        trainval: the other classes, to score the pixels and their principal components too, which
            do not depend on the seed. Images beyond 64 x 64 are averaged down to 32 x 32.
        extra_metrics: metrics beside the protocol's three.
        images: the test classes as evaluation sees them, where that has been prepared.

    Returns:
        Those of ``raw pixels`` (``raw features`` of vectors), their PCA to the size of the
        embedding, ``untrained trunk`` (epoch -1 of the protocol: pretrained where the model is; not
        of vectors that have no trunk) and ``untrained embedder`` (epoch 0: a random map).
    """
    shape = input_shape(test, training.augmentation)
    if images is None:
        images = build_pipeline(test, model, training.augmentation, device)
    network = build_network(model.filled({}), shape, training.embedding_size, network_seed)
    network.to(device)
    forwards: dict[str, Forward] = {}
    raw = raw_input(shape)
    if trainval is not None and raw is not None:
        others = build_pipeline(trainval, model, training.augmentation, device)
        forwards[raw] = as_vectors
        forwards[f"PCA of {raw}"] = projection(others, training.embedding_size)
    if raw != RAW_VECTORS or model.trunk != "identity":  # else that is the raw input
        forwards["untrained trunk"] = network.features
    forwards["untrained embedder"] = network
    scores, on_test = {}, names_on("test", extra_metrics)
    for name, forward in forwards.items():
        embeddings = embed(forward, network, images.evaluation_batches())
        scores[name] = evaluate(embeddings, test.labels, True, on_test, test.queries)
    networks = [network] * len(forwards)
    for corruption, names in by_corruption(extra_metrics).items():
        changed = embed_corrupted(list(forwards.values()), networks, images, corruption)
        more = [name for name in names if name not in METRICS]
        for metrics, embeddings in zip(scores.values(), changed, strict=True):
            of_changed = evaluate(embeddings, test.labels, True, more, test.queries)
            metrics.update(renamed(of_changed, f"{corruption}_", names))
    return scores


def raw_input(shape: InputShape) -> str | None:
    """Return the name of the raw input in reports; ``None`` if its distances are meaningless."""
    if not isinstance(shape, TensorShape):
        return "raw pixels"
    if not shape.dtype.is_floating_point:
        return None
    return RAW_VECTORS if len(shape.sizes) == 1 else "raw values"


def as_vectors(samples: Tensor) -> Tensor:
    """Flatten samples to vectors; large images are averaged to 32 x 32 first."""
    if samples.dim() == 4 and max(samples.shape[2:]) > 64:
        samples = torch.nn.functional.adaptive_avg_pool2d(samples, 32)
    return samples.flatten(1)


def projection(images: Pipeline, size: int) -> Forward:
    """Return the map from samples to their first ``size`` principal components, centred.

    The components are those of up to 4,096 of the images, spread evenly.
    """
    rows = evenly_spread(len(images), MOST_FITTED)
    vectors = torch.cat([as_vectors(batch) for batch in images.evaluation_batches(rows)])
    mean, components = principal_components(vectors, min(size, *vectors.shape))
    return lambda batch: (as_vectors(batch) - mean) @ components.T

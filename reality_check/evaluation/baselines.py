"""Baselines without any training: scores of the raw input and of untrained networks."""

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
#: The name of the baselines of unchanged vectors, and of a pretrained trunk as it is.
RAW_VECTORS = "raw features"
PRETRAINED = "frozen features"

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
        trainval: the other classes. If given, the raw input and its principal components are
            scored too, which do not depend on the seed. Images larger than 64 x 64 are averaged
            down to 32 x 32 first.
        extra_metrics: metrics in addition to the protocol's three.
        images: the pipeline of the test classes, if the caller has built it already.

    Returns:
        The metrics by baseline: ``raw pixels`` (``raw features`` if samples are vectors), their PCA
        to the size of the embedding, ``untrained trunk`` (epoch -1 of the protocol; omitted for
        vectors without a trunk), which is called ``frozen features`` if it is pretrained, and
        ``untrained embedder`` (epoch 0: a random projection).
    """
    shape = input_shape(test, training.augmentation)
    if images is None:
        images = build_pipeline(test, model, training.augmentation, device)
    # Searched values of the model have their defaults.
    network = build_network(model.filled({}), shape, training.embedding_size, network_seed)
    network.to(device)
    forwards: dict[str, Forward] = {}  # by the name of the baseline
    # Outputs of a trunk's module are long, and no input of anybody.
    raw = None if model.stored else raw_input(shape)
    if trainval is not None and raw is not None:
        trainval_images = build_pipeline(trainval, model, training.augmentation, device)
        forwards[raw] = as_vectors
        forwards[f"PCA of {raw}"] = projection(trainval_images, training.embedding_size)
    if raw != RAW_VECTORS or model.trunk != "identity":  # otherwise equal to the raw input
        forwards["untrained trunk" if model.weights == "none" else PRETRAINED] = network.features
    forwards["untrained embedder"] = network
    scores, on_test = {}, names_on("test", extra_metrics)
    for name, forward in forwards.items():
        embeddings = embed(forward, network, images.evaluation_batches())
        # True: on unit vectors.
        scores[name] = evaluate(embeddings, test.labels, True, on_test, test.queries)
    networks = [network] * len(forwards)  # the network of each function
    for corruption, names in by_corruption(extra_metrics).items():  # names without the corruption
        corrupted = embed_corrupted(list(forwards.values()), networks, images, corruption)
        added_names = [name for name in names if name not in METRICS]  # METRICS are always computed
        for metrics, embeddings in zip(scores.values(), corrupted, strict=True):
            corrupted_metrics = evaluate(embeddings, test.labels, True, added_names, test.queries)
            metrics.update(renamed(corrupted_metrics, f"{corruption}_", names))
    return scores


def raw_input(shape: InputShape) -> str | None:
    """Return the name of the raw input in reports; ``None`` if distances are meaningless for it."""
    if not isinstance(shape, TensorShape):
        return "raw pixels"
    if not shape.dtype.is_floating_point:
        return None
    return RAW_VECTORS if len(shape.sizes) == 1 else "raw values"


def as_vectors(samples: Tensor) -> Tensor:
    """Flatten samples to vectors; images larger than 64 x 64 are averaged to 32 x 32 first."""
    if samples.dim() == 4 and max(samples.shape[2:]) > 64:
        samples = torch.nn.functional.adaptive_avg_pool2d(samples, 32)
    return samples.flatten(1)


def projection(images: Pipeline, size: int) -> Forward:
    """Return a function that projects samples onto the first ``size`` principal components.

    The components are fitted to at most 4,096 of the images, evenly spread over them.
    """
    rows = evenly_spread(len(images), MOST_FITTED)
    vectors = torch.cat(list(map(as_vectors, images.evaluation_batches(rows))))
    # There are no more components than vectors, or than values in a vector.
    mean, components = principal_components(vectors, min(size, *vectors.shape))
    return lambda batch: (as_vectors(batch) - mean) @ components.T

"""Initial values that are fitted to the training images before the first step."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import nn

from pml_extensions.modules import start_from_pca
from reality_check.config.training import Training
from reality_check.data.sample_set import SampleSet
from reality_check.evaluation.baselines import MOST_FITTED
from reality_check.evaluation.scoring import embed, require_finite
from reality_check.models.network import Network
from reality_check.training.batches import Batches
from reality_check.training.fold import FoldTask
from reality_check.training.methods import FilledMethod
from reality_check.training.module import TrainingModule, keeps_statistics
from reality_check.training.sub_batches import parts_with_statistics
from reality_check.utils.errors import UsageError
from reality_check.utils.spread import evenly_spread


def fit_first_values(
    task: FoldTask, module: TrainingModule, samples: SampleSet, batches: Batches
) -> None:
    """Fit the initial values that the model and the method ask for.

    Raises:
        UsageError: PCA cannot be fitted.
        Diverged: an embedding is not finite.
    """
    embedder, requested = task.model.embedder, task.settings.before_training
    network: Network = module.network
    if embedder is not None and embedder.init == "pca":
        indices = evenly_spread(len(samples), MOST_FITTED)
        features = embed(network.features, network, batches.evaluation_batches(indices))
        layer = next(part for part in network.embedder.modules() if isinstance(part, nn.Linear))
        try:
            start_from_pca(layer, features)
        except ValueError as error:
            raise UsageError(f"embedder.init: pca: {error}") from None
    if requested.batch_statistics:  # of about one epoch
        module.train()
        for images, labels in batches.take(max(1, len(samples) // task.training.batch_sizes[0])):
            module.update_statistics(images, labels)
    if requested.proxies == "class_means":
        indices = np.arange(len(samples))
        embeddings = require_finite(embed(network, network, batches.evaluation_batches(indices)))
        loss: Any = module.loss
        loss.set_proxies_to_class_means(embeddings, batches.labels)


def check_first_values(
    filled: FilledMethod, network: Network, loss: nn.Module, training: Training
) -> None:
    """Make sure that the requested initial values can be fitted.

    Raises:
        UsageError: one of them cannot.
    """
    requested, label = filled.before_training, f"method {filled.name!r}: before_training"
    if requested.proxies == "class_means" and not hasattr(loss, "set_proxies_to_class_means"):
        raise UsageError(
            f"{label}.proxies: class_means needs a loss with "
            "set_proxies_to_class_means(embeddings, labels), as those of pml_extensions with "
            f"proxies have it; {type(loss).__name__} has none, so remove it."
        )
    has_batchnorm = bool(parts_with_statistics(network, training))
    if requested.batch_statistics and not has_batchnorm and not keeps_statistics(loss):
        raise UsageError(
            f"{label}.batch_statistics: there is no BatchNorm that takes statistics of batches; "
            "remove it, or write neck: batch_norm or training.freeze_batchnorm: false."
        )

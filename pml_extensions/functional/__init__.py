"""The numerics under the losses: pure functions of tensors, each safe where the formula is not."""

from pml_extensions.functional.distances import (
    paired_distances,
    pairwise_distances,
    unit_vectors,
)
from pml_extensions.functional.precision import at_least_float32, without_autocast
from pml_extensions.functional.softmax import (
    cross_entropy,
    logsumexp_without_own_class,
    smoothing_weights,
)

__all__ = [
    "at_least_float32",
    "cross_entropy",
    "logsumexp_without_own_class",
    "paired_distances",
    "pairwise_distances",
    "smoothing_weights",
    "unit_vectors",
    "without_autocast",
]

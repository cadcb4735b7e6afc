"""The numerics under the losses: pure functions of tensors, each safe where the formula is not."""

from pml_extensions.functional.batch_norm import batch_normalized
from pml_extensions.functional.class_sampling import gather_rows, presence, sample_classes
from pml_extensions.functional.class_sums import ClassSums, View, class_sums
from pml_extensions.functional.distances import (
    directions,
    paired_distances,
    pairwise_distances,
    unit_vectors,
)
from pml_extensions.functional.memory import free_memory
from pml_extensions.functional.precision import (
    allow_tf32,
    at_least_float32,
    without_autocast,
    without_tf32,
)
from pml_extensions.functional.quadruples import (
    QuadrupleMeans,
    all_quadruples,
    disjoint_quadruples,
    distances_of_pairs,
    pairs_where,
)
from pml_extensions.functional.similarities import (
    Cosine,
    DotProduct,
    NegativeDistance,
    Similarity,
    similarity_matrix,
)
from pml_extensions.functional.softmax import (
    cross_entropy,
    logsumexp,
    smoothed_cross_entropy,
    smoothing_weights,
    softplus,
)
from pml_extensions.functional.warps import Piecewise, Power, Scaled, Warp, warp_own_distance

__all__ = [
    "ClassSums",
    "Cosine",
    "DotProduct",
    "NegativeDistance",
    "Piecewise",
    "Power",
    "QuadrupleMeans",
    "Scaled",
    "Similarity",
    "View",
    "Warp",
    "all_quadruples",
    "allow_tf32",
    "at_least_float32",
    "batch_normalized",
    "class_sums",
    "cross_entropy",
    "directions",
    "disjoint_quadruples",
    "distances_of_pairs",
    "free_memory",
    "gather_rows",
    "logsumexp",
    "paired_distances",
    "pairs_where",
    "pairwise_distances",
    "presence",
    "sample_classes",
    "similarity_matrix",
    "smoothed_cross_entropy",
    "smoothing_weights",
    "softplus",
    "unit_vectors",
    "warp_own_distance",
    "without_autocast",
    "without_tf32",
]

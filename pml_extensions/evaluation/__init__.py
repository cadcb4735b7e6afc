"""Exact evaluation of embeddings."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pml_extensions.evaluation.binary_codes import expected_hamming_recall, hamming_retrieval
from pml_extensions.evaluation.clustering import (
    PairwiseF1,
    adjusted_mutual_information,
    clustering_metrics,
    kmeans_clusters,
    normalized_mutual_information,
    pairwise_f1,
)
from pml_extensions.evaluation.corruptions import CORRUPTIONS, corrupt
from pml_extensions.evaluation.galleries import (
    nearest_neighbours,
    retrieval_gallery,
    save_gallery,
)
from pml_extensions.evaluation.retrieval_metrics import RetrievalMetrics, RetrievalResult
from pml_extensions.evaluation.separability import (
    ClassSeparability,
    average_distance_to_proxy,
    class_separability,
)
from pml_extensions.evaluation.verification import (
    Verification,
    merge_mirrored,
    pair_verification,
    verification_accuracy,
)

if TYPE_CHECKING:
    from pml_extensions.evaluation.accuracy_calculator import AccuracyCalculator
    from pml_extensions.evaluation.streaming import StreamingRetrievalMetrics

__all__ = [
    "CORRUPTIONS",
    "AccuracyCalculator",
    "ClassSeparability",
    "PairwiseF1",
    "RetrievalMetrics",
    "RetrievalResult",
    "StreamingRetrievalMetrics",
    "Verification",
    "adjusted_mutual_information",
    "average_distance_to_proxy",
    "class_separability",
    "clustering_metrics",
    "corrupt",
    "expected_hamming_recall",
    "hamming_retrieval",
    "kmeans_clusters",
    "merge_mirrored",
    "nearest_neighbours",
    "normalized_mutual_information",
    "pair_verification",
    "pairwise_f1",
    "retrieval_gallery",
    "save_gallery",
    "verification_accuracy",
]


if not TYPE_CHECKING:  # imported lazily: their base classes import scikit-learn and torchmetrics

    def __getattr__(name: str) -> Any:
        modules = {
            "AccuracyCalculator": "accuracy_calculator",
            "StreamingRetrievalMetrics": "streaming",
        }
        if name not in modules:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = getattr(import_module(f"{__name__}.{modules[name]}"), name)
        globals()[name] = found
        return found

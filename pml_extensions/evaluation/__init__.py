"""Exact evaluation of embeddings."""

from pml_extensions.evaluation.retrieval_metrics import RetrievalMetrics

__all__ = ["RetrievalMetrics"]

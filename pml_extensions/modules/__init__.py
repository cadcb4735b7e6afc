"""Layers between trunk and loss, as in the papers: pooling, normalisation, embedders, heads."""

from pml_extensions.modules.embedding import (
    BinaryEmbedding,
    MLPEmbedder,
    embedder,
    start_from_pca,
)
from pml_extensions.modules.heads import HEAD_PRESETS, build_head
from pml_extensions.modules.normalization import BatchNormNeck, ContinuousBNReLU, UnitLength
from pml_extensions.modules.pooling import (
    AveragePooling,
    GeneralizedMeanPooling,
    MaxAveragePooling,
    MaxPooling,
    TokenPooling,
)
from pml_extensions.modules.residual import remove_last_bn_relu

__all__ = [
    "HEAD_PRESETS",
    "AveragePooling",
    "BatchNormNeck",
    "BinaryEmbedding",
    "ContinuousBNReLU",
    "GeneralizedMeanPooling",
    "MLPEmbedder",
    "MaxAveragePooling",
    "MaxPooling",
    "TokenPooling",
    "UnitLength",
    "build_head",
    "embedder",
    "remove_last_bn_relu",
    "start_from_pca",
]

"""The heads of the papers, by name.

Sources are marked [paper], [code] (the authors' code) or [ours] (neither specifies it).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import partial

from torch import nn

from pml_extensions._shared import checks
from pml_extensions.modules.embedding import embedder
from pml_extensions.modules.normalization import BatchNormNeck, UnitLength
from pml_extensions.modules.pooling import (
    AveragePooling,
    GeneralizedMeanPooling,
    MaxAveragePooling,
    MaxPooling,
)

#: The layers of a head by name, in order.
Parts = dict[str, nn.Module]


def build_head(preset: str, in_channels: int, embedding_size: int) -> nn.Sequential:
    """Return a paper's head: the layers between the trunk and the loss.

    Args:
        preset: One of :data:`HEAD_PRESETS`.
        in_channels: Number of channels C of the trunk's feature maps (2048 for ResNet-50).
        embedding_size: Width D of the embeddings.

    Returns:
        Named children ``pooling`` and, in the paper's order, ``normalization``, ``embedder``,
        ``neck`` or ``unit_length``; (N, C, H, W), or pooled (N, C), -> (N, D).

    Raises:
        ValueError: There is no such preset, or a width is out of range.
    """
    checks.one_of("preset", preset, tuple(_PRESETS))
    in_channels = checks.positive_integer("in_channels", in_channels)
    embedding_size = checks.positive_integer("embedding_size", embedding_size)
    _, build_parts = _PRESETS[preset]
    return nn.Sequential(OrderedDict(build_parts(in_channels, embedding_size)))


def _sgsl(in_channels: int, embedding_size: int, scale: bool) -> Parts:
    # The linear layer without bias before the neck is from [code]; [paper] does not mention it.
    layer = embedder(
        in_channels, embedding_size, bias=False, init="kaiming_fan_out", skip_if_equal=True
    )
    neck = BatchNormNeck(embedding_size, scale=scale, shift=False)
    return {"pooling": GeneralizedMeanPooling(p=3.0), "embedder": layer, "neck": neck}


def _normalized_softmax(in_channels: int, embedding_size: int) -> Parts:
    return {
        "pooling": AveragePooling(),
        "normalization": _layer_norm(in_channels),
        "embedder": embedder(in_channels, embedding_size, bias=False, skip_if_equal=True),
        "unit_length": UnitLength(),
    }


def _heated_up_softmax(in_channels: int, embedding_size: int) -> Parts:
    return {"pooling": AveragePooling(), "embedder": embedder(in_channels, embedding_size)}


def _heated_up_softmax_bn(in_channels: int, embedding_size: int, shift: bool = False) -> Parts:
    # [code] uses the default eps and momentum of TensorFlow's slim.
    neck = BatchNormNeck(embedding_size, scale=False, shift=shift, eps=1e-3, momentum=0.05)
    return {**_heated_up_softmax(in_channels, embedding_size), "neck": neck}


def _grad_ml(in_channels: int, embedding_size: int) -> Parts:
    return {**_heated_up_softmax(in_channels, embedding_size), "unit_length": UnitLength()}


def _warped_softmax(in_channels: int, embedding_size: int) -> Parts:
    # The head for SOP with another initialisation; a replaced layer keeps its place.
    parts = _warped_softmax_sop(in_channels, embedding_size)
    return {**parts, "embedder": embedder(in_channels, embedding_size, init="kaiming_fan_out")}


def _warped_softmax_sop(in_channels: int, embedding_size: int) -> Parts:
    return {**_proxy_nca_plus_plus(in_channels, embedding_size), "pooling": MaxAveragePooling()}


def _proxy_nca_plus_plus(in_channels: int, embedding_size: int) -> Parts:
    return {
        "pooling": MaxPooling(),
        "normalization": _layer_norm(in_channels),
        "embedder": embedder(in_channels, embedding_size),
    }


def _hist(in_channels: int, embedding_size: int) -> Parts:
    return {
        "pooling": MaxAveragePooling(),
        "embedder": embedder(in_channels, embedding_size, init="kaiming_fan_out"),
        "normalization": _layer_norm(embedding_size),
    }


def _layer_norm(width: int) -> nn.LayerNorm:
    return nn.LayerNorm(width, elementwise_affine=False)


#: Name of each head -> its description and the function that builds its layers.
_PRESETS: dict[str, tuple[str, Callable[[int, int], Parts]]] = {
    "sgsl_official": (
        "GeM, linear layer without bias unless the widths are equal, BN with a learned scale "
        "[code of Stop-Gradient Softmax Loss].",
        partial(_sgsl, scale=True),
    ),
    "sgsl_paper": (
        "sgsl_official with a BN without scale and shift [paper of Stop-Gradient Softmax Loss].",
        partial(_sgsl, scale=False),
    ),
    "normalized_softmax": (
        "Average pooling, LayerNorm without affine, linear layer without bias unless the widths "
        "are equal, unit length [paper and code of Classification is a Strong Baseline].",
        _normalized_softmax,
    ),
    "heated_up_softmax": (
        "Average pooling and a linear layer; the L2 or BN normalisation is in the loss [paper of "
        "Heated-Up Softmax Embedding; torch's initialisation is ours].",
        _heated_up_softmax,
    ),
    "heated_up_softmax_bn": (
        "heated_up_softmax and a BN without scale and shift, which the loss then leaves out; its "
        "output is used for retrieval in the BN variants [paper of Heated-Up Softmax Embedding].",
        _heated_up_softmax_bn,
    ),
    "heated_up_softmax_bn_official": (
        "heated_up_softmax_bn with a learned shift [code of Heated-Up Softmax Embedding].",
        partial(_heated_up_softmax_bn, shift=True),
    ),
    "grad_ml": (
        "Average pooling, linear layer, unit length [ours: the GradML paper specifies no head, but "
        "the code base whose settings it uses has this one].",
        _grad_ml,
    ),
    "warped_softmax": (
        "Max plus average pooling, LayerNorm without affine, linear layer with Kaiming fan-out "
        "initialisation [code of Realigned Softmax Warping for CUB and Cars].",
        _warped_softmax,
    ),
    "warped_softmax_sop": (
        "warped_softmax with torch's initialisation [code of Realigned Softmax Warping for SOP].",
        _warped_softmax_sop,
    ),
    "proxy_nca_plus_plus": (
        "Max pooling, LayerNorm without affine, linear layer [paper and code of ProxyNCA++].",
        _proxy_nca_plus_plus,
    ),
    "hist": (
        "Max plus average pooling, linear layer with Kaiming fan-out initialisation, LayerNorm "
        "without affine on the embedding [code of HIST].",
        _hist,
    ),
}

#: Name of each head -> its description: the layers and their source.
HEAD_PRESETS: dict[str, str] = {name: text for name, (text, _) in _PRESETS.items()}

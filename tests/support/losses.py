"""Every proxy loss by a short name, for tests that hold for all of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from pml_extensions.functional import Power
from pml_extensions.losses import (
    ChunkedSoftmax,
    ClassSampler,
    HeatedUpSoftmaxLoss,
    HISTLoss,
    NormalizedSoftmaxLoss,
    ProxyNCAPlusPlusLoss,
    StopGradientSoftmaxLoss,
    WarpedSoftmaxLoss,
)

Make = Callable[..., Any]
#: Called with the numbers of classes and of dimensions.
PROXY_LOSSES: dict[str, Make] = {
    "normalized": partial(NormalizedSoftmaxLoss, temperature=0.2),
    "proxy_nca_pp": ProxyNCAPlusPlusLoss,
    "sgsl": partial(StopGradientSoftmaxLoss, join_mode="always"),
    "warped": partial(WarpedSoftmaxLoss, alpha=2.5, k1=0.7, k2=1.3),
    "squared": partial(WarpedSoftmaxLoss, own_warp=Power(2), other_warp=Power(2)),
    "root": partial(WarpedSoftmaxLoss, own_warp=Power(0.5), other_warp=Power(0.5)),
    "heated": partial(HeatedUpSoftmaxLoss, bias="scaled"),
    "heated_bn": partial(HeatedUpSoftmaxLoss, normalization="bn"),
    "hist": partial(HISTLoss, hidden_size=7),
}
#: The same as a step on a GPU has them, where a latch must not wait for the host.
GPU_LOSSES: dict[str, Make] = {
    **{name: PROXY_LOSSES[name] for name in ("normalized", "proxy_nca_pp", "warped", "hist")},
    "sgsl": partial(StopGradientSoftmaxLoss, join_mode="latch"),
    "heated": PROXY_LOSSES["heated_bn"],
}
#: How a proxy loss takes its classes.
OPTIONS: dict[str, Callable[[], dict[str, Any]]] = {
    "full": dict,
    "chunked": lambda: {"softmax": ChunkedSoftmax(16)},
    "sampled": lambda: {"class_sampler": ClassSampler(0.5)},
}


def chunked(size: int | None) -> ChunkedSoftmax | None:
    """Return what takes ``size`` classes at a time; None is all at once."""
    return None if size is None else ChunkedSoftmax(size)

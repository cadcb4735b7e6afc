"""The last layer of a network, and binary codes of what it returns."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pml_extensions import _checks


def embedder(
    in_features: int,
    embedding_size: int,
    bias: bool = True,
    init: Literal["default", "kaiming_fan_out"] = "default",
    skip_if_equal: bool = False,
) -> nn.Linear | nn.Identity:
    """Return the last linear layer, initialised as a paper does it.

    Args:
        in_features: Width of the head's vectors.
        embedding_size: Width of the embeddings.
        bias: Whether the layer has a bias.
        init: ``"default"``: torch's. ``"kaiming_fan_out"``: weights normal with standard deviation
            sqrt(2 / embedding_size), bias 0 (authors' code of SGSL, HIST, and of Realigned Softmax
            Warping for CUB and Cars). It makes embeddings about five times longer.
        skip_if_equal: Return an identity if no change of width is needed (NormSoftmax, SGSL).

    Returns:
        The layer, (N, in_features) -> (N, embedding_size).

    Raises:
        ValueError: An argument is out of range.
    """
    in_features = _checks.positive_integer("in_features", in_features)
    embedding_size = _checks.positive_integer("embedding_size", embedding_size)
    _checks.one_of("init", init, ("default", "kaiming_fan_out"))
    if skip_if_equal and in_features == embedding_size:
        return nn.Identity()
    layer = nn.Linear(in_features, embedding_size, bias=bias)
    if init == "kaiming_fan_out":
        nn.init.kaiming_normal_(layer.weight, mode="fan_out")
        if bias:
            nn.init.zeros_(layer.bias)
    return layer


class BinaryEmbedding(nn.Module):
    """One bit per dimension: value > 0, strictly.

    "Classification is a Strong Baseline for Deep Metric Learning", sections 6.3 and 6.6. Needs
    values centred at zero, as LayerNorm gives them; scaling a vector changes no bit, NaN gives 0.

    Args:
        pack: Pack eight bits a byte, the first dimension lowest, as faiss does; the last byte is
            filled with zeros. Ready for ``faiss.IndexBinaryFlat(8 * bytes)``.

    Shape: (N, D) -> bool (N, D), or packed uint8 (N, ceil(D / 8)).
    """

    def __init__(self, pack: bool = False) -> None:
        super().__init__()
        self.pack = pack

    def forward(self, embeddings: Tensor) -> Tensor:
        bits = embeddings > 0
        if not self.pack:
            return bits
        octets = F.pad(bits.to(torch.uint8), (0, -bits.shape[-1] % 8)).unflatten(-1, (-1, 8))
        places = torch.arange(8, dtype=torch.uint8, device=bits.device)
        return (octets << places).sum(dim=-1, dtype=torch.uint8)

    def extra_repr(self) -> str:
        return f"pack={self.pack}"

"""What a model's YAML may say."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from reality_check.config.types import Name
from reality_check.config.values import Strict


class Model(Strict):
    """Trunk, head and embedder. The width of the embedding is the protocol's."""

    name: Name
    trunk: str = "conv4"
    arguments: dict[str, Any] = Field(default_factory=dict)
    pooling: Literal["average", "max", "average_plus_max", "gem", "flatten"] = "average"
    normalization: Literal["none", "layer_norm", "batch_norm"] = "none"

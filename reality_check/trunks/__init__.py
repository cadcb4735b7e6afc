"""Trunks by name: ours, the user's, torchvision's and timm's, with their published weights."""

from reality_check.trunks.bn_inception import BNInception
from reality_check.trunks.building import (
    build_trunk,
    input_channels,
    preprocessing,
    weights_fingerprint,
)
from reality_check.trunks.own import TRUNKS
from reality_check.trunks.small import Conv4, Conv4Pool

__all__ = [
    "TRUNKS",
    "BNInception",
    "Conv4",
    "Conv4Pool",
    "build_trunk",
    "input_channels",
    "preprocessing",
    "weights_fingerprint",
]

"""Trunks by name: ours, the user's, torchvision's and timm's, with their published weights."""

from reality_check.models.bn_inception import BNInception
from reality_check.models.conv4 import Conv4, Conv4Pool
from reality_check.models.own_trunks import TRUNKS
from reality_check.models.trunk_building import (
    build_trunk,
    input_channels,
    preprocessing,
    weights_fingerprint,
)

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

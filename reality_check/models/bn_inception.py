"""BN-Inception, with the layer names of the weight file that the field uses."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class _Block(NamedTuple):
    """Widths of a block's branches, a row of the paper's table.

    The branches are ``single`` (1x1), ``three`` (3x3), ``double`` (3x3 twice), and ``pool`` with a
    1x1 ``projection``. A pair is (1x1 reduction, 3x3 convolutions after it).
    """

    name: str
    single: int
    three: tuple[int, int]
    double: tuple[int, int]
    pool: Literal["average", "max"]
    projection: int


#: Blocks whose ``single`` and ``projection`` are 0 have stride 2 and pass on their pooled input.
_BLOCKS = (
    _Block("3a", 64, (64, 64), (64, 96), "average", 32),
    _Block("3b", 64, (64, 96), (64, 96), "average", 64),
    _Block("3c", 0, (128, 160), (64, 96), "max", 0),
    _Block("4a", 224, (64, 96), (96, 128), "average", 128),
    _Block("4b", 192, (96, 128), (96, 128), "average", 128),
    _Block("4c", 160, (128, 160), (128, 160), "average", 128),
    _Block("4d", 96, (128, 192), (160, 192), "average", 128),
    _Block("4e", 0, (128, 192), (192, 256), "max", 0),
    _Block("5a", 352, (192, 320), (160, 224), "average", 128),
    _Block("5b", 352, (192, 320), (192, 224), "max", 128),
)


class BNInception(nn.Module):
    """GoogLeNet with batch normalisation, up to its last feature maps.

    "Batch Normalization: Accelerating Deep Network Training by Reducing Internal Covariate Shift",
    Fig. 5. Layer names, widths and details are those of the Caffe model that Cadene converted for
    PyTorch (``pretrainedmodels``), so that the converted file loads key by key: convolutions have a
    bias before each BatchNorm, poolings of stride 2 have no padding and round up, and average
    pooling counts its padding.

    The published weights take blue, green, red values of 0 to 255, which
    :func:`reality_check.models.preprocessing` returns.

    Args:
        channels: channels of the input images, whose sides must give even maps at the two stages of
            stride 2, as 224 and 227 do.

    Shape: (B, channels, 224, 224) or (B, channels, 227, 227) -> (B, 1024, 7, 7).
    """

    def __init__(self, channels: int = 3) -> None:
        super().__init__()
        self._add_convolution("conv1_7x7_s2", channels, 64, 7, 2)
        self._add_convolution("conv2_3x3_reduce", 64, 64, 1)
        self._add_convolution("conv2_3x3", 64, 192, 3)
        width = 192
        for block in _BLOCKS:
            width = self._add_block(block, width)

    def _add_convolution(
        self, name: str, in_channels: int, out_channels: int, kernel: int, stride: int = 1
    ) -> None:
        self.add_module(name, nn.Conv2d(in_channels, out_channels, kernel, stride, kernel // 2))
        self.add_module(f"{name}_bn", nn.BatchNorm2d(out_channels))

    def _add_block(self, block: _Block, width: int) -> int:
        """Add a block whose input has ``width`` channels; return the channels of its output."""
        name, stride = f"inception_{block.name}", 1 if block.single else 2
        if block.single:
            self._add_convolution(f"{name}_1x1", width, block.single, 1)
        self._add_convolution(f"{name}_3x3_reduce", width, block.three[0], 1)
        self._add_convolution(f"{name}_3x3", *block.three, 3, stride)
        self._add_convolution(f"{name}_double_3x3_reduce", width, block.double[0], 1)
        self._add_convolution(f"{name}_double_3x3_1", *block.double, 3)
        self._add_convolution(f"{name}_double_3x3_2", block.double[1], block.double[1], 3, stride)
        if block.projection:
            self._add_convolution(f"{name}_pool_proj", width, block.projection, 1)
        # Without a projection, the pooled input is passed on.
        return block.single + block.three[1] + block.double[1] + (block.projection or width)

    def forward(self, images: Tensor) -> Tensor:
        x = _halve(self._convolve("conv1_7x7_s2", images))
        x = _halve(self._convolve("conv2_3x3", self._convolve("conv2_3x3_reduce", x)))
        for block in _BLOCKS:
            x = self._run_block(block, x)
        return x

    def _run_block(self, block: _Block, x: Tensor) -> Tensor:
        """Return the outputs of a block's branches, concatenated over channels."""
        name = f"inception_{block.name}"
        three = self._convolve(f"{name}_3x3", self._convolve(f"{name}_3x3_reduce", x))
        double = x
        for part in ("reduce", "1", "2"):
            double = self._convolve(f"{name}_double_3x3_{part}", double)
        if not block.single:  # a block of stride 2
            return torch.cat([three, double, _halve(x)], dim=1)
        pooled = F.avg_pool2d(x, 3, 1, 1) if block.pool == "average" else F.max_pool2d(x, 3, 1, 1)
        single = self._convolve(f"{name}_1x1", x)
        return torch.cat(
            [single, three, double, self._convolve(f"{name}_pool_proj", pooled)], dim=1
        )

    def _convolve(self, name: str, x: Tensor) -> Tensor:
        """Apply the convolution of that name, its BatchNorm and a ReLU."""
        maps: Tensor = getattr(self, f"{name}_bn")(getattr(self, name)(x))
        return F.relu(maps, inplace=True)


def _halve(x: Tensor) -> Tensor:
    return F.max_pool2d(x, 3, 2, ceil_mode=True)

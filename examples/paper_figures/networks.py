"""The small networks of the figures."""

from __future__ import annotations

from torch import nn

from pml_extensions.modules import embedder
from reality_check.models import Conv4


class LeNet(nn.Sequential):
    """Two 5x5 convolutions with 2x2 maximum pooling, a hidden layer and the embedding.

    After the network of the Heated-Up Softmax paper's MNIST script, which has widths 32, 64 and
    500; the "5-layer CNN" of the papers on stop-gradient and warped softmax is not printed.

    Args:
        embedding_size: D, 2 or 3 in the figures.
        widths: channels of the convolutions, width of the hidden layer.
        shrink: take the mean of so many pixels in both directions first, for speed.

    Shape: (B, 1, 28, 28) -> (B, D).
    """

    def __init__(self, embedding_size: int, widths: tuple[int, int, int], shrink: int = 1) -> None:
        first, second, hidden = widths
        side = 28 // shrink // 4
        super().__init__(
            nn.AvgPool2d(shrink),
            nn.Conv2d(1, first, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(first, second, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(second * side**2, hidden),
            nn.ReLU(),
            nn.Linear(hidden, embedding_size),
        )


class NormalizedConv4(nn.Sequential):
    """Four convolutions, LayerNorm and a linear layer without bias, both as in NormSoftmax.

    Args:
        embedding_size: D.
        width: channels of the convolutions; LayerNorm and the linear layer see 4 times as many,
            the last maps flattened.

    Shape: (B, 1, 28, 28) -> (B, D).
    """

    def __init__(self, embedding_size: int, width: int) -> None:
        features = 4 * width
        super().__init__(
            Conv4(1, width),
            nn.Flatten(),
            nn.LayerNorm(features, elementwise_affine=False),
            embedder(features, embedding_size, bias=False),
        )

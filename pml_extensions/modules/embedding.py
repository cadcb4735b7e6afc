"""The last layer of a network, and binary codes of embeddings."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pml_extensions._shared import checks


def embedder(
    in_features: int,
    embedding_size: int,
    bias: bool = True,
    init: Literal["default", "kaiming_fan_out"] = "default",
    skip_if_equal: bool = False,
) -> nn.Linear | nn.Identity:
    """Return the last linear layer, initialised as in the papers.

    Args:
        in_features: Width of the head's vectors.
        embedding_size: Width of the embeddings.
        bias: Whether the layer has a bias.
        init: ``"default"`` is torch's initialisation. ``"kaiming_fan_out"`` draws normal weights
            with standard deviation sqrt(2 / embedding_size) and sets the bias to 0 (authors' code
            of SGSL, HIST, and of Realigned Softmax Warping for CUB and Cars), which makes
            embeddings about five times longer.
        skip_if_equal: Return an identity if both widths are equal (NormSoftmax, SGSL).

    Returns:
        The layer, (N, in_features) -> (N, embedding_size).

    Raises:
        ValueError: An argument is out of range.
    """
    in_features = checks.positive_integer("in_features", in_features)
    embedding_size = checks.positive_integer("embedding_size", embedding_size)
    checks.one_of("init", init, ("default", "kaiming_fan_out"))
    if skip_if_equal and in_features == embedding_size:
        return nn.Identity()
    layer = nn.Linear(in_features, embedding_size, bias=bias)
    if init == "kaiming_fan_out":
        nn.init.kaiming_normal_(layer.weight, mode="fan_out")
        if bias:
            nn.init.zeros_(layer.bias)
    return layer


class MLPEmbedder(nn.Sequential):
    """A multilayer perceptron that replaces the last linear layer.

    Each of the ``layers`` linear layers is preceded by a dropout; all but the last are followed by
    a normalisation and a ReLU, as in projection heads ("A Simple Framework for Contrastive Learning
    of Visual Representations", section 3). The options are part of the state dictionary, so a saved
    network can be rebuilt from its file.

    Args:
        in_features: Width of the head's vectors.
        embedding_size: Width of the embeddings.
        layers: Number of linear layers, at least 1.
        hidden_size: Width of the hidden layers.
        hidden_normalization: ``"none"``, ``"batch_norm"`` or ``"layer_norm"``, with scale and
            shift.
        dropout: Probability of setting an input of a linear layer to 0.
        bias: Whether the last layer has a bias; hidden layers always have one.
        init: Initialisation of the last layer, see :func:`embedder`.

    Shape: (N, in_features) -> (N, embedding_size).

    Raises:
        ValueError: An argument is out of range.
    """

    def __init__(
        self,
        in_features: int,
        embedding_size: int,
        layers: int = 2,
        hidden_size: int = 512,
        hidden_normalization: Literal["none", "batch_norm", "layer_norm"] = "none",
        dropout: float = 0.0,
        bias: bool = True,
        init: Literal["default", "kaiming_fan_out"] = "default",
    ) -> None:
        checks.positive_integer("layers", layers)
        checks.positive_integer("hidden_size", hidden_size)
        checks.one_of("hidden_normalization", hidden_normalization, tuple(_NORMALIZATIONS))
        checks.fraction("dropout", dropout)
        parts: OrderedDict[str, nn.Module] = OrderedDict()
        width = checks.positive_integer("in_features", in_features)
        for index in range(layers - 1):
            parts[f"dropout_{index}"] = nn.Dropout(dropout)
            parts[f"linear_{index}"] = nn.Linear(width, hidden_size)
            parts[f"normalization_{index}"] = _NORMALIZATIONS[hidden_normalization](hidden_size)
            parts[f"relu_{index}"] = nn.ReLU()
            width = hidden_size
        parts["dropout"] = nn.Dropout(dropout)
        parts["linear"] = embedder(width, embedding_size, bias, init)
        super().__init__(parts)
        self.options: dict[str, Any] = {
            "layers": layers,
            "hidden_size": hidden_size,
            "hidden_normalization": hidden_normalization,
            "dropout": dropout,
        }

    def get_extra_state(self) -> Tensor:
        """Return the options as the bytes of a JSON text."""
        return torch.tensor(list(json.dumps(self.options).encode()), dtype=torch.uint8)

    @staticmethod
    def read_options(state: Tensor | dict[str, Any]) -> dict[str, Any]:
        """Return the options in an extra state; older files store them as a dict."""
        return dict(json.loads(bytes(state.tolist())) if isinstance(state, Tensor) else state)

    def set_extra_state(self, state: Any) -> None:
        """Check that a checkpoint has the same options.

        Raises:
            ValueError: An option other than ``dropout`` differs.
        """
        options = self.read_options(state)
        # A dropout has no weights, so its probability may differ.
        if options | {"dropout": 0} != self.options | {"dropout": 0}:
            raise ValueError(
                f"the checkpoint is the state of a perceptron with {options}, not {self.options}."
            )


_NORMALIZATIONS: dict[str, Callable[[int], nn.Module]] = {
    "none": lambda width: nn.Identity(),
    "batch_norm": nn.BatchNorm1d,
    "layer_norm": nn.LayerNorm,
}


def principal_components(features: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Return the mean, shape (F,), and first principal components, shape (size, F), of features.

    ``features`` has shape (N, F); the components are computed by scikit-learn.
    """
    from sklearn.decomposition import PCA

    checks.require_squares(features, "features")
    pca = PCA(size, random_state=0).fit(features.cpu().numpy())
    mean, components = (
        torch.from_numpy(array).to(features) for array in (pca.mean_, pca.components_)
    )
    return mean, components


@torch.no_grad()
def start_from_pca(layer: nn.Linear, features: Tensor) -> None:
    """Initialise a linear layer as the projection onto the principal components of its inputs.

    Args:
        layer: (N, in_features) -> (N, embedding_size), changed in place; its bias, if it has one,
            centres the features.
        features: Inputs of the layer, floating point, shape (N, in_features).

    Raises:
        ValueError: N or in_features is smaller than embedding_size.
    """
    size = layer.out_features
    if min(features.shape) < size:
        raise ValueError(
            f"features of shape {tuple(features.shape)} have at most {min(features.shape)} "
            f"principal components, but the embedding has {size} dimensions."
        )
    mean, components = principal_components(features, size)
    # The sign of a component is arbitrary; make its largest entry positive.
    largest = components.abs().argmax(dim=1, keepdim=True)
    components = components * components.gather(1, largest).sign()
    layer.weight.copy_(components)
    if layer.bias is not None:
        layer.bias.copy_(-components @ mean)


class BinaryEmbedding(nn.Module):
    """Binary code of an embedding: one bit per dimension, 1 if the value is above 0.

    "Classification is a Strong Baseline for Deep Metric Learning", sections 6.3 and 6.6. Values
    should be centred at zero, as after LayerNorm. Scaling a vector changes no bit; NaN gives 0.

    Args:
        pack: Pack eight bits into a byte, the first dimension in the lowest bit, as
            ``faiss.IndexBinaryFlat(8 * bytes)`` expects; the last byte is padded with zeros.

    Shape: (N, D) -> bool (N, D), or packed uint8 (N, ceil(D / 8)).
    """

    def __init__(self, pack: bool = False) -> None:
        super().__init__()
        self.pack = pack

    def forward(self, embeddings: Tensor) -> Tensor:
        bits = embeddings > 0
        if not self.pack:
            return bits
        # -D % 8 zeros make D a multiple of 8.
        octets = F.pad(bits.int(), (0, -bits.shape[-1] % 8)).unflatten(-1, (-1, 8))
        # As a sum of int32, because ONNX has neither shifts nor sums of bytes.
        powers = 2 ** torch.arange(8, dtype=torch.int32, device=bits.device)
        return (octets * powers).sum(dim=-1).to(torch.uint8)

    def extra_repr(self) -> str:
        return f"pack={self.pack}"

"""Trunk + head + embedder: the network that every method of an experiment trains."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from pml_extensions.modules import (
    AveragePooling,
    BatchNormNeck,
    ContinuousBNReLU,
    GeneralizedMeanPooling,
    MaxAveragePooling,
    MaxPooling,
    MLPEmbedder,
    build_head,
    embedder,
)
from reality_check.config.model import Embedder, Model
from reality_check.data.tensors import InputShape, TensorShape, example_input
from reality_check.models import build_trunk, input_channels, weights_fingerprint
from reality_check.models.adapters import add_adapter
from reality_check.models.partly_frozen import ResumedTrunk, freeze_until, in_evaluation
from reality_check.utils.errors import UsageError, users_code

#: Poolings by their names in a model's YAML.
POOLINGS: dict[str, Callable[[], nn.Module]] = {
    "average": AveragePooling,
    "max": MaxPooling,
    "average_plus_max": MaxAveragePooling,
    "gem": GeneralizedMeanPooling,
    "flatten": nn.Flatten,
}
#: Normalisations by their names, all without parameters, because the head has no optimiser.
NORMALIZATIONS: dict[str, Callable[[int], nn.Module]] = {
    "none": lambda width: nn.Identity(),
    "layer_norm": lambda width: nn.LayerNorm(width, elementwise_affine=False),
    "batch_norm": lambda width: BatchNormNeck(width, scale=False, shift=False),
}
#: Necks, which follow the embedder, by their names.
NECKS: dict[str, Callable[[int], nn.Module]] = {
    "batch_norm": NORMALIZATIONS["batch_norm"],
    # The options are those of the head heated_up_softmax_bn.
    "heated_up_softmax": lambda width: BatchNormNeck(
        width, scale=False, shift=False, eps=1e-3, momentum=0.05
    ),
}

#: Keys of a file of a network: the fingerprint of the weights that a partly trained one goes with,
#: and the sampled values of its model.
BASE, PARAMS = "base", "params"


class Head(nn.Sequential):
    """Pools a feature map to a vector and normalises it.

    Args:
        pooling: ``average``, ``max``, ``average_plus_max`` (their sum), ``gem`` (generalised mean,
            p = 3) or ``flatten``.
        normalization: ``none``, ``layer_norm`` or ``batch_norm``, both without scale and shift.
        width: width of the pooled vectors, F.

    Shape: (B, C, H, W) or (B, F) -> (B, F).
    """

    def __init__(self, pooling: str, normalization: str, width: int) -> None:
        super().__init__(
            OrderedDict(
                pooling=POOLINGS[pooling](), normalization=NORMALIZATIONS[normalization](width)
            )
        )


class Network(nn.Module):
    """Trunk, head and embedder in one module.

    All learned layers after the trunk are in ``embedder``; of a paper's head, these are its linear
    layer and everything after it.

    Args:
        still: modules of the trunk that stay in evaluation mode.

    Attributes:
        base: the fingerprint of the weights that a partly trained trunk starts from, if it starts
            from any. :meth:`kept_state` is then without what equals these.

    Shape: (B, C, H, W) -> (B, embedding_size).
    """

    def __init__(
        self,
        trunk: nn.Module,
        head: nn.Module,
        embedder: nn.Module,
        still: Sequence[nn.Module] = (),
    ) -> None:
        super().__init__()
        self.trunk = trunk
        self.head = head
        self.embedder = embedder
        self._still = tuple(still)
        self.base: str | None = None
        self._initial_buffers: dict[str, Tensor] = {}

    def train(self, mode: bool = True) -> Network:
        super().train(mode)
        for part in self._still:
            part.eval()
        return self

    def start_from(self, base: str) -> None:
        """Set :attr:`base`, whose weights the network has now."""
        self.base = base
        self._initial_buffers = {name: b.clone() for name, b in self.trunk.named_buffers("trunk")}

    def kept_state(self) -> dict[str, Any]:
        """Return the state, without what the trunk still has in common with :attr:`base`."""
        state = self.state_dict()
        if self.base is None:
            return state
        same = {n for n, p in self.trunk.named_parameters("trunk") if not p.requires_grad}
        for name, initial in self._initial_buffers.items():
            if name in state and torch.equal(state[name].cpu(), initial):
                same.add(name)
        return {BASE: self.base, **{n: value for n, value in state.items() if n not in same}}

    def load_kept_state(self, state: Mapping[str, Any]) -> None:
        """Load what :meth:`kept_state` returned.

        Raises:
            UsageError: the network that it is of started from other weights.
        """
        base = state.get(BASE)
        if base != self.base:
            raise UsageError(
                f"these weights of a partly trained network belong to the trunk with the weights "
                f"{base}, but here are {self.base or 'none'}; name those in weights."
            )
        found = self.load_state_dict(
            {name: value for name, value in state.items() if name != BASE}, strict=base is None
        )
        if found.unexpected_keys:
            raise UsageError(f"the network has no {found.unexpected_keys[0]}.")

    def features(self, images: Tensor) -> Tensor:
        """Return the output of the head, before the embedder: (B, F)."""
        return self.head(self.trunk(images))

    def forward(self, images: Tensor) -> Tensor:
        return self.embedder(self.features(images))


def build_network(
    config: Model, shape: InputShape, embedding_size: int, seed: int, pretrained: bool = True
) -> Network:
    """Build a network with weights drawn from ``seed``; torch's global generator is untouched.

    Args:
        shape: (H, W, C) of the training images, where C is the data set's number of channels (a
            trunk for RGB images gets grey images repeated, see :func:`preprocessing`), or the shape
            of the tensors.
        embedding_size: width of the embedder's output.
        seed: seed of the initial weights (of the embedder alone, if the trunk is pretrained).
        pretrained: False leaves out pretrained weights, because a trained state is loaded next.

    Raises:
        UsageError: if the trunk or its weights do not exist, or the trunk does not fit the samples.
    """
    samples = str(shape)
    if not isinstance(shape, TensorShape):
        shape = (*shape[:2], input_channels(config, shape[2]))
        samples = f"images of {shape[0]}x{shape[1]} with {shape[2]} channels"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        trunk = build_trunk(config, config.stored.images if config.stored else shape, pretrained)
        with users_code(f"trunk {config.trunk} does not take {samples}"):
            trunk, still = _freeze(config, trunk, shape)
            maps = _example_maps(trunk, shape, config.trunk)
        parts = _build_head(config, maps, embedding_size)
        network = Network(trunk, *parts, still)
    if pretrained and (config.frozen or config.adapter) and (base := weights_fingerprint(config)):
        network.start_from(base)
    return network


def _freeze(
    config: Model, trunk: nn.Module, shape: InputShape
) -> tuple[nn.Module, Sequence[nn.Module]]:
    """Freeze a trunk as its model has it, and add its adapter.

    Returns:
        The trunk, and its modules that stay in evaluation mode.
    """
    still: Sequence[nn.Module] = ()
    example = example_input(shape)
    if config.frozen is not None:
        assert isinstance(config.frozen, str)
        if config.stored is not None:
            trunk = ResumedTrunk(trunk, config.frozen, example_input(config.stored.images))
        else:
            done = freeze_until(trunk, config.frozen, example)
            still = tuple(map(trunk.get_submodule, done))
    if config.adapter is not None:
        add_adapter(trunk, config.adapter, still, example, f"trunk {config.trunk}")
    return trunk, still


def _build_head(config: Model, maps: Tensor, embedding_size: int) -> tuple[nn.Module, nn.Module]:
    """Build the head and the embedder for outputs of a trunk."""
    if config.head is not None:
        return _build_preset(config, maps.shape[1], embedding_size)
    pooling, normalization = config.pooling or "average", config.normalization or "none"
    # Flattened maps have more numbers than channels.
    width = int(POOLINGS[pooling]()(maps).shape[1])
    layers = _build_embedder(config.embedder or Embedder(), width, embedding_size)
    if config.neck != "none":
        layers = nn.Sequential(
            OrderedDict(embedder=layers, neck=NECKS[config.neck](embedding_size))
        )
    return Head(pooling, normalization, width), layers


def _build_embedder(options: Embedder, width: int, embedding_size: int) -> nn.Module:
    """Build the layers from vectors of ``width`` to embeddings."""
    arguments = options.model_dump()
    if options.init == "pca":
        if embedding_size > width:
            raise UsageError(
                f"embedder.init: pca gives at most {width} dimensions, as many as the features "
                f"have, but a network is to have {embedding_size}; write a smaller embedding_size."
            )
        arguments["init"] = "default"  # the Trainer computes the weights from the data
    skip_if_equal = arguments.pop("skip_if_equal")
    if options.is_linear:
        return embedder(width, embedding_size, arguments["bias"], arguments["init"], skip_if_equal)
    return MLPEmbedder(width, embedding_size, **arguments)


def _build_preset(config: Model, channels: int, embedding_size: int) -> tuple[nn.Module, nn.Module]:
    """Build a paper's head in two parts, of which the second begins with the embedder."""
    parts = list(build_head(str(config.head), channels, embedding_size).named_children())
    if config.bn_relu_modules:  # between the embedder and the neck
        position = [name for name, _ in parts].index("neck")
        modules = ContinuousBNReLU(config.bn_relu_modules, embedding_size)
        parts.insert(position, ("bn_relu_modules", modules))
    start = [name for name, _ in parts].index("embedder")
    before, after = OrderedDict(parts[:start]), OrderedDict(parts[start:])
    return nn.Sequential(before), after["embedder"] if len(after) == 1 else nn.Sequential(after)


def autocast(device: torch.device, kind: Literal["none", "bf16", "fp16"]) -> torch.autocast:
    """Return the autocast context of a network's forward pass on a device."""
    dtype = torch.float16 if kind == "fp16" else torch.bfloat16
    return torch.autocast(device.type, dtype=dtype, enabled=kind != "none")


@torch.no_grad()
def _example_maps(trunk: nn.Module, shape: InputShape, name: str) -> Tensor:
    """Return the trunk's output for one sample of zeros; a wrong trunk raises UsageError."""
    if not isinstance(trunk, nn.Module):
        raise UsageError(
            f"trunk {name} must be a torch.nn.Module, or a function that returns one; got "
            f"{type(trunk).__name__}."
        )
    with in_evaluation(trunk):
        maps = trunk(example_input(shape))
    if not isinstance(maps, Tensor) or maps.dim() not in (2, 4):
        got = f"shape {tuple(maps.shape)}" if isinstance(maps, Tensor) else type(maps).__name__
        raise UsageError(
            f"trunk {name} must return (B, C, H, W) maps or (B, F) vectors, got a tensor of {got}."
        )
    if not maps.is_floating_point():
        raise UsageError(
            f"trunk {name} returns {maps.dtype}, but the head needs float32; convert the samples "
            "with array.astype('float32'), or let the trunk embed them."
        )
    return maps

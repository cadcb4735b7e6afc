"""Removing the last batch normalisation and ReLU of a ResNet."""

from __future__ import annotations

from typing import Literal, TypeVar

from torch import Tensor, nn

from pml_extensions._shared import checks

Trunk = TypeVar("Trunk", bound=nn.Module)

_TORCHVISION, _TIMM = "torchvision.models.resnet", "timm.models.resnet"
#: Qualified name of a block's forward -> its number of convolutions (conv1, bn1, conv2, ...).
_NUM_CONVOLUTIONS = {"BasicBlock.forward": 2, "Bottleneck.forward": 3}


def remove_last_bn_relu(trunk: Trunk, mode: Literal["paper", "official"] = "paper") -> Trunk:
    """Remove the last BN and ReLU of a ResNet, for use with a BN neck.

    "Stop-Gradient Softmax Loss for Deep Metric Learning", section "Remove the Last BN-ReLU".
    Load pretrained weights before: the parameters of the removed BN are no longer in the
    ``state_dict``, whose other keys are unchanged.

    The paper and its code differ. torchvision's block uses one ReLU module for all its activations,
    and the authors' code replaces that module, so their last block has no activation at all.

    Args:
        trunk: A ResNet, ResNeXt or Wide ResNet of torchvision, or a model of timm's ``ResNet``
            with its BasicBlock or Bottleneck (SE, ECA, anti-aliasing and drop path included). It
            may be truncated, wrapped or have another ``fc``. Changed in place.
        mode: ``"paper"`` removes the BN after the last convolution and the ReLU after the addition.
            ``"official"`` removes that BN and all activations of the last block, as in the authors'
            code (for ResNet-50; other depths by analogy).

    Returns:
        The same trunk.

    Raises:
        ValueError: ``trunk`` is not such a network, or its BN was removed before.
    """
    official = checks.one_of("mode", mode, ("paper", "official")) == "official"
    block = _last_block(trunk)
    last = _num_block_convolutions(block)  # also the number of its last BN and activation
    _check_normalization(getattr(block, f"bn{last}"), f"bn{last}")
    removed = [f"bn{last}"]
    if type(block).forward.__module__ == _TIMM:  # whose blocks have modules act1, act2, ...
        removed += [f"act{i}" for i in range(1 if official else last, last + 1)]
    elif official:
        removed.append("relu")
    else:
        # The block's inner activations use the same ReLU module, so its forward must change.
        # Replacing the class, as torch's parametrizations do, keeps hooks and references.
        block.__class__ = _BasicBlock if last == 2 else _Bottleneck
    for name in removed:
        setattr(block, name, nn.Identity().train(block.training))
    return trunk


class _BasicBlock(nn.Module):
    """torchvision's BasicBlock without its second BN and without the ReLU after the addition."""

    conv1: nn.Module
    bn1: nn.Module
    conv2: nn.Module
    bn2: nn.Module
    relu: nn.Module
    downsample: nn.Module | None

    def forward(self, x: Tensor) -> Tensor:
        out = self.conv2(self.relu(self.bn1(self.conv1(x))))
        return out + (x if self.downsample is None else self.downsample(x))


class _Bottleneck(_BasicBlock):
    """torchvision's Bottleneck without its third BN and without the ReLU after the addition."""

    conv3: nn.Module

    def forward(self, x: Tensor) -> Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.conv3(self.relu(self.bn2(self.conv2(out))))
        return out + (x if self.downsample is None else self.downsample(x))


def _num_block_convolutions(module: nn.Module) -> int:
    """Return the number of convolutions of a residual block, or 0 for any other module."""
    if isinstance(module, _BasicBlock):  # a block that remove_last_bn_relu has changed
        return 3 if isinstance(module, _Bottleneck) else 2
    forward = type(module).forward
    # Blocks of other libraries, or whose forward was replaced on the instance, do not count.
    if forward.__module__ not in (_TORCHVISION, _TIMM) or "forward" in vars(module):
        return 0
    return _NUM_CONVOLUTIONS.get(forward.__qualname__, 0)


def _last_block(trunk: nn.Module) -> nn.Module:
    """Return the last residual block of a ResNet, or raise ValueError for another network."""
    message = (
        "remove_last_bn_relu takes one ResNet built of torchvision's or timm's BasicBlock or "
        f"Bottleneck, but got {type(trunk).__name__}"
    )
    if not isinstance(trunk, nn.Module):
        raise ValueError(f"{message}.")
    modules = list(trunk.modules())
    blocks = [module for module in modules if _num_block_convolutions(module)]
    if not blocks:
        raise ValueError(
            f"{message}, which has no such block; replace its last BN and ReLU by "
            "torch.nn.Identity() instead."
        )
    # Whether there is a convolution after the beginning of the first block, but in no block.
    in_blocks = {part for block in blocks for part in block.modules()}
    outside = set(modules[modules.index(blocks[0]) :]) - in_blocks
    if any(isinstance(module, nn.Conv2d) for module in outside):
        raise ValueError(
            f"{message}, which has other convolutions between or after such blocks, so its last "
            "block is not known; pass the ResNet alone."
        )
    return blocks[-1]


def _check_normalization(norm: nn.Module, name: str) -> None:
    """Raise ValueError unless ``norm`` is a batch normalisation."""
    if isinstance(norm, nn.Identity):
        raise ValueError(
            f"remove_last_bn_relu takes a ResNet with its last BN, but {name} of the last block "
            "is Identity; call remove_last_bn_relu only once."
        )
    # Compared by name, because frozen variants are no subclasses of torch's BatchNorm.
    if "batchnorm" not in type(norm).__name__.lower():
        raise ValueError(
            f"remove_last_bn_relu takes a ResNet with batch normalisation, but {name} of the last "
            f"block is {type(norm).__name__}; to remove that layer, replace it by "
            "torch.nn.Identity() yourself."
        )

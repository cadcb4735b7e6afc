"""Learning rates by layer, and activations that are computed again."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from support.training_modules import batches, module_of, training
from torch import Tensor, nn

from reality_check.training.layers import checkpoint_activations, layer_factors
from reality_check.utils.errors import UsageError

TINY = {"img_size": 16, "patch_size": 8, "embed_dim": 12, "depth": 3, "num_heads": 2}


def vit() -> Any:
    timm_vit = pytest.importorskip("timm.models.vision_transformer")
    return timm_vit.VisionTransformer(**TINY, in_chans=1, num_classes=0)


class Blocks(nn.Module):
    """A trunk of an unknown library, with layers in a list."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(256, 8)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(8, 32), nn.Dropout(0.3), nn.Linear(32, 8)) for _ in range(3)
        )
        self.norm = nn.LayerNorm(8)

    def forward(self, images: Tensor) -> Tensor:
        x = self.stem(images.flatten(1))
        for block in self.blocks:
            x = x + block(x)
        return self.norm(x)


def by_name(trunk: nn.Module, decay: float) -> dict[str, float]:
    factors = layer_factors(trunk, decay)
    assert {*factors} == {*trunk.parameters()}
    return {name: factors[parameter] for name, parameter in trunk.named_parameters()}


def test_layers_of_timm_are_timms() -> None:
    found = by_name(vit(), 0.5)
    assert found["patch_embed.proj.weight"] == found["cls_token"] == 0.5**3
    blocks = [found[f"blocks.{index}.attn.qkv.bias"] for index in range(3)]
    assert blocks == [0.5**2, 0.5, 1]
    assert found["norm.weight"] == 1


class Renamed(nn.Module):
    """As an adapter wraps a network of timm: its patterns match no name."""

    def __init__(self) -> None:
        super().__init__()
        self.model = vit()

    def group_matcher(self, coarse: bool = False) -> Any:
        return self.model.group_matcher(coarse)


def test_layers_of_others_are_those_of_their_largest_stack() -> None:
    found = by_name(Blocks(), 0.1)
    assert found["stem.bias"] == pytest.approx(1e-4)
    assert [found[f"blocks.{i}.2.weight"] for i in range(3)] == pytest.approx([1e-3, 1e-2, 0.1])
    assert found["norm.weight"] == 1
    flat = by_name(nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2)), 0.1)
    assert [*flat.values()] == pytest.approx([0.1, 0.1, 1, 1])
    renamed = by_name(Renamed(), 0.5)
    assert renamed["model.blocks.1.norm1.bias"] == 0.5**2


def test_a_stack_may_hold_a_longer_one() -> None:
    """As of torchvision's ConvNeXt and Swin, whose blocks are all in a part of the network."""
    blocks = nn.Sequential(*(nn.Linear(2, 2) for _ in range(3)))
    for after in ([], [nn.LayerNorm(2)]):
        found = by_name(nn.Sequential(blocks, *after), 0.1)
        shift = 0.1 ** len(after)
        assert [found[f"0.{index}.bias"] / shift for index in range(3)] == pytest.approx(
            [0.01, 0.1, 1]
        )
    # A small one is not that of the trunk, however long.
    large = nn.Linear(2, 99)
    assert len({*by_name(nn.Sequential(large, nn.Linear(99, 2), blocks), 0.1).values()}) == 3


def test_a_trunk_of_one_layer_has_no_layer_decay() -> None:
    with pytest.raises(UsageError, match=r"layer_decay: the trunk has no stack .*groups: "):
        layer_factors(nn.Linear(2, 2), 0.5)


# -- activation checkpointing ----------------------------------------------------------------------


class Watch:
    """The number of values that autograd keeps."""

    def __init__(self) -> None:
        self.kept = 0

    def __enter__(self) -> Watch:
        def pack(tensor: Tensor) -> Tensor:
            self.kept += tensor.numel()
            return tensor

        self._hooks = torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor)
        self._hooks.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._hooks.__exit__(*error)


def stages() -> nn.Module:
    """As the layers of torchvision's networks are joined."""

    def stage(channels: int) -> nn.Module:
        conv = nn.Conv2d(channels, 6, 3, padding=1)
        return nn.Sequential(conv, nn.ReLU(inplace=True), nn.Conv2d(6, 6, 3), nn.Tanh())

    return nn.Sequential(stage(1), nn.ReLU(inplace=True), stage(6), stage(6))


def hf() -> nn.Module:
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = transformers.ViTConfig(
        **sizes, intermediate_size=16, image_size=16, patch_size=8, num_channels=1
    )

    class Pooled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = transformers.ViTModel(config, add_pooling_layer=False)

        def forward(self, images: Tensor) -> Tensor:
            return self.model(images).last_hidden_state[:, 0]

    return Pooled()


@pytest.mark.parametrize("make", [vit, hf, Blocks, stages])
def test_gradients_are_those_of_kept_activations(make: Any) -> None:
    trunk = make().train()
    ((images, _),) = batches(1)

    def gradients() -> tuple[int, list[Tensor]]:
        trunk.zero_grad(set_to_none=True)
        torch.manual_seed(5)
        with Watch() as watch:
            output = trunk(images)
        output.square().sum().backward()
        return watch.kept, [p.grad.clone() for p in trunk.parameters() if p.grad is not None]

    kept, expected = gradients()
    names = [*trunk.state_dict()]
    checkpoint_activations(trunk)
    kept_less, found = gradients()
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-7)
    assert kept_less < kept / 2
    assert [*trunk.state_dict()] == names


def test_a_step_is_that_of_kept_activations() -> None:
    made = [module_of(training(activation_checkpointing=on)) for on in (False, True)]
    for module in made:
        module.train()
        for images, labels in batches(3):
            module.step(images, labels)
    one, other = (module.network.state_dict() for module in made)
    for name, value in one.items():
        torch.testing.assert_close(other[name], value, rtol=1e-6, atol=1e-7)


def test_what_cannot_is_refused() -> None:
    with pytest.raises(UsageError, match=r"activation_checkpointing: the trunk has no .*false\."):
        checkpoint_activations(nn.Linear(2, 2))
    with pytest.raises(UsageError, match="BatchNorm of the trunk would take its statistics twice"):
        module_of(training(activation_checkpointing=True, freeze_batchnorm=False))


def test_the_head_may_take_statistics() -> None:
    model = {"name": "x", "trunk": "conv4", "neck": "batch_norm"}
    made = module_of(training(activation_checkpointing=True), model=model)
    made.train()
    assert math.isfinite(float(made.step(*batches(1)[0])))

"""remove_last_bn_relu on real ResNets: the last block recomputed from the original's weights."""

from __future__ import annotations

import copy
import functools
import importlib
import pickle
from collections import Counter, OrderedDict
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pml_extensions.modules import remove_last_bn_relu

#: A mode for each kind of block: torchvision's are of another class then, which must copy too.
CASES = [
    ("torchvision:resnet18", "paper"),
    ("torchvision:resnet50", "paper"),
    ("timm:resnet18", "official"),
    ("timm:seresnet50", "official"),
]
MODES = ["paper", "official"]
in_each_case = pytest.mark.parametrize(("name", "mode"), CASES)


def library(name: str) -> Any:
    """Import an optional library; beside a torch it was not built for others are raised."""
    try:
        return importlib.import_module(name)
    except (ImportError, RuntimeError, AttributeError) as error:
        pytest.skip(f"needs {name} (the extra 'vision'), which does not import: {error}")


@pytest.fixture(scope="module", autouse=True)
def forget() -> Iterator[None]:
    """Do not keep a gigabyte of weights beyond these tests."""
    yield
    _make.cache_clear()
    _short.cache_clear()


def make(name: str, **kwargs: Any) -> nn.Module:
    return copy.deepcopy(_make(name, **kwargs))


@functools.cache  # drawing the weights takes longer than a copy
def _make(name: str, **kwargs: Any) -> nn.Module:
    source, model = name.split(":")
    torch.manual_seed(0)
    if source == "timm":
        trunk = library("timm").create_model(model, num_classes=3, **kwargs)
    else:
        trunk = getattr(library("torchvision").models, model)(num_classes=3, **kwargs)
    for module in trunk.modules():
        if isinstance(module, nn.BatchNorm2d):
            # timm starts the last BN at zero, which would hide the residual branch.
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias)
    return trunk


def short(name: str, **kwargs: Any) -> nn.Module:
    """The same with one block in each stage but the last, which has two."""
    return copy.deepcopy(_short(name, **kwargs))


@functools.cache
def _short(name: str, **kwargs: Any) -> nn.Module:
    trunk: Any = make(name, **kwargs)
    for stage in (trunk.layer1, trunk.layer2, trunk.layer3):
        del stage[1:]
    del trunk.layer4[1:-1]
    return trunk


def images() -> Tensor:
    """Small ones, of which the last stage still has 2 x 2 places."""
    return torch.randn(2, 3, 48, 48, generator=torch.Generator().manual_seed(1))


def maps_of(trunk: nn.Module, x: Tensor) -> Tensor:
    """What the last stage returns, whatever the trunk does with it then."""
    captured: list[Tensor] = []
    layer = next(part for name, part in trunk.named_modules() if name.endswith("layer4"))
    handle = layer.register_forward_hook(lambda *arguments: captured.append(arguments[2]))
    trunk(x)
    handle.remove()
    return captured[0]


def last_block_input(trunk: nn.Module, x: Tensor) -> Tensor:
    captured: list[Tensor] = []
    handle = trunk.layer4[-1].register_forward_pre_hook(
        lambda _, arguments: captured.append(arguments[0].clone())
    )
    trunk(x)
    handle.remove()
    return captured[0]


def by_hand(block: nn.Module, x: Tensor, mode: str) -> Tensor:
    """The last block from the untouched block's layers, written out once more."""
    count = 3 if hasattr(block, "conv3") else 2
    out = x
    for i in range(1, count + 1):
        out = getattr(block, f"conv{i}")(out)
        if i < count:
            bn = getattr(block, f"bn{i}")
            out = F.batch_norm(
                out, bn.running_mean, bn.running_var, bn.weight, bn.bias, training=bn.training
            )
            out = out.clamp(min=0) if mode == "paper" else out
            if i == count - 1 and hasattr(block, "aa"):
                out = block.aa(out)
    if getattr(block, "se", None) is not None:
        out = block.se(out)
    return out + x


def calls(trunk: nn.Module, x: Tensor) -> Counter[str]:
    """How often ReLU and BatchNorm2d are called in one forward."""
    counter: Counter[str] = Counter()
    handles = [
        part.register_forward_hook(lambda part, *_: counter.update([type(part).__name__]))
        for name, part in trunk.named_modules()
        if isinstance(part, nn.ReLU | nn.BatchNorm2d) and ".se" not in name
    ]
    trunk(x)
    for handle in handles:
        handle.remove()
    return counter


@pytest.mark.parametrize(("mode", "training"), [("paper", True), ("official", False)])
@pytest.mark.parametrize("name", [*dict(CASES), "timm:resnetblur50"])
def test_output(name: str, mode: Any, training: bool) -> None:
    original = short(name).train(training)
    trunk = copy.deepcopy(original)
    assert remove_last_bn_relu(trunk, mode) is trunk
    assert all(part.training == training for part in trunk.modules())
    with torch.no_grad():
        x = last_block_input(copy.deepcopy(original), images())
        expected = by_hand(original.layer4[-1], x, mode)
        actual = maps_of(trunk, images())
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)
    assert actual.min() < 0
    untouched = maps_of(original.eval(), images())
    assert untouched.min() >= 0


@pytest.mark.parametrize(
    ("name", "before", "paper", "official"),
    [
        ("torchvision:resnet18", (17, 20), 16, 15),
        ("timm:resnet50", (49, 53), 48, 46),
    ],
)
def test_calls_that_remain(name: str, before: tuple[int, int], paper: int, official: int) -> None:
    trunk = make(name).eval()
    counts = calls(trunk, images())
    assert (counts["ReLU"], counts["BatchNorm2d"]) == before
    for mode, relus in (("paper", paper), ("official", official)):
        counts = calls(remove_last_bn_relu(copy.deepcopy(trunk), mode), images())
        assert (counts["ReLU"], counts["BatchNorm2d"]) == (relus, before[1] - 1)


@in_each_case
def test_state_dict_loses_the_last_bn_only(name: str, mode: Any) -> None:
    trunk = short(name)
    pretrained = copy.deepcopy(trunk.state_dict())
    remove_last_bn_relu(trunk, mode)
    last = "layer4.1.bn2" if name.endswith("resnet18") else "layer4.1.bn3"
    parts = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    assert set(pretrained) - set(trunk.state_dict()) == {f"{last}.{part}" for part in parts}
    assert set(trunk.state_dict()) <= set(pretrained)
    for key, value in trunk.state_dict().items():
        assert torch.equal(value, pretrained[key]), key
    with pytest.raises(RuntimeError, match="Unexpected key"):
        trunk.load_state_dict(pretrained, strict=True)
    twin = remove_last_bn_relu(short(name), mode)
    twin.load_state_dict(trunk.state_dict(), strict=True)


@in_each_case
def test_gradients_reach_what_was_cut_off(name: str, mode: Any) -> None:
    trunk = remove_last_bn_relu(short(name), mode)
    maps = maps_of(trunk, images())
    # The gradient of negative activations, which the ReLU had blocked.
    maps[maps < 0].sum().backward()
    gradients = {name: parameter.grad for name, parameter in trunk.named_parameters()}
    for key, gradient in gradients.items():
        if not key.startswith("fc."):
            assert gradient is not None, key
            assert gradient.isfinite().all(), key
    assert gradients["conv1.weight"].abs().max() > 0
    assert gradients[f"layer4.{len(trunk.layer4) - 1}.conv2.weight"].abs().max() > 0


@in_each_case
def test_copies(name: str, mode: Any) -> None:
    trunk = remove_last_bn_relu(short(name), mode).eval()
    expected = trunk(images())
    torch.testing.assert_close(copy.deepcopy(trunk)(images()), expected)
    torch.testing.assert_close(pickle.loads(pickle.dumps(trunk))(images()), expected)


@pytest.mark.slow
@in_each_case
def test_compiling(name: str, mode: Any) -> None:
    trunk = remove_last_bn_relu(short(name), mode).eval()
    expected = trunk(images())
    compiled = torch.compile(trunk, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(images()), expected)


def test_hooks_and_references_to_the_block_stay() -> None:
    trunk = short("torchvision:resnet50").eval()
    block, seen = trunk.layer4[-1], []
    block.register_forward_hook(lambda *arguments: seen.append(arguments[2]))
    remove_last_bn_relu(trunk)
    assert trunk.layer4[-1] is block
    trunk(images())
    assert len(seen) == 1
    assert seen[0].min() < 0


@pytest.mark.parametrize(("name", "mode"), [CASES[0], ("timm:resnet50", "official")])
def test_wrapped_and_cut_trunks(name: str, mode: Any) -> None:
    expected = maps_of(remove_last_bn_relu(short(name), mode).eval(), images())
    without_fc = short(name)
    without_fc.fc = nn.Identity()
    cut = nn.Sequential(OrderedDict(list(short(name).named_children())[:-2]))
    with_head = nn.Sequential(copy.deepcopy(cut), nn.Flatten(), nn.LazyLinear(2))
    for trunk in (without_fc, cut, with_head, nn.DataParallel(short(name))):
        assert remove_last_bn_relu(trunk, mode) is trunk
        torch.testing.assert_close(maps_of(trunk.eval(), images()), expected)
    torch.testing.assert_close(cut(images()), expected)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["torchvision:resnet18", "timm:resnet18"])
def test_blocks_with_downsampling(name: str, mode: Any) -> None:
    original = short(name).eval()
    original.layer4 = original.layer4[:1]
    trunk = remove_last_bn_relu(copy.deepcopy(original), mode)
    block, x = original.layer4[0], last_block_input(copy.deepcopy(original), images())
    expected = by_hand_with_downsampling(block, x, mode)
    torch.testing.assert_close(maps_of(trunk, images()), expected, rtol=1e-4, atol=1e-4)


def by_hand_with_downsampling(block: nn.Module, x: Tensor, mode: str) -> Tensor:
    hidden = block.bn1(block.conv1(x))
    return block.conv2(hidden.relu() if mode == "paper" else hidden) + block.downsample(x)


def test_frozen_batch_normalisation_is_one_too() -> None:
    frozen = library("torchvision").ops.FrozenBatchNorm2d
    trunk = remove_last_bn_relu(make("torchvision:resnet18", norm_layer=frozen))
    assert isinstance(trunk.layer4[-1].bn2, nn.Identity)


def test_stochastic_depth_and_drop_block_stay() -> None:
    trunk = short("timm:resnet50", drop_path_rate=0.5, drop_block_rate=0.5)
    block = copy.deepcopy(trunk.layer4[-1])
    remove_last_bn_relu(trunk)
    for part in ("drop_path", "drop_block"):
        assert type(getattr(trunk.layer4[-1], part)) is type(getattr(block, part))
    assert trunk.layer4[-1].drop_path.drop_prob == block.drop_path.drop_prob > 0
    assert trunk(images()).isfinite().all()


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [
        ("torchvision:resnet18", "paper", "paper"),
        ("torchvision:resnet18", "official", "paper"),
        ("torchvision:resnet50", "paper", "official"),
        ("timm:resnet50", "official", "official"),
    ],
)
def test_twice_is_refused(name: str, first: Any, second: Any) -> None:
    trunk = remove_last_bn_relu(short(name), first)
    state = set(trunk.state_dict())
    with pytest.raises(ValueError, match="is Identity; call remove_last_bn_relu only once"):
        remove_last_bn_relu(copy.deepcopy(trunk), second)
    assert set(trunk.state_dict()) == state


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("torchvision:squeezenet1_1", "got SqueezeNet, which has no such block"),
        ("timm:resnest14d", "got ResNet, which has no such block"),
        ("timm:hrnet_w18_small", "got HighResolutionNet, which has other convolutions"),
        ("timm:resnet50_gn", "bn3 of the last block is GroupNorm"),
    ],
)
def test_other_networks_are_refused(name: str, words: str) -> None:
    trunk = make(name)
    state = set(trunk.state_dict())
    with pytest.raises(ValueError, match=words):
        remove_last_bn_relu(trunk)
    assert set(trunk.state_dict()) == state


def test_two_trunks_are_refused() -> None:
    two = nn.ModuleList([make("torchvision:resnet18"), make("torchvision:resnet18")])
    with pytest.raises(ValueError, match="between or after"):
        remove_last_bn_relu(two)


def test_a_block_with_a_forward_of_its_own_is_refused() -> None:
    base = library("torchvision").models.resnet
    block = type("Own", (base.BasicBlock,), {"forward": lambda self, x: x})
    with pytest.raises(ValueError, match="no such block"):
        remove_last_bn_relu(base.ResNet(block, [1, 1, 1, 1]))


@pytest.mark.parametrize(
    ("trunk", "words"),
    [
        (nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()), "got Sequential"),
        ("resnet50", "got str"),
        (nn.Linear, "got type"),
    ],
)
def test_what_is_no_resnet_is_refused(trunk: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        remove_last_bn_relu(trunk)


def test_unknown_modes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"'paper', 'official'.*mode='both'"):
        remove_last_bn_relu(nn.Identity(), "both")  # type: ignore[arg-type]

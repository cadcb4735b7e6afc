"""BatchNormNeck against torch's BatchNorm, ContinuousBNReLU against plain sums, unit length."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import Tensor, nn

from pml_extensions.modules import BatchNormNeck, ContinuousBNReLU, UnitLength

SHAPES = [(6, 4), (3, 4, 2, 5)]


def batch(shape: tuple[int, ...], seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return 3 * torch.randn(shape, generator=generator, dtype=torch.float64) + 1


def peer_of(shape: tuple[int, ...], **kwargs: object) -> nn.Module:
    peer = nn.BatchNorm1d if len(shape) == 2 else nn.BatchNorm2d
    return peer(shape[1], dtype=torch.float64, **kwargs)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("momentum", [0.1, 0.05, None])
@pytest.mark.parametrize(("scale", "shift"), [(a, b) for a in (0, 1) for b in (0, 1)])
def test_neck_follows_torch(
    shape: tuple[int, ...], momentum: float | None, scale: int, shift: int
) -> None:
    neck = BatchNormNeck(4, bool(scale), bool(shift), eps=1e-3, momentum=momentum).double()
    peer = peer_of(shape, eps=1e-3, momentum=momentum)
    values = torch.linspace(0.5, 2, 4, dtype=torch.float64)
    if scale:
        neck.weight.data.copy_(values)
        peer.weight.data.copy_(values)
    if shift:
        neck.bias.data.copy_(-values)
        peer.bias.data.copy_(-values)
    for seed in range(3):
        ours, theirs = batch(shape, seed).requires_grad_(), batch(shape, seed).requires_grad_()
        torch.testing.assert_close(neck(ours), peer(theirs))
        neck(ours).square().sum().backward()
        peer(theirs).square().sum().backward()
        torch.testing.assert_close(ours.grad, theirs.grad)
    if scale:
        torch.testing.assert_close(neck.weight.grad, peer.weight.grad)
    torch.testing.assert_close(neck.running_var, peer.running_var)
    torch.testing.assert_close(neck.eval()(batch(shape)), peer.eval()(batch(shape)))


@pytest.mark.parametrize(
    ("kwargs", "names"),
    [
        ({}, ["weight"]),
        ({"scale": False}, []),
        ({"scale": False, "shift": True}, ["bias"]),
        ({"scale": True, "shift": True}, ["weight", "bias"]),
    ],
)
def test_neck_has_only_the_parameters_it_learns(kwargs: dict[str, bool], names: list[str]) -> None:
    neck = BatchNormNeck(4, **kwargs)
    assert [name for name, _ in neck.named_parameters()] == names
    state = pickle.loads(pickle.dumps(neck)).state_dict()
    assert set(state) == {*names, "running_mean", "running_var", "num_batches_tracked"}
    copy.deepcopy(neck).load_state_dict(state, strict=True)


@pytest.mark.parametrize("kwargs", [{}, {"scale": False}, {"scale": False, "shift": True}])
def test_neck_can_be_reset_and_synchronised(kwargs: dict[str, bool]) -> None:
    neck = BatchNormNeck(4, **kwargs).double()
    neck(batch((6, 4)))
    neck.reset_parameters()
    assert neck.running_mean.tolist() == [0.0] * 4
    neck(batch((6, 4)))
    synchronised = nn.SyncBatchNorm.convert_sync_batchnorm(copy.deepcopy(neck))
    assert isinstance(synchronised, nn.SyncBatchNorm)
    assert set(synchronised.state_dict()) == set(neck.state_dict())
    torch.testing.assert_close(synchronised.eval()(batch((6, 4))), neck.eval()(batch((6, 4))))


@pytest.mark.parametrize("shape", [(1, 4), (1, 4, 1, 1), (0, 4)])
def test_without_variance_the_running_statistics_are_used(shape: tuple[int, ...]) -> None:
    neck = BatchNormNeck(4, shift=True).double()
    for seed in range(3):
        neck(batch((6, 4), seed))
    before = copy.deepcopy(neck.state_dict())
    x = batch(shape).requires_grad_()
    result = neck.train()(x)
    after = neck.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    torch.testing.assert_close(result, neck.eval()(x))
    result.sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()


def test_one_map_has_variance() -> None:
    result = BatchNormNeck(4).double()(batch((1, 4, 3, 3)))
    torch.testing.assert_close(
        result.mean(dim=(2, 3)), torch.zeros(1, 4, dtype=torch.float64), atol=1e-12, rtol=0
    )


@pytest.mark.parametrize("shape", [(6, 3), (6, 4, 2), (4,), (1, 3)])
def test_neck_refuses_other_shapes(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"BatchNormNeck takes \(N, 4\)"):
        BatchNormNeck(4)(torch.zeros(shape))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("n", [0, 1, 3])
def test_continuous_bn_relu(shape: tuple[int, ...], n: int) -> None:
    x = batch(shape)
    positions = [axis for axis in range(x.ndim) if axis != 1]
    expected = x
    for _ in range(n):
        mean = expected.mean(dim=positions, keepdim=True)
        variance = (expected - mean).square().mean(dim=positions, keepdim=True)
        expected = ((expected - mean) / (variance + 1e-5).sqrt()).clamp(min=0)
    modules = ContinuousBNReLU(n, 4).double()
    torch.testing.assert_close(modules(x), expected)
    # Scale and shift, as those of a trunk have them.
    assert sum(parameter.numel() for parameter in modules.parameters()) == 8 * n
    if n == 0:
        assert modules(x) is x
    else:
        assert modules(x[:1, :, :1, :1] if x.ndim == 4 else x[:1]).isfinite().all()


@pytest.mark.parametrize(
    ("n", "words"),
    [(-1, r"remove_last_bn_relu\(trunk\)"), (-2, "n=-2"), (1.5, "n=1.5"), (True, "n=True")],
)
def test_continuous_bn_relu_refuses_other_counts(n: int, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        ContinuousBNReLU(n, 4)


def test_unit_length() -> None:
    x = batch((6, 4))
    expected = torch.stack([row / row.square().sum().sqrt() for row in x])
    torch.testing.assert_close(UnitLength()(x), expected)
    zeros = torch.zeros(2, 3, requires_grad=True)
    UnitLength()(zeros).sum().backward()
    assert zeros.grad is not None
    assert (zeros.grad == 0).all()
    assert (UnitLength()(zeros) == 0).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_unit_length_computes_in_float32(dtype: torch.dtype) -> None:
    # The squares overflow float16.
    x = (batch((6, 4)) * 300).to(dtype)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        unit = UnitLength()(x)
    assert unit.dtype == torch.float32
    expected = x.double() / x.double().square().sum(dim=1, keepdim=True).sqrt()
    torch.testing.assert_close(unit.double(), expected, rtol=1e-6, atol=1e-7)


def test_they_compile_without_graph_breaks() -> None:
    x = batch((6, 4)).float()
    for module in (BatchNormNeck(4), ContinuousBNReLU(2, 4), UnitLength()):
        compiled = torch.compile(copy.deepcopy(module), fullgraph=True, backend="eager")
        torch.testing.assert_close(compiled(x), module(x))

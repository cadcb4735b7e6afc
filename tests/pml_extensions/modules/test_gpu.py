"""Modules on a GPU: the numbers and types of a CPU, also under autocast, and no wait."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from support.waits import no_waits
from torch import Tensor, nn

from pml_extensions import modules

pytestmark = pytest.mark.gpu
VECTORS, MAPS = (6, 8), (6, 8, 3, 5)
MODULES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "UnitLength": (modules.UnitLength, VECTORS),
    "BatchNormNeck": (lambda: modules.BatchNormNeck(8), VECTORS),
    "BatchNormNeck of maps": (lambda: modules.BatchNormNeck(8, shift=True), MAPS),
    "ContinuousBNReLU": (lambda: modules.ContinuousBNReLU(2, 8), MAPS),
    "MLPEmbedder": (
        lambda: modules.MLPEmbedder(8, 4, hidden_size=5, hidden_normalization="batch_norm"),
        VECTORS,
    ),
    "AveragePooling": (modules.AveragePooling, MAPS),
    "MaxPooling": (modules.MaxPooling, MAPS),
    "MaxAveragePooling": (modules.MaxAveragePooling, MAPS),
    "GeneralizedMeanPooling": (lambda: modules.GeneralizedMeanPooling(learn_p=True), MAPS),
    "TokenPooling": (lambda: modules.TokenPooling(modules.AveragePooling()), (6, 8, 3)),
    "signed powers": (lambda: modules.GeneralizedMeanPooling(2.0, signed=True), MAPS),
}


#: Without a gradient.
CODES = {"bits": modules.BinaryEmbedding, "octets": lambda: modules.BinaryEmbedding(pack=True)}


def test_every_module_is_tried() -> None:
    tried = {type(part) for make, _ in MODULES.values() for part in make().modules()}
    exported = [getattr(modules, name) for name in modules.__all__]
    every = {item for item in exported if isinstance(item, type) and issubclass(item, nn.Module)}
    assert every - tried == {modules.BinaryEmbedding}


@pytest.mark.parametrize("name", CODES)
def test_codes_are_those_of_a_cpu(name: str) -> None:
    x, binary = torch.randn(5, 11), CODES[name]()
    there = x.cuda()
    with no_waits():
        actual = binary(there)
    assert torch.equal(actual.cpu(), binary(x))


def results(name: str, device: str, dtype: torch.dtype, autocast: bool) -> list[Tensor]:
    """What it returns, and all gradients."""
    torch.manual_seed(0)
    module, shape = MODULES[name][0]().to(device), MODULES[name][1]
    x = torch.randn(shape, dtype=torch.float32).to(dtype)
    there: Any = x.to(device).requires_grad_()
    for _ in range(2):  # the first time something may be prepared
        leaves = [there, *module.parameters()]
        for tensor in leaves:
            tensor.grad = None
        with no_waits():
            with torch.autocast(device, torch.bfloat16, enabled=autocast):
                y = module(there)
            y.float().square().sum().backward()
    return [y.detach().cpu(), *(tensor.grad.cpu() for tensor in leaves)]


@pytest.mark.parametrize("name", MODULES)
def test_numbers_are_those_of_a_cpu(name: str) -> None:
    actual, expected = (results(name, device, torch.float32, False) for device in ("cuda", "cpu"))
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=5e-5)  # sums over a batch


@pytest.mark.parametrize("name", ["UnitLength", *(name for name in MODULES if "ool" in name)])
def test_half_precision_is_for_input_and_output_only(name: str) -> None:
    actual = results(name, "cuda", torch.bfloat16, True)
    expected = results(name, "cpu", torch.bfloat16, False)
    if name == "UnitLength":
        assert actual[0].dtype == torch.float32
    torch.testing.assert_close(actual, expected, rtol=0.02, atol=0.02)

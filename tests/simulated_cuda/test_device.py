"""The simulated GPU finds the mistakes that it is there for: each of these tests makes one."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import simulated_cuda
from pml_extensions.functional import allow_tf32
from simulated_cuda import Device, _support

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def _simulated(simulated_gpu: Device) -> None:
    """A real GPU would not tell, or be of no use to the tests that follow."""


@pytest.fixture
def not_allowed() -> Iterator[None]:
    torch.cuda.set_sync_debug_mode("error")
    yield
    torch.cuda.set_sync_debug_mode("default")


def on_gpu(*shape: int) -> Tensor:
    return torch.ones(shape, device="cuda")


ON_TWO_DEVICES: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "sum": torch.add,
    "product": torch.matmul,
    "in place": lambda x, y: x.mul_(y),
    "output on the CPU": lambda x, y: y.add_(x),
    "where": lambda x, y: torch.where(x > 0, x, y),
    "joined": lambda x, y: torch.cat((x, y)),
    "stacked with a number": lambda x, y: torch.stack((x[0, 0], y[0, 0])),
    "linear": lambda x, y: nn.functional.linear(x, y),
    "gathered": lambda x, y: x.gather(0, y.long()),
    "rows of the CPU": lambda x, y: y[x[0].long()],
    "values of the CPU": lambda x, y: x.index_put_((x[0].long(),), y),
    "loss": lambda x, y: nn.functional.cross_entropy(x, y[0].long()),
    "generator of the CPU": lambda x, y: x.normal_(generator=torch.Generator()),
}


@pytest.mark.parametrize("name", ON_TWO_DEVICES)
def test_devices_are_not_mixed(name: str) -> None:
    with pytest.raises(RuntimeError, match=r"same device|on cpu|device type for generator"):
        ON_TWO_DEVICES[name](on_gpu(2, 2), torch.ones(2, 2))


def test_numbers_of_the_cpu_are_taken_as_cuda_takes_them() -> None:
    assert (on_gpu(2) * torch.tensor(3.0)).tolist() == [3, 3]
    assert torch.where(on_gpu(2) > 0, torch.tensor(4.0), 5).tolist() == [4, 4]
    assert on_gpu(2).fill_(torch.tensor(2.0)).tolist() == [2, 2]


def test_two_gpus_are_two_devices() -> None:
    with simulated_cuda.simulated_cuda(gpus=2):
        first, second = torch.ones(2, device="cuda"), torch.ones(2, device="cuda:1")
        assert (first.device, second.device) == (torch.device("cuda", 0), torch.device("cuda", 1))
        with pytest.raises(RuntimeError, match="cuda:0 and cuda:1"):
            first + second
        torch.cuda.set_device(1)
        assert (first.to("cuda") + second).device.index == 1
        with pytest.raises(RuntimeError, match="invalid device ordinal"):
            torch.ones(2, device="cuda:2")


WAITS: dict[str, Callable[[Tensor], Any]] = {
    "item": lambda x: x.sum().item(),
    "truth": lambda x: bool(x.any()),
    "float": lambda x: float(x[0]),
    "cpu": lambda x: x.cpu(),
    "tolist": lambda x: x.tolist(),
    "repr": repr,
    "numpy by force": lambda x: x.numpy(force=True),
    "into the CPU's memory": lambda x: torch.empty(4).copy_(x),
    "upload": lambda x: torch.ones(4).cuda(),
    "upload into": lambda x: x.copy_(torch.ones(4)),
    "tensor": lambda x: torch.tensor([1.0, 2.0], device="cuda"),
    "new_tensor": lambda x: x.new_tensor(2.0),
    "nonzero": lambda x: x.nonzero(),
    "where": lambda x: torch.where(x > 0),
    "boolean index": lambda x: x[x > 0],
    "index of the CPU": lambda x: x[torch.tensor([0, 1])],
    "list as an index": lambda x: x[[0, 1]],
    "masked_select": lambda x: x.masked_select(x > 0),
    "unique": lambda x: x.unique(),
    "bincount": lambda x: x.long().bincount(minlength=2),
    "equal": lambda x: torch.equal(x, x),
    "repeats": lambda x: x.repeat_interleave(x.long()),
    "classes of one_hot": lambda x: nn.functional.one_hot(x.long()),
    "synchronize": lambda x: torch.cuda.synchronize(),
}


@pytest.mark.parametrize("name", WAITS)
def test_a_wait_is_found(name: str, not_allowed: None) -> None:
    x = torch.ones(4, device="cuda")
    with pytest.raises(RuntimeError, match=r"synchronizing .*test_device.py:\d+"):
        WAITS[name](x)


NO_WAITS: dict[str, Callable[[Tensor], Any]] = {
    "page-locked upload": lambda x: torch.ones(4).pin_memory().to("cuda", non_blocking=True),
    "full": lambda x: x.new_full((), 3),
    "a number": lambda x: x * 3 + x[0],
    "set by a number": lambda x: x.__setitem__(x > 0, 3),
    "index": lambda x: x[x.long()],
    "slice": lambda x: x[1:3],
    "mask": lambda x: x.masked_fill(x > 0, 2),
    "choice": lambda x: torch.where(x > 0, x, 0.0),
    "sorted": lambda x: x.topk(2).values.sort(),
    "repeats of a known number": lambda x: x.repeat_interleave(2),
    "random": lambda x: torch.randn_like(x) + torch.rand(4, device="cuda"),
    "one_hot": lambda x: nn.functional.one_hot(x.long(), 3),
    "same device": lambda x: x.to("cuda"),
    "gradient": lambda x: (x.requires_grad_() ** 2).sum().backward(),
}


@pytest.mark.parametrize("name", NO_WAITS)
def test_nothing_else_waits(name: str, not_allowed: None) -> None:
    NO_WAITS[name](torch.ones(4, device="cuda"))


def test_waits_are_counted_with_their_lines(simulated_gpu: Device) -> None:
    x = on_gpu(2)
    for _ in range(3):
        x.sum().item()
    ((what, place), count), *others = simulated_gpu.waits.items()
    assert (what, count, others) == ("_local_scalar_dense", 3, [])
    assert place.startswith("tests/simulated_cuda/test_device.py:")


def test_float64_is_seen(simulated_gpu: Device) -> None:
    x = on_gpu(3)
    (x * 2 + torch.tensor(1.0, dtype=torch.float64, device="cuda")).view(1, 3)
    assert not simulated_gpu.doubles, "a single number changes no type"
    x.double().exp()
    assert [name for name, _ in simulated_gpu.doubles] == ["_to_copy", "exp"]


def test_what_tf32_is_allowed_for_is_seen(
    simulated_gpu: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    image, filters = on_gpu(1, 1, 4, 4), on_gpu(1, 1, 2, 2)
    for allowed in (True, False):
        with allow_tf32(torch.device("cuda"), allowed):
            on_gpu(2, 2) @ on_gpu(2, 2)
            nn.functional.conv2d(image, filters)
            with torch.autocast("cuda", torch.bfloat16):
                on_gpu(2, 2) @ on_gpu(2, 2)
    assert {name: count for (name, _), count in simulated_gpu.tf32.items()} == {
        "mm": 1,
        "convolution": 1,
    }


def test_waits_can_warn_as_those_of_a_real_gpu() -> None:
    torch.cuda.set_sync_debug_mode("warn")
    with pytest.warns(UserWarning, match="called a synchronizing CUDA operation"):
        on_gpu(1).item()


def test_nothing_is_done_on_the_cpu_instead() -> None:
    with pytest.raises(NotImplementedError, match="not implemented"):
        on_gpu(2, 2).long() @ on_gpu(2, 2).long()
    for convert in (np.asarray, lambda x: x.numpy(), lambda x: np.add(x, 1)):
        with pytest.raises(TypeError, match="can't convert cuda:0"):
            convert(on_gpu(2))
    with pytest.raises(RuntimeError, match="cannot pin"):
        on_gpu(2).pin_memory()


# -- page-locked memory -------------------------------------------------------------------------


def test_memory_that_is_written_during_its_copy_is_found() -> None:
    staging = torch.zeros(4).pin_memory()
    staging.to("cuda", non_blocking=True)
    staging.numpy()[2] = 5
    with pytest.raises(RuntimeError, match=r"written while a copy of .*test_device.py:\d+ read"):
        torch.cuda.synchronize()


def test_memory_that_is_written_after_its_copy_is_fine() -> None:
    staging = torch.zeros(4).pin_memory()
    first = staging.to("cuda", non_blocking=True)
    torch.cuda.synchronize()
    staging.fill_(1)
    assert first.sum() + staging.to("cuda", non_blocking=True).sum() == 4


def test_memory_that_is_freed_during_its_copy_is_found() -> None:
    # torch's allocator does not see that an array in the middle of its memory is used.
    part = torch.from_numpy(torch.zeros(8).pin_memory().numpy()[4:])
    assert part.is_pinned()
    part.to("cuda", non_blocking=True)
    del part
    with pytest.raises(RuntimeError, match=r"freed while a copy of .* read it"):
        torch.cuda.synchronize()


def test_memory_of_torch_is_kept_for_its_copy() -> None:
    assert torch.arange(4).pin_memory().to("cuda", non_blocking=True).tolist() == [0, 1, 2, 3]
    batch = torch.empty(3, 2, pin_memory=True)
    batch.numpy()[:] = 7
    view = batch[1:]
    del batch
    assert view.to("cuda", non_blocking=True).sum() == 28


def test_what_has_not_arrived_is_not_there() -> None:
    x = on_gpu(4)
    found, into = x.to("cpu", non_blocking=True), torch.zeros(4).pin_memory()
    into.copy_(x, non_blocking=True)
    assert not (found == 1).any()
    assert not (into == 1).any()
    torch.cuda.synchronize()
    assert found.tolist() == into.tolist() == [1, 1, 1, 1]


def test_uploads_from_pageable_memory_are_told_apart(simulated_gpu: Device) -> None:
    torch.ones(4).to("cuda", non_blocking=True)
    torch.ones(4).pin_memory().to("cuda", non_blocking=True)
    assert [kind for kind, _ in simulated_gpu.uploads] == ["pageable", "pinned"]


# -- memory of the GPU --------------------------------------------------------------------------


def test_memory_is_taken_and_given_back() -> None:
    before = torch.cuda.memory_allocated()
    x = on_gpu(1000)
    view = x[10:20].detach()
    assert torch.cuda.memory_allocated() == before + 4000
    del x
    assert torch.cuda.memory_allocated() == before + 4000
    del view
    assert torch.cuda.memory_allocated() == before
    assert torch.cuda.memory_reserved() >= before + 4000
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() == before


def test_memory_runs_out(simulated_gpu: Device) -> None:
    with simulated_cuda.simulated_cuda(memory=1 << 20):
        kept = torch.zeros(1 << 19, dtype=torch.uint8, device="cuda")
        with pytest.raises(torch.OutOfMemoryError, match="Tried to allocate 1048576 bytes, 524288"):
            kept.repeat(2)
        assert kept.sum() == 0
    simulated_gpu.memory[0].fail_in(2)
    x = on_gpu(2)
    with pytest.raises(torch.OutOfMemoryError):
        x + x
    assert (x + x).tolist() == [2, 2]


def test_an_index_out_of_range_breaks_the_gpu() -> None:
    x = on_gpu(3)
    with pytest.raises(RuntimeError, match="device-side assert"):
        x.index_select(0, torch.full((1,), 7, device="cuda"))
    with pytest.raises(RuntimeError, match="device-side assert"):
        x + x


# -- what a GPU shares with the CPU ---------------------------------------------------------------


def test_random_numbers_have_their_own_stream() -> None:
    torch.manual_seed(3)
    of_cpu, state = torch.rand(3), torch.cuda.get_rng_state()
    of_gpu = torch.rand(3, device="cuda").tolist()
    torch.manual_seed(3)
    torch.rand(2, device="cuda")
    assert torch.equal(torch.rand(3), of_cpu)
    torch.cuda.set_rng_state(state)
    assert torch.rand(3, device="cuda").tolist() == of_gpu


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_is_that_of_cuda(dtype: torch.dtype) -> None:
    layer, x = nn.Linear(2, 2).cuda(), on_gpu(1, 2)
    with torch.autocast("cpu", dtype):
        assert layer(x).dtype == torch.float32
    with torch.autocast("cuda", dtype):
        assert layer(x).dtype == dtype
        values = layer(x).softmax(1)
        assert values.dtype == torch.float32
    values.sum().backward()
    assert layer.weight.grad is not None


def test_a_module_keeps_its_parameters_when_it_moves() -> None:
    layer = nn.Linear(2, 1, bias=False)
    optimizer = torch.optim.SGD(layer.parameters(), lr=1.0)
    layer.cuda()
    before = layer.weight.sum().item()
    layer(on_gpu(1, 2)).sum().backward()
    optimizer.step()
    assert layer.weight.sum().item() == pytest.approx(before - 2)


def test_copies_and_new_data() -> None:
    layer = nn.Linear(2, 2).cuda()
    twin = copy.deepcopy(layer)
    assert isinstance(twin.weight, nn.Parameter)
    twin.weight.data = torch.zeros_like(twin.weight)
    assert twin.weight.sum() == 0 != layer.weight.abs().sum()
    x = on_gpu(2).unsqueeze_(0)
    assert (x.shape, (x + 1).shape) == ((1, 2), (1, 2))


def test_a_checkpoint_knows_its_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.BytesIO()
    torch.save({"x": on_gpu(3), "module": nn.Linear(2, 2).cuda().state_dict()}, file)

    def load(**options: Any) -> Any:
        file.seek(0)
        return torch.load(file, weights_only=True, **options)

    assert load()["x"].device == torch.device("cuda", 0)
    assert load(map_location="cpu")["module"]["weight"].device.type == "cpu"
    assert load()["x"].tolist() == load(map_location="cpu")["x"].tolist() == [1, 1, 1]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(RuntimeError, match=r"torch\.cuda\.is_available"):
        load()
    assert pickle.loads(pickle.dumps(on_gpu(1).cpu())).tolist() == [1]


def test_nothing_of_torch_is_left_changed() -> None:
    with simulated_cuda.simulated_cuda(gpus=3):
        assert torch.cuda.device_count() == 3
    assert torch.cuda.device_count() == 1


def test_where_it_cannot_run_it_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def changed() -> None:
        raise AttributeError("torch has no such part")

    monkeypatch.setattr(_support, "_try", changed)
    reason = _support.why_not.__wrapped__()
    assert reason.endswith("a step of training failed (AttributeError: torch has no such part).")
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: False)
    assert "was built without CUDA" in _support.why_not.__wrapped__()

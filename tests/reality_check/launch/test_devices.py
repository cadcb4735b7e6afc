"""Which GPUs workers are given: on pretended GPUs, since few machines have several."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from reality_check.launch.devices import environment, name_of, parse_devices, share_out
from reality_check.utils.errors import UsageError

Pretend = Callable[[int], None]


@pytest.fixture
def pretend(monkeypatch: pytest.MonkeyPatch) -> Pretend:
    """A function after which torch sees so many GPUs."""

    def see(count: int) -> None:
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)

    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return see


@pytest.mark.parametrize(
    ("given", "devices"),
    [
        (["0"], ("cuda:0",)),
        (["3", "cuda:1"], ("cuda:3", "cuda:1")),
        ([2, " 0 "], ("cuda:2", "cuda:0")),
        (["cpu"], ("cpu",)),
        ([], ()),
    ],
)
def test_devices_as_people_write_them(
    pretend: Pretend, given: list[str | int], devices: tuple[str, ...]
) -> None:
    pretend(4)
    assert parse_devices(given) == devices


@pytest.mark.parametrize("given", ["gpu", "1.5", "-1", "", "cuda", "cuda:x", "0 1"])
def test_what_is_no_device(pretend: Pretend, given: str) -> None:
    pretend(4)
    with pytest.raises(UsageError, match=f"{given!r} is not a device; write numbers of GPUs"):
        parse_devices([given])


@pytest.mark.parametrize("given", [["0", "cuda:0"], ["cpu", "cpu"], ["cpu", "0"]])
def test_devices_that_do_not_go_together(pretend: Pretend, given: list[str]) -> None:
    pretend(4)
    with pytest.raises(UsageError, match="different GPUs, such as 0,1, or cpu alone"):
        parse_devices(given)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, r"device cuda:4 is not here: torch \S+ sees 0 GPUs; leave devices out, or write cpu."),
        (1, r"device cuda:4 .* sees 1 GPU; name some of 0, or write cpu."),
        (4, r"device cuda:4 .* sees 4 GPUs; name some of 0,1,2,3, or write cpu."),
    ],
)
def test_a_gpu_that_is_not_here_is_refused_with_the_number_of_those_that_are(
    pretend: Pretend, count: int, text: str
) -> None:
    pretend(count)
    with pytest.raises(UsageError, match=text):
        parse_devices([4])
    assert parse_devices(["cpu"]) == ("cpu",)


# -- whose ---------------------------------------------------------------------------------------


def test_without_devices_workers_choose_for_themselves() -> None:
    assert share_out((), None) == [()]
    assert share_out((), 3) == [(), (), ()]
    assert share_out((), 2, processes_per_network=4) == [(), ()]


def test_a_worker_has_one_device_and_further_workers_share_them_in_turn() -> None:
    two = ("cuda:0", "cuda:2")
    assert share_out(two, None) == [("cuda:0",), ("cuda:2",)]
    assert share_out(two, 5) == [("cuda:0",), ("cuda:2",), ("cuda:0",), ("cuda:2",), ("cuda:0",)]
    assert share_out(("cpu",), None) == [("cpu",)]
    assert share_out(("cpu",), 3, processes_per_network=2) == [("cpu",)] * 3


def test_a_team_has_a_device_a_process() -> None:
    four = ("cuda:0", "cuda:1", "cuda:2", "cuda:3")
    assert share_out(four, None, processes_per_network=2) == [four[:2], four[2:]]
    assert share_out(four, 3, processes_per_network=2) == [four[:2], four[2:], four[:2]]
    assert share_out(four, None, processes_per_network=4) == [four]


@pytest.mark.parametrize(
    ("workers", "processes_per_network", "text"),
    [
        (1, 1, r"4 devices are too many for workers=1, .* write --workers 4"),
        (1, 2, r"4 devices are too many for workers=1, .* write --workers 2"),
        (None, 3, r"cannot be divided among workers of 3 processes .* a multiple of 3"),
        (None, 8, r"cannot be divided among workers of 8 processes"),
    ],
)
def test_devices_that_would_be_left_over(
    workers: int | None, processes_per_network: int, text: str
) -> None:
    with pytest.raises(UsageError, match=text):
        share_out(("cuda:0", "cuda:1", "cuda:2", "cuda:3"), workers, processes_per_network)


# -- what a process sees -------------------------------------------------------------------------


def test_a_process_sees_its_devices_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert environment(()) == {}
    assert environment(("cpu",)) == {"CUDA_VISIBLE_DEVICES": ""}
    assert environment(("cuda:3", "cuda:1")) == {"CUDA_VISIBLE_DEVICES": "3,1"}
    # What this process sees as the first may be another one of the machine.
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4, GPU-5e1f,7")
    assert environment(("cuda:0",)) == {"CUDA_VISIBLE_DEVICES": "4"}
    assert environment(("cuda:2", "cuda:1")) == {"CUDA_VISIBLE_DEVICES": "7,GPU-5e1f"}


def test_a_gpu_has_the_name_that_it_has_on_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert name_of(torch.device("cpu")) == "cpu"
    assert name_of(torch.device("cpu"), 2) == "cpu"
    assert name_of(torch.device("cuda")) == "cuda:0"
    assert name_of(torch.device("cuda:1")) == "cuda:1"
    assert name_of(torch.device("cuda"), 2) == "cuda:0,1"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,3")
    assert name_of(torch.device("cuda")) == "cuda:5"
    assert name_of(torch.device("cuda:1")) == "cuda:3"
    assert name_of(torch.device("cuda"), 2) == "cuda:5,3"
    assert name_of(torch.device("cuda:2")) == "cuda:2"

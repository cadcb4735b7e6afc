"""Finding the counters of energy, on machines that are made up of files and of a pretended NVML."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from reality_check.launch.energy.counters import find_counters

CPU, GPU = torch.device("cpu"), torch.device("cuda", 1)


def zone(folder: Path, number: str, name: str, joules: float) -> Path:
    """A folder as Linux shows it."""
    made = folder / f"intel-rapl:{number}"
    made.mkdir(parents=True)
    (made / "name").write_text(f"{name}\n")
    (made / "max_energy_range_uj").write_text("262143328850\n")
    (made / "energy_uj").write_text(f"{round(joules * 1e6)}\n")
    return made


def test_packages_and_their_memory_count_and_what_lies_in_others_does_not(tmp_path: Path) -> None:
    zone(tmp_path, "0", "package-0", 1.5)
    zone(tmp_path, "0:0", "core", 1.0)
    zone(tmp_path, "0:1", "dram", 0.25)
    second = zone(tmp_path, "1", "package-1", 2.5)
    zone(tmp_path, "2", "psys", 9.0)
    (tmp_path / "intel-rapl-mmio:0").mkdir()  # the first package once more
    found, missing = find_counters(CPU, rapl=tmp_path)
    assert [(c.key, c.part, c.wraps_at, c.read()) for c in found] == [
        ("intel-rapl:0", "processors", 262143.32885, 1.5),
        ("intel-rapl:0:1", "memory", 262143.32885, 0.25),
        ("intel-rapl:1", "processors", 262143.32885, 2.5),
    ]
    assert missing == []
    (second / "energy_uj").write_text("3000000\n")
    assert found[2].read() == 3.0


def test_a_machine_without_counters_says_so(tmp_path: Path) -> None:
    found, (missing,) = find_counters(CPU, rapl=tmp_path / "none")
    assert found == []
    assert str(tmp_path / "none") in missing
    assert "virtual machines" in missing


def test_counters_for_root_only_come_with_the_command_that_opens_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zone(tmp_path, "0", "package-0", 1.5)
    zone(tmp_path, "1", "package-1", 1.5)
    reading = Path.read_text

    def refuse(path: Path, *args: Any, **options: Any) -> str:
        if path.name == "energy_uj":
            raise PermissionError(13, "Permission denied", str(path))
        return reading(path, *args, **options)

    monkeypatch.setattr(Path, "read_text", refuse)  # the tests may run as root
    found, (missing,) = find_counters(CPU, rapl=tmp_path)
    assert found == []
    assert "by root only" in missing
    assert f"sudo chmod -R a+r {tmp_path}/intel-rapl/" in missing


def test_a_broken_counter_leaves_the_others(tmp_path: Path) -> None:
    (zone(tmp_path, "0", "package-0", 1.5) / "energy_uj").write_text("")
    zone(tmp_path, "1", "package-1", 2.5)
    found, (missing,) = find_counters(CPU, rapl=tmp_path)
    assert [counter.key for counter in found] == ["intel-rapl:1"]
    assert missing.startswith("The counter intel-rapl:0 cannot be read (")


class Refused(Exception):
    """NVML's error."""


def pretend_gpus(monkeypatch: pytest.MonkeyPatch, millijoules: dict[str, int]) -> None:
    """NVML with the GPUs of these names; one with a negative counter has none."""

    def energy(handle: str) -> int:
        if millijoules[handle] < 0:
            raise Refused("Not Supported")
        return millijoules[handle]

    nvml = SimpleNamespace(
        NVMLError=Refused,
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByUUID=lambda uuid: {f"GPU-{name}": name for name in millijoules}[uuid],
        nvmlDeviceGetTotalEnergyConsumption=energy,
    )
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    names = list(millijoules)
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda index: SimpleNamespace(uuid=names[index])
    )


def test_the_gpus_of_a_worker_are_found_by_what_cuda_calls_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    millijoules = {"aa": 1, "bb": 2000, "cc": 3500}
    pretend_gpus(monkeypatch, millijoules)
    found, _ = find_counters(GPU, 2, rapl=tmp_path)
    assert [(c.key, c.part, c.wraps_at, c.read()) for c in found] == [
        ("GPU-bb", "gpus", None, 2.0),
        ("GPU-cc", "gpus", None, 3.5),
    ]
    millijoules["bb"] = -1  # it fell off the bus
    with pytest.raises(OSError, match="Not Supported"):
        found[0].read()


def test_a_gpu_without_a_counter_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_gpus(monkeypatch, {"aa": 1, "old": -1})
    found, missing = find_counters(GPU, rapl=tmp_path)
    assert found == []
    assert missing[1:] == ["GPU 1 has no counter (OSError: Not Supported)."]


@pytest.mark.skipif(torch.cuda.is_available(), reason="has a GPU")
def test_without_a_driver_no_training_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda index: SimpleNamespace(uuid="aa")
    )
    found, missing = find_counters(GPU, rapl=tmp_path)
    assert found == []
    assert missing[1].startswith("GPU 1 has no counter (NVML")


def test_without_its_library_a_gpu_tells_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    found, missing = find_counters(GPU, rapl=tmp_path)
    assert found == []
    assert missing[1].endswith("(pip install 'pml-extensions[energy]').")


@pytest.mark.gpu
def test_a_gpu_uses_energy() -> None:
    found, missing = find_counters(torch.device("cuda", 0), rapl=Path(os.devnull))
    gpus = [counter for counter in found if counter.part == "gpus"]
    if not gpus:
        pytest.skip(missing[-1])
    (counter,) = gpus
    before = counter.read()
    product = torch.ones(4096, 4096, device="cuda")
    for _ in range(200):
        product = product @ product / 4096
    torch.cuda.synchronize()
    assert counter.read() > before

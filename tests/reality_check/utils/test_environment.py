"""What is recorded of the machine."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from reality_check.utils.environment import describe_gpu

OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build  (a@b)"
CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19 18:56:32 UTC 2023"


@pytest.mark.parametrize(
    ("text", "driver"),
    [(OPEN, "570.86.15"), (CLOSED, "535.129.03"), ("", "unknown"), (None, "unknown")],
)
def test_a_gpu_is_described_with_what_numbers_depend_on(
    text: str | None, driver: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "version"
    if text is not None:
        file.write_text(text)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H100")
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setattr(torch.backends.cudnn, "version", lambda: 91002)
    expected = f"NVIDIA H100, driver {driver}, CUDA 12.8, cuDNN 91002"
    assert describe_gpu(torch.device("cuda"), file) == expected

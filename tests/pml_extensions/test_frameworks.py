"""Checkpoints of frameworks hold proxies and phases, as the page on them says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from pml_extensions.losses import NormalizedSoftmaxLoss

pytestmark = [pytest.mark.xdist_group("integrations"), pytest.mark.slow]


def phased() -> Any:
    loss_func = NormalizedSoftmaxLoss(8, 16)
    loss_func.set_phase(temperature=0.3)
    return loss_func


def assert_equal(loaded: dict[str, Any], loss_func: torch.nn.Module) -> None:
    torch.testing.assert_close(dict(loaded), dict(loss_func.state_dict()), rtol=0, atol=0)
    assert {"proxies", "_extra_state"} == set(loaded)


def test_accelerate(tmp_path: Path) -> None:
    accelerate = pytest.importorskip("accelerate", reason="Accelerate is not installed")
    states = []
    for _ in range(2):
        accelerator = accelerate.Accelerator(cpu=True)
        loss_func = accelerator.prepare(phased())
        if not states:
            accelerator.save_state(str(tmp_path))
        else:
            loss_func.set_phase(temperature=1.0)
            accelerator.load_state(str(tmp_path))
        states.append(loss_func.state_dict())
    assert_equal(states[1], loss_func)
    torch.testing.assert_close(states[0], states[1], rtol=0, atol=0)


def test_transformers(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    pytest.importorskip("accelerate", reason="transformers' Trainer needs Accelerate")
    from safetensors.torch import load_file

    model = torch.nn.Module()
    model.loss_func = phased()
    arguments = transformers.TrainingArguments(str(tmp_path), report_to="none", use_cpu=True)
    transformers.Trainer(model, arguments).save_model(str(tmp_path))
    loaded = load_file(tmp_path / "model.safetensors")
    assert_equal({k.removeprefix("loss_func."): v for k, v in loaded.items()}, model.loss_func)


def test_lightning(tmp_path: Path) -> None:
    lightning = pytest.importorskip("lightning", reason="Lightning is not installed")
    module = lightning.LightningModule()
    module.loss_func = phased()
    trainer = lightning.Trainer(accelerator="cpu", logger=False, default_root_dir=tmp_path)
    trainer.strategy.connect(module)
    trainer.save_checkpoint(tmp_path / "checkpoint")
    loaded = torch.load(tmp_path / "checkpoint", weights_only=True)["state_dict"]
    assert_equal({k.removeprefix("loss_func."): v for k, v in loaded.items()}, module.loss_func)

    fabric = lightning.Fabric(accelerator="cpu", precision="bf16-mixed")
    loss_func = fabric.setup_module(module.loss_func)
    fabric.save(tmp_path / "fabric", {"loss": loss_func})
    assert_equal(torch.load(tmp_path / "fabric", weights_only=True)["loss"], module.loss_func)
